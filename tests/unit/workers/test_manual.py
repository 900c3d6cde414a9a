"""Records that are committed by their ids."""

from __future__ import annotations

import asyncio

import pytest

from karrow import CommitId, Record
from karrow.errors import StateError
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
