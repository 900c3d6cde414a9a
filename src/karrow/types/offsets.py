"""Places in a partition, as callers name them and as the broker finds them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from karrow.errors import ConfigError, KarrowError

__all__ = ["Offset", "OffsetKind", "OffsetLike", "OffsetResult", "OffsetSpec"]

OffsetKind = Literal[
    "offset",
    "timestamp",
    "age",
    "earliest",
    "latest",
    "max_timestamp",
    "earliest_local",
    "latest_tiered",
]

# ListOffsets has one field for a timestamp and for these (KIP-79, KIP-734, KIP-405, KIP-1005).
_SPECIAL: dict[str, int] = {
    "latest": -1,
    "earliest": -2,
    "max_timestamp": -3,
    "earliest_local": -4,
    "latest_tiered": -5,
}
_NAMES: dict[str, OffsetKind] = {
    "earliest": "earliest",
    "latest": "latest",
    "max_timestamp": "max_timestamp",
    "earliest_local": "earliest_local",
    "latest_tiered": "latest_tiered",
}
_AGE = re.compile(r"-\s*(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_UNIT_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """A place in a partition: an offset, an end of the log, a time, or an age.

    ``parse`` takes what callers write. An age counts back from the moment it is resolved, not from
    the moment it was written.

    >>> OffsetSpec.parse("-10 minutes").timestamp_ms(now_ms=600_000)
    0
    >>> OffsetSpec.parse("earliest").timestamp_ms(now_ms=0)
    -2
    """

    __module__ = "karrow"

    kind: OffsetKind
    value: int = 0

    @classmethod
    def parse(cls, value: OffsetLike) -> OffsetSpec:
        """From an offset, a name, an aware datetime, ISO 8601, "-1h" or a timedelta."""
        if isinstance(value, OffsetSpec):
            return value
        if isinstance(value, bool):
            raise ConfigError(f"{value} is no offset")
        if isinstance(value, int):
            return cls.at(value)
        if isinstance(value, str):
            return cls._from_text(value.strip())
        if isinstance(value, datetime):
            return cls.at_time(value)
        if isinstance(value, timedelta):
            return cls.ago(value)
        raise ConfigError(f"an offset cannot be a {type(value).__name__}", hint=_ALLOWED)

    @classmethod
    def _from_text(cls, text: str) -> OffsetSpec:
        if kind := _NAMES.get(text):
            return cls(kind)
        if match := _AGE.fullmatch(text):
            return cls._from_age(text, match[1], match[2])
        try:
            return cls.at_time(datetime.fromisoformat(text))
        except ConfigError:
            raise
        except ValueError:
            raise ConfigError(f"{text!r} is no place in a partition", hint=_ALLOWED) from None

    @classmethod
    def _from_age(cls, text: str, amount: str, unit: str) -> OffsetSpec:
        scale = _UNIT_MS.get(unit) or _UNIT_MS.get(unit.lower())
        if scale is None:
            raise ConfigError(f"{text!r} has no known unit", hint="units are ms, s, m, h, d and w")
        return cls._checked("age", round(float(amount) * scale))

    @classmethod
    def _checked(cls, kind: OffsetKind, value: int) -> OffsetSpec:
        if not 0 <= value <= _MAX:
            raise ConfigError(f"{kind} {value} is outside 0 to 2^63 - 1", hint=_ENDS)
        return cls(kind, value)

    @classmethod
    def at(cls, offset: int) -> OffsetSpec:
        """This very offset."""
        return cls._checked("offset", offset)

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """The first offset that still exists."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> OffsetSpec:
        """The offset after the last record."""
        return cls("latest")

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """The record with the highest timestamp (Kafka 3.0, KIP-734)."""
        return cls("max_timestamp")

    @classmethod
    def at_timestamp_ms(cls, timestamp_ms: int) -> OffsetSpec:
        """The first record that is not older than this."""
        return cls._checked("timestamp", timestamp_ms)

    @classmethod
    def at_time(cls, time: datetime) -> OffsetSpec:
        """The first record that is not older than this; ``time`` must know its zone."""
        if time.tzinfo is None:
            raise ConfigError(
                f"{time.isoformat()} has no time zone", hint="use datetime.now(UTC) or add a zone"
            )
        return cls.at_timestamp_ms((time - _EPOCH) // timedelta(milliseconds=1))

    @classmethod
    def ago(cls, age: timedelta) -> OffsetSpec:
        """The first record that is not older than this age; the sign does not matter."""
        return cls._checked("age", abs(age) // timedelta(milliseconds=1))

    @property
    def needs_broker(self) -> bool:
        """Whether only the broker can tell the offset."""
        return self.kind != "offset"

    def timestamp_ms(self, now_ms: int) -> int:
        """What ListOffsets asks for: a time, or one of Kafka's negative numbers."""
        if self.kind == "timestamp":
            return self.value
        if self.kind == "age":
            return max(now_ms - self.value, 0)
        if self.kind == "offset":
            raise ConfigError(f"offset {self.value} needs no look-up")
        return _SPECIAL[self.kind]

    def __str__(self) -> str:
        if self.kind in _SPECIAL:
            return self.kind
        return str(self.value) if self.kind == "offset" else f"{self.kind} {self.value} ms"


Offset = OffsetSpec
"""The short name that callers write: ``Offset.at_timestamp_ms(0)``."""

OffsetLike = OffsetSpec | int | str | datetime | timedelta

_ALLOWED = (
    "give an offset, 'earliest', 'latest', 'max_timestamp', an aware datetime, an age such as "
    "'-1h', or Offset.at_timestamp_ms(...)"
)
_ENDS = "use 'earliest' or 'latest' for the ends of a partition"


@dataclass(frozen=True, slots=True)
class OffsetResult:
    """An offset the broker found; ``offset`` is None when no record is that new."""

    __module__ = "karrow"

    offset: int | None
    timestamp_ms: int | None = None
    leader_epoch: int | None = None
    error: KarrowError | None = field(default=None, compare=False)
