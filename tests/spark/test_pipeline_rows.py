"""Which values fit a schema, and what is said of the others."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from karrow.spark.pipeline import parsing

SCHEMA = "id BIGINT NOT NULL, a DOUBLE, t TIMESTAMP, s STRUCT<b: INT>, `odd name` STRING"
GOOD = [
    b'{"id": 1, "a": 2.5, "t": "2026-09-01T00:00:00Z", "s": {"b": 1}, "odd name": "x"}',
    b' {"id": 2} \n',
    b'{"id": 3, "more": [1, {"x": "}{"}]}',
    b'{"id": 4, "odd name": "} {"}',
    b'{"id": 5, "a": null}',
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


@pytest.mark.gate
def test_rows_are_good_or_bad_whatever_is_selected(spark: SparkSession) -> None:
    schema = StructType.fromDDL(SCHEMA)
    assert isinstance(schema, StructType)
    values: list[bytes | None] = [*GOOD, *BAD]
    records = spark.createDataFrame(
        [(None, value, "t", 0, number, None) for number, value in enumerate(values)],
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP",
    )
    rows = parsing.parsed(records, schema)
    good = parsing.good_rows(rows, schema, stop=False, kafka="kafka")
    assert [row.id for row in good.select("id").collect()] == [1, 2, 3, 4, 5]
    assert good.select("kafka.offset").count() == 5, "also where no column of the value is used"
    assert good.columns == ["id", "a", "t", "s", "odd name", "kafka"]
    bad = parsing.bad_rows(rows, schema).collect()
    assert {row.value: bytes(row.headers[0].value).decode() for row in bad} == BAD
    places = [{header.key: bytes(header.value) for header in row.headers} for row in bad]
    assert [place["offset"] for place in places] == [b"%d" % n for n in range(5, len(values))]
    assert {(place["topic"], place["partition"]) for place in places} == {(b"t", b"0")}
