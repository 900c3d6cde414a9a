"""What can be in the way of a record, as the kernel says it."""

from __future__ import annotations

from enum import IntEnum


class Obstacle(IntEnum):
    """Why a record was not taken; the numbers of _accumulator.pxd."""

    NO_TOPIC = 1
    NO_PARTITION = 2
    NO_ROOM = 3
