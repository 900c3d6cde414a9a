"""One program for two kinds of broker: `any_kafka` is the embedded one, then a real one.

In the gate these are the newest release and the embedded broker that passes for it; the full run
adds older releases, each beside its embedded sibling. `newest_kafka` is the first pair alone, for
programs that name versions; `every_kafka` has all that the embedded broker passes for, and every
real release.

A test marked ``since("4.0")`` is left out where the release is older.

What contract tests ask of the embedded broker is noted, so that one last test can tell which of its
APIs they forget.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from karrow.broker.threaded import Broker
from tests.brokers import NEWEST, RELEASES, KafkaCluster, RawConnection
from tests.brokers.artifacts import Release
from tests.brokers.properties import HEARTBEAT_INTERVAL
from tests.brokers.users import PASSWORDS
from tests.fix_kafka import cluster_for

# Real releases, with what the embedded broker calls them.
SIBLINGS = {"4.3.1": "4.3", "3.9.2": "3.9", "2.8.2": "2.8"}
EMBEDDED = "embedded-"
FIXTURES = {"any_kafka", "newest_kafka", "every_kafka", "secured_kafka"}
CONTRACT = Path(__file__).parent / "contract"
# That every API gives an answer of its type is not yet a test of it.
NOT_COUNTED = "test_client_every_api.py"
LAST = "test_every_api_of_the_embedded_broker_was_asked"


@dataclass
class Coverage:
    """A test marked ``since("4.0")`` is left out where the release is older.

    What contract tests asked of the embedded broker that passes for the newest release."""

    asked: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    """Tests that do not take part in this run."""


COVERAGE = pytest.StashKey[Coverage]()


@dataclass(frozen=True)
class AnyKafka:
    """A running broker with one node, embedded or real."""

    version: str
    """The release it is or passes for, without its last number: "4.3"."""
    broker: Broker | KafkaCluster

    @property
    def is_embedded(self) -> bool:
        """Whether it is ours."""
        return isinstance(self.broker, Broker)

    @property
    def number(self) -> tuple[int, ...]:
        """The release, comparable."""
        return _number(self.version)

    @property
    def bootstrap(self) -> str:
        """Where clients find it, without TLS or login."""
        found = self.broker.bootstrap
        return found if isinstance(found, str) else found()

    @property
    def release(self) -> Release:
        """Facts about the release."""
        if isinstance(self.broker, KafkaCluster):
            return self.broker.release
        return next(RELEASES[real] for real, name in SIBLINGS.items() if name == self.version)

    @property
    def cluster_id(self) -> str:
        """What metadata calls the cluster."""
        return self.broker.cluster_id

    def connect(self, timeout: float = 10.0) -> RawConnection:
        """A connection of wire and socket alone."""
        host, port = self.bootstrap.rsplit(":", 1)
        return RawConnection(host, int(port), timeout=timeout)

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """A topic that is ready for use; its name is new unless given."""
        if isinstance(self.broker, KafkaCluster):
            return self.broker.create_topic(name, partitions=partitions, config=config)
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in (config or {}).items()],
        }
        with self.connect() as connection:
            body = {"topics": [topic], "timeout_ms": 30_000}
            answer = connection.request("CreateTopics", body).topics[0]
        assert answer.error_code == 0
        return name


def _parameters() -> list[object]:
    found: list[object] = []
    for real, name in SIBLINGS.items():
        # Real brokers are marked in fix_kafka.
        marks = () if real == NEWEST else (pytest.mark.slow,)
        found += [pytest.param(EMBEDDED + name, marks=marks), real]
    return found


def _opened(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    if not request.param.startswith(EMBEDDED):
        for cluster in cluster_for(request, (request.param, 1)):
            yield AnyKafka(request.param.rpartition(".")[0], cluster)
        return
    version = request.param.removeprefix(EMBEDDED)
    with _without_complaints(), _embedded(version) as broker:
        yield AnyKafka(version, broker)
        if version == SIBLINGS[NEWEST]:
            note(request, broker)


def _embedded(version: str) -> Broker:
    return Broker(version=version, heartbeat_interval=HEARTBEAT_INTERVAL)


class _Complaints(logging.Handler):
    """What the embedded broker says when a handler of it has failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@contextmanager
def _without_complaints() -> Iterator[None]:
    """A broker that answers UNKNOWN_SERVER_ERROR or hangs up by mistake says so in its log."""
    complaints, logger = _Complaints(), logging.getLogger("karrow.broker")
    logger.addHandler(complaints)
    try:
        yield
    finally:
        logger.removeHandler(complaints)
    assert complaints.texts == []


def note(request: pytest.FixtureRequest, broker: Broker) -> None:
    """Remember what a test asked."""
    if request.path.parent == CONTRACT and request.path.name != NOT_COUNTED:
        request.config.stash[COVERAGE].asked.update(seen.api for seen in broker.requests)


@pytest.fixture(params=_parameters())
def any_kafka(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """The embedded broker and the real one in turn; what a test sees must not differ."""
    yield from _opened(request)


@pytest.fixture(params=_parameters()[:2])
def newest_kafka(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """The same with the newest release only."""
    yield from _opened(request)


@pytest.fixture(params=[*(EMBEDDED + name for name in SIBLINGS.values()), *RELEASES])
def every_kafka(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """Every release in turn, and what passes for one; the old real ones in the full run."""
    yield from _opened(request)


@dataclass(frozen=True)
class SecuredKafka:
    """A broker where users of tests/brokers/users.py log in by SASL, without TLS."""

    bootstrap: str

    def connect(self) -> RawConnection:
        """A connection on which nobody has logged in."""
        host, port = self.bootstrap.rsplit(":", 1)
        return RawConnection(host, int(port))


@pytest.fixture(params=_parameters()[:2])
def secured_kafka(request: pytest.FixtureRequest) -> Iterator[SecuredKafka]:
    """The embedded broker and the newest real one, where users have to log in."""
    if request.param.startswith(EMBEDDED):
        with _without_complaints(), Broker(sasl=PASSWORDS) as broker:
            yield SecuredKafka(broker.bootstrap)
            note(request, broker)
        return
    for cluster in cluster_for(request, (request.param, 1)):
        yield SecuredKafka(cluster.bootstrap("SASL_PLAINTEXT"))


def _covering(items: list[pytest.Item]) -> set[str]:
    """The tests that count, by name."""
    return {
        item.nodeid
        for item in items
        if isinstance(item, pytest.Function)
        and item.path.parent == CONTRACT
        and item.get_closest_marker("slow") is None
        and any(
            item.callspec.params[fixture] == EMBEDDED + SIBLINGS[NEWEST]
            for fixture in FIXTURES.intersection(item.fixturenames)
        )
    }


def _absent(items: list[pytest.Item]) -> set[str]:
    """The files with such tests that were not even collected."""
    collected = {item.path for item in items}
    return {
        path.name
        for path in CONTRACT.glob("test_*.py")
        if path not in collected and any(name in path.read_text("utf-8") for name in FIXTURES)
    }


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _is_too_old(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("since")
    if mark is None or not isinstance(item, pytest.Function):
        return False
    found = FIXTURES.intersection(item.fixturenames)
    versions = [str(item.callspec.params[fixture]).removeprefix(EMBEDDED) for fixture in found]
    return any(_number(version) < _number(mark.args[0]) for version in versions)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COVERAGE] = Coverage()
    config.addinivalue_line("markers", "since(release): needs this release of Kafka or a newer one")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Note what is left out, and put the test that looks at all others behind them."""
    items[:] = [item for item in items if not _is_too_old(item)]
    wanted, absent = _covering(items), _absent(items)
    yield
    config.stash[COVERAGE].missing = sorted(absent | (wanted - _covering(items)))
    items.sort(key=lambda item: item.name == LAST)
