"""SIGINT and SIGTERM as a wish to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from karrow.spark.pipeline.signals import StopWish, deaf_to_interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_a_wish_the_second_ends_it(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopWish() as wish:
        assert not wish.wait(0)
        signal.raise_signal(number)
        assert wish.wait(0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def signal_at_line(count: int) -> Callable[[FrameType, str, object], Any]:
    """For sys.settrace: a signal comes before the line of that number."""
    left = count

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        left -= event == "line"
        if left == 0:
            left = -1
            signal.raise_signal(signal.SIGTERM)
        return trace

    return trace


@pytest.mark.timeout(30)
@pytest.mark.parametrize("line", range(1, 30))
def test_a_signal_may_come_at_any_moment_of_the_wait(line: int) -> None:
    with StopWish() as wish:
        before = sys.gettrace()
        sys.settrace(signal_at_line(line))
        try:
            for _ in range(100):
                if wish.wait(0):
                    break
        finally:
            sys.settrace(before)
        assert wish.number == signal.SIGTERM


def test_whoever_took_the_signal_meanwhile_loses_it() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopWish() as wish:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        wish.listen()
        signal.raise_signal(signal.SIGINT)
        assert wish.wait(0)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_hear_nothing_and_break_nothing() -> None:
    heard: list[bool] = []

    def listen() -> None:
        with StopWish() as wish:
            heard.append(wish.wait(0))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert heard == [False]


def test_what_is_started_deaf_stays_deaf() -> None:
    program = "import time; print('up', flush=True); time.sleep(60)"
    with deaf_to_interrupts():
        deaf = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    with deaf:
        assert deaf.stdout.readline() == b"up\n"
        os.kill(deaf.pid, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            deaf.wait(0.3)
        deaf.kill()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
