"""Records into partitions: one batch and one request for each partition."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from karrow import events
from karrow.aio.calls.base import Calls, Reply, Request, sorted_out
from karrow.errors import (
    ConfigError,
    KarrowError,
    LocalProtocolError,
    RemoteProtocolError,
    error_for,
)
from karrow.net.retry import is_produce_safe
from karrow.records import BatchBuilder, Record, partition_for
from karrow.types import Node, RecordMetadata, TopicPartition
from karrow.types.numbers import number_or_none

if TYPE_CHECKING:
    from karrow.net.connection import Connection
    from karrow.records.typing import Bytes

    Message = Bytes | tuple[Bytes | None, Bytes | None] | Record | None

Acks = Literal["all"] | int
Partitioner = str | Callable[[str, bytes | None, int], int]

# The Produce versions that brought timestamps, record batches, zstd, and topic ids.
FIRST_WITH_TIMESTAMPS = 2
FIRST_WITH_BATCHES = 3
FIRST_WITH_ZSTD = 7
FIRST_WITH_TOPIC_IDS = 13
MAX_BATCH_BYTES = 2**31 - 2**17
DEFAULT_PARTITIONER = "murmur2"


class Entry(NamedTuple):
    """One record on its way, and its place in the caller's list."""

    place: int
    key: Bytes | None
    value: Bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class Terms:
    """How a batch is to be written."""

    acks: int
    timeout: float
    compression: str | None
    transactional_id: str | None
    api_version: int | None
    retries: int | None


class ProduceCalls(Calls):
    """Calls that write records."""

    async def produce(
        self,
        topic: str,
        messages: Iterable[Message],
        *,
        partition: int | None = None,
        acks: Acks = "all",
        timeout: float = 5.0,  # noqa: ASYNC109 - the broker's, not ours
        compression: str | None = None,
        partitioner: Partitioner | None = None,
        transactional_id: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> list[RecordMetadata]:
        """Write values, (key, value) pairs or Records; where each one went, in their order.

        Without ``partition``, ``partitioner`` chooses by the key: a name in
        ``karrow.records.PARTITIONERS`` or a function of topic, key and number of partitions;
        records without a key share one partition drawn at random. ``acks`` is "all", 1, or 0: then
        the broker does not answer and offsets are None. ``timeout`` is how long the broker may wait
        for its replicas. Only what surely was not written is retried.
        """
        terms = Terms(_acks(acks), timeout, compression, transactional_id, api_version, retries)
        if isinstance(messages, (str, bytes, bytearray, memoryview)):
            raise ConfigError("messages is one value", hint="use produce_one, or a list of values")
        entries = [_entry(place, message) for place, message in enumerate(messages)]
        batches = await self._batches(topic, entries, partition, partitioner, retries)
        outcomes: dict[int, RecordMetadata | KarrowError] = {}
        for batch in await asyncio.gather(
            *(self._write(topic, number, batch, terms) for number, batch in batches.items())
        ):
            outcomes.update(batch)
        done = sorted_out(outcomes, list(range(len(entries))), "produce")
        return [done[place] for place in range(len(entries))]

    async def produce_one(
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Iterable[tuple[str, Bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        acks: Acks = "all",
        timeout: float = 5.0,  # noqa: ASYNC109 - the broker's, not ours
        compression: str | None = None,
        partitioner: Partitioner | None = None,
        transactional_id: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> RecordMetadata:
        """Write one record; the arguments are those of ``produce``."""
        record = Record(key=key, value=value, headers=headers, timestamp_ms=timestamp_ms)
        written = await self.produce(
            topic,
            [record],
            partition=partition,
            acks=acks,
            timeout=timeout,
            compression=compression,
            partitioner=partitioner,
            transactional_id=transactional_id,
            api_version=api_version,
            retries=retries,
        )
        return written[0]

    async def _batches(
        self,
        topic: str,
        entries: list[Entry],
        partition: int | None,
        partitioner: Partitioner | None,
        retries: int | None,
    ) -> dict[int, list[Entry]]:
        """The records by partition."""
        if partition is not None and partitioner is not None:
            raise ConfigError("partition and partitioner exclude each other")

        async def count() -> int:
            create = self._config.allow_auto_topic_creation
            return len((await self._cluster.topic(topic, create=create)).partitions)

        partitions = await self._attempts(count, retries=retries)
        if partition is not None:
            return {partition: entries} if entries else {}
        choose = _chooser(topic, partitions, partitioner)
        batches: dict[int, list[Entry]] = {}
        for entry in entries:
            batches.setdefault(choose(entry.key), []).append(entry)
        return batches

    async def _write(
        self, topic: str, partition: int, entries: list[Entry], terms: Terms
    ) -> dict[int, RecordMetadata | KarrowError]:
        """Write one batch: the outcome of each of its records by its place."""
        stamped = _stamped(entries)

        def body(version: int, connection: Connection) -> dict[str, Any]:
            data = _encoded(entries, stamped, version, connection, terms)
            entry = self._topic(topic, version, FIRST_WITH_TOPIC_IDS)
            return {
                "transactional_id": terms.transactional_id,
                "acks": terms.acks,
                "timeout_ms": round(terms.timeout * 1000),
                "topic_data": [
                    {**entry, "partition_data": [{"index": partition, "records": data}]}
                ],
            }

        def read(reply: Reply) -> list[RecordMetadata]:
            return self._read_written(reply, TopicPartition(topic, partition), stamped)

        request = Request(
            "Produce",
            Node.leader(topic, partition),
            body,
            terms.api_version,
            self._config.request_timeout + terms.timeout,
            topics=(topic,),
            ids_since=FIRST_WITH_TOPIC_IDS,
        )
        try:
            with events.span(
                "produce",
                client_id=self._config.client_id,
                topic=topic,
                partition=partition,
                record_count=len(entries),
            ) as span:
                written = await self._call(
                    request, read, retries=terms.retries, retryable=is_produce_safe
                )
                span.set(offset=written[0].offset)
        except KarrowError as error:
            return {entry.place: error for entry in entries}
        return dict(zip((entry.place for entry in entries), written, strict=True))

    def _read_written(
        self, reply: Reply, where: TopicPartition, stamped: list[int]
    ) -> list[RecordMetadata]:
        if reply.message is None:
            return [RecordMetadata(*where, None, stamp) for stamp in stamped]
        context = reply.context("Produce", topic=where.topic, partition=where.partition)
        found = [
            item
            for topic in reply.message.responses
            for item in topic.partition_responses
            if item.index == where.partition
        ]
        if len(found) != 1:
            raise RemoteProtocolError("the answer does not speak of the partition", **context)
        answer = found[0]
        error = error_for(answer.error_code, answer.error_message, **context)
        if error is not None:
            # An offset: it was appended before something went wrong.
            error.indefinite = answer.base_offset >= 0
            self._follow(where, answer, reply.message.node_endpoints)
            if answer.record_errors:
                error.hint = "; ".join(
                    f"record {one.batch_index}: {one.batch_index_error_message}"
                    for one in answer.record_errors
                )
            raise error
        start = number_or_none(answer.log_start_offset)
        return [
            RecordMetadata(*where, answer.base_offset + place, _time(answer, stamp), start)
            for place, stamp in enumerate(stamped)
        ]


def _time(answer: Any, stamp: int) -> int:
    """The broker's time where it stamps on append, else the record's own."""
    appended: int = answer.log_append_time_ms
    return appended if appended >= 0 else stamp


def _acks(acks: Acks) -> int:
    number = -1 if acks == "all" else acks
    if type(number) is not int or not -1 <= number < 2**15:
        raise ConfigError(f"acks={acks!r} is neither 'all' nor a number of replicas")
    return number


def _entry(place: int, message: Message) -> Entry:
    if isinstance(message, Record):
        key, value = message.key, message.value
        return Entry(place, key, value, message.headers, message.timestamp_ms)
    if isinstance(message, tuple):
        if len(message) != 2:
            raise ConfigError(f"message {place} is a tuple of {len(message)}, not (key, value)")
        return Entry(place, *message, (), None)
    return Entry(place, None, message, (), None)


def _stamped(entries: list[Entry]) -> list[int]:
    """The records' timestamps; a retry keeps them."""
    now = time.time_ns() // 1_000_000
    return [now if entry.timestamp_ms is None else entry.timestamp_ms for entry in entries]


def _chooser(
    topic: str, partitions: int, partitioner: Partitioner | None
) -> Callable[[Bytes | None], int]:
    """A function from a key to its partition."""
    keyless = random.randrange(partitions)  # noqa: S311 - no secret

    def by_name(key: Bytes | None) -> int:
        name = partitioner if isinstance(partitioner, str) else DEFAULT_PARTITIONER
        return keyless if key is None else partition_for(key, partitions, name)

    def by_function(key: Bytes | None) -> int:
        raw = key.encode() if isinstance(key, str) else None if key is None else bytes(key)
        chosen = partitioner(topic, raw, partitions) if callable(partitioner) else 0
        if chosen not in range(partitions):
            raise ConfigError(f"the partitioner chose {chosen!r} of {partitions} partitions")
        return chosen

    return by_function if callable(partitioner) else by_name


def _encoded(
    entries: list[Entry], stamped: list[int], version: int, connection: Connection, terms: Terms
) -> bytes:
    """The batch in the format that a version carries; what it cannot carry is refused."""
    _check_format(entries, version, connection, terms)
    magic = 2 if version >= FIRST_WITH_BATCHES else int(version >= FIRST_WITH_TIMESTAMPS)
    builder = BatchBuilder(magic=magic, compression=terms.compression, max_bytes=MAX_BATCH_BYTES)
    for entry, stamp in zip(entries, stamped, strict=True):
        if (
            builder.append(entry.key, entry.value, timestamp_ms=stamp, headers=entry.headers)
            is None
        ):
            raise LocalProtocolError("a batch holds less than 2 GiB", api="Produce")
    return builder.build()


def _check_format(entries: list[Entry], version: int, connection: Connection, terms: Terms) -> None:
    require = connection.versions.require
    if any(entry.headers for entry in entries):
        require("Produce", version, "headers", FIRST_WITH_BATCHES)
    if any(entry.timestamp_ms is not None for entry in entries):
        require("Produce", version, "timestamps", FIRST_WITH_TIMESTAMPS)
    if terms.compression == "zstd":
        require("Produce", version, "zstd", FIRST_WITH_ZSTD)
    if terms.transactional_id is not None:
        require("Produce", version, "a transactional id", FIRST_WITH_BATCHES)
