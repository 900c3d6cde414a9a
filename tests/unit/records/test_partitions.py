"""The partition of a key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from karrow import records
from karrow.errors import ConfigError, LocalProtocolError


# What org.apache.kafka.common.utils.Utils.murmur2 gives.
@pytest.mark.parametrize(
    ("key", "number"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_javas(key: bytes, number: int) -> None:
    assert records.murmur2(key) == number
    assert records.partition_for(key, 7) == (number & 0x7FFFFFFF) % 7
    legacy = records.partition_for(key, 7, "murmur2_legacy")
    assert legacy == (number & 0xFFFFFFFF) % 7


@pytest.mark.parametrize(
    ("key", "number"), [("kafka", 0xD33C4E1), ("giberish123456789", 0x77A58295), ("", 0x7EE3623B)]
)
def test_fnv1a_is_saramas(key: str, number: int) -> None:
    assert records.partition_for(key, 2**31 - 1, "fnv1a") == number


@pytest.mark.parametrize("partitioner", records.PARTITIONERS)
@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4)], ids=str
)
def test_a_column_gives_what_its_keys_give(partitioner: str, kind: pa.DataType) -> None:
    keys = [b"%04d" % i if i % 7 else None for i in range(100)]
    column = pa.array(keys, pa.binary(4)).cast(kind)
    chunks = pa.chunked_array([column.slice(0, 30), column.slice(30)])
    expected = [
        None if key is None else records.partition_for(key, 12, partitioner) for key in keys
    ]
    for data in (column, chunks):
        found = pa.array(records.partition_column(data, 12, partitioner))
        found.validate(full=True)
        assert found.to_pylist() == expected


def test_an_empty_column() -> None:
    found = records.partition_column(pa.array([], pa.binary()), 3)
    assert len(found) == 0
    assert pa.array(found).to_pylist() == []


@pytest.mark.parametrize(
    ("key", "partitions", "partitioner", "named"),
    [
        (b"k", 0, "murmur2", "partitions=0"),
        (b"k", -1, "murmur2", "partitions=-1"),
        (b"k", 3, "md5", "partitioner='md5'"),
        (None, 3, "murmur2", "null key"),
    ],
)
def test_a_wrong_argument_is_named(key: Any, partitions: int, partitioner: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        records.partition_for(key, partitions, partitioner)


def test_a_key_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="key"):
        records.murmur2(5)  # type: ignore[arg-type]
