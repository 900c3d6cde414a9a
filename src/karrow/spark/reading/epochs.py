"""Whether the logs of new leaders still have what older ones have told of (KIP-320).

Rules:
- An offset is kept with the epoch of the leader that has told it. Everything in front of it is of
  that epoch or an older one.
- A leader of a newer epoch is asked where that epoch ends in its own log. In front of that its log
  is the one that was known, behind it has other records: what was there was cut off.
- Who cannot tell has cut nothing off: epochs that a log does not have, brokers before 2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.aio.consuming.places import CONSUMER, FIRST_FOR_CONSUMERS
from karrow.errors import KarrowError, RemoteProtocolError, UnsupportedVersion, error_for
from karrow.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karrow.net.connection import Connection

__all__ = ["Epochs"]

API = "OffsetForLeaderEpoch"
NO_EPOCH = -1
Outcomes = dict[TopicPartition, int | KarrowError | None]


class Epochs(Calls):
    """Calls about the epochs of leaders."""

    def known(self, where: TopicPartition) -> int:
        """The epoch of a partition's leader, as far as this process has heard; -1 if it has not."""
        found = self._cluster.cache.partition(*where)
        return NO_EPOCH if found is None or found.leader_epoch is None else found.leader_epoch

    async def ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where epochs end in the logs of the leaders; those are left out that cannot tell."""

        async def one(broker_id: int, group: list[TopicPartition]) -> Outcomes:
            return await self._ask_for_ends(broker_id, {where: epochs[where] for where in group})

        found = await self._call_many(epochs, lambda left: self._by_leader(left, one), "epochs")
        return {where: end for where, end in found.items() if end is not None}

    async def _ask_for_ends(self, broker_id: int, epochs: Mapping[TopicPartition, int]) -> Outcomes:
        def body(version: int, connection: Connection) -> dict[str, Any]:
            connection.versions.require(API, version, "a question of a client", FIRST_FOR_CONSUMERS)
            topics: dict[str, list[dict[str, int]]] = {}
            for where, epoch in epochs.items():
                known = self.known(where)
                entry = {"current_leader_epoch": known, "leader_epoch": epoch}
                topics.setdefault(where.topic, []).append({"partition": where.partition, **entry})
            named = [{"topic": topic, "partitions": items} for topic, items in topics.items()]
            return {"replica_id": CONSUMER, "topics": named}

        try:
            reply = await self._send(Request(API, Node.id(broker_id), body))
        except UnsupportedVersion:
            return dict.fromkeys(epochs)
        lacking = RemoteProtocolError("the answer lacks the partition", **reply.context(API))
        return {**dict.fromkeys(epochs, lacking), **_ends(reply)}


def _ends(reply: Reply) -> Outcomes:
    found: Outcomes = {}
    for topic in reply.message.topics:
        for entry in topic.partitions:
            where = TopicPartition(topic.topic, entry.partition)
            context = reply.context(API, topic=where.topic, partition=where.partition)
            is_known = entry.end_offset >= 0 and entry.leader_epoch >= 0
            end = entry.end_offset if is_known else None
            found[where] = error_for(entry.error_code, **context) or end
    return found
