"""The headers of batches, read without their records."""

from __future__ import annotations

import pytest

from karrow import records
from karrow.errors import CorruptRecordError
from tests.unit.records.crafting import Batch, batch_of, control_batch, gzipped, message


def test_every_batch_is_listed_with_its_place() -> None:
    first, second = bytes(batch_of(b"a", b"b", base_offset=5)), bytes(control_batch(7, 9, 1))
    listed = records.batches(first + second + b"partial")
    assert [(info.position, info.size_bytes) for info in listed] == [
        (0, len(first)),
        (len(first), len(second)),
    ]
    assert [(info.base_offset, info.last_offset) for info in listed] == [(5, 6), (7, 7)]
    assert [info.control for info in listed] == [False, True]
    assert listed[1].producer_id == 9
    assert listed[0].magic == 2


def test_messages_are_listed_with_what_they_have() -> None:
    wrapped = message(9, gzipped(message(0)), attributes=1)
    plain, packed, old = records.batches(message(4, timestamp=77) + wrapped + message(5, magic=0))
    assert (plain.base_offset, plain.last_offset, plain.count) == (4, 4, 1)
    assert (plain.max_timestamp_ms, plain.timestamp_type) == (77, 0)
    assert (packed.codec, packed.count) == (1, -1)
    assert (old.magic, old.timestamp_type, old.max_timestamp_ms) == (0, -1, -1)
    assert not old.transactional


def test_no_data_lists_nothing() -> None:
    assert records.batches(b"") == []
    assert records.batches(bytes(20)) == []


@pytest.mark.parametrize(
    "damaged",
    [Batch(length=3), Batch(length=-9), Batch(length=40), Batch(magic=7), Batch(last_delta=-1)],
    ids=["tiny", "negative", "below a header", "magic", "offsets"],
)
def test_a_header_that_makes_no_sense_raises_with_its_place(damaged: Batch) -> None:
    good = bytes(batch_of(b"a"))
    with pytest.raises(CorruptRecordError) as caught:
        records.batches(good + bytes(damaged) + good)
    assert caught.value.position == len(good)
