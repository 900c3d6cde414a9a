"""Where the logs of leaders part: out of brokers that say strange things, and a real election."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from karrow import errors, wire
from karrow.aio.calls.epochs import API
from karrow.aio.client import AsyncClient
from karrow.config import ConsumerConfig
from karrow.spark import pool
from karrow.spark.reading.epochs import Epochs
from karrow.spark.reading.loss import DataLoss
from karrow.types import TopicPartition
from tests.brokers import KafkaCluster
from tests.contract.scripted import Answer, ScriptedBroker
from tests.contract.test_consumer import until
from tests.contract.test_consumer_failures import TIMEOUT, fill, truncated
from tests.embedded.sourcing import QUICK, next_values, numbers, stream
from tests.fix_kafka import NewKafka

TOPIC = "topic"
WHERE = TopicPartition(TOPIC, 0)
FENCED = 74
SUPPORTED = {"Metadata": (0, 12), "ApiVersions": (0, 3)}


def said(**fields: Any) -> Answer:
    part = {"partition": 0, "leader_epoch": 3, "end_offset": 7, **fields}
    return {"topics": [{"topic": TOPIC, "partitions": [part]}]}


def ends(broker: ScriptedBroker) -> dict[TopicPartition, int]:
    """Where the broker says that epoch 3 ends."""

    async def asked() -> dict[TopicPartition, int]:
        async with broker:
            broker.add_topic(TOPIC, leader=1, epoch=5)
            config = ConsumerConfig(bootstrap=broker.bootstrap, retry_backoff=0.02, api_timeout=1.0)
            async with AsyncClient(config=config) as client:
                await client.metadata([TOPIC])
                found = Epochs(config, client.cluster)
                assert found.known(WHERE) == 5
                return await found.ends({WHERE: 3})

    return asyncio.run(asyncio.wait_for(asked(), 20))


def broker_with(versions: tuple[int, int] | None = (0, 4)) -> ScriptedBroker:
    return ScriptedBroker(supported={**SUPPORTED, **({API: versions} if versions else {})})


def test_the_leader_tells_where_an_epoch_ends() -> None:
    broker = broker_with()
    asked: list[Any] = []

    def tell(request: wire.Request) -> Answer:
        asked.append(request.body)
        return said()

    broker.handlers[API] = tell
    assert ends(broker) == {WHERE: 7}
    (part,) = asked[0].topics[0].partitions
    assert (part.current_leader_epoch, part.leader_epoch) == (5, 3)
    assert asked[0].replica_id == -1


@pytest.mark.parametrize("fields", [{"end_offset": -1}, {"leader_epoch": -1}])
def test_a_leader_that_cannot_tell_has_cut_nothing(fields: dict[str, int]) -> None:
    broker = broker_with()
    broker.always(API, said(**fields))
    assert ends(broker) == {}


@pytest.mark.parametrize("versions", [(0, 2), None])
def test_a_broker_that_cannot_be_asked_has_cut_nothing(versions: tuple[int, int] | None) -> None:
    broker = broker_with(versions)
    assert ends(broker) == {}
    assert API not in broker.seen


def test_who_leads_is_looked_for_again_when_it_is_another() -> None:
    broker = broker_with()
    broker.sequence(API, said(error_code=FENCED), said())
    assert ends(broker) == {WHERE: 7}
    assert broker.seen.count("Metadata") == 2


def test_an_answer_that_lacks_the_partition_is_refused() -> None:
    broker = broker_with()
    broker.always(API, {"topics": []})
    with pytest.raises(errors.RemoteProtocolError, match="the answer lacks the partition"):
        ends(broker)


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["true", "false"])
def test_an_unclean_election_is_told_although_the_log_is_longer_than_before(
    new_kafka: NewKafka, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setitem(QUICK, "kafka.default.api.timeout.ms", "30000")
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    cluster = new_kafka(nodes=3, properties={**unclean, "replica.lag.time.max.ms": "2000"})
    topic = cluster.create_topic(replicas=2, config=unclean)
    single = {"batch_bytes": 1, "linger": 0.0}
    alone = {**single, "acks": 1, "idempotent": False}
    fill(cluster.bootstrap(), topic, range(5), 1, **single)
    given = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": fails}
    running = stream(cluster.bootstrap(), **given)
    assert len(next_values(running)) == 5
    with truncated(cluster, topic):
        time.sleep(1.0)
        fill(cluster.bootstrap(), topic, range(5, 10), 1, **alone)
        # They may be read when the other replica does not count any more.
        rows = until(running.next, TIMEOUT)
        while len(rows) < 5:
            rows += until(running.next, TIMEOUT)
    until(lambda: leads(cluster, topic), TIMEOUT)
    fill(cluster.bootstrap(), topic, range(100, 120), 1, **alone)
    if fails == "true":
        with pytest.raises(DataLoss, match=r"offsets 5 to 9 of .* were cut off.* goes on at 5"):
            running.next()
    else:
        assert next_values(running) == numbers(100, 120)
    pool.close()


def leads(cluster: KafkaCluster, topic: str) -> bool:
    """Whether a broker that lives leads the topic."""
    leader = cluster.leader(topic)
    return leader >= 0 and cluster.node(leader).running
