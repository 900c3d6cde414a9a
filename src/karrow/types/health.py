"""How something that runs for long is doing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Health", "HealthState"]


class HealthState(StrEnum):
    """From good to bad."""

    __module__ = "karrow"

    OK = "ok"
    WAITING = "waiting"
    DEGRADED = "degraded"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Health:
    """What a consumer says of itself.

    ``ok`` goes on as it should; ``waiting`` has no reason to go on, which is nobody's fault;
    ``degraded`` does not go on, or not everywhere, and keeps trying; ``dead`` will never. ``since``
    is when that began, in seconds since 1970.
    """

    __module__ = "karrow"

    state: HealthState
    reason: str
    since: float

    @classmethod
    def from_now_on(cls, state: HealthState, reason: str) -> Health:
        """What has just begun."""
        return cls(state, reason, time.time())

    @property
    def is_ok(self) -> bool:
        """Whether it goes on as it should."""
        return self.state is HealthState.OK

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else str(self.state)
