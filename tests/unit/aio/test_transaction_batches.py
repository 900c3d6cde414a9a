"""A transactional producer's states without a broker: batches that fail, and offsets."""

from __future__ import annotations

import asyncio

import pytest

from karrow import errors
from karrow.aio.producing.transactions import State
from karrow.types import GroupMetadata
from tests.unit.aio.transacting import (
    ADD,
    END,
    GROUP,
    INIT,
    OFFSETS,
    Scripted,
    both,
    cancel_in,
    indefinite,
)
from tests.unit.net.virtual import run


@both
@pytest.mark.parametrize(
    "name",
    [
        "INVALID_PRODUCER_EPOCH",
        "INVALID_TXN_STATE",
        "TRANSACTION_ABORTABLE",
        "TOPIC_AUTHORIZATION_FAILED",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        "MESSAGE_TOO_LARGE",
    ],
)
def test_failed_batch_is_abortable(version: int, name: str) -> None:
    async def main() -> None:
        one = Scripted(version)
        await one.begun()
        error = errors.for_name(name)()
        one.batch_failed(error)
        assert one.error is error
        assert one.stands(State.ABORTABLE_ERROR)
        # What was sent once may be sent again, nothing else.
        assert one.may_send("t", 0)
        assert not one.may_send("t", 1)
        one.batch_failed(errors.RequestTimeout("another"))
        assert one.error is error
        await one.abort()
        assert one.apis == ([END, INIT] if version == 1 else [END])
        assert one.stands(State.READY)

    run(main())


@pytest.mark.parametrize(
    "name",
    ["PRODUCER_FENCED", "CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"],
)
def test_failed_batch_may_end_the_producer(name: str) -> None:
    async def main() -> None:
        one = Scripted()
        await one.begun()
        one.batch_failed(errors.RequestTimeout("abortable"))
        error = errors.for_name(name)()
        one.batch_failed(error)
        assert one.error is error
        assert one.stands(State.FATAL_ERROR)
        one.unresolved()
        assert one.error is error

    run(main())


def test_version_1_fences_what_is_in_doubt() -> None:
    """After a look whether it is still this producer's."""

    async def main() -> None:
        one = Scripted(1)
        await one.begun()
        one.batch_failed(indefinite())
        one.armed[INIT] = ["CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED"]
        await one.abort()
        named = [body.get("producer_epoch") for _, _, body in one.sent]
        assert one.apis == [ADD, INIT, INIT, INIT]
        assert named[1:] == [0, 0, 1]
        assert one.stands(State.READY)

    run(main())


def test_version_1_is_not_stopped_by_its_own_fence() -> None:
    async def main() -> None:
        one = Scripted(1)
        await one.begun()
        one.unresolved()
        one.armed[INIT] = [errors.Disconnected("gone")] * 1000
        with pytest.raises(errors.Disconnected):
            await one.abort()
        one.armed[INIT] = ["PRODUCER_FENCED"]
        one.sent.clear()
        await one.abort()
        assert one.apis == [INIT, INIT]  # nothing is added any more: it would be refused
        assert one.stands(State.READY)

    run(main())


def test_version_1_does_not_fence_whoever_has_replaced_it() -> None:
    async def main() -> None:
        one = Scripted(1)
        await one.begun()
        one.unresolved()
        one.armed[ADD] = ["PRODUCER_FENCED"]
        with pytest.raises(errors.ProducerFenced):
            await one.abort()
        assert one.apis == [ADD]
        assert one.stands(State.FATAL_ERROR)

    run(main())


def test_version_2_needs_only_the_end_for_what_is_in_doubt() -> None:
    async def main() -> None:
        one = Scripted(2)
        await one.begun()
        one.unresolved()
        await one.abort()
        assert one.apis == [END]
        assert one.stands(State.READY)

    run(main())


def test_brokers_before_2_5_cannot_mend_what_is_in_doubt() -> None:
    async def main() -> None:
        one = Scripted(1, InitProducerId=2)
        await one.begun()
        one.unresolved()
        assert one.stands(State.FATAL_ERROR)
        one = Scripted(1, InitProducerId=2)
        await one.begun()
        one.batch_failed(errors.TopicAuthorizationFailed())
        await one.abort()
        assert one.apis == [END]
        assert one.stands(State.READY)

    run(main())


def test_batch_that_fails_during_the_commit_stops_it() -> None:
    async def main() -> None:
        one = Scripted()
        await one.begun()
        one.records.hold = asyncio.Event()
        commit = asyncio.create_task(one.commit())
        await asyncio.sleep(0.1)
        assert one.may_send("t", 1)  # the commit waits for it
        error = errors.TopicAuthorizationFailed()
        one.batch_failed(error)
        one.records.hold.set()
        with pytest.raises(errors.StateError, match="abort the transaction") as caught:
            await commit
        assert caught.value.__cause__ is error
        assert one.sent == []

    run(main())


def test_batch_that_fails_after_the_end_was_asked_for_is_fatal() -> None:
    async def main() -> None:
        one = Scripted()
        await one.begun()
        one.delay = 1.0
        commit = asyncio.create_task(one.commit())
        await asyncio.sleep(0.5)
        one.batch_failed(errors.TopicAuthorizationFailed())
        with pytest.raises(errors.StateError, match="nobody expected"):
            await commit
        assert one.stands(State.FATAL_ERROR)

    run(main())


def test_batch_of_no_transaction_is_fatal() -> None:
    async def main() -> None:
        one = Scripted()
        await one.init()
        one.batch_failed(errors.TopicAuthorizationFailed())
        assert one.stands(State.FATAL_ERROR)
        assert "nobody expected while ready" in str(one.error)

    run(main())


# ---- offsets


def test_members_need_a_broker_that_knows_them() -> None:
    async def main() -> None:
        one = Scripted(1, TxnOffsetCommit=2)
        await one.begun()
        await one.send_offsets(OFFSETS, GROUP)
        with pytest.raises(errors.UnsupportedVersion, match="cannot carry a member"):
            await one.send_offsets(OFFSETS, GroupMetadata("g", 1, "m"))
        assert one.stands(State.FATAL_ERROR)

    run(main())


def test_members_are_named() -> None:
    async def main() -> None:
        one = Scripted()
        await one.begun()
        await one.send_offsets(OFFSETS, GroupMetadata("g", 3, "m", "i"))
        body = one.sent[0][2]
        fields = ("group_id", "generation_id_or_member_epoch", "member_id", "group_instance_id")
        assert [body[name] for name in fields] == ["g", 3, "m", "i"]

    run(main())


@both
def test_offsets_that_were_cancelled_are_abortable(version: int) -> None:
    async def main() -> None:
        one = Scripted(version)
        await one.begun()
        one.delay = 1.0
        await cancel_in(one.send_offsets(OFFSETS, GROUP), 0.5)
        assert one.stands(State.ABORTABLE_ERROR)
        await one.abort()
        assert one.stands(State.READY)
        assert len(one.records.identities) == 2

    run(main())
