"""The ledger of a sink: which batch of which query was committed last.

Rules:
- An entry is written inside the transaction of its batch, so it says so if and only if all rows of
  the batch are committed. It is read after the sink's own transactions have ended, never before.
- A sink has a ledger of its own. In a topic that sinks share, the open transaction of one would
  hide the committed entry of another from readers.
- Kind ``group``: the offset of a group that has no members, on partition 0 of a topic that exists.
  The broker forgets it after ``offsets.retention.minutes``.
- Kind ``topic``: the last record of a compacted topic with one partition. It stays. A topic that
  lets records expire is refused, where its configuration may be read.
- No answer is no entry: a batch that is in must never be taken for one that is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from karrow.aio.admin import AsyncAdmin
from karrow.aio.producing.part import AsyncPartProducer
from karrow.errors import (
    ConfigError,
    KarrowError,
    RequestTimeout,
    StateError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from karrow.net.retry import backoff_delay
from karrow.spark.exactly.rights import require_group, require_topics
from karrow.types import AclOperation, CommittedOffset, ConfigResource, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karrow.aio.client import AsyncClient
    from karrow.aio.producing.coordinator_calls import Identity

Kind = Literal["group", "topic"]
KINDS = ("group", "topic")

PREFIX = "karrow.ledger."
# How many of a topic's last offsets are looked at first; entries and their markers take turns.
RECENT = 100
FIRST_WAIT, LONGEST_WAIT = 0.02, 1.0
POLICY = "cleanup.policy"
TOPIC_CONFIG = {POLICY: "compact", "segment.ms": "3600000"}


@dataclass(frozen=True, slots=True)
class Entry:
    """The last batch that was committed, and by which query."""

    query: str
    batch: int
    rows: int

    def encode(self) -> str:
        """As it stands in Kafka."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, text: str, where: str) -> Entry:
        """Read what stands in Kafka; ``where`` is for the error."""
        try:
            found = json.loads(text)
            return cls(str(found["query"]), int(found["batch"]), int(found["rows"]))
        except (KeyError, TypeError, ValueError):
            raise StateError(
                f"{where} holds no entry of a ledger: {text[:100]!r}",
                hint="another program uses that name; choose another sink_id",
            ) from None


class Writing(Protocol):
    """The transaction that an entry is written in."""

    client: AsyncClient
    transactional_id: str
    who: Identity
    version: int

    async def store_offset(self, group: str, where: TopicPartition, entry: CommittedOffset) -> None:
        """Store an offset of a group when the transaction commits."""


class Ledger(Protocol):
    """Where a sink's entry is."""

    name: str

    async def prepare(self, client: AsyncClient) -> None:
        """Make sure that there is a place for the entry."""

    async def read(self, client: AsyncClient) -> Entry | None:
        """The entry; waits for transactions that may be about to change it."""

    async def write(self, transaction: Writing, entry: Entry) -> None:
        """Put the entry into a transaction."""

    def check_rows(self, topics: Iterable[str]) -> None:
        """Refuse rows for topics that the entry could not stand beside."""


class GroupLedger:
    """The entry as metadata of a group's offset; the offset is the number of batches."""

    def __init__(self, sink_id: str, topic: str) -> None:
        self.name = PREFIX + sink_id
        self._where = TopicPartition(topic, 0)

    async def prepare(self, client: AsyncClient) -> None:
        """Make sure that the topic exists which the offset is kept for, and may be used so."""
        await _topic_exists(client, self._where.topic)
        await require_topics(client, [self._where.topic], AclOperation.READ)
        await require_group(client, self.name)

    async def read(self, client: AsyncClient) -> Entry | None:
        """The entry, once no transaction is about to change it (KIP-447)."""
        found = await client.committed_offsets(self.name, [self._where], stable=True)
        stored = found.get(self._where)
        if stored is None or stored.offset is None:
            return None
        return Entry.decode(stored.metadata, f"group {self.name}")

    async def write(self, transaction: Writing, entry: Entry) -> None:
        """Store the entry when the transaction commits."""
        stored = CommittedOffset(entry.batch + 1, None, entry.encode())
        await transaction.store_offset(self.name, self._where, stored)

    def check_rows(self, topics: Iterable[str]) -> None:
        """Rows may go anywhere."""


class TopicLedger:
    """The entry as the last record of a topic."""

    def __init__(self, sink_id: str, topic: str | None = None) -> None:
        self.name = topic or PREFIX + sink_id
        self._key = sink_id.encode()

    async def prepare(self, client: AsyncClient) -> None:
        """Make the topic if it is not there, and refuse one that is for something else."""
        try:
            count = await _topic_exists(client, self.name)
        except UnknownTopicOrPartition:
            with contextlib.suppress(TopicAlreadyExists):
                await client.create_topic(self.name, 1, config=TOPIC_CONFIG)
            return
        if count != 1:
            raise ConfigError(
                f"ledger topic {self.name} has {count} partitions; it has to have one",
                hint="leave ledger_topic out to have one made",
            )
        await self._check_stays(client)
        await require_topics(client, [self.name], AclOperation.READ, AclOperation.WRITE)

    async def _check_stays(self, client: AsyncClient) -> None:
        """Refuse a topic whose records expire; one that tells nobody is taken as it is."""
        resource = ConfigResource.topic(self.name)
        try:
            found = await AsyncAdmin(client).describe_config(resource, [POLICY], retries=0)
        except KarrowError:
            return
        policy = None if POLICY not in found else found[POLICY].value
        if policy is not None and "delete" in policy:
            raise ConfigError(
                f"ledger topic {self.name} has {POLICY}={policy}, so that its entry expires",
                hint=f"give it {POLICY}=compact, or leave ledger_topic out to have one made",
            )

    async def read(self, client: AsyncClient) -> Entry | None:
        """The last committed entry, once no transaction is open in the topic."""
        end = await self._stable_end(client)
        first = await client.earliest_offset(self.name, 0)
        recent = max(first, end - RECENT)
        found = await self._last(client, recent, end)
        if found is None and recent > first:
            found = await self._last(client, first, recent)
        return found

    async def write(self, transaction: Writing, entry: Entry) -> None:
        """Append the entry to the topic, as the only record of the transaction there."""
        async with AsyncPartProducer(
            transaction.client,
            who=transaction.who,
            version=transaction.version,
            transactional_id=transaction.transactional_id,
        ) as producer:
            value = entry.encode().encode()
            await (await producer.send(self.name, value, key=self._key, partition=0))

    def check_rows(self, topics: Iterable[str]) -> None:
        """Refuse rows for the ledger: the broker would take the entry for one of them, repeated."""
        if self.name in topics:
            raise ConfigError(
                f"topic {self.name!r} is the ledger of this sink, and no place for rows",
                hint="give another ledger_topic, or write the rows elsewhere",
            )

    async def _stable_end(self, client: AsyncClient) -> int:
        """The end of the topic, once nothing is open before it."""
        patience = _Patience(client)
        while True:
            stable = await client.latest_offset(self.name, 0, isolation="read_committed")
            if stable >= await client.latest_offset(self.name, 0):
                return stable
            await patience.wait(
                f"a transaction stays open in the ledger topic {self.name}",
                hint="a ledger topic is for one sink",
            )

    async def _last(self, client: AsyncClient, start: int, end: int) -> Entry | None:
        """The last entry in a range of offsets."""
        found = None
        patience = _Patience(client)
        while start < end:
            answer = await client.fetch(
                self.name, 0, start, max_wait=0.0, isolation="read_committed"
            )
            for record in answer.records:
                if record.key == self._key and record.offset < end and record.value is not None:
                    text = bytes(record.value).decode(errors="replace")
                    found = Entry.decode(text, f"topic {self.name}")
            if answer.next_offset <= start:
                await patience.wait(
                    f"the ledger topic {self.name} ends at {end}, and nothing came from {start} on"
                )
            start = max(start, answer.next_offset)
        return found


class _Patience:
    """Waits for what is about to come, as long as a call may take."""

    def __init__(self, client: AsyncClient) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + client.config.call_timeout
        self._waited = 0

    async def wait(self, what: str, hint: str | None = None) -> None:
        """Wait a little; raises ``what`` once it has been too long."""
        if self._clock() >= self._until:
            raise RequestTimeout(what, hint=hint)
        await asyncio.sleep(backoff_delay(self._waited, FIRST_WAIT, LONGEST_WAIT))
        self._waited += 1


def new_ledger(kind: str, sink_id: str, topic: str | None, ledger_topic: str | None) -> Ledger:
    """The ledger of a sink that writes to ``topic``, or with None to those of a column."""
    if kind == "topic":
        found = TopicLedger(sink_id, ledger_topic)
        found.check_rows([] if topic is None else [topic])
        return found
    if kind != "group":
        raise ConfigError(f"ledger={kind!r} is none of {', '.join(map(repr, KINDS))}")
    anchor = ledger_topic or topic
    if anchor is None:
        raise ConfigError(
            "a sink whose rows name their topics needs ledger_topic",
            hint="ledger_topic names a topic that always exists, or give ledger='topic'",
        )
    return GroupLedger(sink_id, anchor)


async def _topic_exists(client: AsyncClient, topic: str) -> int:
    """How many partitions a topic has; it is not created by asking."""
    found = (await client.metadata([topic])).topics.get(topic)
    error: KarrowError | None = None if found is None else found.error
    if found is None or not found.partitions:
        missing = UnknownTopicOrPartition("the topic does not exist", topic=topic)
        missing.retriable = False
        raise error if error is not None and not error.retriable else missing
    return len(found.partitions)
