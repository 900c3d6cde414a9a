"""confluent-kafka's AdminClient on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import TopicCollection, TopicPartition

from karrow.broker.threaded import Broker
from tests.interop.futures import TIMEOUT, failure, results

# Most of its names are not exported as its types have it.
kit: Any = confluent_kafka.admin


@pytest.fixture(params=["4.3", "3.9", "2.8"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(version=request.param) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Any:
    return kit.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def described(admin: Any, kind: Any, name: str) -> dict[str, Any]:
    (found,) = results(admin.describe_configs([kit.ConfigResource(kind, name)]))
    entries: dict[str, Any] = found
    return entries


def test_topics(admin: Any) -> None:
    topic = kit.NewTopic("orders", 2, 1, config={"retention.ms": "5000"})
    results(admin.create_topics([topic], validate_only=True))
    results(admin.create_topics([topic]))
    assert failure(admin.create_topics([topic])) == "TOPIC_ALREADY_EXISTS"
    assert failure(admin.create_topics([kit.NewTopic("a b", 1, 1)])) == "TOPIC_EXCEPTION"
    wrong = kit.NewTopic("other", 1, 1, config={"no.such": "1"})
    assert failure(admin.create_topics([wrong])) == "INVALID_CONFIG"
    results(admin.create_partitions([kit.NewPartitions("orders", 3)]))
    assert (
        failure(admin.create_partitions([kit.NewPartitions("orders", 3)])) == "INVALID_PARTITIONS"
    )
    (found,) = results(admin.describe_topics(TopicCollection(["orders"])))
    assert [partition.id for partition in found.partitions] == [0, 1, 2]
    results(admin.delete_topics(["orders"]))
    assert failure(admin.delete_topics(["orders"])) == "UNKNOWN_TOPIC_OR_PART"


def test_configurations(admin: Any) -> None:
    results(admin.create_topics([kit.NewTopic("orders", 1, 1)]))
    assert described(admin, kit.ResourceType.TOPIC, "orders")["retention.ms"].value == "604800000"

    def change(name: str, operation: Any, value: str | None) -> dict[Any, Any]:
        entry = kit.ConfigEntry(name, value, incremental_operation=operation)
        resource = kit.ConfigResource(kit.ResourceType.TOPIC, "orders", incremental_configs=[entry])
        futures: dict[Any, Any] = admin.incremental_alter_configs([resource])
        return futures

    results(change("retention.ms", kit.AlterConfigOpType.SET, "5000"))
    results(change("cleanup.policy", kit.AlterConfigOpType.APPEND, "compact"))
    found = described(admin, kit.ResourceType.TOPIC, "orders")
    assert found["cleanup.policy"].value == "delete,compact"
    assert found["retention.ms"].value == "5000"
    assert found["retention.ms"].source == kit.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    results(change("retention.ms", kit.AlterConfigOpType.DELETE, None))
    found = described(admin, kit.ResourceType.TOPIC, "orders")
    assert found["retention.ms"].is_default
    assert failure(change("retention.ms", kit.AlterConfigOpType.SET, "x")) == "INVALID_CONFIG"
    assert described(admin, kit.ResourceType.BROKER, "1")["broker.id"].value == "1"


def test_cluster_and_offsets(admin: Any, broker: Broker) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT)
    assert cluster.cluster_id == broker.cluster_id
    assert [node.id for node in cluster.nodes] == [1]
    results(admin.create_topics([kit.NewTopic("orders", 1, 1)]))
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(3):
        producer.produce("orders", b"x", partition=0)
    assert producer.flush(TIMEOUT) == 0
    (deleted,) = results(admin.delete_records([TopicPartition("orders", 0, 2)]))
    assert deleted.low_watermark == 2
    for spec, offset in ((kit.OffsetSpec.earliest(), 2), (kit.OffsetSpec.latest(), 3)):
        (found,) = results(admin.list_offsets({TopicPartition("orders", 0): spec}))
        assert found.offset == offset
