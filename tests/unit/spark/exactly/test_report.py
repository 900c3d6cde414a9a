"""What tasks report is all of it, or nothing is committed."""

from __future__ import annotations

import pytest

from karrow.aio.producing.coordinator_calls import Identity
from karrow.errors import StateError
from karrow.spark.exactly.part import Written
from karrow.spark.exactly.report import Report, check

WHO = Identity(7, 3)
GOOD = (
    Report(0, 2, 7, 3, 5, [Written("t", 0, 3, 10, 2), Written("t", 2, 2, 0, 1)]),
    Report(1, 2, 7, 3, 4, [Written("t", 1, 4, 0, 3)]),
)


def test_rows_of_all_tasks_are_counted() -> None:
    assert check(reversed(GOOD), WHO) == 9
    assert check([], WHO) == 0
    assert check([Report(0, 1, 7, 3, 0, [])], WHO) == 0


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        (GOOD[:1], "not every task"),
        ([GOOD[1], GOOD[1]], "not every task"),
        ([GOOD[0], GOOD[1]._replace(epoch=2)], "task 1 wrote as"),
        ([GOOD[0], GOOD[1]._replace(rows=5)], "was given 5 rows and wrote 4"),
        ([GOOD[0], GOOD[1]._replace(written=[Written("t", 2, 4, 0, 3)])], "by the tasks 0 and 1"),
        ([GOOD[0], GOOD[1]._replace(written=[Written("t", 1, 4, 0, 4)])], "number 4"),
    ],
)
def test_anything_else_is_refused(reports: list[Report], message: str) -> None:
    with pytest.raises(StateError, match=message):
        check(reports, WHO)
