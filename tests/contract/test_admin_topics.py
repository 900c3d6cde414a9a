"""Admin on any broker: the cluster, topics, partitions, records, leaders."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import karrow
from karrow import errors
from karrow.types import NewPartitions, NewTopic, TopicPartition
from tests.brokers import KafkaCluster
from tests.fix_admin import OPTIONS, eventually, new_name
from tests.fix_any import AnyKafka


@pytest.mark.since("4.0")
def test_cluster_is_described(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    found = admin.describe_cluster(fenced=True, authorized_operations=True)
    assert found.cluster_id == any_kafka.cluster_id
    assert found.controller_id == 1
    assert f"{found.brokers[1].host}:{found.brokers[1].port}" == any_kafka.bootstrap
    assert found.fenced_brokers == frozenset()
    assert found.authorized_operations is not None
    assert "alter" in found.authorized_operations
    assert admin.describe_cluster().authorized_operations is None


@pytest.mark.since("3.9")
def test_cluster_that_cannot_show_fenced_brokers_says_so(admin: karrow.Admin) -> None:
    with pytest.raises(errors.UnsupportedVersion, match="cannot carry fenced"):
        admin.describe_cluster(fenced=True, api_version=1)


def test_topic_lives_and_dies(admin: karrow.Admin) -> None:
    name = new_name("topic")
    made = admin.create_topic(name, partitions=2, config={"retention.ms": "86400000"})
    assert (made.name, made.partitions, made.replication_factor) == (name, 2, 1)
    eventually(lambda: name in admin.list_topics())
    found = admin.describe_topic(name)
    assert found.topic_id == made.topic_id
    assert sorted(found.partitions) == [0, 1]
    assert found.partitions[0].replicas == (1,)
    admin.delete_topic(name)
    eventually(lambda: name not in admin.list_topics())


def test_many_topics_live_and_die(admin: karrow.Admin) -> None:
    names = [new_name("topic"), new_name("topic")]
    made = admin.create_topics([NewTopic(names[0], 3), names[1]])
    assert list(made) == names
    eventually(lambda: set(names) <= set(admin.list_topics()))
    found = admin.describe_topics(names)
    assert list(found) == names
    assert len(found[names[0]].partitions) == 3
    admin.delete_topics(names)


def test_topics_that_cannot_be_made_are_named(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    taken, fresh = any_kafka.create_topic(), new_name("topic")
    with pytest.raises(errors.TopicAlreadyExists):
        admin.create_topic(taken)
    with pytest.raises(errors.PartialError) as caught:
        admin.create_topics([taken, fresh])
    assert list(caught.value.results) == [fresh]
    assert isinstance(caught.value.errors[taken], errors.TopicAlreadyExists)


def test_topics_that_do_not_exist_are_not_deleted(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    known, absent = any_kafka.create_topic(), new_name("absent")
    with pytest.raises(errors.UnknownTopicOrPartition):
        admin.delete_topic(absent)
    with pytest.raises(errors.PartialError) as caught:
        admin.delete_topics([known, absent])
    assert list(caught.value.errors) == [absent]


def test_internal_topics_are_listed_on_demand(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    if any_kafka.is_embedded:
        pytest.skip("the embedded broker needs no topics of its own")
    topic = any_kafka.create_topic()
    admin.alter_group_offsets(new_name("group"), {(topic, 0): 0})
    assert "__consumer_offsets" in admin.list_topics(internal=True)
    assert "__consumer_offsets" not in admin.list_topics()


def test_unreachable_cluster_lists_nothing(face: Callable[..., karrow.Admin]) -> None:
    admin = face("127.0.0.1:1", api_timeout=0.3)
    with pytest.raises(errors.ConnectError):
        admin.list_topics()


def test_absent_topic_is_told_at_once(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    known, absent = any_kafka.create_topic(), new_name("absent")
    with pytest.raises(errors.UnknownTopicOrPartition, match=absent):
        admin.describe_topic(absent)
    with pytest.raises(errors.PartialError) as caught:
        admin.describe_topics([known, absent])
    assert list(caught.value.results) == [known]
    assert absent not in admin.list_topics()


def test_topics_grow(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    one, other = any_kafka.create_topic(), any_kafka.create_topic()
    admin.create_partitions({one: 3, other: NewPartitions(2, [[1]])}, validate_only=True)
    admin.create_partitions({one: 3, other: NewPartitions(2, [[1]])})
    eventually(lambda: len(admin.describe_topic(one).partitions) == 3)
    eventually(lambda: len(admin.describe_topic(other).partitions) == 2)


def test_topics_do_not_shrink(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic, fresh = any_kafka.create_topic(partitions=2), any_kafka.create_topic()
    with pytest.raises(errors.InvalidPartitions, match=topic):
        admin.create_partitions({topic: 1})
    with pytest.raises(errors.PartialError) as caught:
        admin.create_partitions({topic: 2, fresh: 2, new_name("absent"): 2})
    assert list(caught.value.results) == [fresh]


def test_records_are_deleted(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic(partitions=3)
    old, new = datetime.now(UTC) - timedelta(days=10), datetime.now(UTC)
    for partition in range(3):
        records = [
            karrow.Record(value=b"x", timestamp_ms=int(when.timestamp() * 1000))
            for when in (old, old, new, new)
        ]
        admin.client.produce(topic, records, partition=partition)
    left = admin.delete_records({(topic, 0): 3, (topic, 1): "latest", (topic, 2): "-7d"})
    assert left == {(topic, 0): 3, (topic, 1): 4, (topic, 2): 2}
    assert admin.client.earliest_offset(topic, 2) == 2


def test_records_that_do_not_exist_are_not_deleted(
    admin: karrow.Admin, any_kafka: AnyKafka
) -> None:
    topic = any_kafka.create_topic()
    with pytest.raises(errors.OffsetOutOfRange, match=topic):
        admin.delete_records({(topic, 0): 99})
    with pytest.raises(errors.UnknownTopicOrPartition):
        admin.delete_records({(topic, 7): "latest"})


def test_first_replicas_lead_again(
    kafka_three: KafkaCluster, face: Callable[..., karrow.Admin]
) -> None:
    admin = face(kafka_three.bootstrap(), **OPTIONS)
    topic = kafka_three.create_topic()
    first, second, third = admin.describe_topic(topic).partitions[0].replicas
    kafka_three.node(first).kill()
    eventually(lambda: admin.describe_topic(topic).partitions[0].leader in (second, third))
    kafka_three.node(first).start()
    eventually(lambda: first in admin.describe_topic(topic).partitions[0].in_sync_replicas)
    assert admin.elect_leaders([(topic, 0)]).elected == ((topic, 0),)
    eventually(lambda: admin.describe_topic(topic).partitions[0].leader == first)


def test_election_that_changes_nothing_is_told(
    kafka: KafkaCluster, face: Callable[..., karrow.Admin]
) -> None:
    admin = face(kafka.bootstrap(), **OPTIONS)
    topic = kafka.create_topic()
    found = admin.elect_leaders([(topic, 0)])
    assert found.elected == ()
    assert isinstance(found.errors[TopicPartition(topic, 0)], errors.ElectionNotNeeded)
    assert admin.elect_leaders().elected == ()


def test_election_without_a_partition_fails(
    kafka: KafkaCluster, face: Callable[..., karrow.Admin]
) -> None:
    admin = face(kafka.bootstrap(), **OPTIONS)
    topic = kafka.create_topic()
    with pytest.raises(errors.PartialError) as caught:
        admin.elect_leaders([(topic, 0), (topic, 9)])
    assert isinstance(caught.value.errors[topic, 9], errors.UnknownTopicOrPartition)
    with pytest.raises(errors.ConfigError, match="preferred, unclean"):
        admin.elect_leaders(kind="best")  # type: ignore[arg-type]


def test_client_is_shared_and_left_open(any_kafka: AnyKafka) -> None:
    with karrow.Client(any_kafka.bootstrap) as client:
        with karrow.Admin(client) as admin:
            assert admin.client is client
            admin.list_topics()
        assert client.brokers()
        with pytest.raises(errors.ConfigError, match="options already"):
            karrow.Admin(client, client_id="other")


def test_own_client_is_closed(admin: karrow.Admin) -> None:
    admin.list_topics()
    admin.close()
    with pytest.raises(errors.StateError, match="closed"):
        admin.list_topics()
