"""What users write: a handler of one partition's records, and what its callbacks may answer.

A handler can be tried without a broker: make one, and call it with ``karrow.Record(...)``.

    >>> from karrow import Commit, Handler, Record
    >>> class Adder(Handler):
    ...     total = 0
    ...
    ...     def handle_records(self, records):
    ...         self.total += sum(int(record.value) for record in records)
    ...         return Commit.ASYNC
    >>> adder = Adder()
    >>> adder.handle_records([Record(value=b"1"), Record(value=b"2")])
    <Commit.ASYNC: 'async'>
    >>> adder.total
    3
"""

# ruff: noqa: ARG002 - callbacks are there to be overridden

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from karrow.errors import ConfigError, CorruptRecordError, StateError

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.records import Record

__all__ = ["Commit", "Handler", "Stop"]

_log = logging.getLogger("karrow.workers")


class Commit(StrEnum):
    """When the offset behind handled records is stored."""

    ASYNC = "async"
    """With others, after ``commit_interval`` or ``commit_threshold`` records."""
    SYNC = "sync"
    """At once, before the worker is given anything else."""


Commit.__module__ = "karrow"


@dataclass(frozen=True, slots=True)
class Stop:
    """Returned by any callback: the group is to end, since nobody else here reads the partition.

    ``reply`` is what the caller of ``handle_call`` gets. The records that ``handle_records`` was
    given count as not handled, and are read again by whoever comes next, unless ``commit`` is set.
    """

    __module__ = "karrow"

    reason: object = None
    reply: object = None
    commit: Commit | None = None


# What callbacks give back, at once or awaited.
Handled: TypeAlias = Commit | Stop | None
Told: TypeAlias = Stop | None


class Handler:
    """Handles the records of one partition.

    Subclasses have ``handle_records`` or ``handle_batch``, and of the other callbacks what they
    need. Each may be a plain function, which runs in one of the group's threads, or ``async``,
    which runs on its loop. No two callbacks of a handler ever run at once.

    A callback that raises ends its handler: ``teardown`` is called, and a new handler goes on at
    what was committed last.
    """

    __module__ = "karrow"

    topic: str = ""
    partition: int = -1
    group: str | None = None
    # Behind the last record that ``done`` was told of; None when there is none.
    done_until: int | None = None

    def setup(
        self, topic: str, partition: int, *args: Any, **arguments: Any
    ) -> Told | Awaitable[Told]:
        """Make ready; ``arguments`` are the group's. Returning Stop refuses the partition."""

    def handle_records(self, records: Sequence[Record]) -> Handled | Awaitable[Handled]:
        """Handle some records of the partition, in order; None is Commit.ASYNC."""
        raise missing(type(self), "handle_records")

    def handle_batch(self, batch: pa.RecordBatch) -> Handled | Awaitable[Handled]:
        """Handle some records of the partition as Arrow columns; None is Commit.ASYNC."""
        raise missing(type(self), "handle_batch")

    def handle_damage(self, error: CorruptRecordError) -> Told | Awaitable[Told]:
        """A batch of the partition cannot be read; returning goes on behind it."""
        raise error

    def handle_call(self, message: Any) -> Any:
        """Answer ``call`` from outside; what is raised is raised there."""
        raise missing(type(self), "handle_call")

    def handle_cast(self, message: Any) -> Told | Awaitable[Told]:
        """Take a message of ``cast`` from outside."""
        raise missing(type(self), "handle_cast")

    def handle_info(self, message: Any) -> Told | Awaitable[Told]:
        """Take a message of ``info`` from outside."""
        _log.error("%s-%d: no handle_info for %r", self.topic, self.partition, message)
        return None

    def teardown(self) -> Told | Awaitable[Told]:
        """Put things in order: the last callback, also after one that raised, but for setup."""

    def done(self, record: Record) -> None:
        """This record and all before it are handled, whatever becomes of those that follow."""
        self.done_until = record.offset + 1

    @classmethod
    def has(cls, callback: str) -> bool:
        """Whether a subclass has a callback of its own."""
        return getattr(cls, callback) is not getattr(Handler, callback)


def missing(handler: type[Handler], callback: str) -> StateError:
    """The error of asking for a callback that a handler does not have."""
    return StateError(f"{handler.__name__} has no {callback}", hint="write one")


def reads_batches(handler: object) -> bool:
    """Whether a class of handlers wants Arrow batches; a ConfigError for what is no such class."""
    if not (isinstance(handler, type) and issubclass(handler, Handler)):
        raise ConfigError(
            f"{handler!r} is no class of handlers", hint="give a subclass of karrow.Handler"
        )
    wanted = [name for name in ("handle_records", "handle_batch") if handler.has(name)]
    if len(wanted) != 1:
        raise ConfigError(
            f"{handler.__name__} has {' and '.join(wanted) or 'no callback for records'}",
            hint="have either handle_records or handle_batch",
        )
    return wanted == ["handle_batch"]
