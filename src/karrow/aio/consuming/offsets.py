"""What applications may commit, as offsets: records, lists of them, Arrow batches, mappings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from karrow.aio.calls.commits import committable
from karrow.errors import ConfigError
from karrow.records import Record
from karrow.types import CommittedOffset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.aio.calls.commits import Committable

Committed: TypeAlias = (
    "Record | Sequence[Record] | pa.RecordBatch | Mapping[tuple[str, int], Committable] | None"
)

NEEDED = ("topic", "partition", "offset")


def as_offsets(
    what: Record | Sequence[Record] | pa.RecordBatch | Mapping[tuple[str, int], Committable],
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets that come next, for each partition that is spoken of."""
    if isinstance(what, Record):
        return _behind([what])
    if isinstance(what, list | tuple) and all(isinstance(one, Record) for one in what):
        return _behind(what)
    if isinstance(what, Mapping):
        return {as_partition(key): committable(value) for key, value in what.items()}
    if hasattr(what, "schema") and hasattr(what, "num_rows"):
        return _last_row(what)
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


def _last_row(batch: Any) -> dict[TopicPartition, CommittedOffset]:
    """Behind a batch's last row; all of them are of one partition."""
    if batch.num_rows == 0:
        return {}
    names = set(batch.schema.names)
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise ConfigError(
            f"the batch has no column {' and no '.join(missing)}, so nobody knows where it ends",
            hint="commit() without it stores everything that was handed out",
        )
    topic, number, offset = (batch.column(name)[batch.num_rows - 1].as_py() for name in NEEDED)
    return {TopicPartition(topic, number): CommittedOffset(offset + 1)}
