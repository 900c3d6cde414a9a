"""A transactional producer's states without a broker: what answers and failures lead to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

import pytest

from karrow import errors, wire
from karrow.aio.calls.base import Reply, Request
from karrow.aio.producing.transactions import State, Transactions
from karrow.config import ProducerConfig
from karrow.errors import KarrowError
from karrow.net.connection import Peer
from karrow.net.versions import BrokerVersions
from karrow.types import GroupMetadata, Node
from tests.unit.net.virtual import run

GROUP = GroupMetadata("g")
OFFSETS = {("t", 0): 5}
INIT, ADD, ADD_GROUP = "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn"
OFFSET, END = "TxnOffsetCommit", "EndTxn"
CALL_TIMEOUT = 10.0


class Link:
    """A connection that leads nowhere, to a broker with transactions of a version."""

    def __init__(self, version: int, **newest: int) -> None:
        ranges = {name: (one.versions[0], one.versions[-1]) for name, one in wire.apis().items()}
        ranges |= {name: (0, most) for name, most in newest.items()}
        self.peer = Peer("b1", 9092, 1)
        self.versions = BrokerVersions(ranges, {"transaction.version": version})


class Everywhere:
    """A cluster where every selector leads to the same broker."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.pool = self
        self.trouble = None

    async def connection(self, _: Node) -> Link:
        return self.link

    def learn(self, *_: object) -> None:
        pass


class Records:
    """A pipeline that notes what it is told."""

    def __init__(self) -> None:
        self.identities: list[tuple[int, int]] = []
        self.refusal: KarrowError | None = None
        self.discarded: list[KarrowError] = []
        self.wakes = 0
        self.woken = asyncio.Event()
        self.hold: asyncio.Event | None = None

    async def drained(self) -> None:
        if self.hold is not None:
            await self.hold.wait()

    def discard(self, error: KarrowError) -> None:
        self.discarded.append(error)

    def wake(self) -> None:
        self.wakes += 1
        self.woken.set()

    def take_identity(self, producer_id: int, epoch: int) -> None:
        self.identities.append((producer_id, epoch))

    def refuse(self, error: KarrowError | None) -> None:
        self.refusal = error

    def are_taken(self) -> bool:
        return self.refusal is None


class Scripted(Transactions):
    """Keeps what it would send; the test arms outcomes, what is not armed succeeds."""

    def __init__(self, version: int = 2, **newest: int) -> None:
        self.records = Records()
        config = ProducerConfig(
            bootstrap="b1:9092", transactional_id="tx", api_timeout=CALL_TIMEOUT
        )
        cluster: Any = Everywhere(Link(version, **newest))
        super().__init__(config, cluster, self.records)
        self.link = cluster.link
        self.armed: dict[str, list[str | KarrowError]] = defaultdict(list)
        self.sent: list[tuple[str, int, dict[str, Any]]] = []
        self.under_way = 0
        self.epoch = 0
        self.delay = 0.0

    async def _send(self, request: Request) -> Reply:
        self.under_way += 1
        assert self.under_way == 1  # one request at a time
        try:
            most = 5 if request.name == OFFSET and request.most is None else request.most
            version = self.link.versions.choose(request.name, most=most)
            body: Any = request.body(version, self.link)
            wire.encode(request.name, version, body)
            self.sent.append((request.name, version, body))
            await asyncio.sleep(self.delay)
            armed = self.armed[request.name]
            outcome = armed.pop(0) if armed else "NONE"
            if isinstance(outcome, KarrowError):
                raise outcome
            code = 0 if outcome == "NONE" else errors.for_name(outcome).code
            answer = self._answer(request.name, version, body, code)
            data = wire.encode(request.name, version, answer, kind="response")
            return Reply(wire.decode(request.name, version, data), version, self.link)
        finally:
            self.under_way -= 1

    def _answer(self, name: str, version: int, body: dict[str, Any], code: int) -> dict[str, Any]:
        if name == ADD:
            topics = [
                {
                    "name": topic["name"],
                    "results_by_partition": [
                        {"partition_index": one, "partition_error_code": code}
                        for one in topic["partitions"]
                    ],
                }
                for topic in body["v3_and_below_topics"]
            ]
            return {"results_by_topic_v3_and_below": topics}
        if name == OFFSET:
            parts = [{"partition_index": 0, "error_code": code}]
            return {"topics": [{"name": "t", "partitions": parts}]}
        identity: dict[str, Any] = {}
        if code == 0 and (name == INIT or (name == END and version >= 5)):
            identity = {"producer_id": 7, "producer_epoch": self.epoch}
            self.epoch += 1
        return {"error_code": code, **identity}

    @property
    def apis(self) -> list[str]:
        return [name for name, _, _ in self.sent]

    def stands(self, state: State) -> bool:
        return self.state is state

    async def begun(self) -> None:
        """In a transaction that has a partition."""
        await self.begin()
        if not self.may_send("t", 0):
            self.records.woken.clear()
            await self.records.woken.wait()
        self.sent.clear()


def indefinite() -> KarrowError:
    error = errors.RequestTimeout("no answer")
    error.indefinite = True
    return error


async def cancel_in(call: Coroutine[Any, Any, None], seconds: float) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, seconds)


both = pytest.mark.parametrize("version", [1, 2])


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


# ---- batches


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


# ---- the end


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
