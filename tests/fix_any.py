"""One program for two kinds of broker: `any_kafka` is the embedded one, then a real one.

In the gate these are the newest release and the embedded broker that passes for it; the full run
adds older releases, each beside its embedded sibling.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from karrow.broker.threaded import Broker
from tests.brokers import NEWEST, KafkaCluster, RawConnection
from tests.fix_kafka import cluster_for

# Real releases, with what the embedded broker calls them.
SIBLINGS = {"4.3.1": "4.3", "3.9.2": "3.9", "2.8.2": "2.8"}
EMBEDDED = "embedded-"


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
        return tuple(int(part) for part in self.version.split("."))

    @property
    def bootstrap(self) -> str:
        """Where clients find it, without TLS or login."""
        found = self.broker.bootstrap
        return found if isinstance(found, str) else found()

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


@pytest.fixture(params=_parameters())
def any_kafka(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """The embedded broker and the real one in turn; what a test sees must not differ."""
    if request.param.startswith(EMBEDDED):
        version = request.param.removeprefix(EMBEDDED)
        with Broker(version=version) as broker:
            yield AnyKafka(version, broker)
    else:
        for cluster in cluster_for(request, (request.param, 1)):
            yield AnyKafka(SIBLINGS[request.param], cluster)
