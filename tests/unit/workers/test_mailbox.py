"""What waits for a worker: order, room, the end."""

from __future__ import annotations

import asyncio

import pytest

from karrow.errors import BufferFull, StateError
from karrow.workers import mailbox
from karrow.workers.mailbox import Batch, Mailbox, Message


def batch(number: int) -> Batch:
    return Batch([number], 1, number + 1, (number, number))


def test_messages_come_before_records() -> None:
    async def main() -> None:
        box = Mailbox(2)
        first, second = batch(1), batch(2)
        box.give(first)
        box.give(second)
        said = [Message("cast", number) for number in range(3)]
        for message in said:
            box.post(message)
        assert [await box.take() for _ in range(5)] == [*said, first, second]

    asyncio.run(main())


def test_take_waits() -> None:
    async def main() -> None:
        box = Mailbox(1)
        waiting = asyncio.create_task(box.take())
        await asyncio.sleep(0)
        given = batch(1)
        box.give(given)
        assert await waiting is given

    asyncio.run(main())


def test_room() -> None:
    async def main() -> None:
        box = Mailbox(2)
        box.give(batch(1))
        assert (box.is_full, box.has_data) == (False, True)
        box.give(batch(2))
        assert box.is_full
        box.drop_data()
        assert (box.is_full, box.has_data) == (False, False)

    asyncio.run(main())


def test_no_room_for_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "MAX_MESSAGES", 1)
    box = Mailbox(1)
    box.post(Message("info", 1))
    with pytest.raises(BufferFull):
        box.post(Message("info", 2))


def test_shut_box_gives_nothing() -> None:
    async def main() -> None:
        box = Mailbox(1)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        box.give(batch(1))
        box.post(Message("call", 1, answer))
        box.shut()
        assert await box.take() is None
        assert not box.has_data
        with pytest.raises(StateError, match="ending"):
            box.post(Message("cast", 2))
        box.refuse(StateError("gone"))
        with pytest.raises(StateError, match="gone"):
            await answer

    asyncio.run(main())


def test_shut_wakes_who_takes() -> None:
    async def main() -> None:
        box = Mailbox(1)
        waiting = asyncio.create_task(box.take())
        await asyncio.sleep(0)
        box.shut()
        assert await waiting is None

    asyncio.run(main())


def test_answers_after_the_caller_has_gone() -> None:
    async def main() -> None:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer.cancel()
        message = Message("call", 1, answer)
        message.reply(1)
        message.fail(ValueError())
        assert answer.cancelled()
        Message("cast", 1).reply(1)

    asyncio.run(main())
