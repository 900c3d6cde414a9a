"""Where the epochs of leaders end in the log of the leader of now (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from karrow.aio.calls.base import Calls, Request
from karrow.errors import KarrowError, RemoteProtocolError, UnsupportedVersion, error_for
from karrow.types import Node, TopicPartition

if TYPE_CHECKING:
    from karrow.net.connection import Connection

API = "OffsetForLeaderEpoch"
# Since this version consumers may ask for the end of an epoch, and say whom they take for leader.
FIRST_FOR_CONSUMERS = 3
CONSUMER = -1


class EpochQuestion(NamedTuple):
    """An epoch whose end is asked for, and that of the leader who is asked."""

    epoch: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The offset at which an epoch ends, and which epoch that is; None from who cannot tell.

    Who cannot tell has cut nothing off: its log does not have the epoch, or it is older than 2.3.
    """

    offset: int | None = None
    epoch: int | None = None


class EpochCalls(Calls):
    """The one call about epochs."""

    async def _ends_of_epochs(
        self, broker_id: int, asked: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd | KarrowError]:
        """What one broker says, once."""

        def body(version: int, connection: Connection) -> dict[str, Any]:
            connection.versions.require(API, version, "a question of a client", FIRST_FOR_CONSUMERS)
            topics: dict[str, list[dict[str, int]]] = {}
            for (topic, partition), question in asked.items():
                entry = {
                    "partition": partition,
                    "current_leader_epoch": question.leader_epoch,
                    "leader_epoch": question.epoch,
                }
                topics.setdefault(topic, []).append(entry)
            named = [{"topic": topic, "partitions": items} for topic, items in topics.items()]
            return {"replica_id": CONSUMER, "topics": named}

        try:
            reply = await self._send(Request(API, Node.id(broker_id), body))
        except UnsupportedVersion:
            return dict.fromkeys(asked, EpochEnd())
        lacking = RemoteProtocolError("the answer lacks the partition", **reply.context(API))
        outcomes: dict[TopicPartition, EpochEnd | KarrowError] = dict.fromkeys(asked, lacking)
        for topic in reply.message.topics:
            for entry in topic.partitions:
                key = TopicPartition(topic.topic, entry.partition)
                context = reply.context(API, topic=key.topic, partition=key.partition)
                outcomes[key] = error_for(entry.error_code, **context) or _end(entry)
        return outcomes


def _end(entry: Any) -> EpochEnd:
    if entry.end_offset < 0 or entry.leader_epoch < 0:
        return EpochEnd()
    return EpochEnd(entry.end_offset, entry.leader_epoch)
