"""The consumer in its group: how it takes partitions over and gives them back.

Rules:
- What is to be given back is handed out no more at once. The application may finish what it has;
  then it is committed, ``on_revoked`` is called, and only then others can have it. Whoever takes
  longer than the group's rebalance time has lost it instead.
- What has come is fetched when ``on_assigned`` is through, which may seek.
- What is lost is gone at once: nothing of it is handed out or committed any more.
- Without a session nothing is handed out: a process that was stopped for long does not know yet
  that its partitions are others'.
- Who has left goes by no session: what is assigned by hand then is handed out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from karrow.aio.consuming.commits import FAREWELL
from karrow.aio.groups.membership import Membership
from karrow.aio.groups.served import ServedMembership
from karrow.errors import StateError

if TYPE_CHECKING:
    from karrow.aio.consuming.commits import Commits
    from karrow.aio.consuming.engine import Engine
    from karrow.aio.consuming.listeners import Listeners
    from karrow.aio.consuming.subscription import Subscription
    from karrow.aio.groups.member import AnyMembership
    from karrow.config import ConsumerConfig
    from karrow.errors import KarrowError
    from karrow.net.cluster import Cluster
    from karrow.types import TopicPartition

# How much of max_poll_interval an application may go through records without being heard of.
LEASE_SHARE = 1 / 4


class Member:
    """One consumer's side of its membership (``Owner`` in groups/membership.py).

    ``is_done`` says that the application is through with everything, as it is when it closes the
    consumer: nobody has to wait for it then.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        *,
        engine: Engine,
        commits: Commits,
        listeners: Listeners,
        subscription: Subscription,
    ) -> None:
        self._config = config
        self._engine = engine
        self._commits = commits
        self._listeners = listeners
        self._subscription = subscription
        self.is_leaving = False
        self.is_done = False
        kind = Membership if config.protocol == "classic" else ServedMembership
        self.membership: AnyMembership = kind(config, cluster, self)

    async def join(self) -> None:
        """Be a member, in the background; the engine and the commits go by it from now on."""
        self._commits.membership = self.membership
        self._engine.on_poll = self._polled
        self._engine.lease = self._lease
        await self.membership.start()

    async def leave(self, *, is_done: bool) -> None:
        """Give everything back."""
        self.is_leaving, self.is_done = True, is_done
        self._engine.hurry()
        try:
            await self.membership.close()
        finally:
            self._commits.membership = self._commits.loss = None
            self._engine.end_lease()

    def subscribe(self, subscription: Subscription) -> None:
        """Want other topics."""
        self._subscription = subscription
        self.membership.rejoin("the subscription has changed")

    def _polled(self) -> None:
        """The application goes on, whatever it has lost."""
        self._commits.loss = None
        self.membership.polled()

    def _lease(self) -> float:
        """Until when data may be handed out; often enough for the application to be heard of."""
        soon = time.monotonic() + self._config.max_poll_interval * LEASE_SHARE
        return min(self.membership.session_ends, soon)

    # ---- what the membership asks and tells

    def subscription(self) -> frozenset[str]:
        """The topics that are wanted now."""
        return self._subscription.topics

    def pattern(self) -> str | None:
        """The pattern that the broker is to match, if it is to."""
        return self._subscription.remote_pattern

    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return frozenset(self._engine.positions.assignment)

    async def assigned(self, added: frozenset[TopicPartition], generation: int) -> None:  # noqa: ARG002
        """Read partitions that have come."""
        withheld = self._engine.places.withheld
        with self._engine.lock:
            self._engine.positions.add(added)
        if added:
            withheld |= added
            try:
                await self._listeners.assigned(added)
            finally:
                withheld -= added
        self._engine.changed()

    async def revoking(self, gone: frozenset[TopicPartition]) -> None:
        """Finish with partitions, and commit them."""
        with self._engine.lock:
            self._engine.settle()
            self._engine.positions.leave(gone)
            leaving = self._engine.positions.assignments(gone)
        try:
            async with asyncio.timeout(self._config.rebalance_time):
                await self._give_back(leaving)
        except TimeoutError:
            self.lost(self._still(leaving))
        finally:
            self._engine.remove(self._still(leaving))

    def _still(self, leaving: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        """Those of them that were not lost meanwhile; one that has come back is another one."""
        with self._engine.lock:
            now = self._engine.positions.assignments(leaving)
        return frozenset(one for one in leaving if now.get(one) == leaving[one])

    async def _give_back(self, leaving: Mapping[TopicPartition, int]) -> None:
        if not self.is_leaving:
            await self._engine.drained(leaving, unless=lambda: self.is_leaving)
        gone = self._still(leaving)
        if self._config.commits_itself:
            found = self._commits.uncommitted() if self.is_done else self._commits.done_with()
            mine = {one: stored for one, stored in found.items() if one in gone}
            await self._commits.store_in_time(mine, FAREWELL)
        gone = self._still(leaving)
        if gone:
            await self._listeners.revoked(gone)

    def lost(self, gone: frozenset[TopicPartition]) -> None:
        """Drop partitions that others may have."""
        gone &= self.owned()
        if not gone:
            return
        if gone & self._commits.uncommitted().keys():
            self._commits.loss = self.membership.trouble or StateError("the partitions were lost")
        self._engine.remove(gone)
        self._listeners.lost(gone)

    def failed(self, error: KarrowError) -> None:
        """Nothing goes on."""
        self._engine.fail(error)
