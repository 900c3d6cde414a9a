"""The partitions of keys, for topics of different sizes."""

from __future__ import annotations

import pyarrow as pa

from karrow.records._hash import partition_for
from karrow.spark.exactly.routing import partitions_of


def test_keys_go_where_the_partitioner_says_and_null_stays_open() -> None:
    keys = [b"a", None, b"b", b"", b"a longer key"] * 3
    counts = [3] * 5 + [7] * 5 + [1] * 5
    found = partitions_of(pa.array(keys, pa.binary()), pa.array(counts, pa.int32()), "murmur2")
    wanted = [
        None if key is None else partition_for(key, count)
        for key, count in zip(keys, counts, strict=True)
    ]
    assert found.to_pylist() == wanted
    assert found.type == pa.int32()


def test_no_rows_give_no_partitions() -> None:
    found = partitions_of(pa.array([], pa.binary()), pa.array([], pa.int32()), "murmur2")
    assert found.to_pylist() == []
