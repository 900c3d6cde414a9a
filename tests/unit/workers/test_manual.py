"""Records that are committed by their ids."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import Any

import pytest

from karrow import Commit, CommitId, Record, start_consumer
from karrow.errors import ConfigError, StateError
from karrow.workers.manual import AsyncCallbackHandler, CallbackHandler, Pending


def pending(*offsets: int, allow_unordered: bool = False) -> Pending:
    found = Pending(allow_unordered=allow_unordered)
    for offset in offsets:
        found.add(offset)
    return found


def test_in_order() -> None:
    ids = pending(3, 4, 7)
    assert [ids.settle(offset) for offset in (3, 4, 7)] == [4, 5, 8]
    assert ids.is_empty


def test_out_of_order_is_refused_and_can_be_made_up_for() -> None:
    ids = pending(3, 4)
    with pytest.raises(StateError, match="offset 4 cannot be committed before 3"):
        ids.settle(4)
    assert ids.offsets() == [3, 4]
    assert (ids.settle(3), ids.settle(4)) == (4, 5)


def test_out_of_order_waits_where_that_is_allowed() -> None:
    ids = pending(3, 4, 5, 6, allow_unordered=True)
    assert ids.settle(5) is None
    assert ids.settle(4) is None
    assert ids.settle(3) == 6
    assert ids.offsets() == [6]


@pytest.mark.parametrize("allow_unordered", [True, False])
def test_twice_or_never_given_out_is_refused(allow_unordered: bool) -> None:
    ids = pending(3, allow_unordered=allow_unordered)
    assert ids.settle(3) == 4
    for offset in (3, 9):
        with pytest.raises(StateError, match="committed already, or is no one's"):
            ids.settle(offset)


def test_lives_differ() -> None:
    assert pending().life != pending().life


def records() -> list[Record]:
    return [
        Record(topic="t", partition=1, offset=offset, key=b"k", value=b"v") for offset in (5, 6)
    ]


def test_function_is_called_with_six_things() -> None:
    calls: list[tuple[object, ...]] = []
    handler = CallbackHandler()
    handler.setup("t", 1, callback=lambda *given: calls.append(given), pending=lambda: None)
    handler.handle_records(records())
    commit_id = calls[0][0]
    assert isinstance(commit_id, CommitId)
    assert commit_id[:3] == ("t", 1, 5)
    assert [call[1:] for call in calls] == [("t", 1, 5, b"k", b"v"), ("t", 1, 6, b"k", b"v")]
    assert handler.done_until == 7


def test_function_that_raises_leaves_the_rest() -> None:
    def fail(*given: object) -> None:
        if given[3] == 6:
            raise ValueError

    handler = CallbackHandler()
    ids = Pending(allow_unordered=False)
    handler.setup("t", 1, callback=fail, pending=lambda: ids)
    with pytest.raises(ValueError):  # noqa: PT011 - ours
        handler.handle_records(records())
    assert handler.done_until == 6
    assert ids.offsets() == [5, 6]


def test_function_to_be_awaited() -> None:
    calls: list[int] = []

    async def note(_id: CommitId, _topic: str, _partition: int, offset: int, *_: object) -> None:
        await asyncio.sleep(0)
        calls.append(offset)

    handler = AsyncCallbackHandler()
    handler.setup("t", 1, callback=note, pending=lambda: None)
    asyncio.run(handler.handle_records(records()))
    assert calls == [5, 6]


class Object:
    """Called like a function, and to be awaited."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    async def __call__(self, *given: object) -> None:
        await asyncio.sleep(0)
        if given[3] == 7:
            raise ValueError
        self.calls.append(int(str(given[3])))


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_answer_to_be_awaited_is_awaited_before_its_record_counts(is_wrapped: bool) -> None:
    found = Object()
    handler = CallbackHandler()
    callback: Any = partial(Object.__call__, found) if is_wrapped else found
    handler.setup("t", 1, callback=callback, pending=lambda: None)
    answer = handler.handle_records([*records(), Record(topic="t", partition=1, offset=7)])
    assert handler.done_until is None
    assert inspect.iscoroutine(answer)
    with pytest.raises(ValueError):  # noqa: PT011 - ours
        asyncio.run(answer)
    assert found.calls == [5, 6]
    assert handler.done_until == 7


def test_function_that_is_to_be_awaited_only_at_times() -> None:
    calls: list[int] = []

    async def later(offset: int) -> None:
        calls.append(offset)

    def handle(*given: Any) -> Any:
        if given[3] % 2:
            return later(given[3])
        calls.append(given[3])
        return None

    handler = CallbackHandler()
    handler.setup("t", 1, callback=handle, pending=lambda: None)
    answer = handler.handle_records(
        [Record(topic="t", partition=1, offset=offset) for offset in range(4)]
    )
    assert inspect.iscoroutine(answer)
    assert asyncio.run(answer) is Commit.SYNC
    assert calls == [0, 1, 2, 3]
    assert handler.done_until == 4


@pytest.mark.parametrize("callback", [None, "handle"])
def test_what_cannot_be_called_is_refused(callback: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        start_consumer("localhost:1", "g", callback, topics=["t"])
