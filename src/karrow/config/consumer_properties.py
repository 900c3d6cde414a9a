"""What each consumer's property of librdkafka and of Kafka's Java client becomes here.

Those that are one option stand with that option, in its metadata; here are the rest, and what a
consumer does otherwise than other clients.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from karrow.config.client_properties import FOREVER, NO_CLASSES
from karrow.config.fetch import MAX_FETCH_BYTES
from karrow.errors import ConfigError

if TYPE_CHECKING:
    from karrow.config.dialects import Dialect, Meanings, Reader

__all__ = ["IGNORED", "MEANINGS", "REFUSED", "SUPPORTED"]

SUPPORTED: dict[Dialect, dict[str, str]] = {
    "librdkafka": {"max.partition.fetch.bytes": "partition_max_bytes"},
    "java": {},
}

_PLACES = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), "earliest"),
    **dict.fromkeys(("latest", "largest", "end"), "latest"),
    **dict.fromkeys(("none", "error"), "none"),
}
_CLASSES = {
    f"org.apache.kafka.clients.consumer.{kind}Assignor": name
    for kind, name in (
        ("Range", "range"),
        ("RoundRobin", "roundrobin"),
        ("Sticky", "sticky"),
        ("CooperativeSticky", "cooperative-sticky"),
    )
}
# Java's way to write a Duration: P3DT4H5M6.7S.
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d*)?)S)?)?",
    re.IGNORECASE,
)


def _reset(value: Any) -> str | timedelta:
    """An end of the partition, 'none', or an age (KIP-1106)."""
    text = str(value).strip()
    kind, _, duration = text.partition(":")
    if kind.lower() == "by_duration":
        return _age(text, duration)
    if not isinstance(value, str) or text.lower() not in _PLACES:
        allowed = ", ".join(map(repr, _PLACES))
        raise ConfigError(
            f"auto.offset.reset={text!r} is none of {allowed}", hint="or 'by_duration:PT1H30M'"
        )
    return _PLACES[text.lower()]


def _age(text: str, duration: str) -> timedelta:
    match = _DURATION.fullmatch(duration)
    parts = {} if match is None else {k: float(v) for k, v in match.groupdict().items() if v}
    if not parts:
        raise ConfigError(
            f"auto.offset.reset={text!r} has no duration", hint="write 'by_duration:PT1H30M'"
        )
    try:
        return timedelta(**parts)
    except OverflowError:
        raise ConfigError(f"auto.offset.reset={text!r} is too long ago") from None


def _assignor_names(value: Any) -> Any:
    """Java's own classes by the names that members of groups know them by."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Sequence):
        return parts
    names = [_assignor_name(part.strip()) if isinstance(part, str) else part for part in parts]
    return tuple(names)


def _assignor_name(name: str) -> str:
    known = _CLASSES.get(name)
    if known is None and "." in name:
        raise ConfigError(
            f"partition.assignment.strategy={name} is not supported",
            hint=f"{NO_CLASSES}; give assignors= an object",
        )
    return known or name


MEANINGS: dict[Dialect, dict[str, Meanings | Reader]] = {
    "librdkafka": {
        "auto.commit.interval.ms": {0: FOREVER},
        "auto.offset.reset": _reset,
        "fetch.max.bytes": {0: 1},  # a batch at a time
        "partition.assignment.strategy": _assignor_names,
    },
    "java": {
        "auto.offset.reset": _reset,
        "fetch.max.bytes": {0: 1, 2**31 - 1: MAX_FETCH_BYTES},
        "max.partition.fetch.bytes": {0: 1, 2**31 - 1: MAX_FETCH_BYTES},
        "partition.assignment.strategy": _assignor_names,
    },
}

_LEGACY = "it is for librdkafka's legacy consumer"

IGNORED: dict[Dialect, dict[str, str]] = {
    "librdkafka": {
        "auto.commit.enable": f"{_LEGACY}; enable.auto.commit is for all others",
        "consume.callback.max.messages": f"{_LEGACY}; max.poll.records bounds what poll returns",
        "coordinator.query.interval.ms": "a coordinator is looked for when it is needed",
        "fetch.error.backoff.ms": "waits follow retry.backoff.ms",
        "fetch.queue.backoff.ms": "a fetch leaves as soon as there is room for it",
        "group.protocol.type": "it is always consumer",
        "message.max.bytes": "it bounds what is sent; batches of any size are read",
        "queued.min.messages": "the buffer is bounded by bytes",
    },
    "java": {
        "exclude.internal.topics": "internal topics are read when they are named",
        "internal.throw.on.fetch.stable.offset.unsupported": "it concerns Kafka Streams",
    },
}

_BYTES = "keys and values are bytes; decode them where you use them"
_FILES = "brokers store the offsets of groups; leave it out"
_SHARE = "it is for share groups, and this consumer is no member of one"

REFUSED: dict[Dialect, dict[str, str]] = {
    "librdkafka": {
        "consume_cb": "iterate over the consumer, or call poll",
        "default_topic_conf": "give topic properties beside the others",
        "enable.auto.offset.store": (
            "set enable.auto.commit=false and commit the records that are done with"
        ),
        "enable.partition.eof": "karrow hands out records alone; compare positions with the ends",
        "offset.store.method": _FILES,
        "offset.store.path": _FILES,
        "offset.store.sync.interval.ms": _FILES,
        "offset_commit_cb": "commit raises what went wrong, and karrow.events tells of all commits",
        "rebalance_cb": "give on_assigned=, on_revoked= and on_lost= functions",
        "share.acknowledgement.mode": _SHARE,
    },
    "java": {
        "key.deserializer": _BYTES,
        "share.acknowledgement.mode": _SHARE,
        "share.acquire.mode": _SHARE,
        "value.deserializer": _BYTES,
    },
}
