"""The partitioner hashes against a peer's and against their definitions."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as peer_murmur2

from karrow import records

keys = st.binary(max_size=40)
counts = st.integers(1, 1_000)


@given(key=keys, count=counts)
def test_murmur2_places_keys_as_java_does(key: bytes, count: int) -> None:
    expected = peer_murmur2(key)
    assert records.murmur2(key) & 0xFFFFFFFF == expected & 0xFFFFFFFF
    assert records.partition_for(key, count) == (expected & 0x7FFFFFFF) % count


@given(key=keys, count=counts)
def test_legacy_murmur2_keeps_the_sign_bit(key: bytes, count: int) -> None:
    expected = (peer_murmur2(key) & 0xFFFFFFFF) % count
    assert records.partition_for(key, count, "murmur2_legacy") == expected


@given(key=keys, count=counts)
def test_consistent_is_crc32(key: bytes, count: int) -> None:
    assert records.partition_for(key, count, "consistent") == zlib.crc32(key) % count


@pytest.mark.parametrize("partitioner", ["murmur2", "murmur2_legacy", "consistent", "fnv1a"])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
@given(column=st.lists(st.none() | keys, min_size=1, max_size=30), at=st.integers(0, 30))
def test_a_column_is_placed_as_its_keys_are(
    kind: pa.DataType, partitioner: str, column: list[bytes | None], at: int
) -> None:
    array = pa.array(column, kind)
    chunked = pa.chunked_array([array.slice(0, at), array.slice(at)], kind)
    found = pa.array(records.partition_column(chunked, 7, partitioner))
    assert found.to_pylist() == [
        None if key is None else records.partition_for(key, 7, partitioner) for key in column
    ]
