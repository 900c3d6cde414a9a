"""The broker that a step of the protocol asks dies under it: leaders and coordinators move."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Literal, NamedTuple

import pyarrow as pa
import pytest

import karrow
from karrow.aio.producing.coordinator_calls import Identity
from karrow.config import ProducerConfig
from karrow.spark import pool
from karrow.spark.exactly.batches import Batches
from karrow.spark.exactly.ledger import new_ledger
from karrow.spark.exactly.part import PartProducer
from karrow.spark.exactly.transaction import BlockingTransaction
from tests.brokers import KafkaCluster
from tests.brokers.node import KafkaNode
from tests.contract.transactional import new_id
from tests.fix_kafka import NewKafka
from tests.proxy import ClusterProxy

Asked = Literal["transaction", "group", "leader"]
KINDS = ("group", "transaction")
LIMIT = 240.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Death(NamedTuple):
    """Whom a step asks what, and whether the broker dies before or after it has done it."""

    asked: Asked
    api: str
    when: Literal["before", "after"]
    is_new_run: bool = False


# In the order of the protocol.
DEATHS = (
    Death("transaction", "InitProducerId", "before", is_new_run=True),
    Death("transaction", "InitProducerId", "after", is_new_run=True),
    Death("group", "OffsetFetch", "before", is_new_run=True),
    Death("leader", "Produce", "before"),
    Death("leader", "Produce", "after"),
    Death("group", "TxnOffsetCommit", "before"),
    Death("group", "TxnOffsetCommit", "after"),
    Death("transaction", "EndTxn", "before"),
    Death("transaction", "EndTxn", "after"),
    # An attempt that failed is fenced.
    Death("transaction", "DescribeTransactions", "before"),
    Death("transaction", "InitProducerId", "before"),
    Death("transaction", "InitProducerId", "after"),
)
OF_VERSION_1 = (
    Death("transaction", "AddPartitionsToTxn", "before"),
    Death("transaction", "AddPartitionsToTxn", "after"),
    Death("transaction", "AddOffsetsToTxn", "before"),
    Death("transaction", "AddOffsetsToTxn", "after"),
)


class Sink:
    """Batches of one row through the protocol, over a proxy; first attempts fail."""

    def __init__(self, kafka: KafkaCluster, proxy: ClusterProxy) -> None:
        self.kafka, self.proxy = kafka, proxy
        self.id, self.topic = new_id("sink"), kafka.create_topic()
        self.config = ProducerConfig(
            bootstrap=proxy.bootstrap,
            transactional_id=f"karrow.sink.{self.id}",
            linger=0,
            retry_backoff=0.05,
        )
        ledger = new_ledger("group", self.id, self.topic, None)
        self._batches = Batches(BlockingTransaction(self.config, ledger), sink_id=self.id)
        self._run = ""
        self.count = 0

    def write_batch(self, *, is_new_run: bool = False) -> None:
        """The next batch, which the run before may have had under way."""
        batch = self.count
        failures = [OSError("after its row was written")]

        def write(who: Identity, version: int) -> int:
            with PartProducer(config=self.config, who=who, version=version) as part:
                part.write(self.topic, [pa.record_batch({"value": pa.array([b"%d" % batch])})])
            if failures:
                raise failures.pop()
            return 1

        if is_new_run or not self._run:
            self._run = str(uuid.uuid4())
        assert self._batches.run("q", self._run, batch, write)
        self.count += 1

    def seen(self) -> list[bytes]:
        with karrow.Client(self.kafka.bootstrap()) as client:
            found = client.fetch_all(self.topic, 0, isolation="read_committed")
            return [bytes(one.value or b"") for one in found.records]

    def node_of(self, asked: Asked) -> int:
        """The broker that all of them name; who was just started may know an older state."""
        while len(named := {self._named(asked, node) for node in self.kafka.nodes}) > 1:
            time.sleep(0.05)
        return named.pop()

    def _named(self, asked: Asked, node: KafkaNode) -> int:
        with node.connect() as connection:
            if asked == "leader":
                topics = connection.request(
                    "Metadata", {"topics": [{"name": self.topic}]}, 9
                ).topics
                return int(topics[0].partitions[0].leader_id)
            kind = KINDS.index(asked)
            key = (f"karrow.ledger.{self.id}", f"karrow.sink.{self.id}")[kind]
            body = {"key_type": kind, "coordinator_keys": [key]}
            answer = connection.request("FindCoordinator", body, 4)
            return int(answer.coordinators[0].node_id)


@contextmanager
def new_sink(kafka: KafkaCluster) -> Iterator[Sink]:
    with ClusterProxy(kafka) as proxy:
        yield Sink(kafka, proxy)
        pool.close()


def outlive(sink: Sink, death: Death) -> None:
    """A batch, with a broker that dies on its way."""
    node_id = sink.node_of(death.asked)
    node = sink.proxy.node(node_id)
    is_lost = death.when == "after"
    step = node.drop_answer(death.api, "stall") if is_lost else node.hold(death.api)
    with ThreadPoolExecutor(1) as beside:
        work = beside.submit(sink.write_batch, is_new_run=death.is_new_run)
        while not step.happened:
            wait([work], 0.02)
            assert not work.done(), f"nobody asked node {node_id}: {work.exception()!r}"
        sink.kafka.node(node_id).kill()
        step.release()
        node.reset()
        work.result(LIMIT)
    sink.kafka.heal()


def outlive_all(kafka: KafkaCluster, deaths: tuple[Death, ...]) -> None:
    with new_sink(kafka) as sink:
        sink.write_batch()
        for death in deaths:
            print(death)  # noqa: T201 - what pytest shows of a failure
            outlive(sink, death)
            assert sink.seen() == [b"%d" % batch for batch in range(sink.count)]


def test_broker_dies_under_every_step(kafka_three: KafkaCluster) -> None:
    outlive_all(kafka_three, DEATHS)


def test_older_broker_dies_under_every_step(new_kafka: NewKafka) -> None:
    outlive_all(new_kafka("3.9.2", 3), (*DEATHS, *OF_VERSION_1))
