"""What Admin asks for and gives back, besides topics and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from karrow.types.numbers import Numbered

if TYPE_CHECKING:
    from karrow.errors import KarrowError
    from karrow.types.topics import TopicPartition

__all__ = [
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigType",
    "ElectionResult",
    "ProducerState",
    "ScramInfo",
    "ScramMechanism",
    "TransactionDescription",
    "TransactionListing",
    "UserScramDescription",
]


class ConfigType(Numbered):
    """What a configuration belongs to."""

    __module__ = "karrow"

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(Numbered):
    """Where a configuration's value was set."""

    __module__ = "karrow"

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """The owner of a configuration; hashable, so that it can be a key.

    >>> ConfigResource.topic("orders")
    ConfigResource(type=<ConfigType.TOPIC: 2>, name='orders')
    """

    __module__ = "karrow"

    type: ConfigType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic."""
        return cls(ConfigType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """A broker, or with None the defaults of all brokers."""
        return cls(ConfigType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        """A consumer group."""
        return cls(ConfigType.GROUP, name)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration: ``value`` is None when it is sensitive or not set.

    ``synonyms`` are the entries it would fall back to, nearest first.
    """

    __module__ = "karrow"

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    read_only: bool = False
    sensitive: bool = False
    synonyms: tuple[ConfigEntry, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody set it."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one configuration; a plain value sets it, None is its deletion.

    ``append`` and ``subtract`` concern lists, whose items are separated by commas. The value is not
    shown, since it may be a password.

    >>> ConfigChange.append("compact").applied_to("delete")
    'delete,compact'
    """

    __module__ = "karrow"

    action: Literal["set", "delete", "append", "subtract"]
    value: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, value: str | ConfigChange | None) -> ConfigChange:
        """From what callers write."""
        if isinstance(value, ConfigChange):
            return value
        return cls("delete") if value is None else cls("set", value)

    @classmethod
    def append(cls, value: str) -> ConfigChange:
        """Add items to a list."""
        return cls("append", value)

    @classmethod
    def subtract(cls, value: str) -> ConfigChange:
        """Take items out of a list."""
        return cls("subtract", value)

    def applied_to(self, before: str | None) -> str | None:
        """What becomes of a value; None is no value of its own."""
        if self.action in ("set", "delete"):
            return self.value
        old, items = _items(before), _items(self.value)
        if self.action == "append":
            return ",".join(dict.fromkeys(old + items))
        return ",".join(item for item in old if item not in items)


def _items(value: str | None) -> list[str]:
    return [item.strip() for item in value.split(",")] if value else []


class ScramMechanism(Numbered):
    """The SCRAM mechanisms brokers store credentials for."""

    __module__ = "karrow"

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    def __str__(self) -> str:
        return self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class ScramInfo:
    """A stored credential; its secret never leaves the broker."""

    __module__ = "karrow"

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramDescription:
    """The SCRAM credentials of one user."""

    __module__ = "karrow"

    user: str
    credentials: tuple[ScramInfo, ...] = ()
    error: KarrowError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, its producer, and the state of its transaction."""

    __module__ = "karrow"

    transactional_id: str
    producer_id: int
    state: str
    broker_id: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction and the partitions it has written to; times are None when none is open."""

    __module__ = "karrow"

    transactional_id: str
    state: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    timeout: float = 0.0
    start_timestamp_ms: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    coordinator_id: int | None = None
    error: KarrowError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that a partition's leader remembers; offset None when it has no transaction."""

    __module__ = "karrow"

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None = None
    transaction_start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """Outcome of a leader election for each partition; None where it succeeded."""

    __module__ = "karrow"

    errors: Mapping[TopicPartition, KarrowError | None] = field(default_factory=dict)

    @property
    def elected(self) -> tuple[TopicPartition, ...]:
        """The partitions that got a leader."""
        return tuple(partition for partition, error in self.errors.items() if error is None)
