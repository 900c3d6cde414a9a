"""Whether the logs of new leaders still have what older ones have told of (KIP-320).

Rules:
- An offset is kept with the epoch of the leader that has told it. Everything in front of it is of
  that epoch or an older one.
- A leader of a newer epoch is asked where that epoch ends in its own log. In front of that its log
  is the one that was known, behind it has other records: what was there was cut off.
- Who cannot tell has cut nothing off: epochs that a log does not have, brokers before 2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow.aio.calls.epochs import EpochCalls, EpochEnd, EpochQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karrow.errors import KarrowError
    from karrow.types import TopicPartition

__all__ = ["Epochs"]

NO_EPOCH = -1


class Epochs(EpochCalls):
    """Calls about the epochs of leaders."""

    def known(self, where: TopicPartition) -> int:
        """The epoch of a partition's leader, as far as this process has heard; -1 if it has not."""
        found = self._cluster.cache.partition(*where)
        return NO_EPOCH if found is None or found.leader_epoch is None else found.leader_epoch

    async def ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where epochs end in the logs of the leaders; those are left out that cannot tell."""

        async def one(
            broker_id: int, group: list[TopicPartition]
        ) -> Mapping[TopicPartition, EpochEnd | KarrowError]:
            asked = {where: EpochQuestion(epochs[where], self.known(where)) for where in group}
            return await self._ends_of_epochs(broker_id, asked)

        found = await self._call_many(epochs, lambda left: self._by_leader(left, one), "epochs")
        return {where: end.offset for where, end in found.items() if end.offset is not None}
