"""Groups of consumers against the embedded broker while everything that can be armed goes wrong."""

from __future__ import annotations

import random
from typing import Any

import pytest

from karrow import errors
from karrow.broker.groups.consumer import ConsumerGroup
from karrow.broker.threaded import Broker
from tests.chaos.members import GroupReport, run_group
from tests.chaos.test_embedded import NODES, PARTITIONS, TOPIC, Nodes, drawn, mend, reserved
from tests.chaos.workload import Fault, Plan

GROUP = "group"
NO_GENERATION = -1
QUICK: dict[str, Any] = {
    "request_timeout": 1.0,
    "connect_timeout": 1.0,
    "retry_backoff": 0.02,
    "retry_backoff_max": 0.2,
    "max_wait": 0.05,
    "session_timeout": 6.0,
    "rebalance_timeout": 4.0,
    "auto_commit_interval": 0.1,
    "max_poll_records": 50,
}
KINDS: dict[str, dict[str, Any]] = {
    "eager": {"assignors": "range", "heartbeat_interval": 0.1},
    "cooperative": {"assignors": "cooperative-sticky", "heartbeat_interval": 0.1},
    "served": {"protocol": "consumer"},
}
WRITERS: list[dict[str, Any]] = [{"request_timeout": 1.0, "delivery_timeout": 60.0}]
PASSING = {
    "Fetch": ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH"],
    "OffsetCommit": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "REQUEST_TIMED_OUT"],
    "OffsetFetch": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"],
    "JoinGroup": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"],
    "SyncGroup": ["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"],
    "Heartbeat": ["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"],
    "ConsumerGroupHeartbeat": ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"],
    "ListOffsets": ["LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER"],
    "OffsetForLeaderEpoch": ["UNKNOWN_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER"],
}


def faults_of(broker: Broker, nodes: Nodes) -> list[Fault]:
    """Everything that this broker can do to members without losing what it has stored."""

    def api(chance: random.Random) -> str:
        return chance.choice(list(PASSING))

    def moment(chance: random.Random) -> Any:
        return chance.choice(["before", "after"])

    def refuse(chance: random.Random) -> None:
        name = api(chance)
        broker.fail(name, chance.choice(PASSING[name]), times=chance.randrange(1, 4))

    def bounce(chance: random.Random) -> None:
        node = chance.randrange(1, NODES + 1)
        nodes.kill(node)
        nodes.start(node)

    def coordinator(chance: random.Random) -> None:
        broker.move_coordinator(GROUP, chance.randrange(1, NODES + 1))

    return [
        Fault("refused", refuse),
        Fault("refused", refuse),
        Fault("drop", lambda c: broker.drop(api(c), when=moment(c))),
        Fault("close", lambda c: broker.close(api(c), when=moment(c))),
        Fault("delay", lambda c: broker.delay(api(c), c.uniform(0, 1.2), when=moment(c))),
        Fault("throttle", lambda c: broker.throttle(c.uniform(0, 0.3), "Fetch")),
        Fault("move", lambda c: broker.move_leader(TOPIC, c.randrange(PARTITIONS))),
        Fault("no leader", lambda c: broker.move_leader(TOPIC, c.randrange(PARTITIONS), -1)),
        Fault("leaders", lambda _: [broker.move_leader(TOPIC, n) for n in range(PARTITIONS)]),
        Fault("coordinator", coordinator),
        Fault("coordinator", coordinator),
        Fault("expire", lambda _: expire(broker)),
        Fault("cut", lambda _: broker.close_connections()),
        Fault("bounce", bounce),
        Fault("metadata", lambda _: broker.fail("Metadata", "LEADER_NOT_AVAILABLE")),
    ]


def expire(broker: Broker) -> int:
    """Drop every member at once; gives the last generation that they can have heard of."""

    def drop() -> int:  # in one turn of its loop: nothing comes in between
        groups = broker._inner._cluster.groups
        try:
            group = groups.find(GROUP)
        except errors.GroupIdNotFound:
            return NO_GENERATION  # nobody has joined yet
        last = group.epoch if isinstance(group, ConsumerGroup) else group.generation
        groups.expire(GROUP)
        return last

    return broker._call(drop)


def crew(kind: str, **more: Any) -> list[dict[str, Any]]:
    """The options of members, who take turns in them."""
    common = {**QUICK, **KINDS[kind], **more}
    return [
        common,
        {**common, "auto_commit": False},
        {**common, "auto_commit": False, "max_poll_records": 7},
        {**common, "partition_max_bytes": 3000},
    ]


def chaos(seed: int, seconds: float, kind: str) -> GroupReport:
    with (
        reserved() as port,
        Broker(brokers=NODES, seed=seed, port=port, heartbeat_interval=0.1) as broker,
    ):
        broker.create_topic(TOPIC, PARTITIONS, NODES)
        nodes = Nodes(broker)
        plan = Plan(
            seed=seed,
            seconds=seconds,
            partitions=PARTITIONS,
            faults=faults_of(broker, nodes),
            mend=lambda: mend(broker, nodes),
            pauses=(0.05, 0.4),
            writers=WRITERS,
            burst=6,
        )
        return run_group(broker.bootstrap, TOPIC, GROUP, plan, crew(kind))


def order(seed: int, seconds: float, kind: str) -> GroupReport:
    """Members come, go and dawdle, and that is all; a slow machine drops none of them."""
    patient = {"request_timeout": 30.0, "session_timeout": 60.0, "rebalance_timeout": 60.0}
    with Broker(brokers=NODES, seed=seed, heartbeat_interval=0.1) as broker:
        broker.create_topic(TOPIC, PARTITIONS, NODES)
        plan = Plan(
            seed=seed,
            seconds=seconds,
            partitions=PARTITIONS,
            faults=[Fault("nothing", lambda _: None)],
            mend=lambda: None,
            pauses=(0.05, 0.4),
            burst=6,
        )
        members = crew(kind, **patient)
        return run_group(broker.bootstrap, TOPIC, GROUP, plan, members, orderly=True)


def expect_none(report: GroupReport) -> None:
    print(report)  # noqa: T201 - the seed is shown when the test fails
    assert report.wrong == []
    assert report.reads["read"] > 100
    assert report.reads["assigned"] > PARTITIONS


@pytest.mark.parametrize("kind", KINDS)
def test_groups_skip_and_steal_nothing(request: pytest.FixtureRequest, kind: str) -> None:
    expect_none(chaos(drawn(request), 6.0, kind))


@pytest.mark.parametrize(
    "kind",
    ["cooperative", *(pytest.param(one, marks=pytest.mark.slow) for one in ("eager", "served"))],
)
def test_nothing_comes_again_where_nothing_fails(request: pytest.FixtureRequest, kind: str) -> None:
    """Every partition that changes hands goes on where the last one was, to the record."""
    report = order(drawn(request), 4.0, kind)
    print(report)  # noqa: T201 - the seed is shown when the test fails
    assert (report.wrong, report.again) == ([], 0)
    assert report.reads["read"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("kind", KINDS)
def test_groups_in_many_runs(kind: str, seed: int) -> None:
    expect_none(chaos(seed, 25.0, kind))
