"""Records out of the bytes of an answer: what is whole, and what is damaged or cut off."""

from __future__ import annotations

import pyarrow as pa
import pytest

from karrow import records
from karrow.aio.calls import fetch
from karrow.errors import CorruptRecordError
from karrow.types import TopicPartition

WHERE = TopicPartition("orders", 3)
BATCH = bytes(records.encode(pa.table({"value": [b"a", b"b"]})))
# Where a batch says how long it is.
LENGTH = slice(8, 12)


def test_whole_batches_are_read_and_a_part_behind_them_is_left() -> None:
    found, next_offset = fetch._records(BATCH + BATCH[:20], WHERE, 0, None)
    assert [record.value for record in found] == [b"a", b"b"]
    assert next_offset == 2


@pytest.mark.parametrize("length", [0x7FFFFFF0, len(BATCH), 0, -1], ids=str)
def test_data_without_a_whole_batch_is_an_error_and_not_nothing(length: int) -> None:
    data = bytearray(BATCH)
    data[LENGTH] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecordError) as caught:
        fetch._records(bytes(data), WHERE, 0, None)
    assert "topic orders, partition 3" in str(caught.value)


def test_a_message_that_was_cut_off_says_so() -> None:
    with pytest.raises(CorruptRecordError, match="max_bytes"):
        fetch._records(BATCH[:-1], WHERE, 0, None)
