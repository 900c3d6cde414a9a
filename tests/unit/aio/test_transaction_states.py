"""A transactional producer's states without a broker: its life, and what coordinators say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from karrow import errors
from karrow.aio.producing.transactions import State, Transactions
from karrow.config import ProducerConfig
from karrow.errors import KarrowError
from tests.unit.aio.transacting import (
    ADD,
    ADD_GROUP,
    CALL_TIMEOUT,
    END,
    GROUP,
    INIT,
    OFFSET,
    OFFSETS,
    Everywhere,
    Link,
    Records,
    Scripted,
    both,
    cancel_in,
)
from tests.unit.net.virtual import run


@both
def test_life_of_a_producer(version: int) -> None:
    async def main() -> None:
        one = Scripted(version)
        assert one.stands(State.UNINITIALIZED)
        assert str(one.records.refusal).endswith("begin a transaction first")
        await one.begin()
        assert one.stands(State.IN_TRANSACTION)
        assert one.records.are_taken()
        await one.commit()
        assert one.stands(State.READY)
        assert isinstance(one.records.refusal, errors.StateError)
        await one.begun()
        await one.commit()
        await one.begun()
        await one.abort()
        assert one.stands(State.READY)
        assert one.error is None

    run(main())


@both
def test_requests_of_each_version(version: int) -> None:
    async def main() -> None:
        one = Scripted(version)
        await one.begin()
        assert one.may_send("t", 0) is (version == 2)
        await one.send_offsets(OFFSETS, GROUP)
        await one.commit()
        found = [(name, number) for name, number, _ in one.sent]
        if version == 1:
            assert found == [(INIT, 5), (ADD_GROUP, 4), (ADD, 3), (OFFSET, 4), (END, 4)]
        else:
            assert found == [(INIT, 5), (OFFSET, 5), (END, 5)]
        assert len(one.records.identities) == version

    run(main())


def test_calls_do_not_fit_every_state() -> None:
    async def main() -> None:
        one = Scripted()
        for call in (one.commit(), one.abort(), one.send_offsets(OFFSETS, GROUP)):
            with pytest.raises(errors.StateError, match="begin a transaction first"):
                await call
        await one.init()
        await one.init()
        assert one.apis == [INIT]
        await one.begin()
        for call in (one.begin(), one.init()):
            with pytest.raises(errors.StateError, match="commit or abort it first"):
                await call
        assert one.stands(State.IN_TRANSACTION)

    run(main())


def test_calls_do_not_run_beside_each_other() -> None:
    async def main() -> None:
        one = Scripted()
        await one.begun()
        one.records.hold = asyncio.Event()
        commit = asyncio.create_task(one.commit())
        await asyncio.sleep(0.1)
        for call in (one.abort(), one.commit(), one.begin(), one.send_offsets(OFFSETS, GROUP)):
            with pytest.raises(errors.StateError, match="while commit is under way"):
                await call
        one.records.hold.set()
        await commit
        assert one.apis == [END]

    run(main())


def test_transactional_id_is_needed() -> None:
    config = ProducerConfig(bootstrap="b1:9092")
    cluster: Any = Everywhere(Link(2))
    with pytest.raises(errors.ConfigError, match="transactional_id"):
        Transactions(config, cluster, Records())


@pytest.mark.parametrize("offset", [-1, None, "5"])
def test_offsets_are_checked_before_anything_is_asked(offset: Any) -> None:
    async def main() -> None:
        one = Scripted()
        await one.begun()
        with pytest.raises(errors.ConfigError, match="cannot be committed"):
            await one.send_offsets({("t", 0): offset}, GROUP)
        await one.send_offsets({}, GROUP)
        assert one.sent == []
        assert one.stands(State.IN_TRANSACTION)

    run(main())


# ---- what coordinators say


ABORTABLE = [
    (ADD, "TOPIC_AUTHORIZATION_FAILED"),
    (ADD, "TRANSACTION_ABORTABLE"),
    (ADD, "OPERATION_NOT_ATTEMPTED"),
    (ADD, "INVALID_PRODUCER_ID_MAPPING"),
    (ADD_GROUP, "GROUP_AUTHORIZATION_FAILED"),
    (ADD_GROUP, "TRANSACTION_ABORTABLE"),
    (OFFSET, "GROUP_AUTHORIZATION_FAILED"),
    (OFFSET, "UNKNOWN_MEMBER_ID"),
    (OFFSET, "ILLEGAL_GENERATION"),
    (OFFSET, "FENCED_INSTANCE_ID"),
    (OFFSET, "TRANSACTION_ABORTABLE"),
    (OFFSET, "OFFSET_METADATA_TOO_LARGE"),
    (END, "TRANSACTION_ABORTABLE"),
    (END, "UNKNOWN_PRODUCER_ID"),
]
FATAL = [
    (api, name)
    for api in (INIT, ADD, ADD_GROUP, OFFSET, END)
    for name in (
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
        "INVALID_TXN_STATE",
    )
]


async def meet(one: Scripted, api: str, outcome: str | KarrowError) -> KarrowError:
    """Have a request answered so; gives the error that the producer has afterwards."""
    one.armed[api] = [outcome] * 1000 if isinstance(outcome, KarrowError) else [outcome]
    try:
        await one.begin()
        if not one.may_send("t", 0):
            await asyncio.sleep(CALL_TIMEOUT + 1)
        await one.send_offsets(OFFSETS, GROUP)
        await one.commit()
    except KarrowError as error:
        one.armed.clear()
        return one.error or error
    raise AssertionError("nothing was refused")


@both
@pytest.mark.parametrize(("api", "name"), ABORTABLE)
def test_refusal_that_an_abort_mends(version: int, api: str, name: str) -> None:
    if version == 2 and api in (ADD, ADD_GROUP):
        return

    async def main() -> None:
        one = Scripted(version)
        error = await meet(one, api, name)
        assert isinstance(error, errors.for_name(name))
        assert error.hint == "abort the transaction"
        assert one.stands(State.ABORTABLE_ERROR)
        assert one.records.refusal is error
        assert one.records.discarded == [error]
        for call in (one.begin(), one.commit(), one.send_offsets(OFFSETS, GROUP)):
            with pytest.raises(errors.StateError, match="abort the transaction") as caught:
                await call
            assert caught.value.__cause__ is error
        await one.abort()
        assert one.stands(State.READY)
        assert len(one.records.identities) == 2  # a new epoch
        await one.begun()
        await one.commit()

    run(main())


@both
@pytest.mark.parametrize(("api", "name"), FATAL)
def test_refusal_that_ends_the_producer(version: int, api: str, name: str) -> None:
    if version == 2 and api in (ADD, ADD_GROUP):
        return

    async def main() -> None:
        one = Scripted(version)
        error = await meet(one, api, name)
        is_fenced = name in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
        kind = errors.ProducerFenced if is_fenced else errors.for_name(name)
        assert isinstance(error, kind)
        assert str(error).endswith("make a new producer")
        assert one.stands(State.FATAL_ERROR)
        assert one.records.refusal is error
        late = errors.ProducerFenced if is_fenced else errors.StateError
        for call in (one.init(), one.begin(), one.commit(), one.abort()):
            with pytest.raises(late, match="make a new producer") as caught:
                await call
            assert caught.value.__cause__ is error
        assert not one.may_send("t", 0)

    run(main())


@both
@pytest.mark.parametrize("api", [ADD, ADD_GROUP, OFFSET])
def test_request_that_stays_unanswered_is_abortable(version: int, api: str) -> None:
    if version == 2 and api != OFFSET:
        return

    async def main() -> None:
        one = Scripted(version)
        error = await meet(one, api, errors.Disconnected("gone"))
        assert isinstance(error, errors.Disconnected)
        assert one.stands(State.ABORTABLE_ERROR)
        one.sent.clear()
        if version == 1:
            one.armed[END] = ["INVALID_TXN_STATE"]  # it never arrived: nothing is open
        await one.abort()
        assert one.apis == ([END, INIT] if version == 1 else [END])
        assert one.stands(State.READY)

    run(main())


@both
def test_broken_answer_ends_the_producer(version: int) -> None:
    async def main() -> None:
        one = Scripted(version)
        error = await meet(one, END, errors.RemoteProtocolError("nonsense"))
        assert isinstance(error, errors.RemoteProtocolError)
        assert one.stands(State.FATAL_ERROR)

    run(main())


def test_identity_that_is_none_is_refused() -> None:
    async def main() -> None:
        one = Scripted()
        one.epoch = -1
        with pytest.raises(errors.RemoteProtocolError, match="is no producer"):
            await one.init()
        assert one.stands(State.FATAL_ERROR)

    run(main())


# ---- the beginning


def test_init_that_found_nobody_can_be_repeated() -> None:
    async def main() -> None:
        one = Scripted()
        one.armed[INIT] = [errors.ConnectError("no way")] * 1000
        with pytest.raises(errors.ConnectError):
            await one.begin()
        assert one.stands(State.UNINITIALIZED)
        one.armed.clear()
        await one.begin()
        assert one.stands(State.IN_TRANSACTION)
        assert {body["producer_id"] for _, _, body in one.sent} == {-1}

    run(main())


def test_init_that_was_cancelled_can_be_repeated() -> None:
    async def main() -> None:
        one = Scripted()
        one.delay = 1.0
        await cancel_in(one.init(), 0.5)
        assert one.stands(State.INITIALIZING)
        await one.begin()
        assert one.stands(State.IN_TRANSACTION)

    run(main())


def test_upgraded_cluster_gets_a_new_epoch_first() -> None:
    async def main() -> None:
        one = Scripted(1)
        await one.begun()
        before = one.newest_produce
        await one.commit()
        one.link.versions = Link(2).versions
        one.sent.clear()
        await one.begin()
        assert [(name, body["producer_epoch"]) for name, _, body in one.sent] == [(INIT, 0)]
        assert (before, one.newest_produce) == (11, None)
        await one.commit()
        await one.begin()
        assert one.apis == [INIT]

    run(main())


def test_partitions_that_wait_are_added_together() -> None:
    async def main() -> None:
        one = Scripted(1)
        one.delay = 1.0
        await one.begin()
        one.sent.clear()
        assert not one.may_send("t", 0)
        assert not one.may_send("t", 1)
        await asyncio.sleep(0.5)
        assert not one.may_send("u", 0)
        assert not one.may_send("t", 1)
        await asyncio.sleep(2)
        named = [body["v3_and_below_topics"] for _, _, body in one.sent]
        assert named == [
            [{"name": "t", "partitions": [0, 1]}],
            [{"name": "u", "partitions": [0]}],
        ]
        assert one.records.wakes == 2
        assert one.may_send("t", 0)
        assert one.may_send("u", 0)

    run(main())


def test_close_ends_what_runs() -> None:
    async def main() -> None:
        one = Scripted(1)
        await one.begin()
        one.delay = 1e6
        assert not one.may_send("t", 0)
        await asyncio.sleep(0.1)
        await one.close()
        assert len(asyncio.all_tasks()) == 1
        await one.close()

    run(main())
