"""The checker of the groups' chaos finds what it is there for, and nothing else."""

from __future__ import annotations

from typing import Any

from tests.chaos.reads import Did, check_reads

CONTENTS = {0: [(offset, b"") for offset in range(5)]}


def did(text: str) -> Did:
    """``a read 3`` or ``a assigned``, or with a generation ``a assigned -1 7``."""
    member, what, *numbers = text.split()
    kind: Any = what
    return Did(kind, member, 0, *map(int, numbers))


def kinds(*texts: str, wanted: int = 0) -> list[str]:
    log = [did(text) for text in texts]
    return [one.kind for one in check_reads(log, CONTENTS, {(0, n) for n in range(wanted)})]


def reads(member: str, *offsets: int) -> list[str]:
    return [f"{member} read {offset}" for offset in offsets]


def test_sound_run_has_no_findings() -> None:
    assert not kinds(
        "a assigned",
        *reads("a", 0, 1, 2),
        "a committing 2",
        "a stored 2",
        "a revoked",
        "b assigned",
        *reads("b", 2, 3, 4),
        "o seen 5",
        wanted=5,
    )


def test_record_that_nobody_was_handed_is_found() -> None:
    assert kinds("a assigned", *reads("a", 0, 1), wanted=3) == ["unread"]


def test_gap_is_found() -> None:
    assert kinds("a assigned", *reads("a", 0, 2)) == ["skipped"]


def test_repetition_in_one_assignment_is_found() -> None:
    assert kinds("a assigned", *reads("a", 0, 1, 1)) == ["repeated"]
    assert not kinds("a assigned", *reads("a", 0), "a lost", "a assigned", *reads("a", 0))


def test_record_that_comes_again_after_its_commit_was_confirmed_is_found() -> None:
    stored = ["a assigned", *reads("a", 0, 1, 2), "a committing 2", "a stored 2", "a revoked"]
    assert kinds(*stored, "b assigned", *reads("b", 1, 2)) == ["again"]
    seen = ["a assigned", *reads("a", 0, 1, 2), "o seen 2", "a lost"]
    assert kinds(*seen, "b assigned", *reads("b", 0, 1, 2)) == ["again", "again"]


def test_record_may_come_again_whose_commit_is_not_known_of() -> None:
    failed = ["a assigned", *reads("a", 0, 1), "a committing 2", "a lost"]
    assert not kinds(*failed, "b assigned", *reads("b", 0, 1))
    # What it was given before it was dropped it hears of late, with the place of that time.
    unaware = ["a unaware -1 4", "b assigned -1 5", *reads("b", 0, 1), "o seen 2", "b revoked"]
    assert not kinds(*unaware, "a assigned -1 4", *reads("a", 0), "a lost")


def test_record_of_somebody_else_is_found() -> None:
    assert kinds("a assigned", "a revoked", *reads("a", 0)) == ["stolen"]


def test_commit_ahead_of_what_was_handed_out_is_found() -> None:
    assert kinds("a assigned", *reads("a", 0), "o seen 2") == ["skipped"]
    assert kinds("a assigned", *reads("a", 0), "a committing 3", "a stored 3") == ["skipped"]


def test_two_owners_are_found_unless_one_was_told() -> None:
    assert kinds("a assigned", "b assigned") == ["shared"]
    assert kinds("a assigned", "b assigned", "a revoked") == ["shared"]
    assert not kinds("a assigned", "b assigned", "a lost")
    assert not kinds("a assigned", "a unaware", "b assigned")
    assert not kinds("a assigned", "a unaware", "b assigned", "a revoked")
    assert not kinds("a assigned", "b assigned", "b lost")


def test_who_was_dropped_is_excused_for_what_it_got_before_and_hears_of_later() -> None:
    late = ["a unaware -1 4", "a assigned -1 4", "b assigned -1 6", "a revoked"]
    assert not kinds(*late)
    joined_again = ["a unaware -1 4", "a assigned -1 6", "b assigned -1 6", "a revoked"]
    assert kinds(*joined_again) == ["shared"]


def test_commit_of_somebody_who_has_lost_the_partition_is_found() -> None:
    begin = ["a assigned", *reads("a", 0), "b assigned", *reads("b", 0)]
    assert kinds(*begin, "a committing 1", "a stored 1", "a lost") == ["late"]
    begun_before = ["a assigned", *reads("a", 0), "a committing 1", "b assigned", "a stored 1"]
    assert not kinds(*begun_before, "a lost")
