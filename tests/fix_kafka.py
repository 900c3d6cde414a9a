"""Fixtures with real brokers: started once per run, shared, and only if a test asks for them.

`kafka` is the newest release with one node, `kafka_three` with three, `kafka_version` each release
in turn: the newest one in the gate, the others in the full run. A smoke test, marked
`@pytest.mark.kafka(every_release=True)`, is in the gate on all of them.

`new_kafka` starts a cluster for one test, with settings of its own.

Tests may kill and pause brokers: they are brought back before the next test. Topics should be new
ones (`cluster.create_topic()`), since everything else stays.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import pytest
from jars import JarError

from tests.brokers import NEWEST, RELEASES, KafkaCluster, ZooKeeper

FIXTURES = {"kafka": (NEWEST, 1), "kafka_three": (NEWEST, 3)}
PARAMETRISED = {"kafka_version", "any_kafka", "newest_kafka", "every_kafka", "secured_kafka"}
# Why tests were skipped, for the summary.
MISSING = pytest.StashKey[list[str]]()
POOL = pytest.StashKey["Pool"]()

Key = tuple[str, int]


class Pool:
    """Clusters by release and number of nodes, each started when it is first wanted."""

    def __init__(self) -> None:
        self._zookeeper = ZooKeeper()
        self._clusters: dict[Key, Future[KafkaCluster]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, key: Key) -> KafkaCluster:
        """The cluster, running. What failed once is not tried again."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the run is over")
            known = self._clusters.get(key)
            cluster = self._clusters.setdefault(key, Future())
        if known is None:
            try:
                cluster.set_result(self._start(key))
            except BaseException as error:
                cluster.set_exception(error)
                raise
        return cluster.result()

    def start_early(self, keys: list[Key]) -> None:
        """Start clusters one after the other beside the tests, which rarely need every core."""
        threading.Thread(target=self._start_all, args=(keys,), name="brokers", daemon=True).start()

    def close(self) -> None:
        """End all brokers."""
        with self._lock:
            self._closed = True
        for cluster in self._clusters.values():
            # Waits for one that is just being started.
            if cluster.exception() is None:
                cluster.result().close()
        self._zookeeper.stop()

    def _start_all(self, keys: list[Key]) -> None:
        for key in keys:
            try:
                self.get(key)
            except Exception:  # noqa: BLE001 - kept for the test that wants the cluster
                continue

    def _start(self, key: Key) -> KafkaCluster:
        version, nodes = key
        cluster = KafkaCluster(version, nodes, zookeeper=self._zookeeper)
        cluster.start()
        return cluster


def wanted(items: list[pytest.Item]) -> list[Key]:
    """The clusters that tests ask for, in the order of the first test of each."""
    found: dict[Key, None] = {}
    for item in items:
        if isinstance(item, pytest.Function):
            for fixture in item.fixturenames:
                if fixture in FIXTURES:
                    found[FIXTURES[fixture]] = None
            for fixture in PARAMETRISED.intersection(item.fixturenames):
                version = str(item.callspec.params[fixture])
                if version in RELEASES:
                    found[version, 1] = None
    return list(found)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MISSING] = []
    config.stash[POOL] = Pool()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a broker, and as slow what needs an old one, before tests are selected."""
    for item in items:
        clusters = wanted([item])
        if not clusters and "new_kafka" not in getattr(item, "fixturenames", ()):
            continue
        everywhere = any(mark.kwargs.get("every_release") for mark in item.iter_markers("kafka"))
        if not everywhere and any(version != NEWEST for version, _ in clusters):
            item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.kafka)


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly:
        session.config.stash[POOL].start_early(wanted(session.items))


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[POOL].close()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    missing = config.stash[MISSING]
    if missing:
        terminalreporter.section("NOT TESTED AGAINST REAL BROKERS", red=True, bold=True)
        terminalreporter.line(f"{len(missing)} tests skipped: {missing[0]}", red=True)


@contextmanager
def brokers_needed(config: pytest.Config) -> Iterator[None]:
    """Skip the test when brokers cannot be had, but never in CI."""
    try:
        yield
    except JarError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI must test against real brokers: {error}", pytrace=False)
        config.stash[MISSING].append(str(error))
        pytest.skip(f"no real broker: {error}")


def cluster_for(request: pytest.FixtureRequest, key: Key) -> Iterator[KafkaCluster]:
    """The shared cluster, put right again after the test."""
    with brokers_needed(request.config):
        cluster = request.config.stash[POOL].get(key)
    yield cluster
    cluster.heal()


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One node of the newest release."""
    yield from cluster_for(request, FIXTURES["kafka"])


@pytest.fixture
def kafka_three(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """Three nodes of the newest release."""
    yield from cluster_for(request, FIXTURES["kafka_three"])


class NewKafka(Protocol):
    """What `new_kafka` is."""

    def __call__(
        self,
        version: str = ...,
        nodes: int = ...,
        *,
        properties: Mapping[str, str] | None = ...,
        features: Mapping[str, int] | None = ...,
    ) -> KafkaCluster:
        """Start a cluster."""


@pytest.fixture
def new_kafka(request: pytest.FixtureRequest) -> Iterator[NewKafka]:
    """Starts a cluster of the test's own, for settings that the shared ones lack."""
    with ExitStack() as stack:

        def start(version: str = NEWEST, nodes: int = 1, **options: Any) -> KafkaCluster:
            with brokers_needed(request.config):
                return stack.enter_context(KafkaCluster(version, nodes, **options))

        yield start


@contextmanager
def own_kafka(
    config: pytest.Config, properties: Mapping[str, str] | None = None
) -> Iterator[KafkaCluster]:
    """A cluster for a module that alters users, or wants settings of its own.

    A KRaft broker (4.3.1) that is restarted after any user was altered no longer knows the users it
    was formatted with, so such tests must not share the broker that others restart and log in to.
    """
    with brokers_needed(config), KafkaCluster(properties=properties) as cluster:
        yield cluster


@pytest.fixture(params=list(RELEASES))
def kafka_version(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One node of each release in turn."""
    yield from cluster_for(request, (request.param, 1))
