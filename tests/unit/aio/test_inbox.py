"""What waits for the application, in which order it comes out, and who is woken."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import cast

import pytest

from karrow.aio.consuming.chunk import Chunk
from karrow.aio.consuming.inbox import Inbox
from karrow.errors import KarrowError, StateError


class Piece:
    """Stands for a chunk: what may be had of it, and what it holds decompressed."""

    def __init__(self, verdict: bool | None = True, expanded_bytes: int = 0) -> None:
        self.verdict = verdict
        self.is_kept = False
        self.expanded_bytes = expanded_bytes

    def keep(self) -> None:
        self.is_kept = True


def verdict(chunk: Chunk) -> bool | None:
    return cast(Piece, chunk).verdict


def taken(inbox: Inbox) -> Piece | None:
    return cast("Piece | None", inbox.take(verdict))


def inbox_of(*items: Piece | KarrowError) -> Inbox:
    inbox = Inbox()
    for item in items:
        if isinstance(item, KarrowError):
            inbox.fail(item)
        else:
            inbox.put(cast(Chunk, item))
    return inbox


def test_data_comes_in_the_order_in_which_it_was_put() -> None:
    first, second = Piece(), Piece()
    inbox = inbox_of(first, second)
    assert [taken(inbox), taken(inbox), taken(inbox)] == [first, second, None]


def test_what_may_not_be_had_stays_in_its_place_with_bytes_of_its_own() -> None:
    paused, other = Piece(verdict=False), Piece()
    inbox = inbox_of(paused, other)
    assert taken(inbox) is other
    assert paused.is_kept
    inbox.put(cast(Chunk, Piece()))
    paused.verdict = True
    assert taken(inbox) is paused


def test_what_is_worthless_is_dropped() -> None:
    inbox = inbox_of(Piece(verdict=None), Piece(verdict=None))
    assert inbox.take(verdict) is None
    assert len(inbox) == 0


def test_what_is_put_back_counts_decompressed_until_it_is_taken() -> None:
    paused, other = Piece(verdict=False, expanded_bytes=100), Piece(expanded_bytes=10)
    inbox = inbox_of()
    inbox.put_back(cast(Chunk, paused))
    inbox.put_back(cast(Chunk, other))
    assert inbox.expanded_bytes == 110
    assert taken(inbox) is other
    assert taken(inbox) is None
    assert inbox.expanded_bytes == 100
    paused.verdict = None
    assert taken(inbox) is None
    assert inbox.expanded_bytes == 0


def test_an_error_is_raised_once_after_the_data_before_it() -> None:
    before, after = Piece(), Piece()
    inbox = inbox_of(before, StateError("broken"), after)
    assert taken(inbox) is before
    with pytest.raises(StateError, match="broken"):
        inbox.take(verdict)
    assert taken(inbox) is after


def test_paused_data_does_not_hide_an_error() -> None:
    inbox = inbox_of(Piece(verdict=False), StateError("broken"))
    with pytest.raises(StateError):
        inbox.take(verdict)
    assert len(inbox) == 1


def test_an_error_can_be_left_for_later() -> None:
    inbox = inbox_of(StateError("broken"), Piece())
    assert inbox.take(verdict, raises=False) is None
    with pytest.raises(StateError):
        inbox.take(verdict)


def test_a_thread_is_woken_by_what_comes() -> None:
    inbox = inbox_of()
    assert inbox.take(verdict) is None
    timer = threading.Timer(0.05, lambda: inbox.fail(StateError("news")))
    timer.start()
    began = time.monotonic()
    inbox.wait(10.0)
    assert time.monotonic() - began < 5.0


def test_what_came_between_the_look_and_the_wait_is_not_missed() -> None:
    inbox = inbox_of()
    assert inbox.take(verdict) is None
    inbox.nudge()
    began = time.monotonic()
    inbox.wait(10.0)
    assert time.monotonic() - began < 5.0


def test_paused_data_does_not_keep_a_wait_from_waiting() -> None:
    inbox = inbox_of(Piece(verdict=False))
    assert inbox.take(verdict) is None
    began = time.monotonic()
    inbox.wait(0.05)
    assert time.monotonic() - began >= 0.04


def test_a_task_is_woken_or_gives_up() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        inbox = inbox_of()
        inbox.take(verdict)
        began = loop.time()
        await inbox.wait_on_loop(0.05)
        waited = loop.time() - began
        loop.call_later(0.01, inbox.nudge)
        await inbox.wait_on_loop(10.0)
        return waited, loop.time() - began

    waited, woken = asyncio.run(main())
    assert waited >= 0.04
    assert woken < 5.0
