"""Fetch sessions (KIP-227): a client names its partitions once and hears of changes only.

Rules:
- Epoch 0 asks for a new session, and ends the one it names; -1 ends it and asks for none. Both name
  every partition they want.
- Any other epoch must be the session's next; after 2^31 - 1 comes 1. What it names is changed, what
  it forgets is gone, everything else stays wanted.
- A session's answer has the partitions with records, with an error, or whose watermark or start has
  moved since the last answer. What had records goes to the end of the line, so that a small answer
  starves nobody.
- A node keeps a thousand sessions and forgets the one used longest ago.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from random import Random
from uuid import UUID

from karrow import errors
from karrow.wire.messages import FetchRequest, FetchResponse

PartitionAnswer = FetchResponse.PartitionData
TopicAnswer = FetchResponse.FetchableTopicResponse
Key = tuple[str, UUID, int]

NEW, FINAL = 0, -1
KEPT = 1000
MAX_EPOCH = 0x7FFFFFFF


@dataclass(slots=True)
class Wanted:
    """A partition that a fetch asks for, and what its session has last said of it."""

    topic: str
    topic_id: UUID
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    high_watermark: int = -2
    log_start: int = -2

    @property
    def key(self) -> Key:
        """What names the partition: the topic's name, or its id from version 13 on."""
        return self.topic, self.topic_id, self.partition

    def has_news(self, answer: PartitionAnswer) -> bool:
        """Whether an answer says anything that was not said before; it counts as said then."""
        known = (self.high_watermark, self.log_start)
        self.high_watermark, self.log_start = answer.high_watermark, answer.log_start_offset
        if answer.error_code:
            self.high_watermark = -2  # so that the recovery is news again
            return True
        return (
            bool(answer.records)
            or known != (answer.high_watermark, answer.log_start_offset)
            or answer.diverging_epoch.epoch >= 0
        )


Answered = list[tuple[Wanted, PartitionAnswer]]


class FetchSession:
    """The partitions of one fetch, or of a client's fetches from here on."""

    def __init__(self, session_id: int, *, uses_ids: bool, is_full: bool) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_ids = uses_ids
        self.is_full = is_full
        self.wanted: OrderedDict[Key, Wanted] = OrderedDict()

    def change(self, body: FetchRequest) -> None:
        """Take in what a request adds, changes and forgets."""
        for wanted in _wanted(body):
            known = self.wanted.get(wanted.key)
            if known is not None:
                wanted.high_watermark, wanted.log_start = known.high_watermark, known.log_start
            self.wanted[wanted.key] = wanted
        for topic in body.forgotten_topics_data:
            for partition in topic.partitions:
                self.wanted.pop((topic.topic, topic.topic_id, partition), None)

    def answer(self, answered: Answered) -> FetchResponse:
        """Everything in a full fetch, else what is news."""
        told = [(w, a) for w, a in answered if w.has_news(a) or self.is_full]
        if self.id:
            for wanted, partition in told:
                if partition.records:
                    self.wanted.move_to_end(wanted.key)
        return FetchResponse(session_id=self.id, responses=_by_topic(told))


class FetchSessions:
    """The sessions of all nodes, each node its own."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kept: OrderedDict[tuple[int, int], FetchSession] = OrderedDict()

    def open(self, node_id: int, version: int, body: FetchRequest) -> FetchSession:
        """The session that a request belongs to, changed by it."""
        if version < 7 or body.session_epoch in (NEW, FINAL):
            self._kept.pop((node_id, body.session_id), None)
            keep = version >= 7 and body.session_epoch == NEW
            session = self._new(node_id if keep else None, uses_ids=version >= 13)
            session.change(body)
            return session
        return self._next(node_id, version, body)

    def expire(self, node_id: int | None = None) -> int:
        """Forget the sessions of a node, or all; gives how many."""
        gone = [key for key in self._kept if node_id is None or key[0] == node_id]
        for key in gone:
            del self._kept[key]
        return len(gone)

    def _new(self, node_id: int | None, *, uses_ids: bool) -> FetchSession:
        if node_id is None:
            return FetchSession(0, uses_ids=uses_ids, is_full=True)
        session_id = self._random.randrange(1, 1 << 31)
        session = FetchSession(session_id, uses_ids=uses_ids, is_full=True)
        self._kept[node_id, session_id] = session
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return session

    def _next(self, node_id: int, version: int, body: FetchRequest) -> FetchSession:
        session = self._kept.get((node_id, body.session_id))
        if session is None:
            raise errors.FetchSessionIdNotFound("the fetch session is not known")
        if session.epoch != body.session_epoch:
            raise errors.InvalidFetchSessionEpoch(f"the session's epoch is {session.epoch}")
        if session.uses_ids != (version >= 13):
            raise errors.FetchSessionTopicIdError("the session names topics in another way")
        self._kept.move_to_end((node_id, body.session_id))
        session.epoch = session.epoch + 1 if session.epoch < MAX_EPOCH else 1
        session.is_full = False
        session.change(body)
        return session


def _wanted(body: FetchRequest) -> list[Wanted]:
    return [
        Wanted(
            topic.topic,
            topic.topic_id,
            item.partition,
            item.fetch_offset,
            item.partition_max_bytes,
            item.current_leader_epoch,
            item.last_fetched_epoch,
        )
        for topic in body.topics
        for item in topic.partitions
    ]


def _by_topic(told: Answered) -> list[TopicAnswer]:
    topics: dict[tuple[str, UUID], TopicAnswer] = {}
    for wanted, partition in told:
        key = (wanted.topic, wanted.topic_id)
        if key not in topics:
            topics[key] = TopicAnswer(topic=wanted.topic, topic_id=wanted.topic_id)
        topics[key].partitions.append(partition)
    return list(topics.values())
