"""Keeps an eye on the topics of a consumer: those that match a pattern, and partitions that come.

Rules:
- A consumer without a group reads all partitions of its topics. Those it finds first begin at
  ``start``; what comes later is new as a whole and is read from its beginning.
- In a group it is the leader who watches partitions, and the broker with the new protocol. Here
  patterns of the classic protocol are looked after, whose members match for themselves, and whether
  the topics are there at all, which the group does not tell.
- A topic that does not exist is asked for again and again. Without a group the application hears of
  it once, when it has been missing for a moment: topics are not everywhere at once. In a group it
  is seen in ``trouble``. Of one that may not be read it hears in both cases.
- A login that is refused ends a consumer without a group; in a group its member does so. Of a
  consumer that has ended nothing is looked at any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from karrow.aio.calls.base import Calls
from karrow.errors import AuthenticationError, KarrowError, UnknownTopicOrPartition
from karrow.net.retry import is_consumer_group_retriable
from karrow.net.sharing import cancelled, duty
from karrow.types import ClusterMetadata, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from karrow.aio.consuming.engine import Engine
    from karrow.aio.consuming.subscription import Subscription
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster

# How often a topic may be missing before that is an error, and how long to wait after that.
PATIENCE = 4
MISSING_PAUSE = 5.0


class Watch(Calls):
    """Looks at topics from time to time; ``trouble`` is why it cannot."""

    _config: ConsumerConfig

    def __init__(self, config: ConsumerConfig, cluster: Cluster, engine: Engine) -> None:
        super().__init__(config, cluster)
        self.trouble: KarrowError | None = None
        self._has_looked = False
        self._engine = engine
        self._task: asyncio.Task[None] | None = None

    @property
    def is_on(self) -> bool:
        """Whether it looks at anything."""
        return self._task is not None

    def start(self, subscription: Subscription, rejoin: Callable[[str], object] | None) -> None:
        """Watch the topics of a subscription; ``rejoin`` is how a group hears of others."""
        work = self._repeat(subscription, rejoin)
        self._task = duty(work, "karrow topics", partial(self._engine.broke, "watching topics"))

    async def _repeat(
        self, subscription: Subscription, rejoin: Callable[[str], object] | None
    ) -> None:
        try:
            failures = 0
            while True:
                try:
                    known = await self._look(subscription)
                    if subscription.match(known) and rejoin is not None:
                        rejoin("other topics match the pattern")
                    if rejoin is None:
                        self._read_all(subscription, known)
                    _require_all(subscription, known)
                except KarrowError as error:
                    self._failed(error, failures, in_group=rejoin is not None)
                    failures += 1
                    if self._engine.fatal is not None:
                        return
                    await asyncio.sleep(min(self._pause(failures), MISSING_PAUSE))
                else:
                    self.trouble, failures = None, 0
                    await asyncio.sleep(self._config.metadata_max_age)
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            self._engine.broke("watching topics", error)

    async def _look(self, subscription: Subscription) -> ClusterMetadata:
        wanted = None if subscription.patterns else subscription.names
        return await self._cluster.refresh(wanted)

    def _read_all(self, subscription: Subscription, known: ClusterMetadata) -> None:
        """Have all partitions."""
        positions = self._engine.positions
        new = [
            one
            for name in sorted(subscription.topics & known.topics.keys())
            for number in sorted(known.topics[name].partitions)
            if (one := TopicPartition(name, number)) not in positions
        ]
        places = dict.fromkeys(new, OffsetSpec.parse("earliest")) if self._has_looked else {}
        self._has_looked = True
        if new:
            self._engine.assign(new, places, keep=True)

    def _failed(self, error: KarrowError, failures: int, *, in_group: bool) -> None:
        is_known = type(error) is type(self.trouble)
        self.trouble = error
        if is_refusal(error) and not in_group:
            self._engine.fail(error)
        elif not is_consumer_group_retriable(error):
            if not is_known:
                self._engine.inbox.fail(error)
        elif failures == PATIENCE and not in_group and isinstance(error, UnknownTopicOrPartition):
            self._engine.inbox.fail(error)

    async def close(self) -> None:
        """Watch no more."""
        task, self._task = self._task, None
        self.trouble, self._has_looked = None, False
        await cancelled(task)


def is_refusal(error: KarrowError) -> bool:
    """Whether a login was refused for good; a provider of credentials may be back in a moment."""
    return isinstance(error, AuthenticationError) and not error.retriable


def _require_all(subscription: Subscription, known: ClusterMetadata) -> None:
    """Raise for the first topic that was named and is not there."""
    for name in sorted(subscription.names):
        topic = known.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition("there is no such topic", topic=name)
        if topic.error is not None:
            raise topic.error
