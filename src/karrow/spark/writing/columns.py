"""The columns of the sink: names, types and meaning are those of Spark's own Kafka sink.

Rules:
- ``value`` has to be there; ``key``, ``headers``, ``partition`` and ``topic`` may be.
- The option ``topic`` goes before the column, which is not looked at then.
- Names count with their case. Other columns are left out, ``timestamp`` too: when a record was
  made is for the clock of the task, or the broker's, to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from karrow.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_OR_BYTES = "string or binary"
HEADERS = "array<struct<key:string,value:binary>>"
WANTED = {
    "key": TEXT_OR_BYTES,
    "value": TEXT_OR_BYTES,
    "headers": HEADERS,
    "partition": "int",
    "topic": "string",
}


class Columns:
    """Where the columns to send are in what Spark gives."""

    def __init__(self, schema: StructType, topic: str | None) -> None:
        names = schema.fieldNames()
        if "value" not in names:
            raise ConfigError(
                "the DataFrame has no column 'value'", hint=_near(names, "value", TEXT_OR_BYTES)
            )
        if topic is None and "topic" not in names:
            raise ConfigError(
                "no topic: the option 'topic' is not given, and there is no column 'topic'",
                hint=".option('topic', ...), or a column 'topic' of type string",
            )
        taken = [name for name in WANTED if name in names and (name != "topic" or topic is None)]
        for name in taken:
            _check_type(name, schema.fields[names.index(name)].dataType)
        # By number, since Spark lets a name stand twice; its own sink takes the first as well.
        self._numbers = [names.index(name) for name in taken]
        self._has_all = self._numbers == list(range(len(names)))

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns to send, and no others."""
        return batch if self._has_all else batch.select(self._numbers)


def _check_type(name: str, found: DataType) -> None:
    if not _fits(name, found):
        raise ConfigError(
            f"column {name!r} has the type {found.simpleString()}; it has to be {WANTED[name]}",
            hint=_remedy(name),
        )


def _fits(name: str, found: DataType) -> bool:
    match name:
        case "key" | "value":
            return isinstance(found, StringType | BinaryType)
        case "topic":
            return isinstance(found, StringType)
        case "partition":
            return isinstance(found, IntegerType)
        case _:
            return _are_headers(found)


def _are_headers(found: DataType) -> bool:
    """A list of pairs; what may be null makes no difference."""
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in found.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def _remedy(name: str) -> str | None:
    match name:
        case "key" | "value":
            return f"cast({name} AS STRING), or to_json(struct(...)) AS {name}"
        case "partition" | "topic":
            return f"cast({name} AS {WANTED[name].upper()})"
        case _:
            return None


def _near(names: list[str], name: str, wanted: str) -> str:
    """What to do about a column that is not there."""
    near = next((one for one in names if one.lower() == name), None)
    if near is not None:
        return f"{near!r} is another name: case counts"
    return f"it has to be {wanted}, as in selectExpr('to_json(struct(*)) AS {name}')"
