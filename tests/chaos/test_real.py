"""Producers against a real cluster of three whose brokers die, freeze and are cut off."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.brokers import KafkaCluster
from tests.chaos.workload import Fault, Plan, Report, run
from tests.proxy import ClusterProxy

PARTITIONS = 6
SECONDS = 60.0
QUICK: dict[str, Any] = {"request_timeout": 2.0, "connect_timeout": 1.0}
WRITERS: list[dict[str, Any]] = [
    {**QUICK, "delivery_timeout": 120.0},
    {**QUICK, "delivery_timeout": 120.0, "compression": "lz4"},
    {**QUICK, "delivery_timeout": 4.0, "batch_bytes": 4000},
]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def expect_none(report: Report) -> None:
    print(report)  # noqa: T201 - the seed is shown when the test fails
    assert report.findings == []
    assert report.log.counts()["ok"] > 1000


def created(cluster: KafkaCluster) -> str:
    """A topic in which what was acknowledged survives any one broker."""
    return cluster.create_topic(partitions=PARTITIONS, config={"min.insync.replicas": "2"})


def broker_faults(cluster: KafkaCluster) -> list[Fault]:
    """At most one broker is away at a time."""

    def kill(chance: random.Random) -> None:
        cluster.heal()
        chance.choice(cluster.nodes).kill()

    def pause(chance: random.Random) -> None:
        cluster.heal()
        chance.choice(cluster.nodes).pause()

    def stop(chance: random.Random) -> None:
        cluster.heal()
        chance.choice(cluster.nodes).stop()

    return [
        Fault("kill", kill),
        Fault("pause", pause),
        Fault("stop", stop),
        Fault("heal", lambda _: cluster.heal()),
    ]


def network_faults(proxy: ClusterProxy) -> list[Fault]:
    """Anything that can happen on the way, to one broker at a time or to all."""

    def any_of(chance: random.Random) -> Any:
        return chance.choice(proxy.nodes)

    def cut(chance: random.Random) -> None:
        how, direction = chance.choice(["reset", "close", "stall"]), chance.choice(["up", "down"])
        any_of(chance).cut_after(chance.randrange(1, 20_000), direction, how)

    def late(chance: random.Random) -> None:
        held.append(any_of(chance).hold("Produce"))

    def let_go(chance: random.Random) -> None:
        if held:
            held.pop(chance.randrange(len(held))).release()

    def restore(_: random.Random) -> None:
        for node in proxy.nodes:
            node.restore()

    def reset_all(_: random.Random) -> None:
        for node in proxy.nodes:
            node.reset()

    held: list[Any] = []
    return [
        Fault("cut", cut),
        Fault("late", late),
        Fault("let go", let_go),
        Fault("reset", lambda chance: any_of(chance).reset()),
        Fault("reset all", reset_all),
        Fault("drop answer", lambda chance: any_of(chance).drop_answer("Produce")),
        Fault("stall", lambda chance: any_of(chance).drop_answer("Produce", "stall")),
        Fault("blackhole", lambda chance: any_of(chance).blackhole()),
        Fault("refuse", lambda chance: any_of(chance).refuse()),
        Fault("slow", lambda chance: any_of(chance).latency(chance.uniform(0, 0.3))),
        Fault("restore", restore),
        Fault("restore", restore),
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_brokers_that_die_and_freeze(kafka_three: KafkaCluster, seed: int) -> None:
    topic = created(kafka_three)
    plan = Plan(
        seed=seed,
        seconds=SECONDS,
        partitions=PARTITIONS,
        faults=broker_faults(kafka_three),
        mend=kafka_three.heal,
        pauses=(0.5, 6.0),
        writers=WRITERS,
        burst=6,
    )
    expect_none(run(kafka_three.bootstrap(), topic, plan))


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_networks_that_fail(kafka_three: KafkaCluster, seed: int, idempotent: bool) -> None:
    topic = created(kafka_three)
    with ClusterProxy(kafka_three) as proxy:

        def mend() -> None:
            for node in proxy.nodes:
                node.restore()

        plan = Plan(
            seed=seed,
            seconds=SECONDS / 2,
            partitions=PARTITIONS,
            faults=network_faults(proxy),
            mend=mend,
            pauses=(0.1, 1.0),
            writers=[{**writer, "idempotent": idempotent} for writer in WRITERS],
            burst=6,
        )
        rules = {} if idempotent else {"order": "acknowledged"}
        expect_none(run(proxy.bootstrap, topic, plan, **rules))


@pytest.mark.parametrize("seed", [3])
def test_brokers_that_die_without_idempotence(kafka_three: KafkaCluster, seed: int) -> None:
    """Whatever is sent again was surely not written before."""
    topic = created(kafka_three)
    plan = Plan(
        seed=seed,
        seconds=SECONDS,
        partitions=PARTITIONS,
        faults=broker_faults(kafka_three),
        mend=kafka_three.heal,
        pauses=(0.5, 6.0),
        writers=[{**writer, "idempotent": False} for writer in WRITERS],
        burst=6,
    )
    expect_none(run(kafka_three.bootstrap(), topic, plan, order="acknowledged"))
