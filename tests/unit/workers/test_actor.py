"""A worker by itself, with nobody but a supervisor that lets it do."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Sequence
from typing import Any

import karrow
from karrow import Commit, Handler, Stop
from karrow.types import TopicPartition
from karrow.workers.actor import Actor
from karrow.workers.mailbox import Batch
from karrow.workers.threads import Threads

PLACE = TopicPartition("orders", 0)


class Supervisor:
    """Lets workers do what they want, and notes it."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = Threads(threads)
        self.noted: list[Any] = []

    def about(self) -> dict[str, Any]:
        return {}

    def taken(self, actor: Actor) -> None:
        self.noted.append("taken")

    def handled(self, actor: Actor) -> None:
        self.noted.append("handled")

    def done(self, partition: TopicPartition, offset: int, count: int) -> None:
        self.noted.append(offset)

    async def store(self, actor: Actor, offset: int) -> None:
        self.noted.append("stored")

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        self.noted.append("skipped")

    def stopped(self, stop: Stop, *, is_refusal: bool) -> None:
        self.noted.append(stop)

    def failed(self, error: Exception) -> None:
        self.noted.append(error)

    async def crashed(self, actor: Actor, callback: str, error: Exception) -> bool:
        self.noted.append(error)
        return False


def actor_of(kind: type[Handler], supervisor: Supervisor, **arguments: Any) -> Actor:
    return Actor(PLACE, kind=kind, arguments=arguments, group=None, supervisor=supervisor, room=1)


def test_callback_that_is_cancelled_before_it_began() -> None:
    class Late(Handler):
        async def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            raise AssertionError("it was to begin no more")

    class Hasty(Supervisor):
        def taken(self, actor: Actor) -> None:
            asyncio.get_running_loop().call_soon(actor.let_be)

    async def main() -> None:
        supervisor = Hasty()
        actor = actor_of(Late, supervisor)
        actor.mailbox.give(Batch([], 1, 1))
        while not actor.has_ended:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        assert supervisor.noted == []

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert told == []
