"""Values of records as JSON: which rows fit the schema, and what is wrong with the others.

Rules:
- A row is good or bad by its bytes and the schema alone, never by what is selected of it: the query
  that writes good rows and the one that writes bad rows have to agree.
- Spark's own parser lets pass what is behind the first object of a text, makes replacement
  characters of broken UTF-8, and knows no NOT NULL. All three are bad here.
- Where that parser is asked twice, it has the same options both times: else a row could be good or
  bad by what only decides whether a second look is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BAD", "ROW", "bad_rows", "good_rows", "parsed", "why"]

ROW, BAD, TEXT = "_karrow_row", "_karrow_bad", "_karrow_text"

_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": BAD,
    "allowSingleQuotes": "false",
}
# For a second look at the text alone: nothing in it is made a value.
_INSIDE_LIST, _INSIDE_MAP = f"ARRAY<STRUCT<{BAD}: STRING>>", f"MAP<STRING, STRUCT<{BAD}: STRING>>"


def parsed(records: DataFrame, schema: StructType) -> DataFrame:
    """Records with two more columns: the row, and whether it is bad."""
    with_bad = StructType([*schema.fields]).add(BAD, StringType())
    text = f.col(TEXT)
    # Where the first brace that closes is the last character, nothing can be behind the object.
    more = f.locate("}", text) < f.length(text)
    bad = (
        text.isNull()
        | ~f.expr(f"is_valid_utf8({TEXT})")
        | ~_opens()
        | f.col(ROW)[BAD].isNotNull()
        | f.when(more, ~_alone()).otherwise(f.lit(False))
    )
    for _, is_absent in _required(schema):
        bad = bad | is_absent(f.col(ROW))
    return (
        records.withColumn(TEXT, f.col("value").cast("string"))
        .withColumn(ROW, f.from_json(text, with_bad, _OPTIONS))
        .withColumn(BAD, f.coalesce(bad, f.lit(True)))
    )


def good_rows(rows: DataFrame, schema: StructType, *, stop: bool, kafka: str | None) -> DataFrame:
    """The schema's columns of all rows that fit; with ``stop`` one that does not ends the query."""
    columns = [f.col(ROW)[field.name].alias(field.name) for field in schema.fields]
    if kafka is not None:
        names = ["key", "topic", "partition", "offset", "timestamp"]
        columns.append(f.struct(*names).alias(kafka))
    if not stop:
        return rows.where(~f.col(BAD)).select(columns)
    place = f.concat_ws("-", "topic", "partition")
    message = f.concat(
        place, f.lit(" has at offset "), f.col("offset"), f.lit(" a bad row: "), why(schema)
    )
    # An error that stands in a filter is met by every row, whatever is selected.
    checked = f.when(f.col(BAD), f.raise_error(message).cast("boolean")).otherwise(f.lit(True))
    return rows.where(checked).select(columns)


def bad_rows(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows that do not fit, as records: what came, and in headers why and from where."""
    return rows.where(f.col(BAD)).select(
        "key",
        "value",
        f.array(
            _header("error", why(schema)),
            _header("topic", f.col("topic")),
            _header("partition", f.col("partition").cast("string")),
            _header("offset", f.col("offset").cast("string")),
        ).alias("headers"),
    )


def why(schema: StructType) -> Column:
    """What is wrong with a bad row, in words."""
    text, row = f.col(TEXT), f.col(ROW)
    found = (
        f.when(text.isNull(), "the record has no value")
        .when(~f.expr(f"is_valid_utf8({TEXT})"), "the value is not UTF-8")
        .when(~_alone() | ~_opens(), "the value is not one JSON object")
    )
    for field in schema.fields:
        given = f.get_json_object(text, f"$['{field.name}']").isNotNull()
        kind = field.dataType.simpleString().upper()
        found = found.when(row[field.name].isNull() & given, f"{field.name} is no {kind}")
        if not field.nullable:
            found = found.when(row[field.name].isNull(), f"{field.name} is missing")
    for path, is_absent in _required(schema):
        found = found.when(row[BAD].isNull() & is_absent(row), f"{path} is missing")
    return found.otherwise("the value does not fit the schema")


def _alone() -> Column:
    """Whether nothing is behind the first value of the text.

    Spark reads an array or an object to its end and no further. The text in brackets is one value
    with nothing behind it, or has a bracket there; as a field it has nothing behind it, or a brace:
    both can be only where there is nothing.
    """
    listed = f.from_json(f.concat(f.lit("["), f.col(TEXT), f.lit("]")), _INSIDE_LIST, _OPTIONS)
    field = f.from_json(f.concat(f.lit('{"v":'), f.col(TEXT), f.lit("}")), _INSIDE_MAP, _OPTIONS)
    alone = (f.size(listed) == 1) & (f.map_keys(field) == f.array(f.lit("v")))
    return f.coalesce(alone, f.lit(False))


def _required(kind: DataType) -> Iterator[tuple[str, Callable[[Column], Column]]]:
    """What has to be there inside a value, at any depth: its name, and what tells if it is not."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            if not field.nullable:
                yield field.name, _of_field(field.name, Column.isNull)
            for path, is_absent in _required(field.dataType):
                yield f"{field.name}.{path}", _of_field(field.name, is_absent)
    elif isinstance(kind, ArrayType):
        for path, is_absent in _required(kind.elementType):
            yield path, _of_any(lambda items: items, is_absent)
    elif isinstance(kind, MapType):
        for path, is_absent in _required(kind.valueType):
            yield path, _of_any(f.map_values, is_absent)


def _of_field(name: str, is_absent: Callable[[Column], Column]) -> Callable[[Column], Column]:
    """Asked of an object that is there; one that is not has no fields to miss."""
    return lambda row: row.isNotNull() & is_absent(row[name])


def _of_any(
    items: Callable[[Column], Column], is_absent: Callable[[Column], Column]
) -> Callable[[Column], Column]:
    return lambda value: f.coalesce(f.exists(items(value), is_absent), f.lit(False))


def _opens() -> Column:
    """Whether the text begins with an object, behind what JSON takes for space."""
    return f.ltrim(f.col(TEXT), f.lit(" \t\r\n")).startswith("{")


def _header(name: str, value: Column) -> Column:
    return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
