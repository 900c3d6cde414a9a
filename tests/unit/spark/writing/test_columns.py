"""The columns of the sink."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from karrow.errors import ConfigError
from karrow.spark.writing.columns import Columns

PAIR = StructType().add("key", StringType()).add("value", BinaryType())
HEADERS = ArrayType(PAIR)
TEXTS = ArrayType(StructType().add("key", StringType()).add("value", StringType()))
NAMES = ArrayType(StructType().add("name", StringType()).add("value", BinaryType()))


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    "given",
    [
        schema(value=StringType()),
        schema(value=BinaryType()),
        schema(key=StringType(), value=BinaryType()),
        schema(key=BinaryType(), value=StringType(), headers=HEADERS, partition=IntegerType()),
        schema(topic=StringType(), value=StringType(), id=LongType()),
        schema(value=StringType(), headers=ArrayType(PAIR, containsNull=False)),
    ],
)
def test_what_sparks_sink_takes_is_taken(given: StructType) -> None:
    Columns(given, "t")


VALUE = {"value": StringType()}


@pytest.mark.parametrize(
    ("given", "topic", "text"),
    [
        (
            schema(key=StringType()),
            "t",
            "the DataFrame has no column 'value'; it has to be string or binary",
        ),
        (schema(Value=StringType()), "t", "no column 'value'; 'Value' is another name"),
        (schema(**VALUE), None, "no topic: the option 'topic' is not given"),
        (
            schema(value=IntegerType()),
            "t",
            "column 'value' has the type int; it has to be string or binary; cast",
        ),
        (schema(value=PAIR), "t", "column 'value' has the type struct<key:string"),
        (schema(value=NullType()), "t", "column 'value' has the type void"),
        (schema(**VALUE, key=LongType()), "t", "column 'key' has the type bigint"),
        (
            schema(**VALUE, topic=IntegerType()),
            None,
            "column 'topic' has the type int; it has to be string",
        ),
        (
            schema(**VALUE, partition=LongType()),
            "t",
            "column 'partition' has the type bigint; it has to be int; cast",
        ),
        (
            schema(**VALUE, headers=MapType(StringType(), BinaryType())),
            "t",
            "column 'headers' has the type map",
        ),
        (
            schema(**VALUE, headers=TEXTS),
            "t",
            "column 'headers' has the type .* it has to be array<struct<key:string,value:binary>>",
        ),
        (schema(**VALUE, headers=NAMES), "t", "column 'headers' has the type"),
    ],
)
def test_other_columns_are_refused_by_name(given: StructType, topic: str | None, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Columns(given, topic)


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.record_batch(columns)


def test_other_columns_are_left_out() -> None:
    columns = Columns(
        schema(id=LongType(), value=StringType(), timestamp=TimestampType(), key=StringType()), "t"
    )
    given = batch(id=[1], value=["v"], timestamp=[None], key=["k"])
    assert sorted(columns.of(given).schema.names) == ["key", "value"]


def test_the_topics_column_counts_only_without_the_option() -> None:
    given = batch(topic=["a"], value=["v"])
    topical = schema(topic=StringType(), value=StringType())
    assert sorted(Columns(topical, None).of(given).schema.names) == ["topic", "value"]
    assert Columns(topical, "t").of(given).schema.names == ["value"]


def test_a_topic_column_of_another_type_does_not_matter_beside_the_option() -> None:
    Columns(schema(topic=IntegerType(), value=StringType()), "t")


def test_of_two_columns_with_a_name_the_first_is_taken() -> None:
    columns = Columns(StructType().add("value", StringType()).add("value", IntegerType()), "t")
    given = pa.RecordBatch.from_arrays([pa.array(["v"]), pa.array([1])], names=["value", "value"])
    assert columns.of(given).to_pylist() == [{"value": "v"}]
