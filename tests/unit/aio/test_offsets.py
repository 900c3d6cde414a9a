"""What applications may commit."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from karrow import errors
from karrow.aio.consuming.offsets import as_offsets
from karrow.types import CommittedOffset, TopicPartition


def test_offsets_are_given_by_partition() -> None:
    where = TopicPartition("orders", 0)
    assert as_offsets({("orders", 0): 5}) == {where: CommittedOffset(5)}
    assert as_offsets({where: (5, "why")}) == {where: CommittedOffset(5, metadata="why")}


def rows(*places: tuple[str, int, int]) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*places, strict=True)
    columns = {
        "topic": pa.array(topics, pa.string()),
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
    }
    return pa.record_batch(columns)


def test_arrow_data_is_committed_for_each_of_its_partitions() -> None:
    mine, other, far = (
        TopicPartition("orders", 0),
        TopicPartition("orders", 1),
        TopicPartition("sales", 0),
    )
    first, second = rows((*mine, 7), (*mine, 8)), rows((*other, 3), (*far, 4), (*mine, 2))
    assert as_offsets(first) == {mine: CommittedOffset(9)}
    assert as_offsets(second) == {
        mine: CommittedOffset(3),
        other: CommittedOffset(4),
        far: CommittedOffset(5),
    }
    assert as_offsets(pa.Table.from_batches([first, second])) == {
        mine: CommittedOffset(9),
        other: CommittedOffset(4),
        far: CommittedOffset(5),
    }
    assert as_offsets(first.slice(0, 0)) == {}


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ({"orders": 5}, "'orders' is no partition"),
        ({7: 5}, "7 is no partition"),
        ({("orders",): 5}, "('orders',) is no partition"),
        ({("orders", "0"): 5}, "('orders', '0') is no partition"),
        ({("orders", 0): "5"}, "offset '5' cannot be committed"),
        ({("orders", 0): (5,)}, "(5,) cannot be committed; give (offset, metadata)"),
        (5, "a int cannot be committed"),
    ],
)
def test_what_cannot_be_committed_is_refused_by_name(what: Any, text: str) -> None:
    with pytest.raises(errors.ConfigError, match=re.escape(text)):
        as_offsets(what)
