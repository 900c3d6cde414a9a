"""The columns of the source: those of Spark's own connector, and how the kernel's become them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from karrow.errors import ConfigError
from karrow.spark import options as spark_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karrow.records._export import RecordColumns

__all__ = ["INCLUDE_HEADERS", "Columns", "check_schema", "source_schema"]

INCLUDE_HEADERS = "includeHeaders"

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_FIELDS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
# What the kernel calls them; the last two are not as Spark wants them.
_KERNEL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type")
_OFFSET, _TIMESTAMP, _TIMESTAMP_TYPE, _HEADER = 4, 5, 6, 7

_HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_ARROW = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", "UTC")),
    pa.field("timestampType", pa.int32()),
]
# What Java says of a record that has no time.
_NO_TIME_US = -1000

# To make a value of its own from one of Python's, Arrow imports pandas, which takes longer than all
# other imports of a worker; for a cast it imports its functions. So nothing here does either before
# it must.


def source_schema(options: Mapping[str, str]) -> StructType:
    """The columns that a query gets, before anything is asked of Kafka."""
    return schema(with_headers=spark_options.flag(options, INCLUDE_HEADERS, default=False))


def check_schema(given: StructType, options: Mapping[str, str]) -> None:
    """Refuse columns that somebody has made up: they are always the same."""
    own = source_schema(options)
    if [(one.name, one.dataType) for one in given] != [(one.name, one.dataType) for one in own]:
        raise ConfigError(
            f"the source has columns of its own: {', '.join(own.names)}",
            hint="leave out schema(...), and select or cast them after load()",
        )


def schema(*, with_headers: bool) -> StructType:
    """The same columns, in the same order, as Spark's own connector has."""
    return StructType([*_FIELDS, StructField("headers", _HEADERS)] if with_headers else _FIELDS)


class Columns:
    """Makes of what the kernel has decoded what Spark takes without another look."""

    def __init__(self, *, with_headers: bool) -> None:
        self._with_headers = with_headers
        self.names = (*_KERNEL, "headers") if with_headers else _KERNEL
        fields = [*_ARROW, pa.field("headers", pa.list_(pa.field("element", _HEADER_TYPE)))]
        self.schema = pa.schema(fields if with_headers else _ARROW)

    def batch(self, decoded: RecordColumns, end: int) -> pa.RecordBatch:
        """The rows in front of an offset."""
        found = pa.record_batch(decoded)
        arrays = found.columns
        if arrays[_TIMESTAMP].null_count:
            no_time = pa.scalar(_NO_TIME_US, self.schema.field(_TIMESTAMP).type)
            arrays[_TIMESTAMP] = arrays[_TIMESTAMP].fill_null(no_time)
        arrays[_TIMESTAMP_TYPE] = _widened(arrays[_TIMESTAMP_TYPE])
        if self._with_headers:
            arrays[_HEADER] = _without_empty(cast("pa.ListArray", arrays[_HEADER]))
        rows = _rows_before(arrays[_OFFSET], end)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return batch if rows == batch.num_rows else batch.slice(0, rows)


def _rows_before(offsets: pa.Array, end: int) -> int:
    """How many rows are in front of an offset; they are in order."""
    rows = len(offsets)
    if not rows or offsets[rows - 1].as_py() < end:
        return rows
    low, high = 0, rows
    while low < high:
        middle = (low + high) // 2
        if offsets[middle].as_py() < end:
            low = middle + 1
        else:
            high = middle
    return low


def _widened(narrow: pa.Array) -> pa.Array:
    """Bytes as the integers that Spark has; none of them is null."""
    data = cast("memoryview", narrow.buffers()[1])
    numbers = np.frombuffer(data, np.int8, len(narrow), narrow.offset)
    wide = pa.py_buffer(numbers.astype(np.int32))
    return pa.Array.from_buffers(pa.int32(), len(narrow), [None, wide])


def _without_empty(headers: pa.ListArray) -> pa.ListArray:
    """Records without headers have null there, as Spark's own connector says it."""
    import pyarrow.compute as pc

    begins, ends = headers.offsets[:-1], headers.offsets[1:]
    empty = pc.equal(begins, ends)
    if not pc.any(empty).as_py():
        return headers
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=empty)
