"""How a consumer is doing, and who is told when that changes.

Rules:
- Nothing looks well that does not go on: a partition that stands still has a reason, and the worst
  reason is the one that is told.
- It is looked at every second, and whenever somebody asks; each change is an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from karrow import events
from karrow.aio.consuming.positions import State
from karrow.net.sharing import cancelled, duty
from karrow.types import Health, HealthState

if TYPE_CHECKING:
    from karrow.aio.consumer import AsyncConsumer

INTERVAL = 1.0
FINDING = {
    State.NEEDS_OFFSET: "its committed offset is being looked up",
    State.RESETTING: "the offset to begin at is being looked up",
    State.VALIDATING: "its new leader is asked whether it has what was read",
    State.LEAVING: "it is given back when what was handed out of it is done",
}


class Watchdog:
    """Watches one consumer."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._last = Health.from_now_on(HealthState.WAITING, "nobody has asked for records yet")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look every second."""
        if self._task is None:
            broke = partial(self._consumer.engine.broke, "the watchdog")
            self._task = duty(self._repeat(), "karrow watchdog", broke)

    async def _repeat(self) -> None:
        try:
            while True:
                self.look()
                await asyncio.sleep(INTERVAL)
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            self._consumer.engine.broke("the watchdog", error)

    def look(self) -> Health:
        """How the consumer is doing now."""
        state, reason = self._worst()
        last = self._last
        if state is not last.state:
            self._last = Health.from_now_on(state, reason)
            config = self._consumer.config
            events.emit(
                "consumer.health",
                {"count": 1},
                client_id=config.client_id,
                group=config.group,
                state=state.value,
                reason=reason,
            )
        elif reason != last.reason:
            self._last = Health(state, reason, last.since)
        return self._last

    def _worst(self) -> tuple[HealthState, str]:
        found = list(self._findings())
        for state in (HealthState.DEAD, HealthState.DEGRADED, HealthState.WAITING):
            for one, reason in found:
                if one is state:
                    return one, reason
        return HealthState.OK, ""

    def _findings(self) -> Iterator[tuple[HealthState, str]]:
        consumer = self._consumer
        if consumer.is_forked:
            yield HealthState.DEAD, "the consumer was made before a fork"
        if consumer.is_closed:
            yield HealthState.DEAD, "the consumer is closed"
        if consumer.engine.is_orphaned:
            yield HealthState.DEAD, "the consumer's event loop has ended"
        if consumer.is_cut_off:
            yield HealthState.DEAD, "the client that it shares is closed"
        if consumer.engine.fatal is not None:
            yield HealthState.DEAD, str(consumer.engine.fatal)
        yield from self._troubles()
        yield from self._group()
        if not consumer.engine.positions.assignment:
            yield HealthState.WAITING, "no partition is assigned"
        yield from self._partitions()

    def _troubles(self) -> Iterator[tuple[HealthState, str]]:
        """What keeps failing, and is tried again."""
        consumer = self._consumer
        for trouble in (consumer.watch.trouble, consumer.commits.trouble):
            if trouble is not None:
                yield HealthState.DEGRADED, str(trouble)
        # Nobody fetches what is paused, and so nobody would see that it could be fetched again.
        paused = set(consumer.paused)
        fetching = consumer.engine.fetcher.troubles.items()
        held_up = {
            **consumer.engine.places.troubles,
            **{partition: trouble for partition, trouble in fetching if partition not in paused},
        }
        for partition in consumer.assignment:
            if partition in held_up:
                yield HealthState.DEGRADED, f"{partition} stands still: {held_up[partition]}"

    def _group(self) -> Iterator[tuple[HealthState, str]]:
        membership = self._consumer.membership
        if membership is None:
            return
        if membership.trouble is not None:
            yield HealthState.DEGRADED, str(membership.trouble)
        if not membership.has_session:
            yield HealthState.WAITING, f"the group {membership.group} is being joined"

    def _partitions(self) -> Iterator[tuple[HealthState, str]]:
        cursors = self._consumer.engine.positions.cursors()
        for cursor in cursors:
            if cursor.state is State.STOPPED:
                yield HealthState.DEGRADED, f"{cursor.partition} was stopped by an error; seek"
            elif cursor.state in FINDING:
                yield HealthState.WAITING, f"{cursor.partition}: {FINDING[cursor.state]}"
            elif cursor.waits_for_transactions:
                text = f"{cursor.partition}: a transaction is open at offset {cursor.position}"
                yield HealthState.WAITING, text
        if cursors and all(cursor.is_paused for cursor in cursors):
            yield HealthState.WAITING, "all partitions are paused"

    async def close(self) -> None:
        """Look for the last time."""
        task, self._task = self._task, None
        if task is not None:
            await cancelled(task)
            self.look()
