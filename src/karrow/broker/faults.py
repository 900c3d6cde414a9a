"""Trouble on demand: what to do to the next requests of an API.

Rules:
- A fault is armed for a number of requests and then gone. Those armed first come first; a request
  meets one fault at most.
- ``fail`` refuses without acting. With a topic or partition it concerns only that part of a
  request, and the rest goes on.
- ``drop`` and ``close`` come before the request is acted on, or after; a dropped request leaves its
  connection open and silent for good, as a broker that hangs does.
- What is random (which bit ``corrupt`` flips) follows from the broker's seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from karrow import errors
from karrow.errors import BrokerError, ConfigError
from karrow.wire.table import api as find_api

if TYPE_CHECKING:
    from karrow.broker.call import Call

Named = tuple[str, int | None]
Moment = Literal["before", "after"]
Kind = Literal["fail", "drop", "close", "delay", "raw", "corrupt", "throttle"]
# The APIs of which a part can fail: their handlers ask for each topic or partition.
PARTIAL = frozenset(
    {
        "DeleteRecords",
        "Fetch",
        "ListOffsets",
        "Metadata",
        "OffsetCommit",
        "OffsetForLeaderEpoch",
        "Produce",
        "TxnOffsetCommit",
    }
)


@dataclass(slots=True, eq=False)
class Fault:
    """One kind of trouble, and whom it meets."""

    kind: Kind
    api: str | None
    times: int = 1
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    error: BrokerError | None = None
    moment: Moment = "before"
    seconds: float = 0.0
    data: bytes = b""
    met: int = 0

    @property
    def is_partial(self) -> bool:
        """Whether it concerns a part of a request only."""
        return self.topic is not None or self.partition is not None

    @property
    def is_spent(self) -> bool:
        """Whether it has met as many requests as it was armed for."""
        return self.met >= self.times

    def meets(self, call: Call) -> bool:
        """Whether a request is one it is armed for, whatever it is about."""
        return self.api in (None, call.api) and self.broker in (None, call.node_id)

    def concerns(self, topic: str, partition: int | None) -> bool:
        """Whether a topic or partition is one it is armed for."""
        if self.topic not in (None, topic):
            return False
        return self.partition in (None, partition) or partition is None


class Faults:
    """All faults that are armed."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []

    def __len__(self) -> int:
        return len(self._armed)

    def arm(self, fault: Fault) -> Fault:
        """Add a fault; refuses one that could never meet anything."""
        if fault.api is not None:
            find_api(fault.api)
        if fault.times < 1:
            raise ConfigError(f"times={fault.times}: a fault must meet at least one request")
        if fault.kind == "fail" and fault.is_partial and fault.api not in PARTIAL:
            known = ", ".join(sorted(PARTIAL))
            raise ConfigError(
                f"{fault.api} cannot fail for one topic or partition only; these can: {known}"
            )
        self._armed.append(fault)
        return fault

    def clear(self) -> None:
        """Disarm everything."""
        self._armed.clear()

    def take(self, call: Call, named: Iterable[Named]) -> Fault | None:
        """The fault that a request meets as a whole; ``named`` is what it is about."""
        for fault in self._armed:
            if not fault.meets(call) or (fault.kind == "fail" and fault.is_partial):
                continue
            if not fault.is_partial or any(fault.concerns(*item) for item in named):
                self._meet(fault)
                return fault
        return None

    def check(self, call: Call, topic: str, partition: int | None = None) -> None:
        """Raise the error that a part of a request is to fail with, if there is one."""
        for fault in self._armed:
            if fault.kind != "fail" or not fault.is_partial or fault.error is None:
                continue
            if fault.meets(call) and fault.concerns(topic, partition):
                self._meet(fault)
                raise fault.error

    def _meet(self, fault: Fault) -> None:
        fault.met += 1
        if fault.is_spent:
            self._armed.remove(fault)


def error_from(error: str | int | type[BrokerError] | BrokerError) -> BrokerError:
    """An error given by Kafka's name for it, its code, or karrow's class."""
    if isinstance(error, BrokerError):
        return error
    if isinstance(error, type) and issubclass(error, BrokerError):
        return error("injected")
    try:
        found = errors.for_name(error) if isinstance(error, str) else errors.for_code(error)
    except ValueError as problem:
        raise ConfigError(f"error={error!r}: {problem}") from None
    if found is errors.UnknownBrokerError:
        return errors.UnknownBrokerError("injected", code=int(error))
    return found("injected")
