"""Record objects."""

from __future__ import annotations

import gc
import pickle
import sys

import pytest

import karrow
from karrow import records
from karrow.errors import LocalProtocolError
from tests.unit.records.crafting import Batch, batch_of, record


def test_a_record_says_everything_about_itself() -> None:
    made = Batch(
        record(4, b"value", b"key", ((b"a", b"1"), (b"b", None), (b"a", b"2")), 9),
        base_offset=100,
        leader_epoch=3,
        attributes=0x10,
        last_delta=4,
        base_timestamp=50,
    )
    [found] = records.RecordReader(bytes(made), topic="orders", partition=2)
    assert (found.topic, found.partition, found.offset) == ("orders", 2, 104)
    assert (found.key, found.value) == (b"key", b"value")
    assert found.headers == (("a", b"1"), ("b", None), ("a", b"2"))
    assert (found.timestamp_ms, found.timestamp_type, found.leader_epoch) == (59, 0, 3)
    assert (found.serialized_key_size, found.serialized_value_size) == (3, 5)
    assert (found.attributes, found.crc) == (0x10, None)
    assert found.header("a") == b"2"
    with pytest.raises(KeyError, match="missing"):
        found.header("missing")


def test_a_record_built_by_keyword_needs_nothing_else() -> None:
    made = karrow.Record(topic="t", value="text", headers=[("h", None)], timestamp_ms=5)
    assert (made.topic, made.partition, made.offset, made.key) == ("t", 0, 0, None)
    assert (made.value, made.headers, made.timestamp_ms) == (b"text", (("h", None),), 5)
    assert (made.serialized_key_size, made.leader_epoch) == (-1, None)
    assert karrow.Record().timestamp_ms is None


def test_a_built_record_equals_a_read_one() -> None:
    [found] = records.RecordReader(bytes(Batch(leader_epoch=-1)), topic="t", partition=1)
    made = karrow.Record(topic="t", partition=1, value=b"v", timestamp_ms=1000)
    assert made == found
    assert hash(made) == hash(found)
    assert made != karrow.Record(topic="t", partition=1, value=b"w", timestamp_ms=1000)
    assert made != "record"


def test_records_pickle() -> None:
    [found] = records.RecordReader(
        bytes(Batch(record(0, None, b"k", ((b"h", b"1"),)))), topic="t", partition=1
    )
    assert pickle.loads(pickle.dumps(found)) == found


def test_repr_shows_the_record() -> None:
    shown = repr(karrow.Record(topic="t", offset=7, value=b"v"))
    assert "topic='t'" in shown
    assert "offset=7" in shown
    assert "value=b'v'" in shown


def test_fields_are_read_only() -> None:
    made = karrow.Record(value=b"v")
    for name in ("value", "offset", "topic"):
        with pytest.raises(AttributeError):
            setattr(made, name, 1)


def test_an_unknown_field_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="valeu"):
        _ = karrow.Record().valeu  # type: ignore[attr-defined]


def test_names_made_at_run_time_find_the_fields_too() -> None:
    made = karrow.Record(key=b"k", value=b"v", offset=3, timestamp_ms=4, headers=[("a", b"b")])
    names = ["".join(list(name)) for name in ("key", "value", "offset", "timestamp_ms", "headers")]
    assert [getattr(made, name) for name in names] == [b"k", b"v", 3, 4, (("a", b"b"),)]


@pytest.mark.parametrize("field", ["key", "value"])
def test_a_wrong_type_is_refused_by_name(field: str) -> None:
    with pytest.raises(LocalProtocolError, match=field):
        karrow.Record(**{field: 5})  # type: ignore[arg-type]


def test_a_record_keeps_its_own_batch_and_nothing_more() -> None:
    small = bytes(batch_of(b"small"))
    data = bytearray(small + bytes(batch_of(b"x" * 1_000_000, base_offset=1)))
    reader = records.RecordReader(memoryview(data))
    first = next(reader)
    del reader
    gc.collect()
    data.clear()  # fails while anything still holds the buffer
    assert first.value == b"small"
    assert sys.getrefcount(data) == 2
