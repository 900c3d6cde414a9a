"""Admin on three brokers: each is asked for its own part, and one that dies is replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

import karrow
from karrow import errors, events
from karrow.types import ConfigResource
from tests.brokers import KafkaCluster
from tests.fix_admin import OPTIONS, new_name

Face = Callable[..., karrow.Admin]


def make_groups(admin: karrow.Admin, topic: str) -> list[str]:
    """So many that one broker cannot coordinate them all."""
    groups = [new_name("group") for _ in range(12)]
    for group in groups:
        admin.create_group(group, {topic: "earliest"})
    return groups


def test_each_broker_answers_for_itself(kafka_three: KafkaCluster, face: Face) -> None:
    admin = face(kafka_three.bootstrap(), **OPTIONS)
    owners = [ConfigResource.broker(number) for number in (1, 2, 3)]
    found = admin.describe_configs(owners, ["node.id"])
    assert [found[owner]["node.id"].value for owner in owners] == ["1", "2", "3"]
    with pytest.raises(errors.BrokerNotAvailable, match="no broker 9"):
        admin.describe_config(ConfigResource.broker(9), retries=0)


def test_each_leader_deletes_its_records(kafka_three: KafkaCluster, face: Face) -> None:
    admin = face(kafka_three.bootstrap(), **OPTIONS)
    topic = kafka_three.create_topic(partitions=6)
    leaders = {one.leader for one in admin.describe_topic(topic).partitions.values()}
    assert leaders == {1, 2, 3}
    for partition in range(6):
        admin.client.produce(topic, [b"x"] * 3, partition=partition)
    wanted = {(topic, partition): partition % 3 + 1 for partition in range(6)}
    assert admin.delete_records(wanted) == wanted
    assert set(admin.describe_producers(wanted)) == set(wanted)


def test_each_coordinator_deletes_its_groups(kafka_three: KafkaCluster, face: Face) -> None:
    admin = face(kafka_three.bootstrap(), **OPTIONS)
    topic = kafka_three.create_topic()
    groups = make_groups(admin, topic)
    described = admin.describe_groups(groups)
    assert len({one.coordinator_id for one in described.values()}) > 1
    assert set(admin.list_groups_offsets(groups)) == set(groups)
    absent = new_name("absent")
    with pytest.raises(errors.PartialError) as caught:
        admin.delete_groups([*groups, absent])
    assert (list(caught.value.results), list(caught.value.errors)) == (groups, [absent])


def test_each_coordinator_is_asked_once(kafka_three: KafkaCluster, face: Face) -> None:
    topic = kafka_three.create_topic()
    groups = make_groups(face(kafka_three.bootstrap(), **OPTIONS), topic)
    admin = face(kafka_three.bootstrap(), client_id="counted", api_timeout=20.0)
    asked: Counter[str] = Counter()

    def count(event: events.Event) -> None:
        if event.fields["client_id"] == "counted":
            asked[event.fields["operation"]] += 1

    with events.subscribe(count, "request.stop"):
        described = admin.describe_groups(groups)
        offsets = admin.list_groups_offsets(groups, [topic])
    brokers = len({one.coordinator_id for one in described.values()})
    assert brokers > 1
    assert [one.state for one in described.values()] == ["Empty"] * len(groups)
    assert {key for stored in offsets.values() for key in stored} == {(topic, 0)}
    wanted = {"FindCoordinator": 1, "DescribeGroups": brokers, "OffsetFetch": brokers}
    assert {name: asked[name] for name in wanted} == wanted


def test_groups_of_a_dead_broker_are_deleted_by_the_next(
    kafka_three: KafkaCluster, face: Face
) -> None:
    admin = face(kafka_three.bootstrap(), client_id="admin", api_timeout=40.0)
    topic = kafka_three.create_topic()
    groups = make_groups(admin, topic)
    dying = admin.describe_group(groups[0]).coordinator_id
    assert dying is not None
    kafka_three.node(dying).kill()
    admin.delete_groups(groups)
    assert not {one.group for one in admin.list_groups()} & set(groups)
