"""Producers against the embedded broker while everything that can be armed goes wrong."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from karrow.broker.threaded import Broker
from karrow.errors import BrokerError, NetworkError, RemoteProtocolError, RequestTimeout
from tests.brokers.ports import PortReservation, _is_free
from tests.chaos.workload import Fault, Plan, Report, run

TOPIC = "chaos"
PARTITIONS = 4
NODES = 3
GATE_SEED = 20261116
# What a broker says that has surely not written a batch, and what one says that may have.
REFUSALS = [
    "LEADER_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS",
    "NOT_LEADER_OR_FOLLOWER",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
]
DOUBTS = [
    "REQUEST_TIMED_OUT",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "KAFKA_STORAGE_ERROR",
    "NETWORK_EXCEPTION",
    "CORRUPT_MESSAGE",
    "THROTTLING_QUOTA_EXCEEDED",
]
FINAL = ["INVALID_RECORD", "MESSAGE_TOO_LARGE", "INVALID_TIMESTAMP"]
EXPECTED = (BrokerError, NetworkError, RemoteProtocolError, RequestTimeout)
QUICK = {"request_timeout": 1.0, "connect_timeout": 1.0, "retry_backoff_max": 0.2}
WRITERS: list[dict[str, Any]] = [
    {**QUICK, "delivery_timeout": 60.0},
    {**QUICK, "delivery_timeout": 60.0, "linger": 0.02, "compression": "lz4"},
    {**QUICK, "delivery_timeout": 2.0, "batch_bytes": 2000},
    # Gives up what is still under way.
    {**QUICK, "delivery_timeout": 0.5, "request_timeout": 2.0, "linger": 0.0},
]


class Nodes:
    """Which nodes run."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._down: set[int] = set()

    def kill(self, node: int) -> None:
        """End a node that runs."""
        if node not in self._down:
            self._broker.kill_node(node)
            self._down.add(node)

    def start(self, node: int) -> None:
        """Bring a node back that does not."""
        if node in self._down:
            self._broker.start_node(node)
            self._down.discard(node)

    def start_all(self) -> None:
        """Bring all of them back."""
        for node in list(self._down):
            self.start(node)


def faults_of(broker: Broker, nodes: Nodes) -> list[Fault]:
    """Everything that this broker can do to a producer without losing what it has acknowledged."""

    def refuse(names: list[str]) -> Callable[[random.Random], object]:
        def act(chance: random.Random) -> None:
            place: dict[str, Any] = {"topic": TOPIC, "partition": chance.randrange(PARTITIONS)}
            scope = place if chance.random() < 0.7 else {}
            times = chance.randrange(1, 4)
            broker.fail("Produce", chance.choice(names), times=times, **scope)

        return act

    def moment(chance: random.Random) -> Any:
        return chance.choice(["before", "after"])

    def bounce(chance: random.Random) -> None:
        node = chance.randrange(1, NODES + 1)
        nodes.kill(node)
        nodes.start(node)

    def outage(chance: random.Random) -> None:
        """One node at most stays away: somebody has to lead."""
        nodes.start_all()
        node = chance.randrange(NODES + 1)
        if node:
            nodes.kill(node)

    return [
        Fault("refused", refuse(REFUSALS)),
        Fault("in doubt", refuse(DOUBTS)),
        Fault("final", refuse(FINAL)),
        Fault("drop", lambda c: broker.drop("Produce", when=moment(c))),
        Fault("close", lambda c: broker.close("Produce", when=moment(c))),
        Fault("close many", lambda c: broker.close("Produce", when=moment(c), times=4)),
        Fault("delay", lambda c: broker.delay("Produce", c.uniform(0, 1.5), when=moment(c))),
        Fault("throttle", lambda c: broker.throttle(c.uniform(0, 0.3), "Produce")),
        Fault("garbage", lambda _: broker.raw("Produce", b"\x00\x00\x00\x04junk")),
        Fault("move", lambda c: broker.move_leader(TOPIC, c.randrange(PARTITIONS))),
        Fault("move many", lambda _: [broker.move_leader(TOPIC, n) for n in range(PARTITIONS)]),
        Fault("no leader", lambda c: broker.move_leader(TOPIC, c.randrange(PARTITIONS), -1)),
        Fault("cut", lambda _: broker.close_connections()),
        Fault("bounce", bounce),
        Fault("outage", outage),
        Fault("metadata", lambda _: broker.fail("Metadata", "LEADER_NOT_AVAILABLE")),
        Fault("metadata late", lambda c: broker.delay("Metadata", c.uniform(0, 0.5))),
        Fault("id late", lambda _: broker.close("InitProducerId", when="after")),
    ]


def mend(broker: Broker, nodes: Nodes) -> None:
    broker.clear_faults()
    nodes.start_all()
    for partition in range(PARTITIONS):
        broker.move_leader(TOPIC, partition)


@contextmanager
def reserved() -> Iterator[int]:
    """The first of a few ports that outgoing connections never get: nodes come back to them."""
    ports = PortReservation()
    try:
        yield next(
            port
            for port in (ports.take() for _ in range(1000))
            if all(_is_free(port + more) for more in range(1, NODES))
        )
    finally:
        ports.release()


def chaos(
    seed: int,
    seconds: float,
    *,
    rules: dict[str, Any],
    version: str | None = None,
    **options: Any,
) -> Report:
    with (
        reserved() as port,
        Broker(brokers=NODES, seed=seed, port=port, version=version) as broker,
    ):
        broker.create_topic(TOPIC, PARTITIONS, NODES)
        nodes = Nodes(broker)
        plan = Plan(
            seed=seed,
            seconds=seconds,
            partitions=PARTITIONS,
            faults=faults_of(broker, nodes),
            mend=lambda: mend(broker, nodes),
            writers=[{**writer, **options} for writer in WRITERS],
        )
        return run(broker.bootstrap, TOPIC, plan, **rules)


def expect_none(report: Report) -> None:
    print(report)  # noqa: T201 - the seed is shown when the test fails
    assert report.findings == []
    # No producer has broken: records fail because their time is up, or as the broker said.
    broken = {kind for kind in report.kinds if not issubclass(kind, EXPECTED)}
    assert broken == set()
    assert report.log.counts()["ok"] > 100


def drawn(request: pytest.FixtureRequest) -> int:
    """The same seed every time in the gate; in the full run that of pytest, told at its top."""
    if os.environ.get("KARROW_TEST_PROFILE", "gate") == "gate":
        return GATE_SEED
    seed: int = request.config.getoption("randomly_seed")
    return seed


def test_idempotent_producers_lose_double_and_reorder_nothing(
    request: pytest.FixtureRequest,
) -> None:
    expect_none(chaos(drawn(request), 10.0, rules={}))


def test_producers_without_idempotence_double_nothing_by_themselves(
    request: pytest.FixtureRequest,
) -> None:
    rules = {"order": "acknowledged"}
    expect_none(chaos(drawn(request), 5.0, rules=rules, idempotent=False))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_idempotent_producers_in_ten_runs(seed: int) -> None:
    expect_none(chaos(seed, 15.0, rules={}))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.8", "3.9"])
@pytest.mark.parametrize("seed", range(1, 3))
def test_idempotent_producers_on_older_brokers(seed: int, version: str) -> None:
    expect_none(chaos(seed, 15.0, rules={}, version=version))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 3))
def test_idempotent_producers_with_one_request_under_way(seed: int) -> None:
    options: dict[str, Any] = {"max_in_flight": 1, "metadata_max_age": 0.2}
    expect_none(chaos(seed, 15.0, rules={}, **options))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_producers_that_may_double_lose_nothing(seed: int) -> None:
    rules = {"order": "acknowledged", "allow_duplicates": True}
    expect_none(chaos(seed, 15.0, rules=rules, idempotent=False, allow_duplicates=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_producers_without_idempotence_in_three_runs(seed: int) -> None:
    expect_none(chaos(seed, 15.0, rules={"order": "acknowledged"}, idempotent=False))
