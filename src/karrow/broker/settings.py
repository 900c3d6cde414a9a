"""Configuration as brokers keep it: names and text, with a type and a default for each name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from karrow import errors

DAY_MS = 86_400_000
FOREVER = 0x7FFFFFFFFFFFFFFF
LARGEST = 0x7FFFFFFF


class Setting(NamedTuple):
    """A setting's kind (as DescribeConfigs numbers it), default, and what it may be."""

    kind: int
    default: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST = 1, 2, 3, 4, 5, 6, 7

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

# Every topic setting of Kafka 4.3.
TOPIC: dict[str, Setting] = {
    "cleanup.policy": Setting(LIST, "delete", choices=("delete", "compact")),
    "compression.gzip.level": Setting(INT, "-1", -1, 9),
    "compression.lz4.level": Setting(INT, "9", 1, 17),
    "compression.type": Setting(STRING, "producer", choices=CODECS),
    "compression.zstd.level": Setting(INT, "3", -131072, 22),
    "delete.retention.ms": Setting(LONG, str(DAY_MS), 0),
    "file.delete.delay.ms": Setting(LONG, "60000", 0),
    "flush.messages": Setting(LONG, str(FOREVER), 1),
    "flush.ms": Setting(LONG, str(FOREVER), 0),
    "follower.replication.throttled.replicas": Setting(LIST, ""),
    "index.interval.bytes": Setting(INT, "4096", 0),
    "leader.replication.throttled.replicas": Setting(LIST, ""),
    "local.retention.bytes": Setting(LONG, "-2", -2),
    "local.retention.ms": Setting(LONG, "-2", -2),
    "max.compaction.lag.ms": Setting(LONG, str(FOREVER), 1),
    "max.message.bytes": Setting(INT, "1048588", 0),
    "message.timestamp.after.max.ms": Setting(LONG, "3600000", 0),
    "message.timestamp.before.max.ms": Setting(LONG, str(FOREVER), 0),
    "message.timestamp.type": Setting(
        STRING, "CreateTime", choices=("CreateTime", "LogAppendTime")
    ),
    "min.cleanable.dirty.ratio": Setting(DOUBLE, "0.5", 0, 1),
    "min.compaction.lag.ms": Setting(LONG, "0", 0),
    "min.insync.replicas": Setting(INT, "1", 1),
    "preallocate": Setting(BOOLEAN, "false"),
    "remote.log.copy.disable": Setting(BOOLEAN, "false"),
    "remote.log.delete.on.disable": Setting(BOOLEAN, "false"),
    "remote.storage.enable": Setting(BOOLEAN, "false"),
    "retention.bytes": Setting(LONG, "-1"),
    "retention.ms": Setting(LONG, str(7 * DAY_MS), -1),
    "segment.bytes": Setting(INT, str(1 << 30), 1 << 20),
    "segment.index.bytes": Setting(INT, str(10 << 20), 4),
    "segment.jitter.ms": Setting(LONG, "0", 0),
    "segment.ms": Setting(LONG, str(7 * DAY_MS), 1),
    "unclean.leader.election.enable": Setting(BOOLEAN, "false"),
}

# What the same thing is called when it is set for all topics.
BROKER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.format.version": "log.message.format.version",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
# Brokers have these in other units too, and the default is in the other unit.
OTHER_UNITS = {
    "flush.ms": ("log.flush.scheduler.interval.ms", str(FOREVER)),
    "retention.ms": ("log.retention.hours", "168"),
    "segment.jitter.ms": ("log.roll.jitter.hours", "0"),
    "segment.ms": ("log.roll.hours", "168"),
}

NEWER_THAN_2_8 = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "local.retention.bytes",
    "local.retention.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
)


def topic_table(release: str) -> dict[str, Setting]:
    """The topic settings of a release."""
    if release not in ("2.8", "3.9"):
        return TOPIC
    older = "2.8-IV1" if release == "2.8" else "3.0-IV1"
    table = TOPIC | {
        "message.downconversion.enable": Setting(BOOLEAN, "true"),
        "message.format.version": Setting(STRING, older),
        "message.timestamp.after.max.ms": Setting(LONG, str(FOREVER), 0),
        "message.timestamp.difference.max.ms": Setting(LONG, str(FOREVER), 0),
        "segment.bytes": Setting(INT, str(1 << 30), 14),
    }
    absent = NEWER_THAN_2_8 if release == "2.8" else ()
    return {name: setting for name, setting in sorted(table.items()) if name not in absent}


class Settings:
    """Values that were set, over those set for all, over the defaults of their table."""

    def __init__(
        self,
        table: Mapping[str, Setting],
        given: Mapping[str, str] = {},
        inherited: Mapping[str, str] = {},
    ) -> None:
        self.table = table
        self.given = dict(given)
        self.inherited = inherited

    def text(self, name: str) -> str:
        """The value as text."""
        found = self.given.get(name)
        return self.inherited.get(name, self.table[name].default) if found is None else found

    def number(self, name: str) -> int:
        """The value as a whole number."""
        return int(self.text(name))

    def items(self, name: str) -> list[str]:
        """The value as a list."""
        return [item.strip() for item in self.text(name).split(",") if item.strip()]

    def changed(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """What would be set after the changes; None takes a setting back to its default."""
        given = dict(self.given)
        for name, value in changes.items():
            if value is None:
                given.pop(name, None)
            else:
                check(self.table, name, value)
                given[name] = value
        return given


def check(table: Mapping[str, Setting], name: str, value: str) -> None:
    """Refuse an unknown name or a value outside its range, as the broker would."""
    setting = table.get(name)
    if setting is None:
        raise errors.InvalidConfig(f"Unknown topic config name: {name}")
    problem = problem_with(setting, value.strip())
    if problem:
        raise errors.InvalidConfig(f"Invalid value {value} for configuration {name}: {problem}")


def problem_with(setting: Setting, value: str) -> str | None:
    """Why a value cannot be, None if it can."""
    if setting.kind == BOOLEAN:
        return None if value.lower() in ("true", "false") else "expected true or false"
    if setting.kind == LIST:
        chosen = [item.strip() for item in value.split(",") if item.strip()]
        bad = [item for item in chosen if setting.choices and item not in setting.choices]
        return f"{bad[0]} is not one of {', '.join(setting.choices)}" if bad else None
    if setting.kind == STRING:
        good = not setting.choices or value in setting.choices
        return None if good else f"not one of {', '.join(setting.choices)}"
    return _number_problem(setting, value)


def _number_problem(setting: Setting, value: str) -> str | None:
    try:
        number = float(value) if setting.kind == DOUBLE else int(value)
    except ValueError:
        return "not a number"
    if "_" in value:
        return "not a number"  # but in Python
    if setting.low is not None and number < setting.low:
        return f"value must be at least {setting.low:.16g}"
    if setting.high is not None and number > setting.high:
        return f"value must be no more than {setting.high:.16g}"
    limit = LARGEST if setting.kind == INT else FOREVER
    return None if abs(number) <= limit else "not a number of this type"
