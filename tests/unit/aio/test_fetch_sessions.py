"""Fetch sessions as the client keeps them (KIP-227)."""

from __future__ import annotations

from karrow.aio.consuming.session import FINAL_EPOCH, MAX_EPOCH, FetchSession

Session = FetchSession[str, int]


def begun(**wanted: int) -> Session:
    """A session that its broker knows as 7."""
    session = Session()
    session.plan(wanted)
    session.answered(7)
    return session


def test_first_fetch_names_everything_and_asks_for_a_session() -> None:
    session = Session()
    plan = session.plan({"a": 1, "b": 2})
    assert (plan.session_id, plan.epoch, plan.is_full) == (0, 0, True)
    assert plan.asked == {"a": 1, "b": 2}
    assert session.is_new


def test_later_fetches_name_what_changed_and_what_is_gone() -> None:
    session = begun(a=1, b=2, c=3)
    plan = session.plan({"a": 1, "b": 5, "d": 4})
    assert (plan.session_id, plan.epoch, plan.is_full) == (7, 1, False)
    assert plan.asked == {"b": 5, "d": 4}
    assert plan.forgotten == ("c",)
    session.answered(7)
    again = session.plan({"a": 1, "b": 5, "d": 4})
    assert (again.epoch, again.asked, again.forgotten) == (2, {}, ())


def test_what_was_forgotten_is_named_when_it_comes_back() -> None:
    session = begun(a=1, b=2)
    session.plan({"a": 1})
    session.answered(7)
    assert session.plan({"a": 1, "b": 2}).asked == {"b": 2}


def test_a_broker_that_keeps_no_session_gets_full_fetches() -> None:
    session = Session()
    for _ in range(2):
        assert session.plan({"a": 1}).is_full
        session.answered(0)


def test_a_broker_that_drops_a_session_gets_a_full_fetch() -> None:
    session = begun(a=1)
    session.plan({"a": 2})
    session.answered(0)
    assert session.plan({"a": 2}).asked == {"a": 2}


def test_after_a_failure_everything_is_named_again() -> None:
    session = begun(a=1, b=2)
    session.plan({"a": 1, "b": 3})
    session.end()
    plan = session.plan({"a": 1, "b": 3})
    assert plan.is_full
    assert plan.asked == {"a": 1, "b": 3}


def test_epochs_begin_again_after_the_last_one() -> None:
    session = begun(a=1)
    session._epoch = MAX_EPOCH
    assert session.plan({"a": 1}).epoch == MAX_EPOCH
    session.answered(7)
    assert session.plan({"a": 1}).epoch == 1


def test_without_sessions_every_fetch_is_full_and_final() -> None:
    session = Session(enabled=False)
    session.plan({"a": 1})
    session.answered(7)
    plan = session.plan({"a": 1})
    assert (plan.session_id, plan.epoch, plan.asked) == (0, FINAL_EPOCH, {"a": 1})


def test_what_has_moved_is_named_alone() -> None:
    session = begun(a=1, b=2)
    plan = session.plan_moved({"b": 5})
    assert plan is not None
    assert (plan.session_id, plan.epoch, plan.asked, plan.forgotten) == (7, 1, {"b": 5}, ())
    session.answered(7)
    again = session.plan({"a": 1, "b": 5})
    assert (again.epoch, again.asked) == (2, {})


def test_without_a_session_nothing_can_be_left_out() -> None:
    assert Session().plan_moved({"a": 1}) is None
    assert Session(enabled=False).plan_moved({"a": 1}) is None
    ended = begun(a=1)
    ended.end()
    assert ended.plan_moved({"a": 2}) is None
