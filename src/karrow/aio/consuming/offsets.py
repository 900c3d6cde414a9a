"""What applications may commit, as offsets: records, lists of them, Arrow batches, mappings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from karrow.aio.calls.commits import committable
from karrow.errors import ConfigError
from karrow.records import Record
from karrow.types import CommittedOffset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.aio.calls.commits import Committable

ArrowRows: TypeAlias = "pa.RecordBatch | pa.Table"
Committed: TypeAlias = (
    "Record | Sequence[Record] | ArrowRows | Mapping[tuple[str, int], Committable] | None"
)

NEEDED = ("topic", "partition", "offset")
ENDS = ("topic", "partition", "offset_max")


def as_offsets(
    what: Record | Sequence[Record] | ArrowRows | Mapping[tuple[str, int], Committable],
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets that come next, for each partition that is spoken of."""
    if isinstance(what, Record):
        return _behind([what])
    if isinstance(what, list | tuple) and all(isinstance(one, Record) for one in what):
        return _behind(what)
    if isinstance(what, Mapping):
        return {as_partition(key): committable(value) for key, value in what.items()}
    if hasattr(what, "schema") and hasattr(what, "num_rows"):
        return _behind_rows(what)
    raise ConfigError(
        f"a {type(what).__name__} cannot be committed",
        hint="give records, an Arrow batch, or {(topic, partition): next offset}",
    )


def as_partition(key: object) -> TopicPartition:
    """A partition as applications name it, checked."""
    if isinstance(key, tuple | list) and len(key) == len(("topic", "number")):
        topic, number = key
        if isinstance(topic, str) and isinstance(number, int):
            return TopicPartition(topic, number)
    raise ConfigError(f"{key!r} is no partition", hint="give (topic, number)")


def _behind(records: Sequence[Record]) -> dict[TopicPartition, CommittedOffset]:
    """Behind the last record of each partition."""
    found: dict[TopicPartition, CommittedOffset] = {}
    for record in sorted(records, key=lambda one: one.offset):
        where = TopicPartition(record.topic, record.partition)
        found[where] = CommittedOffset(record.offset + 1, record.leader_epoch)
    return found


def _behind_rows(rows: Any) -> dict[TopicPartition, CommittedOffset]:
    """Behind the last row of each partition; a batch as it was handed out has only one."""
    if rows.num_rows == 0:
        return {}
    names = set(rows.schema.names)
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise ConfigError(
            f"the batch has no column {' and no '.join(missing)}, so nobody knows where it ends",
            hint="commit() without it stores everything that was handed out",
        )
    return {
        TopicPartition(topic, number): CommittedOffset(offset + 1)
        for topic, number, offset in _ends(rows)
    }


def _ends(rows: Any) -> Iterable[tuple[str, int, int]]:
    """Topic, partition and last offset of each partition."""
    import pyarrow as pa  # noqa: PLC0415 - whoever has Arrow data has it
    import pyarrow.compute as pc  # noqa: PLC0415

    numbers, topics = rows.column("partition"), rows.column("topic")
    span = pc.min_max(numbers)
    if span["min"] == span["max"] and topics[0] == topics[-1] and not isinstance(rows, pa.Table):
        return [(topics[-1].as_py(), numbers[-1].as_py(), rows.column("offset")[-1].as_py())]
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    ends = table.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    return zip(*(ends.column(name).to_pylist() for name in ENDS), strict=True)
