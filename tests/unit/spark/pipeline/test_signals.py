"""SIGINT and SIGTERM as a wish to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

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
