"""The checker of the chaos runs finds what it is there for, and nothing where nothing is wrong."""

from __future__ import annotations

import pytest

from tests.chaos.checker import Contents, Finding, check
from tests.chaos.events import EventLog, Outcome, Payload, Place

A0, A1, A2 = (Payload("a", number) for number in range(3))
B0 = Payload("b", 0)


def ok(offset: int | None, partition: int = 0) -> Outcome:
    return Outcome("ok", partition, offset)


FAILED = Outcome("failed", error="refused")
IN_DOUBT = Outcome("indefinite", error="time-out")


def log_of(outcomes: dict[Payload, Outcome | None]) -> EventLog:
    log = EventLog()
    for payload, outcome in outcomes.items():
        log.send(payload)
        if outcome is not None:
            log.settle(payload, outcome)
    return log


def lying(*payloads: Payload) -> Contents:
    return {0: [(offset, bytes(payload)) for offset, payload in enumerate(payloads)]}


def test_sound_run_has_no_findings() -> None:
    log = log_of({A0: ok(0), A1: FAILED, A2: ok(2), B0: ok(1)})
    assert check(log, lying(A0, B0, A2)) == []


def test_record_in_doubt_may_be_there_or_not() -> None:
    log = log_of({A0: IN_DOUBT, A1: IN_DOUBT, A2: ok(1)})
    assert check(log, lying(A0, A2)) == []


def test_offset_may_be_unknown() -> None:
    assert check(log_of({A0: ok(0), A1: ok(None)}), lying(A0, A1)) == []


def test_padding_behind_a_payload_is_ignored() -> None:
    assert check(log_of({A0: ok(0)}), {0: [(0, bytes(A0) + b" xxxx")]}) == []


def test_lost_record_is_found() -> None:
    found = check(log_of({A0: ok(0), A1: ok(7)}), lying(A0))
    assert found == [Finding("lost", "a/1", (), "acknowledged at 0@7")]


def test_doubled_record_is_found() -> None:
    found = check(log_of({A0: ok(0), A1: ok(1)}), lying(A0, A1, A0))
    assert found == [Finding("doubled", "a/0", (Place(0, 0), Place(0, 2)))]


def test_doubled_record_is_found_across_partitions() -> None:
    contents = {0: [(0, bytes(A0))], 1: [(5, bytes(A0))]}
    found = check(log_of({A0: ok(0)}), contents)
    assert found == [Finding("doubled", "a/0", (Place(0, 0), Place(1, 5)))]


def test_doubled_record_in_doubt_is_found() -> None:
    assert [one.kind for one in check(log_of({A0: IN_DOUBT}), lying(A0, A0))] == ["doubled"]


def test_duplicates_can_be_allowed() -> None:
    log = log_of({A0: ok(0), A1: ok(1)})
    assert check(log, lying(A0, A1, A0), allow_duplicates=True) == []


def test_disordered_record_is_found() -> None:
    found = check(log_of({A0: ok(1), A1: ok(0)}), lying(A1, A0))
    assert found == [Finding("disordered", "a/0", (Place(0, 1),), "behind a/1 at 0@0")]


def test_record_in_doubt_that_comes_late_is_disordered() -> None:
    log = log_of({A0: IN_DOUBT, A1: ok(0)})
    assert [one.kind for one in check(log, lying(A1, A0))] == ["disordered"]
    assert check(log, lying(A1, A0), order="acknowledged") == []


def test_order_is_that_of_one_writer_and_one_partition() -> None:
    log = log_of({A0: ok(1), B0: ok(0), A1: ok(0, 1)})
    contents = {0: [(0, bytes(B0)), (1, bytes(A0))], 1: [(0, bytes(A1))]}
    assert check(log, contents) == []


def test_phantom_is_found() -> None:
    found = check(log_of({A0: FAILED}), lying(A0))
    assert found == [Finding("phantom", "a/0", (Place(0, 0),), "refused")]


@pytest.mark.parametrize("said", [ok(3), ok(0, 1), ok(None, 1)])
def test_misplaced_record_is_found(said: Outcome) -> None:
    (found,) = check(log_of({A0: said}), lying(A0))
    assert (found.kind, found.places) == ("misplaced", (Place(0, 0),))


@pytest.mark.parametrize("value", [b"", b"other", b"a/1", b"a/x", b"\xff/0"])
def test_record_that_nobody_sent_is_found(value: bytes) -> None:
    found = check(log_of({A0: ok(0)}), {0: [(0, bytes(A0)), (1, value)]})
    assert [(one.kind, one.places) for one in found] == [("foreign", (Place(0, 1),))]


def test_record_without_an_outcome_is_found() -> None:
    assert check(log_of({A0: None}), lying(A0)) == [Finding("unsettled", "a/0", (Place(0, 0),))]


def test_findings_say_what_and_where() -> None:
    (found,) = check(log_of({A0: ok(0), A1: ok(1)}), lying(A0, A1, A1))
    assert str(found) == "doubled: a/1 at 0@1, 0@2"


def test_log_takes_a_payload_and_its_outcome_once() -> None:
    log = log_of({A0: ok(0)})
    with pytest.raises(ValueError, match="a/0 was sent before"):
        log.send(A0)
    with pytest.raises(ValueError, match="a/0 has two outcomes"):
        log.settle(A0, FAILED)
    assert log.counts() == {"ok": 1}
