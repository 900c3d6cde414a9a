"""Why a group of workers has ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from karrow.errors import (
    AuthenticationError,
    AuthorizationError,
    Fenced,
    GroupEnded,
    GroupJoinFailed,
    KarrowError,
)

__all__ = ["EndReason", "Ending"]


class EndReason(StrEnum):
    """Why a group of workers has ended; few and fixed, for alerts and dashboards."""

    STOPPED = "stopped"
    """It was told to."""
    HANDLER = "handler"
    """A callback returned Stop."""
    REFUSED = "refused"
    """``setup`` returned Stop."""
    CRASH_LOOP = "crash_loop"
    """Handlers raised more often than ``max_restarts`` in ``max_seconds``."""
    FENCED = "fenced"
    """Another member has taken the instance id."""
    AUTH = "auth"
    """The broker refused the credentials, or a right is missing."""
    JOIN_FAILED = "join_failed"
    """The group could not be joined in ``join_attempts``, or refuses the member for good."""
    ERROR = "error"
    """Anything else that will not pass."""


EndReason.__module__ = "karrow"
ORDERLY = frozenset({EndReason.STOPPED, EndReason.HANDLER})
# The requests that make a member.
JOINING = frozenset({"JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"})


@dataclass(frozen=True, slots=True)
class Ending:
    """How a group of workers has ended.

    ``detail`` is the reason that a Stop carried, or which callback raised where; ``error`` is what
    was raised.
    """

    __module__ = "karrow"

    reason: EndReason
    detail: object = None
    error: BaseException | None = None

    @property
    def is_orderly(self) -> bool:
        """Whether somebody wanted it."""
        return self.reason in ORDERLY

    def check(self) -> None:
        """Raise GroupEnded unless somebody wanted it."""
        if self.is_orderly:
            return
        why = ": ".join(str(one) for one in (self.detail, self.error) if one is not None)
        text = f"the workers have ended: {self.reason}" + (f" ({why})" if why else "")
        raise GroupEnded(text, reason=str(self.reason), detail=self.detail) from self.error


def ending_for(error: Exception) -> Ending:
    """The ending that an error of the consumer means."""
    kinds = list(_causes(error))
    if any(isinstance(one, Fenced) for one in kinds):
        return Ending(EndReason.FENCED, error=error)
    if any(isinstance(one, AuthenticationError | AuthorizationError) for one in kinds):
        return Ending(EndReason.AUTH, error=error)
    if any(isinstance(one, GroupJoinFailed) or _is_of_joining(one) for one in kinds):
        return Ending(EndReason.JOIN_FAILED, error=error)
    return Ending(EndReason.ERROR, error=error)


def _is_of_joining(error: BaseException) -> bool:
    return isinstance(error, KarrowError) and error.context.get("api") in JOINING


def is_final(error: KarrowError) -> bool:
    """Whether an error of a commit ends the group; others pass, or the membership hears of them."""
    return ending_for(error).reason is not EndReason.ERROR


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                yield from _causes(one)
        error = error.__cause__
