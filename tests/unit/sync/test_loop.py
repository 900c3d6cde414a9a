from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import karrow
from karrow.errors import ConnectError, StateError
from karrow.sync import loop


def test_result_and_error_come_back() -> None:
    async def good() -> int:
        await asyncio.sleep(0)
        return 7

    async def bad() -> None:
        raise KeyError("x")

    assert loop.run(good(), "AsyncThing") == 7
    with pytest.raises(KeyError):
        loop.run(bad(), "AsyncThing")


def test_every_thread_shares_one_loop() -> None:
    async def here() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    found = []
    threads = [
        threading.Thread(target=lambda: found.append(loop.run(here(), "A"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert sum(thread.name == "karrow" for thread in threading.enumerate()) == 1


def test_call_on_the_own_loop_is_refused() -> None:
    async def inside() -> None:
        with karrow.Client("127.0.0.1:1") as client:
            client.brokers()

    with pytest.raises(StateError, match="use AsyncClient"):
        loop.run(inside(), "AsyncClient")


def test_call_inside_another_running_loop_works() -> None:
    async def notebook() -> None:
        client = karrow.Client("127.0.0.1:1", api_timeout=0.1)
        with pytest.raises(ConnectError):
            client.brokers()
        client.close()

    asyncio.run(notebook())


# What a script does first to have one loop or the other; uvloop is taken where there is one.
LOOPS = {"asyncio": "import sys; sys.modules['uvloop'] = None\n", "uvloop": "import uvloop\n"}
on_both_loops = pytest.mark.parametrize("kind", LOOPS)


def script(text: str, kind: str = "uvloop") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", LOOPS[kind] + textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 20) -> str:
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    assert err == ""
    return out


def test_import_and_construction_start_nothing() -> None:
    text = """
        import threading, karrow
        client = karrow.Client("127.0.0.1:1")
        print(threading.active_count())
    """
    assert finish(script(text)) == "1\n"


@on_both_loops
def test_control_c_cancels_the_call(kind: str) -> None:
    text = """
        import asyncio, sys
        from karrow.sync import loop

        async def forever():
            try:
                print("waiting", flush=True)
                await asyncio.sleep(60)
            finally:
                print("cleaned up", flush=True)

        try:
            loop.run(forever(), "A")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    process = script(text, kind)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert finish(process) == "cleaned up\ninterrupted\n"
    assert time.monotonic() - start < 5


@on_both_loops
def test_control_c_ends_a_call_to_a_silent_broker(kind: str) -> None:
    text = """
        import socket, karrow

        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            with karrow.Client(f"127.0.0.1:{port}") as client:
                print("waiting", flush=True)
                try:
                    client.brokers()
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
    """
    process = script(text, kind)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert finish(process, timeout=5) == "interrupted\n"


@on_both_loops
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_starts_a_loop_of_its_own(kind: str) -> None:
    text = """
        import os, warnings
        warnings.simplefilter("ignore")
        import karrow
        from karrow.sync import loop

        async def pid():
            return os.getpid()

        client = karrow.Client("127.0.0.1:1", api_timeout=0.1)
        try:
            client.brokers()
        except karrow.errors.ConnectError:
            pass
        parent = loop.run(pid(), "A")
        child = os.fork()
        if not child:
            assert loop.run(pid(), "A") == os.getpid() != parent
            try:
                client.brokers()
            except karrow.errors.StateError as error:
                print("child:", error, flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert loop.run(pid(), "A") == parent
        print(status)
    """
    out = finish(script(text, kind))
    assert "child: the client was opened in another process" in out
    assert out.endswith("0\n")


@on_both_loops
def test_process_ends_with_calls_under_way(kind: str) -> None:
    text = """
        import asyncio, threading, time
        from karrow.sync import loop

        async def forever():
            await asyncio.sleep(60)

        thread = threading.Thread(target=lambda: loop.run(forever(), "A"), daemon=True)
        thread.start()
        time.sleep(0.2)
        print("bye")
    """
    process = script(text, kind)
    out, _ = process.communicate(timeout=20)
    assert out == "bye\n"


def test_farewells_are_said_at_exit() -> None:
    text = """
        from karrow.sync import loop

        async def nothing():
            pass

        def flush():
            print("flushed")

        loop.run(nothing(), "A")
        loop.at_exit(flush)
        loop.at_exit(flush)
    """
    assert finish(script(text)) == "flushed\n"
