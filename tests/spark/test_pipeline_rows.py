"""Which values fit a schema, and what is said of the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from karrow.spark.pipeline import parsing

SCHEMA = "id BIGINT NOT NULL, a DOUBLE, t TIMESTAMP, s STRUCT<b: INT>, `odd name` STRING"
GOOD = [
    b'{"id": 1, "a": 2.5, "t": "2026-09-01T00:00:00Z", "s": {"b": 1}, "odd name": "x"}',
    b' {"id": 2} \n',
    b'{"id": 3, "more": [1, {"x": "}{"}]}',
    b'{"id": 4, "odd name": "} {"}',
    b'{"id": 5, "a": null}',
    b'{"id": 6, "s": {"b": 1}, "more": [{"x": 1}, {"y": {}}], "odd name": "]} }, {"}\r\n',
    b'{"id": 7, "a": NaN}',
    b'{"id": 8, "a": NaN, "s": {"b": 1}}',
    b'{"id": 0, "id": 9}',
    b'{"id": 0, "s": {"b": 1}, "id": 10}',
]
BAD = {
    None: "the record has no value",
    b"": "the value is not one JSON object",
    b"null": "the value is not one JSON object",
    b"12": "the value is not one JSON object",
    b'[{"id": 1}]': "the value is not one JSON object",
    b'{"id": 1': "the value is not one JSON object",
    b'{"id": 1} more': "the value is not one JSON object",
    b'{"id": 1}\n{"id": 2}': "the value is not one JSON object",
    b'{"id": 1},{"id": 2}': "the value is not one JSON object",
    b'{"id": 1} x}': "the value is not one JSON object",
    b'{"id": 1}}': "the value is not one JSON object",
    b'{"id": 1}]}': "the value is not one JSON object",
    b'{"id": 1}],[{}': "the value is not one JSON object",
    b'{"id": 1, "s": {"b": 1}},"x":{"id": 2}': "the value is not one JSON object",
    b'{"id": 1, "s": {"b": 1}},"v":{"id": 2}': "the value is not one JSON object",
    b'{"id": 1, "s": {"b": 1}} // {}': "the value is not one JSON object",
    b"{'id': 1, 's': {'b': 1}}": "the value is not one JSON object",
    b"{'id': 1}": "the value is not one JSON object",
    b'{"id": 1, "odd name": "\xff"}': "the value is not UTF-8",
    b"{}": "id is missing",
    b'{"a": 1}': "id is missing",
    b'{"id": "x"}': "id is no BIGINT",
    b'{"id": 1.5}': "id is no BIGINT",
    b'{"id": 99999999999999999999}': "id is no BIGINT",
    b'{"id": 1, "t": "soon"}': "t is no TIMESTAMP",
    b'{"id": 1, "s": 5}': "s is no STRUCT<B:INT>",
    b'{"id": 1, "s": {"b": "x"}}': "the value does not fit the schema",
}


def parsed(
    spark: SparkSession, ddl: str, values: Sequence[bytes | None]
) -> tuple[DataFrame, StructType]:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    records = spark.createDataFrame(
        [(None, value, "t", 0, number, None) for number, value in enumerate(values)],
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP",
    )
    return parsing.parsed(records, schema), schema


@pytest.mark.gate
def test_rows_are_good_or_bad_whatever_is_selected(spark: SparkSession) -> None:
    values: list[bytes | None] = [*GOOD, *BAD]
    rows, schema = parsed(spark, SCHEMA, values)
    good = parsing.good_rows(rows, schema, stop=False, kafka="kafka")
    assert [row.id for row in good.select("id").collect()] == list(range(1, 11))
    assert good.select("kafka.offset").count() == 10, "also where no column of the value is used"
    assert good.columns == ["id", "a", "t", "s", "odd name", "kafka"]
    bad = parsing.bad_rows(rows, schema).collect()
    assert {row.value: bytes(row.headers[0].value).decode() for row in bad} == BAD
    places = [{header.key: bytes(header.value) for header in row.headers} for row in bad]
    assert [place["offset"] for place in places] == [b"%d" % n for n in range(10, len(values))]
    assert {(place["topic"], place["partition"]) for place in places} == {(b"t", b"0")}


DEEP = """
    o STRUCT<a: BIGINT NOT NULL, p: STRUCT<x: INT NOT NULL>> NOT NULL,
    items ARRAY<STRUCT<n: INT NOT NULL, parts: ARRAY<STRUCT<`odd.name`: INT NOT NULL>>>>,
    more MAP<STRING, STRUCT<m: INT NOT NULL>>
"""
DEEP_GOOD = [
    b'{"o": {"a": 1}}',
    b'{"o": {"a": 1, "p": null}, "items": null, "more": null}',
    b'{"o": {"a": 1, "p": {"x": 1}}, "items": [], "more": {}}',
    b'{"o": {"a": 1}, "items": [{"n": 1}, null, {"n": 2, "parts": [null, {"odd.name": 3}]}]}',
    b'{"o": {"a": 1}, "more": {"x": {"m": 1}, "y": null}}',
]
DEEP_BAD = {
    b"{}": "o is missing",
    b'{"o": {}}': "o.a is missing",
    b'{"o": {"a": null}}': "o.a is missing",
    b'{"o": {"a": 1, "p": {}}}': "o.p.x is missing",
    b'{"o": {"a": 1}, "items": [{"n": 1}, {}]}': "items.n is missing",
    b'{"o": {"a": 1}, "items": [{"n": 1, "parts": [{}]}]}': "items.parts.odd.name is missing",
    b'{"o": {"a": 1}, "more": {"x": {"m": 1}, "y": {}}}': "more.m is missing",
    b'{"o": {"a": 1, "p": {"x": "y"}}}': "the value does not fit the schema",
}


@pytest.mark.gate
def test_not_null_is_asked_for_at_any_depth(spark: SparkSession) -> None:
    rows, schema = parsed(spark, DEEP, [*DEEP_GOOD, *DEEP_BAD])
    good = parsing.good_rows(rows, schema, stop=False, kafka="kafka").select("kafka.offset")
    assert [row.offset for row in good.collect()] == list(range(len(DEEP_GOOD)))
    bad = parsing.bad_rows(rows, schema).collect()
    assert {row.value: bytes(row.headers[0].value).decode() for row in bad} == DEEP_BAD
