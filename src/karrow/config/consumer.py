"""The options that only consumers have."""
# ruff: noqa: RUF009 - option() makes a dataclass field

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from karrow.config.fetch import MAX_DURATION, FetchConfig, Isolation
from karrow.config.option import nearest, option
from karrow.errors import ConfigError
from karrow.types.offsets import OffsetLike, OffsetSpec
from karrow.types.topics import TopicPartition, is_topic_name

if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "ASSIGNORS",
    "Assignors",
    "ConsumerConfig",
    "GroupProtocol",
    "Isolation",
    "NamedAssignor",
    "OutOfRange",
    "Rebalanced",
    "Start",
]

GroupProtocol = Literal["classic", "consumer"]
# A place in every partition, or "none".
Start: TypeAlias = OffsetLike
# The same without plain offsets, or a function: from the partition and the offset that it does not
# have to a place that it may have.
OutOfRange: TypeAlias = OffsetLike | Callable[[TopicPartition, int], OffsetLike]
# Called with the partitions that have come or gone.
Rebalanced: TypeAlias = Callable[[Sequence[TopicPartition]], object]


class NamedAssignor(Protocol):
    """What options have to know of an assignor: what members of a group call it."""

    @property
    def name(self) -> str:
        """The name that all members know it by."""


Assignors: TypeAlias = str | Sequence[str | NamedAssignor]

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
DEFAULT_ASSIGNORS = ("range", "cooperative-sticky")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(FetchConfig):
    """What a consumer can be told, besides what everybody can who fetches.

    >>> ConsumerConfig(group="billing", assignors="range,sticky").assignors
    ('range', 'sticky')
    """

    __module__ = "karrow"

    group: str | None = option(
        None,
        doc="The group that shares the topics' partitions; None reads all and commits nothing.",
        librdkafka="group.id",
        java="group.id",
    )
    start: Start = option(
        "latest",
        doc="Where to begin without a committed offset: a place, or 'none' for an error.",
        librdkafka="auto.offset.reset",
        java="auto.offset.reset",
    )
    out_of_range: OutOfRange | None = option(
        None,
        doc="Where to go on when an offset is gone; None is start if that is an end, else 'none'.",
    )
    protocol: GroupProtocol = option(
        "classic",
        doc="How the group shares partitions: among its members, or by the broker (KIP-848).",
        choices=("classic", "consumer"),
        librdkafka="group.protocol",
        java="group.protocol",
    )
    assignors: Assignors = option(
        DEFAULT_ASSIGNORS,
        doc="Who may divide partitions in a classic group, the best first: names or objects.",
        librdkafka="partition.assignment.strategy",
        java="partition.assignment.strategy",
    )
    remote_assignor: str | None = option(
        None,
        doc="The broker's assignor with protocol='consumer'; None leaves it to the broker.",
        librdkafka="group.remote.assignor",
        java="group.remote.assignor",
    )
    auto_commit: bool = option(
        True,
        doc="With a group, commit in the background what was handed out and done with.",
        librdkafka="enable.auto.commit",
        java="enable.auto.commit",
    )
    auto_commit_interval: float = option(
        5.0,
        doc="How often auto_commit does that.",
        unit="seconds",
        minimum=0,
        librdkafka="auto.commit.interval.ms",
        java="auto.commit.interval.ms",
    )
    instance_id: str | None = option(
        None,
        doc="The member's own name: it keeps its partitions over a restart (KIP-345).",
        librdkafka="group.instance.id",
        java="group.instance.id",
    )
    session_timeout: float = option(
        45.0,
        doc="A classic group goes on without a member that was silent for this long.",
        unit="seconds",
        above=0,
        maximum=MAX_DURATION,
        librdkafka="session.timeout.ms",
        java="session.timeout.ms",
    )
    heartbeat_interval: float = option(
        3.0,
        doc="How often a classic group hears of its member.",
        unit="seconds",
        above=0,
        librdkafka="heartbeat.interval.ms",
        java="heartbeat.interval.ms",
    )
    rebalance_timeout: float | None = option(
        None,
        doc="How long members may take to join again; None is max_poll_interval.",
        unit="seconds",
        above=0,
        maximum=MAX_DURATION,
    )
    max_poll_interval: float = option(
        300.0,
        doc="A member that does not ask for records for this long leaves the group.",
        unit="seconds",
        above=0,
        maximum=MAX_DURATION,
        librdkafka="max.poll.interval.ms",
        java="max.poll.interval.ms",
    )
    max_poll_records: int = option(
        500,
        doc="How many records one poll returns at most.",
        unit="count",
        minimum=1,
        librdkafka="max.poll.records",
        java="max.poll.records",
    )
    on_assigned: Rebalanced | None = option(
        None, doc="Called with the partitions that the consumer has been given."
    )
    on_revoked: Rebalanced | None = option(
        None, doc="Called with the partitions that it gives back, before others have them."
    )
    on_lost: Rebalanced | None = option(
        None, doc="Called with the partitions that others may have already; None is on_revoked."
    )

    def __post_init__(self) -> None:
        FetchConfig.__post_init__(self)  # super() does not know a class that slots has remade
        object.__setattr__(self, "assignors", _assignors(self.assignors))
        self._check_places()
        self._check_callbacks()
        self._check_group()
        self._check_protocol()
        self._check_times()

    # ---- what follows from the options

    @property
    def start_spec(self) -> OffsetSpec | None:
        """Where to begin without a committed offset; None where that is an error."""
        return _place("start", self.start)

    def out_of_range_spec(self, partition: TopicPartition, offset: int) -> OffsetSpec | None:
        """Where a partition goes on that has no such offset; None where that is an error."""
        policy = self.out_of_range
        if policy is None:
            start = self.start_spec
            return start if start is not None and start.kind in ("earliest", "latest") else None
        return _place("out_of_range", policy(partition, offset) if callable(policy) else policy)

    @property
    def commits_itself(self) -> bool:
        """Whether offsets are committed in the background."""
        return self.auto_commit and self.group is not None

    @property
    def rebalance_time(self) -> float:
        """How long members of the group may take to join again."""
        return self.max_poll_interval if self.rebalance_timeout is None else self.rebalance_timeout

    # ---- checks

    def _check_places(self) -> None:
        _place("start", self.start)
        if self.out_of_range is None or callable(self.out_of_range):
            return
        place = _place("out_of_range", self.out_of_range)
        if place is not None and place.kind == "offset":
            raise ConfigError(
                f"out_of_range={self.out_of_range!r} may be out of range itself",
                hint="give 'earliest', 'latest', 'none', a time, an age, or a function",
            )

    def _check_callbacks(self) -> None:
        for name in ("on_assigned", "on_revoked", "on_lost"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ConfigError(f"{name}={value!r} is no function")

    def _check_group(self) -> None:
        if self.group is not None:
            _check_name("group", self.group)
        if self.instance_id is not None:
            _check_name("instance_id", self.instance_id)
            if not is_topic_name(self.instance_id):
                raise ConfigError(
                    f"instance_id={self.instance_id!r} is no name for a member",
                    hint="up to 249 letters, digits, dots, underscores and hyphens",
                )
        for name in ("instance_id", "remote_assignor", "rebalance_timeout"):
            if self.group is None and getattr(self, name) is not None:
                raise ConfigError(f"{name} needs a group", hint=f"set group= too, or drop {name}")

    def _check_protocol(self) -> None:
        if self.protocol == "classic":
            if self.remote_assignor is not None:
                raise ConfigError(
                    "remote_assignor needs protocol='consumer'",
                    hint="set it, or name assignors=, which classic groups use",
                )
            return
        if self.group is None:
            raise ConfigError("protocol='consumer' needs a group", hint="set group= too")
        if self.assignors != DEFAULT_ASSIGNORS:
            raise ConfigError(
                "assignors have no say with protocol='consumer'",
                hint="name the broker's with remote_assignor=, or leave out assignors",
            )

    def _check_times(self) -> None:
        if self.heartbeat_interval >= self.session_timeout:
            raise ConfigError(
                f"heartbeat_interval={self.heartbeat_interval} is not below "
                f"session_timeout={self.session_timeout}",
                hint="a third of session_timeout leaves room for two that are lost",
            )


def _place(name: str, value: OffsetLike) -> OffsetSpec | None:
    """A place in a partition; None for 'none'."""
    if isinstance(value, str) and value == "none":
        return None
    try:
        return OffsetSpec.parse(value)
    except ConfigError as error:
        raise ConfigError(f"{name}={value!r}: {error.message}", hint=error.hint) from None


def _check_name(name: str, value: str) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{name}={value!r} is no text")
    if not value:
        raise ConfigError(f"{name} is empty", hint="give it a name, or None for none")


def _assignors(given: Assignors) -> tuple[str | NamedAssignor, ...]:
    """The assignors in their order; a text names them with commas between."""
    parts: Sequence[Any] = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, Sequence):
        raise ConfigError(f"assignors={given!r} is no list of names or objects")
    checked = tuple(map(_assignor, parts))
    names = [one if isinstance(one, str) else one.name for one in checked]
    if not names:
        raise ConfigError("assignors is empty", hint=f"choose from {', '.join(ASSIGNORS)}")
    if len(set(names)) < len(names):
        raise ConfigError(f"assignors names one twice: {', '.join(names)}")
    return checked


def _assignor(given: Any) -> Any:
    if not isinstance(given, str):
        if isinstance(getattr(given, "name", None), str):
            return given
        raise ConfigError(f"assignors: {given!r} has no name", hint="give a name or an assignor")
    name = given.strip()
    if name in ASSIGNORS:
        return name
    near = nearest(name, ASSIGNORS)
    raise ConfigError(
        f"assignors: {name!r} is none of {', '.join(map(repr, ASSIGNORS))}",
        hint=f"did you mean {near!r}?" if near else "or give an assignor of your own",
    )
