"""Values of records as JSON: which rows fit the schema, and what is wrong with the others.

Rules:
- A row is good or bad by its bytes and the schema alone, never by what is selected of it: the query
  that writes good rows and the one that writes bad rows have to agree.
- Spark's own parser lets pass what is behind the first object of a text, makes replacement
  characters of broken UTF-8, and knows no NOT NULL. All three are bad here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BAD", "ROW", "bad_rows", "good_rows", "parsed", "why"]

ROW, BAD, TEXT = "_karrow_row", "_karrow_bad", "_karrow_text"

# Two objects without a comma between them: rare, so only then a second look is worth its time.
_TWO_OBJECTS = r"\}\s*\{"


def parsed(records: DataFrame, schema: StructType) -> DataFrame:
    """Records with two more columns: the row, and whether it is bad."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    with_bad = StructType([*schema.fields]).add(BAD, StringType())
    text, trimmed = f.col(TEXT), _trimmed()
    # try_parse_json too reads only the first value of a text; an array it reads to its end.
    alone = f.expr(f"try_parse_json(concat('[', {TEXT}, ']'))").isNotNull()
    bad = (
        text.isNull()
        | ~f.expr(f"is_valid_utf8({TEXT})")
        | ~trimmed.startswith("{")
        | ~trimmed.endswith("}")
        | f.col(ROW)[BAD].isNotNull()
        | f.when(text.rlike(_TWO_OBJECTS), ~alone).otherwise(f.lit(False))
    )
    for field in schema.fields:
        if not field.nullable:
            bad = bad | f.col(ROW)[field.name].isNull()
    return (
        records.withColumn(TEXT, f.col("value").cast("string"))
        .withColumn(ROW, f.from_json(text, with_bad, options))
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
    alone = f.expr(f"try_parse_json(concat('[', {TEXT}, ']'))").isNotNull()
    found = (
        f.when(text.isNull(), "the record has no value")
        .when(~f.expr(f"is_valid_utf8({TEXT})"), "the value is not UTF-8")
        .when(~alone | ~_trimmed().startswith("{"), "the value is not one JSON object")
    )
    for field in schema.fields:
        given = f.get_json_object(text, f"$['{field.name}']").isNotNull()
        kind = field.dataType.simpleString().upper()
        found = found.when(row[field.name].isNull() & given, f"{field.name} is no {kind}")
        if not field.nullable:
            found = found.when(row[field.name].isNull(), f"{field.name} is missing")
    return found.otherwise("the value does not fit the schema")


def _trimmed() -> Column:
    """The text without what JSON takes for space."""
    return f.btrim(f.col(TEXT), f.lit(" \t\r\n"))


def _header(name: str, value: Column) -> Column:
    return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
