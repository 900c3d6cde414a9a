"""A transactional producer's states without a broker: commits and aborts, and their time."""

from __future__ import annotations

import asyncio

import pytest

from karrow import errors
from karrow.aio.producing.transactions import State
from tests.unit.aio.transacting import END, INIT, Scripted, both, cancel_in, indefinite
from tests.unit.net.virtual import run


@both
def test_repeated_end_keeps_identity_and_direction(version: int) -> None:
    async def main() -> None:
        one = Scripted(version)
        await one.begun()
        one.armed[END] = [
            errors.Disconnected("gone"),
            "COORDINATOR_NOT_AVAILABLE",
            "CONCURRENT_TRANSACTIONS",
        ]
        await one.commit()
        bodies = [body for name, _, body in one.sent if name == END]
        assert len(bodies) == 4
        assert all(body == bodies[0] for body in bodies)
        # The one that got no answer may still come: it must not find the next transaction.
        assert one.apis[4:] == ([INIT] if version == 1 else [])
        assert len(one.records.identities) == 2

    run(main())


def test_version_1_keeps_its_epoch_when_every_answer_came() -> None:
    async def main() -> None:
        one = Scripted(1)
        await one.begun()
        one.armed[END] = ["CONCURRENT_TRANSACTIONS", errors.ConnectError("nothing was sent")]
        await one.commit()
        await one.begin()
        await one.abort()
        assert one.records.identities == [(7, 0)]

    run(main())


@both
@pytest.mark.parametrize("after", ["commit", "abort", "begin", "init"])
def test_given_up_commit(version: int, after: str) -> None:
    async def main() -> None:
        one = Scripted(version)
        await one.begun()
        one.armed[END] = [errors.Disconnected("gone")] * 1000
        with pytest.raises(errors.RequestTimeout, match="is unknown") as caught:
            await one.commit()
        assert caught.value.indefinite
        assert isinstance(caught.value.__cause__, errors.Disconnected)
        assert isinstance(one.records.refusal, errors.StateError)
        one.armed.clear()
        one.sent.clear()
        await getattr(one, after)()
        assert one.sent[0][0] == END
        assert one.sent[0][2]["committed"] is (after == "commit")
        assert one.apis[1:] == ([INIT] if version == 1 else [])
        assert one.stands(State.IN_TRANSACTION if after == "begin" else State.READY)

    run(main())


@both
def test_commit_that_had_come_to_pass_is_not_aborted(version: int) -> None:
    async def main() -> None:
        one = Scripted(version)
        await one.begun()
        one.delay = 1.0
        await cancel_in(one.commit(), 0.5)
        one.armed[END] = ["INVALID_TXN_STATE"]
        one.sent.clear()
        await one.abort()
        assert one.apis == [END, INIT]
        assert one.stands(State.READY)

    run(main())


def test_refused_commit_is_unknown_when_an_answer_was_lost() -> None:
    async def main() -> None:
        for lost, unknown in ((errors.Disconnected("gone"), True), ("NOT_COORDINATOR", False)):
            one = Scripted()
            await one.begun()
            one.armed[END] = [lost, "PRODUCER_FENCED"]
            with pytest.raises(errors.ProducerFenced) as caught:
                await one.commit()
            assert caught.value.indefinite is unknown

    run(main())


def test_commit_that_was_cancelled_while_it_drained_is_still_open() -> None:
    async def main() -> None:
        one = Scripted()
        await one.begun()
        one.records.hold = asyncio.Event()
        await cancel_in(one.commit(), 0.5)
        assert one.stands(State.IN_TRANSACTION)
        assert one.records.are_taken()
        one.records.hold.set()
        await one.commit()
        assert one.apis == [END]

    run(main())


@both
@pytest.mark.parametrize("after", ["abort", "begin"])
def test_abort_that_was_cancelled_goes_on(version: int, after: str) -> None:
    async def main() -> None:
        one = Scripted(version)
        await one.begun()
        one.delay = 1.0
        await cancel_in(one.abort(), 0.5)
        assert one.stands(State.ABORTING)
        one.batch_failed(indefinite())  # the sender is still at it
        await getattr(one, after)()
        assert one.stands(State.IN_TRANSACTION if after == "begin" else State.READY)

    run(main())


def test_given_up_abort_says_what_to_do() -> None:
    async def main() -> None:
        one = Scripted()
        await one.begun()
        one.armed[END] = [errors.Disconnected("gone")] * 1000
        with pytest.raises(errors.Disconnected, match="abort again"):
            await one.abort()
        one.armed.clear()
        await one.abort()
        assert one.stands(State.READY)

    run(main())


def test_end_holds_although_the_new_epoch_does_not_come() -> None:
    async def main() -> None:
        one = Scripted(1)
        await one.begun()
        one.armed[END] = [errors.Disconnected("gone")]
        one.armed[INIT] = [errors.ConnectError("no way")] * 1000
        await one.commit()
        assert one.stands(State.UNINITIALIZED)
        one.armed.clear()
        one.sent.clear()
        await one.begin()
        assert [(name, body["producer_epoch"]) for name, _, body in one.sent] == [(INIT, 0)]

    run(main())


# ---- time


@pytest.mark.parametrize(
    ("name", "kept"), [("INVALID_TXN_STATE", True), ("PRODUCER_FENCED", False)]
)
def test_version_2_can_abort_what_took_too_long(name: str, kept: bool) -> None:
    async def main() -> None:
        one = Scripted(2)
        await one.begun()
        await asyncio.sleep(61)
        one.armed[END] = [name]
        with pytest.raises(errors.for_name(name), match="transaction_timeout=60 s"):
            await one.commit()
        assert one.stands(State.ABORTABLE_ERROR)
        one.armed[END] = ["NONE" if kept else "PRODUCER_FENCED"]
        if kept:
            await one.abort()
        else:
            with pytest.raises(errors.ProducerFenced):
                await one.abort()
        assert one.stands(State.READY if kept else State.FATAL_ERROR)

    run(main())


def test_version_1_cannot_go_on_after_it_took_too_long() -> None:
    async def main() -> None:
        one = Scripted(1)
        await one.begun()
        await asyncio.sleep(61)
        one.armed[END] = ["INVALID_PRODUCER_EPOCH"]
        with pytest.raises(errors.ProducerFenced, match="transaction_timeout=60 s"):
            await one.commit()
        assert one.stands(State.FATAL_ERROR)

    run(main())
