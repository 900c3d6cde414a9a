"""What became of offsets that were to be read and are not there.

Offsets that are missing inside a log are no loss: a transaction has its markers there, had records
that were aborted, or compaction has kept a later record of the same key. What is in front of the
log's beginning was removed (retention, or delete-records), and what is behind its end never was, or
is not any more: the topic was made anew, or a leader was elected that did not have it. If that one
has written since, the offsets are there and other records have them; epochs.py tells.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from karrow.errors import KarrowError

if TYPE_CHECKING:
    from karrow.types import TopicPartition

__all__ = ["Cause", "DataLoss", "Verdict", "report"]

_log = logging.getLogger(__name__)

Cause = Literal["removed", "beyond", "cut", "recreated", "deleted", "late"]
_MEANINGS: dict[Cause, str] = {
    "removed": "were removed before they were read, by retention or delete-records",
    "beyond": "are not there: the topic was made anew, or a leader without them was elected",
    "cut": "were cut off: a leader was elected that did not have them",
    "recreated": "belong to a topic that was deleted; another one has its name now",
    "deleted": "are gone with their topic or partition, which was deleted",
    "late": "were removed before the partition was seen for the first time",
}


class DataLoss(KarrowError):
    """Data that was to be read is gone; ``failOnDataLoss=false`` would go on without it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is lost of one partition, and why."""

    partition: TopicPartition
    start: int
    end: int
    cause: Cause
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return (
            f"offsets {self.start} to {self.end - 1} of {self.partition} "
            f"{_MEANINGS[self.cause]}{detail}"
        )


def report(verdict: Verdict, *, fails: bool) -> None:
    """Raise it or, if the query goes on, write it into the log."""
    if fails:
        raise DataLoss(
            f"data is lost: {verdict}", hint="failOnDataLoss=false goes on with what is there"
        )
    _log.warning("data is lost: %s", verdict)
