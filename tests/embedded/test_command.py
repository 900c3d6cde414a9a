"""The command ``karrow``."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

import karrow


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "karrow", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_version() -> None:
    assert run("--version").stdout == f"karrow {karrow.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: command"),
        (["broker", "--topic", ":3"], "':3' is not NAME or NAME:PARTITIONS"),
        (["broker", "--topic", "a:many"], "'a:many' is not NAME or NAME:PARTITIONS"),
        (["broker", "--port", "0", "--release", "9.9"], "version='9.9'"),
        (["broker", "--port", "0", "--brokers", "0"], "brokers=0"),
        (["broker", "--port", "0", "--topic", "no/slash"], "no/slash"),
    ],
)
def test_mistakes_are_named_in_one_line(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("broker", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_topics_are_there_from_the_start() -> None:
    command = [sys.executable, "-m", "karrow", "broker", "--port", "0", "--brokers", "2"]
    process = subprocess.Popen(
        [*command, "--topic", "orders:3", "--topic", "plain"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        bootstrap = process.stdout.readline().strip().removeprefix("listening on ")
        with karrow.Client(bootstrap) as client:
            topics = client.metadata().topics
            assert {name: len(topic.partitions) for name, topic in topics.items()} == {
                "orders": 3,
                "plain": 1,
            }
            assert len(client.brokers()) == 2
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 0
