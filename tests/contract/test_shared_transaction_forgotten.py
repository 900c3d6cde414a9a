"""What brokers forget while a query has nothing to write: its transactional id, and its ledger."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import karrow
from karrow import errors, events
from karrow.aio.producing.coordinator_calls import Identity
from karrow.config import ProducerConfig
from karrow.spark import pool
from karrow.spark.exactly.batches import Batches, OnMissing
from karrow.spark.exactly.ledger import new_ledger
from karrow.spark.exactly.part import PartProducer
from karrow.spark.exactly.transaction import BlockingTransaction
from karrow.spark.writing import driver, producers
from karrow.spark.writing.parcel import packed
from karrow.spark.writing.terms import Terms
from tests import kept
from tests.brokers import KafkaCluster
from tests.contract.transactional import new_id
from tests.fix_kafka import NewKafka
from tests.proxy import ClusterProxy

LIMIT = 120.0
VERSIONS = ["4.3.1", "3.9.2"]
FORGETS_IDS = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
# A minute is the least that brokers take.
FORGETS_OFFSETS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}
MINUTE = 60.0
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    """A process of Spark keeps its clients until it ends; a test does not."""
    yield
    kept.close_all()


class Sink:
    """Batches of one row through the protocol, whose owner has no Spark."""

    def __init__(self, kafka: KafkaCluster, bootstrap: str | None = None) -> None:
        self.kafka = kafka
        self.id, self.topic = new_id("sink"), kafka.create_topic()
        self.config = ProducerConfig(
            bootstrap=bootstrap or kafka.bootstrap(),
            transactional_id=f"karrow.sink.{self.id}",
            linger=0,
        )
        self.identities: list[Identity] = []
        self.restart()

    def restart(self, on_missing: OnMissing = "stop") -> None:
        """Be another run of the query, which knows nothing."""
        self.batches = self.other(on_missing)
        self._run = str(uuid.uuid4())

    def other(self, on_missing: OnMissing = "stop", bootstrap: str | None = None) -> Batches:
        ledger = new_ledger("group", self.id, self.topic, None)
        config = self.config.replace(bootstrap=bootstrap or self.config.bootstrap)
        steps = BlockingTransaction(config, ledger)
        return Batches(steps, sink_id=self.id, on_missing=on_missing)

    def write(self, batch: int, of: Batches | None = None) -> bool:
        """Have a batch written; whether it was."""

        def row(who: Identity, version: int) -> int:
            self.identities.append(who)
            with PartProducer(config=self.config, who=who, version=version) as part:
                part.write(self.topic, [pa.record_batch({"value": pa.array([b"%d" % batch])})])
            return 1

        return (of or self.batches).run("q", self._run, batch, row)

    def seen(self) -> list[bytes]:
        with karrow.Client(self.kafka.bootstrap()) as client:
            found = client.fetch_all(self.topic, 0, isolation="read_committed")
            return [bytes(one.value or b"") for one in found.records]

    def until_id_is_forgotten(self) -> None:
        with karrow.Admin(self.kafka.bootstrap()) as admin:
            until(lambda: is_unknown(admin, f"karrow.sink.{self.id}"))

    def has_ledger(self) -> bool:
        with karrow.Client(self.kafka.bootstrap()) as client:
            stored = client.committed_offsets(f"karrow.ledger.{self.id}", [(self.topic, 0)])
        return any(one.offset is not None for one in stored.values())


class DriverSink(Sink):
    """The same of ``delivery=exactly-once``, where the driver writes."""

    def write(self, batch: int, of: Batches | None = None) -> bool:
        given = {
            "kafka.bootstrap.servers": self.kafka.bootstrap(),
            "delivery": "exactly-once",
            "sinkId": self.id,
            "topic": self.topic,
        }
        terms = Terms.read(CaseInsensitiveDict(given))
        rows = pa.record_batch({"value": pa.array([str(batch)])})
        parcel = packed(producers.producer(terms.config), terms.topic, "q", [rows])
        assert terms.exactly_once is not None
        driver.commit(terms, terms.exactly_once, [parcel], batch)
        return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "the broker has not forgotten"
        time.sleep(0.2)


def is_unknown(admin: karrow.Admin, transactional_id: str) -> bool:
    try:
        admin.describe_transaction(transactional_id)
    except errors.TransactionalIdNotFound:
        return True
    return False


@contextmanager
def retries() -> Iterator[list[tuple[object, object]]]:
    """Which batches are tried again, and why."""
    told: list[tuple[object, object]] = []

    def note(event: events.Event) -> None:
        told.append((event.fields["batch"], event.fields["kind"]))

    with events.subscribe(note, "sink.retry"):
        yield told


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", [Sink, DriverSink])
def test_batch_whose_transactional_id_was_forgotten_is_tried_again_as_somebody_new(
    new_kafka: NewKafka, version: str, kind: type[Sink]
) -> None:
    """The query does not stop, and its new producer id is nobody else's."""
    sink = kind(new_kafka(version, properties=FORGETS_IDS))
    with retries() as told:
        for batch in range(3):
            assert sink.write(batch)
            sink.until_id_is_forgotten()
    assert told == [(1, "InvalidProducerIdMapping"), (2, "InvalidProducerIdMapping")]
    if kind is Sink:
        refused, accepted = sink.identities[1::2], sink.identities[2::2]
        assert all(a.producer_id != b.producer_id for a, b in zip(refused, accepted, strict=True))
    sink.restart()
    assert sink.write(3)
    assert sink.seen() == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("version", VERSIONS)
def test_old_driver_that_comes_back_after_the_id_was_forgotten_finds_its_batch_in_the_ledger(
    new_kafka: NewKafka, version: str
) -> None:
    """Nothing but the ledger is left to tell it that another one has gone on."""
    sink = Sink(new_kafka(version, properties=FORGETS_IDS))
    sink.write(0)
    old, new = sink.batches, sink.other()
    assert not sink.write(0, new)
    assert sink.write(1, new)
    sink.until_id_is_forgotten()
    assert sink.write(1, old)
    assert sink.seen() == [b"0", b"1"]
    # It is the owner now, and the other one is refused.
    with pytest.raises(errors.ProducerFenced):
        sink.write(2, new)
    assert sink.write(2, old)
    assert sink.seen() == [b"0", b"1", b"2"]


def test_old_driver_that_stood_still_after_its_commit_does_not_go_on_unasked(
    new_kafka: NewKafka,
) -> None:
    """Before version 2 a commit gives no identity: what is asked for after it may be anybody's."""
    kafka = new_kafka("3.9.2", properties=FORGETS_IDS)
    with ClusterProxy(kafka) as proxy, ThreadPoolExecutor(1) as beside:
        sink = Sink(kafka, proxy.bootstrap)
        sink.write(0)
        asked = proxy.nodes[0].hold("InitProducerId")
        work = beside.submit(sink.write, 1)
        asked.wait()
        new = sink.other(bootstrap=kafka.bootstrap())
        assert not sink.write(1, new)
        assert sink.write(2, new)
        sink.until_id_is_forgotten()
        asked.release()
        assert work.result(LIMIT)
        with pytest.raises(errors.StateError):
            sink.write(2)
        assert sink.seen() == [b"0", b"1", b"2"]
        pool.close()


@pytest.mark.timeout(600)
def test_ledger_expires_unless_it_is_renewed_and_the_restart_stops(new_kafka: NewKafka) -> None:
    """On both releases at once, since it takes the minute."""
    clusters = [new_kafka(version, properties=FORGETS_OFFSETS) for version in VERSIONS]
    idle, renewed = ([Sink(cluster) for cluster in clusters] for _ in range(2))
    for sink in (*idle, *renewed):
        sink.write(0)
    began = time.monotonic()
    time.sleep(MINUTE / 2)
    for sink in renewed:
        assert sink.batches.renew(MINUTE / 4)
    until(lambda: not any(sink.has_ledger() for sink in idle))
    assert time.monotonic() - began < MINUTE * 1.5
    for sink in renewed:
        sink.restart()
        assert sink.write(1)
    for sink in idle:
        sink.restart()
        with pytest.raises(errors.StateError, match="no ledger to tell"):
            sink.write(1)
        assert sink.seen() == [b"0"]
        sink.restart("redo")
        assert sink.write(1)
    assert all(sink.seen() == [b"0", b"1"] for sink in (*idle, *renewed))
