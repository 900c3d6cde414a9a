"""What applications may commit."""

from __future__ import annotations

import re
from typing import Any

import pytest

from karrow import errors
from karrow.aio.consuming.offsets import as_offsets
from karrow.types import CommittedOffset, TopicPartition


def test_offsets_are_given_by_partition() -> None:
    where = TopicPartition("orders", 0)
    assert as_offsets({("orders", 0): 5}) == {where: CommittedOffset(5)}
    assert as_offsets({where: (5, "why")}) == {where: CommittedOffset(5, metadata="why")}


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
