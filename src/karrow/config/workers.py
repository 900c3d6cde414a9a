"""The options that only groups of workers have."""
# ruff: noqa: RUF009 - option() makes a dataclass field

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from karrow.config.consumer import ConsumerConfig
from karrow.config.option import option

__all__ = ["Columns", "WorkerConfig"]

# Names of the columns that handle_batch wants.
Columns: TypeAlias = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig(ConsumerConfig):
    """What a group of workers can be told, besides what every consumer can.

    >>> WorkerConfig(group="billing", commit_threshold=1).commit_interval
    5.0
    """

    __module__ = "karrow"

    threads: int = option(
        8,
        doc="How many callbacks without async may run at once.",
        unit="count",
        minimum=1,
    )
    commit_interval: float = option(
        5.0,
        doc="How long a commit that nobody waits for may wait for others.",
        unit="seconds",
        above=0,
    )
    commit_threshold: int = option(
        100,
        doc="How many records may wait for such a commit.",
        unit="count",
        minimum=1,
    )
    shutdown: float = option(
        5.0,
        doc="How long a callback may go on when its partition is given back, or the group stops.",
        unit="seconds",
        minimum=0,
    )
    max_restarts: int = option(
        3,
        doc="How many workers may be restarted within max_seconds; one more ends the group.",
        unit="count",
        minimum=0,
    )
    max_seconds: float = option(
        5.0,
        doc="The time in which restarts are counted.",
        unit="seconds",
        above=0,
    )
    join_attempts: int = option(
        6,
        doc="How many attempts to join the group may fail in a row; then the workers end.",
        unit="count",
        minimum=1,
    )
    batch_records: int | None = option(
        None,
        doc="How many records a callback is given; None is max_poll_records, in Arrow only "
        "batch_bytes.",
        unit="count",
        minimum=1,
    )
    batch_bytes: int | None = option(
        None,
        doc="How many bytes of keys and values end an Arrow batch; None is 4 MiB.",
        unit="bytes",
        minimum=1,
    )
    columns: Columns | None = option(None, doc="The columns of Arrow batches; None is all of them.")
    fetch_interval: float = option(
        0.0,
        doc="How long a partition rests after its records were handled.",
        unit="seconds",
        minimum=0,
    )
