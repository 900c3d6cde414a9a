"""Points at which a process kills itself, for tests of what follows; to others they are an ``if``.

``KARROW_CRASH=point@batch:file`` kills the process (SIGKILL) that comes by the point in the batch
and is the first to make the file; ``@batch`` may be left out. Several are separated by commas. With
``raise=`` in front of the point it raises instead, with ``wait=`` it waits while the file is there,
and says so in a file beside it.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

VARIABLE = "KARROW_CRASH"
# Every step of the protocol, in its order; those of tasks have the task's batch as well.
POINTS = (
    "open-claimed",  # the transactional id is ours, the ledger not read
    "opened",  # nothing was written yet
    "prepared",  # before the write job
    "task-begun",  # in a task, before its first row
    "task-wrote",  # in a task, or the driver in its stead, with rows written and nothing reported
    "task-done",  # in a task, with everything acknowledged
    "written",  # all tasks have reported
    "checked",  # before the ledger's entry
    "stored",  # the entry is in the transaction, EndTxn not sent
    "ended",  # EndTxn was answered
    "committed",  # before Spark hears of it
    "fence-looked",  # after a failure, before the abort
    "fenced",  # after the abort
)


class CrashError(Exception):
    """What a point raises that is to raise."""


class _Order:
    """What is to happen at one point."""

    def __init__(self, text: str) -> None:
        order, _, self.file = text.partition(":")
        kind, is_named, point = order.partition("=")
        self.kind = kind if is_named else "kill"
        self.point, _, batch = (point if is_named else order).partition("@")
        self.batch = int(batch) if batch else None
        if self.point not in POINTS or not self.file:
            raise ValueError(f"{VARIABLE}: {text!r} is no point@batch:file")

    def obey(self) -> None:
        if self.kind == "wait":
            hold = Path(self.file)
            if hold.exists():
                hold.with_suffix(".seen").write_text(self.point)
            while hold.exists():
                time.sleep(0.01)
            return
        try:
            os.close(os.open(self.file, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self.kind == "raise":
            raise CrashError(f"told to fail at {self.point}")
        os.kill(os.getpid(), signal.SIGKILL)


class _Orders:
    """What is to happen in this process."""

    def __init__(self) -> None:
        self.text = ""
        self.all: list[_Order] = []
        self.batch: int | None = None
        self.use(os.environ.get(VARIABLE, ""))

    def use(self, text: str) -> None:
        self.text = text
        self.all = [_Order(one) for one in text.split(",") if one]


_orders = _Orders()


def orders() -> str:
    """The orders of this process, for others that have to obey them."""
    return _orders.text


def use(text: str, batch: int | None = None) -> None:
    """Obey other orders from now on, in this batch."""
    if text != _orders.text:
        _orders.use(text)
    _orders.batch = batch


def crash_point(name: str) -> None:
    """A place in the protocol; nothing happens unless a test has asked for it."""
    for order in _orders.all:
        if order.point == name and order.batch in (None, _orders.batch):
            order.obey()


def note_batch(batch: int) -> None:
    """The batch that the points which follow belong to."""
    _orders.batch = batch
