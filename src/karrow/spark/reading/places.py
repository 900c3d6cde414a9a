"""Where a query begins and ends: the options about offsets and times, and the offsets they mean.

Rules, as Spark's own connector has them:
- A time for all partitions goes before times for each, and those before offsets.
- The first record that is not older than a time is meant. Where there is none, an end is the end of
  the partition; for a beginning the strategy decides, an error unless it says ``latest``. Ages,
  which Spark does not have, mean the end.
- Offsets and times for each partition have to name all that are read, and no others; but for
  offsets that were noted a while ago, which say what becomes of others ("@others").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from karrow.errors import ConfigError
from karrow.spark import options as spark_options
from karrow.spark.reading.topics import read_json
from karrow.types import OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karrow.aio.client import AsyncClient
    from karrow.config import FetchConfig

__all__ = ["EARLIEST", "LATEST", "OTHERS", "Place", "Resolved", "Side", "resolved"]

# Spark's numbers for the ends of partitions.
LATEST, EARLIEST = -1, -2

Side = Literal["starting", "ending"]
Kind = Literal["earliest", "latest", "group", "offsets", "times"]

_OFFSETS = '{"orders": {"0": 23, "1": -1}}, where -2 is earliest and -1 latest'
_TIMES = '{"orders": {"0": 1700000000000, "1": "-10 minutes"}}'
# What offsets that were noted say of partitions that have come since.
OTHERS = "@others"
STRATEGY = "startingOffsetsByTimestampStrategy"


@dataclass(frozen=True, slots=True)
class Place:
    """One end of what is read: a word, an offset for each partition, or a time for some or all."""

    kind: Kind
    option: str
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    times: Mapping[TopicPartition, OffsetSpec] = field(default_factory=dict)
    time: OffsetSpec | None = None
    # What to do where no record is as new as a time.
    or_latest: bool = True
    # Where partitions begin that are not named; None where all have to be.
    others: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], side: Side, default: Kind) -> Place:
        """From the options of one end, the first of them that counts."""
        strategy = spark_options.choice(options, STRATEGY, ("error", "latest"), "")
        or_latest = side == "ending" or strategy == "latest"
        name = f"{side}Timestamp"
        if (text := spark_options.text(options, name)) is not None:
            time = _time(name, text)
            is_age = time.kind == "age" and strategy != "error"
            return cls("times", name, time=time, or_latest=or_latest or is_age)
        name = f"{side}OffsetsByTimestamp"
        if (text := spark_options.text(options, name)) is not None:
            times = {one: _time(name, value) for one, value in _each(name, text, _TIMES)}
            return cls("times", name, times=times, or_latest=or_latest)
        name = f"{side}Offsets"
        text = spark_options.text(options, name)
        return cls(default, name) if text is None else cls._parse_offsets(name, text, strategy)

    @classmethod
    def _parse_offsets(cls, name: str, text: str, strategy: str) -> Place:
        match text.lower():
            case "earliest" | "latest" as word:
                return cls(word, name)
            case "group" if name == "startingOffsets":
                return cls("group", name)
        if text.startswith("{"):
            offsets = {one: _offset(name, value) for one, value in _each(name, text, _OFFSETS)}
            noted = read_json(name, text, _OFFSETS).get(OTHERS)
            others = EARLIEST if noted == "earliest" else None
            return cls("offsets", name, offsets=offsets, others=others)
        try:
            time = OffsetSpec.parse(text)
        except ConfigError:
            time = None
        if time is None or time.kind not in ("age", "timestamp"):
            words = "'earliest', 'latest', 'group'" if name[0] == "s" else "'earliest', 'latest'"
            raise ConfigError(
                f"{name}={text!r} is no place",
                hint=f"give {words}, an age such as '-10 minutes', or {_OFFSETS}",
            )
        return cls("times", name, time=time, or_latest=strategy != "error")

    @property
    def is_lasting(self) -> bool:
        """Whether it is the same place when it is looked for again, after more has come."""
        if self.kind == "offsets":
            return LATEST not in self.offsets.values()
        return self.kind == "earliest"

    def check_names(self, partitions: Iterable[TopicPartition]) -> None:
        """Refuse what does not speak of exactly the partitions that are read."""
        named = set(self.offsets or self.times)
        if self.kind not in ("offsets", "times") or self.time is not None:
            return
        if self.others is not None:
            return
        wanted = set(partitions)
        if missing := sorted(wanted - named):
            raise ConfigError(
                f"{self.option} does not speak of {', '.join(map(str, missing))}",
                hint="name every partition; -1 is latest and -2 earliest"
                if self.kind == "offsets"
                else "name every partition",
            )
        if extra := sorted(named - wanted):
            raise ConfigError(
                f"{self.option} speaks of {', '.join(map(str, extra))}, which is not read"
            )

    async def find(
        self, client: AsyncClient, config: FetchConfig, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """An offset for each partition, or Spark's number for an end of it."""
        wanted = list(partitions)
        self.check_names(wanted)
        if self.kind in ("earliest", "latest"):
            return dict.fromkeys(wanted, EARLIEST if self.kind == "earliest" else LATEST)
        if self.kind == "offsets":
            return {one: self.offsets.get(one, self.others or 0) for one in wanted}
        return await self._find_times(client, config, wanted)

    async def _find_times(
        self, client: AsyncClient, config: FetchConfig, wanted: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        asked = {one: self.time or self.times[one] for one in wanted}
        found = await client.list_offsets(asked, isolation=config.isolation) if asked else {}
        offsets: dict[TopicPartition, int] = {}
        for one, result in found.items():
            if result.offset is None and not self.or_latest:
                raise ConfigError(
                    f"{self.option}: {one} has no record as new as {asked[one]}",
                    hint=f"{STRATEGY}=latest would begin at its end",
                )
            offsets[one] = LATEST if result.offset is None else result.offset
        return offsets


class Resolved(NamedTuple):
    """An offset, and the epoch of the leader that has told it: None if nobody was asked."""

    offset: int
    epoch: int | None = None


async def resolved(
    client: AsyncClient, config: FetchConfig, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Resolved]:
    """Offsets with the ends of partitions asked for."""
    asked: dict[TopicPartition, OffsetSpec] = {
        one: OffsetSpec.latest() if offset == LATEST else OffsetSpec.earliest()
        for one, offset in offsets.items()
        if offset in (LATEST, EARLIEST)
    }
    found = await client.list_offsets(asked, isolation=config.isolation) if asked else {}
    given = {one: Resolved(offset) for one, offset in offsets.items()}
    told = {one: Resolved(end.offset or 0, end.leader_epoch) for one, end in found.items()}
    return {**given, **told}


def _each(name: str, text: str, example: str) -> Iterable[tuple[TopicPartition, Any]]:
    for topic, parts in read_json(name, text, example).items():
        if topic.startswith("@"):  # what offsets of a checkpoint carry beside Spark's own form
            continue
        if not isinstance(parts, dict):
            raise ConfigError(f"{name} has no partitions for {topic}", hint=f"write {example}")
        for number, value in parts.items():
            if not number.isdecimal():
                raise ConfigError(
                    f"{name}: {number!r} is no partition of {topic}", hint=f"write {example}"
                )
            yield TopicPartition(topic, int(number)), value


def _offset(name: str, value: Any) -> int:
    if type(value) is not int or value < EARLIEST:
        raise ConfigError(f"{name}: {value!r} is no offset", hint=f"write {_OFFSETS}")
    return value


def _time(name: str, value: Any) -> OffsetSpec:
    """Milliseconds since 1970, as Spark has them; an age or ISO 8601 as well."""
    text = str(value).strip()
    if text.isdecimal() and type(value) in (int, str):
        return OffsetSpec.at_timestamp_ms(int(text))
    try:
        found = OffsetSpec.parse(text)
    except ConfigError:
        found = OffsetSpec.latest()
    if found.kind not in ("age", "timestamp"):
        raise ConfigError(
            f"{name}: {text!r} is no time",
            hint="give milliseconds since 1970, an age such as '-10 minutes', or ISO 8601",
        )
    return found
