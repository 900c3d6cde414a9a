"""What karrow does when a task begins in a Python process of Spark's."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Iterator

import pytest
from pyspark import TaskContext

from karrow.spark import worker

Begin = Callable[[int], None]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Begins a task with a number."""
    monkeypatch.setattr(worker, "_Process", type("_Process", (worker._Process,), {}))
    task = object.__new__(TaskContext)

    def begin(number: int) -> None:
        monkeypatch.setattr(task, "_taskAttemptId", number)
        monkeypatch.setattr(TaskContext, "_taskContext", task)
        worker.begin_task()

    yield begin
    gc.unfreeze()


def answering() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection; the second has answered, after which it puts acknowledging off."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    for _ in range(3):
        one.sendall(b"question")
        other.recv(100)
        other.sendall(b"answer")
        one.recv(100)
    return one, other


def is_prompt(end: socket.socket) -> bool:
    return bool(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux puts it off like that")
def test_what_spark_has_sent_is_acknowledged_when_a_task_begins(begin: Begin) -> None:
    one, other = answering()
    with one, other:
        assert not is_prompt(other)
        worker.begin_task()
        assert not is_prompt(other), "without a task nothing is touched"
        begin(7)
        assert is_prompt(other)
        one.sendall(b"still open")
        assert other.recv(100) == b"still open"


def test_connections_go_on_blocking_whatever_time_out_new_ones_get(begin: Begin) -> None:
    one, other = answering()
    with one, other:
        socket.setdefaulttimeout(30)
        try:
            begin(8)
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(other.fileno())


def test_what_the_first_task_has_brought_along_is_set_aside_once(begin: Begin) -> None:
    before = gc.get_freeze_count()
    begin(1)
    begin(1)
    assert gc.get_freeze_count() == before
    begin(2)
    frozen = gc.get_freeze_count()
    assert frozen > before
    kept = [[number] for number in range(10_000)]
    begin(3)
    assert gc.get_freeze_count() <= frozen
    assert len(kept) == 10_000
