"""What the tasks of a write have done, and whether that is all of it.

Rules:
- Nothing is committed unless every task has told what it wrote, under the identity of the attempt.
- A partition is one task's. The broker would take the records of a second writer, numbered the
  same, for repetitions of the first one's, and say that they are written.
- Every row that a task was given is acknowledged, and numbered from 0 without a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from karrow.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karrow.aio.producing.coordinator_calls import Identity
    from karrow.spark.exactly.part import Written

# As Spark writes it.
SCHEMA = (
    "task int, of int, producer_id long, epoch int, rows long, written array<struct<topic:string,"
    "partition:int,rows:long,first_offset:long,last_sequence:long>>"
)


class Report(NamedTuple):
    """What a task tells: ``rows`` it was given, ``written`` what brokers have acknowledged."""

    task: int
    of: int
    producer_id: int
    epoch: int
    rows: int
    written: Sequence[Written]


def check(reports: Iterable[Report], who: Identity) -> int:
    """How many rows were written; raises unless all of it is as it has to be."""
    found = sorted(reports, key=lambda report: report.task)
    tasks = [report.task for report in found]
    if any(report.of != len(found) for report in found) or tasks != list(range(len(found))):
        raise _wrong(f"not every task has reported, or one twice: {tasks}")
    writers: dict[tuple[str, int], int] = {}
    for report in found:
        _check_task(report, who)
        for one in report.written:
            place = (one.topic, one.partition)
            if writers.setdefault(place, report.task) != report.task:
                raise _wrong(f"{place} was written by the tasks {writers[place]} and {report.task}")
    return sum(report.rows for report in found)


def _check_task(report: Report, who: Identity) -> None:
    if (report.producer_id, report.epoch) != who:
        raise _wrong(f"task {report.task} wrote as {(report.producer_id, report.epoch)}")
    total = sum(one.rows for one in report.written)
    if total != report.rows:
        raise _wrong(f"task {report.task} was given {report.rows} rows and wrote {total}")
    for one in report.written:
        if one.last_sequence != one.rows - 1:
            raise _wrong(
                f"{one.topic} [{one.partition}] has {one.rows} rows, the last of which is number "
                f"{one.last_sequence}"
            )


def _wrong(text: str) -> StateError:
    return StateError(f"the batch is not as it was to be written: {text}")
