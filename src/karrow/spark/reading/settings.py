"""All options of the source, read once and checked against each other before anything is asked."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from karrow.config import ConsumerConfig
from karrow.errors import ConfigError
from karrow.spark import options as spark_options
from karrow.spark.options import connection, count, flag, text
from karrow.spark.reading.places import EARLIEST, LATEST, STRATEGY, Place
from karrow.spark.reading.ranges import Division
from karrow.spark.reading.schema import INCLUDE_HEADERS
from karrow.spark.reading.topics import ASSIGN, PATTERN, SUBSCRIBE, Topics

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SOURCE_KEYS", "Limits", "Settings"]

_log = logging.getLogger(__name__)

_ENDING = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitGroup",
)
# Spark's connector has them; karrow has nothing that they could change.
_WITHOUT_EFFECT = {
    "groupIdPrefix": "no group is joined, so none needs a name",
    "fetchOffset.numRetries": "offsets are asked for until kafka.default.api.timeout.ms",
    "fetchOffset.retryIntervalMs": "waits follow kafka.retry.backoff.ms",
    "kafkaConsumer.pollTimeoutMs": "a task waits for kafka.default.api.timeout.ms",
    "partition.metadata.cache.ttl.ms": "metadata is asked for when it is needed",
}
SOURCE_KEYS = frozenset(
    {
        *(SUBSCRIBE, PATTERN, ASSIGN),
        *("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp", STRATEGY),
        *_ENDING,
        *("failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition"),
        *_STREAM_ONLY,
        *(INCLUDE_HEADERS, "pushdown"),
        *_WITHOUT_EFFECT,
    }
)
# Properties of consumers that a source decides for itself, and what to say instead.
_DECIDED = {
    "kafka.auto.offset.reset": "say startingOffsets; what happens to offsets that are gone is "
    "failOnDataLoss",
    "kafka.enable.auto.commit": "Spark's checkpoint has the offsets; commitGroup commits them too",
}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SCALES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)
_SECONDS = {
    **dict.fromkeys(("us",), 1e-6),
    **dict.fromkeys(("", "ms"), 1e-3),
    **dict.fromkeys(("s",), 1.0),
    **dict.fromkeys(("m", "min"), 60.0),
    **dict.fromkeys(("h",), 3600.0),
    **dict.fromkeys(("d",), 86400.0),
}
_MAX_DELAY = 15 * 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one micro-batch may have, and how long it may wait to have enough."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_bytes: int | None = None
    max_delay: float = _MAX_DELAY

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Limits:
        """From the options ``...PerTrigger`` and ``maxTriggerDelay``."""
        most, least = count(options, "maxOffsetsPerTrigger"), count(options, "minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise ConfigError(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}")
        delay = _duration(options, "maxTriggerDelay")
        return cls(
            most,
            least,
            _bytes(options, "maxBytesPerTrigger"),
            _MAX_DELAY if delay is None else delay,
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """What a query wants."""

    config: ConsumerConfig
    topics: Topics
    start: Place
    end: Place
    division: Division
    limits: Limits
    fails_on_loss: bool
    with_headers: bool
    commit_group: str | None
    start_group: str | None

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> Settings:
        """Of ``spark.read``."""
        _check(options)
        found = cls._parse(options, Place.parse(options, "starting", "earliest"))
        _check_batch(found)
        # A batch commits nothing, yet it may begin at what the group has committed.
        used = {"commitGroup"} if found.start.kind == "group" else set()
        for name in _STREAM_ONLY:
            if text(options, name) is not None and name not in used:
                _log.warning("%s has no effect in a batch query", name)
        return found

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> Settings:
        """Of ``spark.readStream``."""
        _check(options)
        for name in _ENDING:
            if text(options, name) is not None:
                raise ConfigError(f"{name} has no meaning in a stream, which does not end")
        if flag(options, "pushdown", default=False):
            _log.warning("pushdown has no effect in a stream: Spark filters the rows of each batch")
        return cls._parse(options, Place.parse(options, "starting", "latest"))

    @classmethod
    def _parse(cls, options: Mapping[str, str], start: Place) -> Settings:
        config = connection(options, ConsumerConfig)
        commit_group = text(options, "commitGroup")
        start_group = commit_group or config.group
        if start.kind == "group" and start_group is None:
            raise ConfigError(
                "startingOffsets=group needs a group", hint="name it with commitGroup"
            )
        return cls(
            config=config,
            topics=Topics.parse(options),
            start=start,
            end=Place.parse(options, "ending", "latest"),
            division=Division(
                count(options, "minPartitions"),
                count(options, "maxRecordsPerPartition"),
                _bytes(options, "maxBytesPerPartition"),
            ),
            limits=Limits.parse(options),
            fails_on_loss=flag(options, "failOnDataLoss", default=True),
            with_headers=flag(options, INCLUDE_HEADERS, default=False),
            commit_group=commit_group,
            start_group=start_group,
        )


def _check(options: Mapping[str, str]) -> None:
    spark_options.check_known(options, SOURCE_KEYS)
    for name, instead in _DECIDED.items():
        if text(options, name) is not None:
            raise ConfigError(f"{name} is not for sources", hint=instead)
    for name, why in _WITHOUT_EFFECT.items():
        if text(options, name) is not None:
            _log.info("%s has no effect: %s", name, why)


def _check_batch(settings: Settings) -> None:
    start, end = settings.start, settings.end
    if start.kind == "latest" or LATEST in start.offsets.values():
        raise ConfigError(
            "startingOffsets cannot be latest in a batch query: there is nothing behind it",
            hint="say earliest (-2), an offset, or a time",
        )
    if end.kind == "earliest" or EARLIEST in end.offsets.values():
        raise ConfigError(
            "endingOffsets cannot be earliest in a batch query: there is nothing in front of it",
            hint="say latest (-1), an offset, or a time",
        )
    for one, offset in start.offsets.items():
        last = end.offsets.get(one, LATEST)
        if 0 <= last < offset:
            raise ConfigError(
                f"startingOffsets begins at {offset} of {one}, and endingOffsets ends at {last}"
            )


def _bytes(options: Mapping[str, str], name: str) -> int | None:
    """A size as Spark writes it: 1048576, 512k, 64m, 1g."""
    found = text(options, name)
    if found is None:
        return None
    match = _SIZE.fullmatch(found)
    size = int(match[1]) * _SCALES[match[2].lower()] if match else 0
    if not size:
        raise ConfigError(f"{name}={found!r} is no size", hint="write bytes, or 64m")
    return size


def _duration(options: Mapping[str, str], name: str) -> float | None:
    """A duration as Spark writes it: 15m, 30s, or plain milliseconds."""
    found = text(options, name)
    if found is None:
        return None
    match = _DURATION.fullmatch(found)
    scale = _SECONDS.get(match[2].lower()) if match else None
    if match is None or scale is None:
        raise ConfigError(f"{name}={found!r} is no duration", hint="write 15m, 30s or 500ms")
    return int(match[1]) * scale
