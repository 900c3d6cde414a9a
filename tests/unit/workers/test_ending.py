"""Why a group of workers has ended, told from errors."""

from __future__ import annotations

import pickle

import pytest

from karrow import Ending, EndReason, errors
from karrow.workers.ending import ending_for, is_final


def caused(cause: Exception) -> errors.CommitFailed:
    error = errors.CommitFailed("not stored")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.FencedInstanceId(), EndReason.FENCED),
        (caused(errors.FencedInstanceId()), EndReason.FENCED),
        (errors.AuthenticationError("no"), EndReason.AUTH),
        (errors.GroupAuthorizationFailed(), EndReason.AUTH),
        (caused(errors.TopicAuthorizationFailed()), EndReason.AUTH),
        (
            caused(errors.PartialError("some", {}, {1: errors.GroupAuthorizationFailed()})),
            EndReason.AUTH,
        ),
        (errors.GroupJoinFailed("six times"), EndReason.JOIN_FAILED),
        (errors.InconsistentGroupProtocol(api="JoinGroup"), EndReason.JOIN_FAILED),
        (errors.GroupAuthorizationFailed(api="JoinGroup"), EndReason.AUTH),
        (errors.OffsetOutOfRange(), EndReason.ERROR),
        (ValueError("ours"), EndReason.ERROR),
    ],
)
def test_reasons(error: Exception, reason: EndReason) -> None:
    assert ending_for(error) == Ending(reason, error=error)


def test_commits_that_fail_for_a_moment_end_nothing() -> None:
    assert not is_final(caused(errors.UnknownMemberId()))
    assert not is_final(errors.CommitFailed("later"))
    assert is_final(caused(errors.FencedInstanceId()))


@pytest.mark.parametrize("reason", list(EndReason))
def test_only_what_somebody_wanted_is_orderly(reason: EndReason) -> None:
    ending = Ending(reason, "why")
    if reason in (EndReason.STOPPED, EndReason.HANDLER):
        assert ending.is_orderly
        ending.check()
    else:
        with pytest.raises(errors.GroupEnded, match=rf"ended: {reason} \(why\)") as raised:
            ending.check()
        assert raised.value.reason == reason
        assert raised.value.detail == "why"


def test_text_says_where_and_what() -> None:
    with pytest.raises(errors.GroupEnded, match=r"ended: crash_loop \(orders-0: no\)$"):
        Ending(EndReason.CRASH_LOOP, "orders-0", ValueError("no")).check()
    with pytest.raises(errors.GroupEnded, match=r"ended: refused$"):
        Ending(EndReason.REFUSED).check()


def test_error_pickles() -> None:
    with pytest.raises(errors.GroupEnded) as raised:
        Ending(EndReason.AUTH, error=ValueError("x")).check()
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (copy.reason, str(copy)) == ("auth", "the workers have ended: auth (x)")
