"""The pytest plugin: a Kafka for every test, without Docker or mocks.

It is registered when karrow is installed. ``kafka_broker`` is an embedded broker that lives as long
as the run (under xdist, each worker's own); ``kafka`` gives it to a test with nothing in it::

    def test_billing(kafka):
        kafka.produce("orders", [b"1", (b"key", b"2")])
        bill_everything(kafka.bootstrap)
        assert kafka.values("invoices", count=2) == [b"invoice 1", b"invoice 2"]

With ``--kafka-bootstrap HOST:PORT`` (or KARROW_TEST_BOOTSTRAP) the same tests run against a real
broker; those marked ``kafka_embedded`` are skipped then, those marked ``kafka_real`` only run then.
``@pytest.mark.kafka_options(brokers=3, version="3.9")`` gives one test a broker of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from karrow.broker.threaded import Broker
from karrow.errors import KarrowError
from karrow.sync.admin import Admin
from karrow.sync.client import Client

if TYPE_CHECKING:
    from karrow.aio.calls.produce import Message
    from karrow.records import Record
    from karrow.types import RecordMetadata

ENVIRONMENT = "KARROW_TEST_BOOTSTRAP"
POLL = 0.02

__all__ = ["Kafka"]


class Kafka:
    """A cluster for one test: where it is, and short ways to put records in and take them out."""

    def __init__(self, bootstrap: str, broker: Broker | None) -> None:
        self.bootstrap = bootstrap
        self._broker = broker
        self.client = Client(bootstrap)
        self.admin = Admin(self.client)
        self._topics_before = set(self.client.metadata().topics) if broker is None else set()

    @property
    def broker(self) -> Broker:
        """The embedded broker, to inject faults into."""
        if self._broker is None:
            pytest.skip("this test needs the embedded broker")
        return self._broker

    def create_topic(
        self, name: str, partitions: int = 1, *, config: dict[str, str] | None = None
    ) -> None:
        """Make a topic; producing to one that is not there makes it too, where brokers do that."""
        self.admin.create_topic(name, partitions=partitions, config=config)

    def produce(
        self, topic: str, messages: Iterable[Message], *, partition: int | None = None
    ) -> list[RecordMetadata]:
        """Store values, (key, value) pairs or records, and wait until they are."""
        self.client.metadata([topic], create=True)
        return self.client.produce(topic, list(messages), partition=partition)

    def records(self, topic: str, *, count: int = 0, timeout: float = 10.0) -> list[Record]:
        """All records of a topic, by partition and offset.

        With ``count`` it waits until there are as many, and fails the test if that takes longer
        than ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        found = self._records(topic)
        while len(found) < count:
            if time.monotonic() > deadline:
                pytest.fail(f"{topic!r} has {len(found)} of {count} records after {timeout} s")
            time.sleep(POLL)
            found = self._records(topic)
        return found

    def values(self, topic: str, *, count: int = 0, timeout: float = 10.0) -> list[bytes | None]:
        """The values of ``records``."""
        return [record.value for record in self.records(topic, count=count, timeout=timeout)]

    def close(self) -> None:
        """Remove what the test made; the embedded broker is emptied as a whole."""
        try:
            if self._broker is None:
                self._delete_new_topics()
        finally:
            self.admin.close()
            self.client.close()

    def _records(self, topic: str) -> list[Record]:
        known = self.client.metadata([topic]).topics[topic]
        if known.error is not None:
            return []
        return [
            record
            for partition in sorted(known.partitions)
            for record in self.client.fetch_all(
                topic, partition, isolation="read_committed"
            ).records
        ]

    def _delete_new_topics(self) -> None:
        now = {name for name, topic in self.client.metadata().topics.items() if not topic.internal}
        for name in now - self._topics_before:
            try:
                self.admin.delete_topic(name)
            except KarrowError as error:
                pytest.fail(f"topic {name!r} could not be removed after the test: {error}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose a real broker."""
    parser.getgroup("karrow").addoption(
        "--kafka-bootstrap",
        default=os.environ.get(ENVIRONMENT),
        metavar="HOST:PORT",
        help=f"run tests against this broker, not the embedded one (or set {ENVIRONMENT})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest our markers."""
    for line in (
        "kafka_embedded: needs the embedded broker, for its faults",
        "kafka_real: needs a real broker, given by --kafka-bootstrap",
        "kafka_options(...): an embedded broker of its own, with these options of karrow.Broker",
    ):
        config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what the chosen broker cannot serve."""
    is_real = config.getoption("--kafka-bootstrap") is not None
    for item in items:
        if is_real and (item.get_closest_marker("kafka_embedded") or _options(item)):
            item.add_marker(pytest.mark.skip(reason="needs the embedded broker"))
        if not is_real and item.get_closest_marker("kafka_real"):
            item.add_marker(pytest.mark.skip(reason="needs --kafka-bootstrap"))


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The embedded broker of this run; tests that use ``kafka`` find it empty."""
    if request.config.getoption("--kafka-bootstrap") is not None:
        pytest.skip("needs the embedded broker")
    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A cluster with nothing in it, and short ways to use it: see Kafka."""
    real: str | None = request.config.getoption("--kafka-bootstrap")
    options = _options(request.node)
    if real is not None:
        yield from _using(Kafka(real, None))
    elif options:
        with Broker(**options) as broker:
            yield from _using(Kafka(broker.bootstrap, broker))
    else:
        broker = request.getfixturevalue("kafka_broker")
        broker.reset()
        yield from _using(Kafka(broker.bootstrap, broker))


def _using(kafka: Kafka) -> Iterator[Kafka]:
    try:
        yield kafka
    finally:
        kafka.close()


def _options(item: pytest.Item) -> dict[str, Any]:
    marker = item.get_closest_marker("kafka_options")
    return dict(marker.kwargs) if marker is not None else {}
