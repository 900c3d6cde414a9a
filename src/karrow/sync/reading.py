"""A bounded range of a topic as one Arrow table."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, Unpack

from karrow.config import FetchConfig
from karrow.errors import ConfigError, RequestTimeout
from karrow.records import RecordReader
from karrow.sync.consumer import Consumer
from karrow.types import OffsetSpec, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.config import Servers
    from karrow.config.options import FetchOptions
    from karrow.sync.client import Client
    from karrow.types import OffsetLike, OffsetResult

Places: TypeAlias = "OffsetLike | Mapping[int, OffsetLike]"
Progress: TypeAlias = Callable[[int, int], object]

# Where rows belong is found by these, wanted or not.
PLACE = ("partition", "offset")
# How long to wait for data before the end may have come without any.
LOOK = 0.1


def read_arrow(
    bootstrap: Servers | Client | None,
    topic: str,
    *,
    start: Places = "earliest",
    end: Places = "latest",
    partitions: Iterable[int] | None = None,
    columns: Sequence[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[FetchOptions],
) -> pa.Table:
    """Everything in a topic from ``start`` up to ``end``, which is not part of it.

    Both are places as in ``Consumer``, or mappings of partitions to places; "latest" is where the
    topic ends when this is called. Rows of one partition are in order, one partition after the
    other. ``progress`` is called with the offsets that are done and their total. Without progress
    for ``api_timeout`` it raises; so do an offset that is gone and records that cannot be decoded.

    Example::

        table = karrow.read_arrow("localhost:9092", "orders", start="-1h", columns=["value"])
    """
    FetchConfig.make(None, options)
    with Consumer(bootstrap, out_of_range="none", **options) as consumer:
        span = _Span(consumer, topic, start, end, partitions)
        return _Reading(consumer, span, columns, progress).table()


class _Span:
    """Where each partition begins and ends."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        start: Places,
        end: Places,
        partitions: Iterable[int] | None,
    ) -> None:
        self._consumer = consumer
        numbers = sorted(set(_all(consumer, topic) if partitions is None else partitions))
        self._wanted = [TopicPartition(topic, number) for number in numbers]
        latest = self._offsets(dict.fromkeys(self._wanted, OffsetSpec.parse("latest")))
        ends = self._resolved("end", end, latest)
        begins = self._resolved("start", start, latest)
        self.begins = {one: min(begins[one], latest[one]) for one in self._wanted}
        self.ends = {one: min(ends[one], latest[one]) for one in self._wanted}

    def end_of(self, number: int) -> int:
        """Where a partition ends."""
        return next(end for one, end in self.ends.items() if one.partition == number)

    @property
    def total(self) -> int:
        """How many offsets there are."""
        return sum(max(self.ends[one] - self.begins[one], 0) for one in self._wanted)

    def _resolved(
        self, name: str, places: Places, latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        specs = {one: self._spec(name, places, one.partition) for one in self._wanted}
        known = {one: spec.value for one, spec in specs.items() if not spec.needs_broker}
        asked = {one: spec for one, spec in specs.items() if spec.needs_broker}
        return {**latest, **known, **self._offsets(asked)}

    @staticmethod
    def _spec(name: str, places: Places, number: int) -> OffsetSpec:
        if not isinstance(places, Mapping):
            return OffsetSpec.parse(places)
        if number not in places:
            raise ConfigError(f"{name} does not speak of partition {number}")
        return OffsetSpec.parse(places[number])

    def _offsets(self, asked: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int]:
        """The offsets of places; one that nothing is as new as is left out."""
        found: Mapping[TopicPartition, OffsetResult] = {}
        if asked:
            found = self._consumer.offsets_for_times(dict(asked.items()))
        return {one: it.offset for one, it in found.items() if it.offset is not None}


class _Reading:
    """One call of read_arrow."""

    def __init__(
        self,
        consumer: Consumer,
        span: _Span,
        columns: Sequence[str] | None,
        progress: Progress | None,
    ) -> None:
        self._consumer = consumer
        self._span = span
        self._columns = columns
        self._progress = progress
        self._positions = dict(span.begins)
        self._found: dict[int, list[pa.RecordBatch]] = {one.partition: [] for one in span.begins}

    def table(self) -> pa.Table:
        import pyarrow as pa  # noqa: PLC0415 - only this needs it

        nothing = RecordReader(b"", topic="", partition=0).read_arrow(columns=self._columns)
        schema = pa.record_batch(nothing).schema
        self._read(list(dict.fromkeys([*schema.names, *PLACE])))
        found = [batch.select(schema.names) for part in self._found.values() for batch in part]
        return pa.Table.from_batches(found, schema)

    def _read(self, columns: list[str]) -> None:
        left = {one for one, end in self._span.ends.items() if self._positions[one] < end}
        self._tell()
        if not left:
            return
        self._consumer.assign({one: self._span.begins[one] for one in left})
        patience = self._consumer.config.call_timeout
        moved_at = time.monotonic()
        while left:
            batch = next(self._consumer.batches(timeout=LOOK, columns=columns), None)
            if batch is not None:
                self._keep(batch)
            before = sum(self._positions.values())
            self._look_at(left)
            if sum(self._positions.values()) > before:
                moved_at = time.monotonic()
                self._tell()
            elif time.monotonic() - moved_at > patience:
                raise RequestTimeout(
                    f"nothing came for {patience:.1f} s: {self._consumer.health()}",
                    hint="raise api_timeout if brokers need longer",
                )

    def _keep(self, batch: pa.RecordBatch) -> None:
        """Keep the rows in front of the end."""
        partition = batch.column("partition")[0].as_py()
        offsets = batch.column("offset")
        end = self._span.end_of(partition)
        if offsets[-1].as_py() >= end:
            rows = range(batch.num_rows)
            batch = batch.slice(0, bisect_left(rows, end, key=lambda row: offsets[row].as_py()))
        if batch.num_rows:
            self._found[partition].append(batch)

    def _look_at(self, left: set[TopicPartition]) -> None:
        """Note where partitions are, and put those away that are through."""
        through = []
        for one in left:
            end = self._span.ends[one]
            position = self._consumer.position(one)
            self._positions[one] = min(max(position or 0, self._positions[one]), end)
            if self._positions[one] >= end:
                through.append(one)
        left.difference_update(through)
        if through:
            self._consumer.unassign(through)

    def _tell(self) -> None:
        if self._progress is not None:
            done = sum(
                self._positions[one] - begin
                for one, begin in self._span.begins.items()
                if self._span.ends[one] > begin
            )
            self._progress(done, self._span.total)


def _all(consumer: Consumer, topic: str) -> Iterable[int]:
    return range(consumer.partitions_for(topic))
