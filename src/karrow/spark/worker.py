"""A Python process of Spark's that runs one task after the other, and what makes small tasks slow.

- Spark sends a task in two parts, its code and its rows, on a connection with Nagle's algorithm:
  the second part waits until the first is acknowledged, which Linux puts off for 40 ms. So what has
  come is acknowledged as soon as karrow's code runs, which is in front of the rows.
- Behind every task Spark's worker looks for garbage among all objects that live, those of modules
  too, and the next task waits for it: tens of milliseconds. So what the first task has brought
  along is set aside, where nobody looks for garbage.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
from pathlib import Path

from pyspark import TaskContext

__all__ = ["begin_task"]


class _Process:
    """What is known of this process."""

    task: int | None = None
    has_set_aside = False


def begin_task() -> None:
    """A task begins; elsewhere than in Spark's workers this does nothing."""
    context = TaskContext.get()
    if context is None:
        return
    task, before = context.taskAttemptId(), _Process.task
    if task == before:  # several things arrive for a task, one of them with every batch of rows
        return
    _Process.task = task
    _acknowledge()
    # In the second task all modules are there, and the garbage of the first one is not.
    if not _Process.has_set_aside and before is not None:
        _Process.has_set_aside = True
        gc.freeze()


def _acknowledge() -> None:
    """Acknowledge now what has come on any connection; Spark does not tell which one is its own."""
    if not hasattr(socket, "TCP_QUICKACK"):  # on other systems than Linux
        return
    if socket.getdefaulttimeout() is not None:
        return  # a second object for a connection would get it, and the first one would not block
    for file in Path("/proc/self/fd").iterdir():
        if file.is_socket():
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(file.name))) as one:
                if one.family in {socket.AF_INET, socket.AF_INET6}:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
