"""Where queries begin: which partitions have to be named, and by whom."""

from __future__ import annotations

import pytest

from karrow.errors import ConfigError
from karrow.spark.reading.places import Place
from karrow.types import TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))


def starting(text: str) -> Place:
    return Place.parse({"startingOffsets": text}, "starting", "latest")


def test_offsets_of_a_user_have_to_name_every_partition_and_no_other() -> None:
    place = starting('{"orders": {"0": 5, "1": 6}}')
    place.check_names([A, B])
    with pytest.raises(ConfigError, match="does not speak of orders-2"):
        place.check_names([A, B, C])
    with pytest.raises(ConfigError, match="speaks of orders-1, which is not read"):
        place.check_names([A])


def test_offsets_that_were_noted_leave_room_for_partitions_that_come_and_go() -> None:
    place = starting('{"orders": {"0": 5, "1": 6}, "@others": "earliest"}')
    assert place.is_lasting
    place.check_names([A, C])
    assert place.others == -2


@pytest.mark.parametrize(
    ("text", "is_lasting"),
    [
        ("earliest", True),
        ("latest", False),
        ("-10 minutes", False),
        ("group", False),
        ('{"orders": {"0": 5}}', True),
        ('{"orders": {"0": -1}}', False),
        ('{"orders": {"0": -2}}', True),
    ],
)
def test_a_place_lasts_that_is_where_it_was(text: str, is_lasting: bool) -> None:
    assert starting(text).is_lasting == is_lasting
