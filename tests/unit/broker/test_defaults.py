"""Settings for all topics, and what several nodes say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from karrow import errors
from karrow.broker.clock import ManualClock
from karrow.broker.disk import DiskStore
from karrow.broker.settings import TOPIC, Setting, problem_with, topic_table
from tests.unit.broker.bare import Bare

OF_TOPIC, OF_BROKER, OF_ALL, OF_KAFKA = 1, 2, 3, 5
BROKER, TOPIC_KIND = 4, 2


def alter(bare: Bare, kind: int, name: str, *, node_id: int = 1, **given: str | None) -> int:
    configs = [
        {
            "name": key.replace("_", "."),
            "config_operation": 1 if value is None else 0,
            "value": value,
        }
        for key, value in given.items()
    ]
    body = {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}]}
    code: int = bare.ask("IncrementalAlterConfigs", body, node_id=node_id).responses[0].error_code
    return code


def told(bare: Bare, kind: int, name: str, key: str, *, node_id: int = 1) -> tuple[Any, int]:
    item = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
    answer = bare.ask("DescribeConfigs", {"resources": [item]}, node_id=node_id).results[0]
    assert answer.error_code == 0
    (config,) = answer.configs
    return config.value, config.config_source


def largest(bare: Bare, topic: str = "t") -> int:
    return bare.cluster.topics[topic].rules.max_message_bytes


def test_settings_for_all_act_on_topics_made_before_and_after() -> None:
    bare = Bare()
    bare.cluster.create_topic("t")
    assert alter(bare, BROKER, "", message_max_bytes="500") == 0
    bare.cluster.create_topic("u")
    bare.cluster.create_topic("v", config={"max.message.bytes": "700"})
    assert [largest(bare, name) for name in "tuv"] == [500, 500, 700]
    assert alter(bare, BROKER, "", message_max_bytes=None) == 0
    assert [largest(bare, name) for name in "tuv"] == [1048588, 1048588, 700]


def test_settings_of_the_only_broker_go_before_those_for_all() -> None:
    bare = Bare()
    bare.cluster.create_topic("t")
    assert alter(bare, BROKER, "1", message_max_bytes="400") == 0
    assert alter(bare, BROKER, "", message_max_bytes="500") == 0
    assert largest(bare) == 400
    assert told(bare, TOPIC_KIND, "t", "max.message.bytes") == ("400", OF_BROKER)


def test_settings_of_one_of_several_brokers_are_told_only() -> None:
    bare = Bare(2)
    bare.cluster.create_topic("t")
    assert alter(bare, BROKER, "2", node_id=2, message_max_bytes="400") == 0
    assert largest(bare) == 1048588
    assert told(bare, BROKER, "2", "message.max.bytes", node_id=2) == ("400", OF_BROKER)
    assert told(bare, BROKER, "1", "message.max.bytes") == ("1048588", OF_KAFKA)
    assert alter(bare, BROKER, "2", message_max_bytes="400") == errors.InvalidRequest.code


def test_settings_survive_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    bare = Bare(store=DiskStore(tmp_path), clock=clock)
    bare.cluster.create_topic("t", config={"retention.ms": "5"})
    assert alter(bare, BROKER, "", message_max_bytes="500") == 0
    assert alter(bare, TOPIC_KIND, "t", segment_ms="60000") == 0
    bare.cluster.close()
    bare = Bare(store=DiskStore(tmp_path), clock=clock)
    assert largest(bare) == 500
    assert bare.cluster.topics["t"].settings.given == {"retention.ms": "5", "segment.ms": "60000"}
    assert told(bare, TOPIC_KIND, "t", "max.message.bytes") == ("500", OF_ALL)
    bare.cluster.close()


def test_changed_settings_act_on_the_next_batch() -> None:
    bare = Bare()
    bare.cluster.create_topic("t")
    assert alter(bare, TOPIC_KIND, "t", retention_ms="1000", cleanup_policy="compact") == 0
    rules = bare.cluster.topics["t"].rules
    assert (rules.compacts, rules.deletes, rules.limits.retention_ms) == (True, False, -1)
    assert alter(bare, TOPIC_KIND, "t", cleanup_policy="compact,delete") == 0
    rules = bare.cluster.topics["t"].rules
    assert (rules.compacts, rules.deletes, rules.limits.retention_ms) == (True, True, 1000)


@pytest.mark.parametrize(("release", "count"), [("4.3", 33), ("3.9", 36), ("2.8", 26)])
def test_releases_have_their_own_settings(release: str, count: int) -> None:
    assert len(topic_table(release)) == count
    bare = Bare(version=release)
    bare.cluster.create_topic("t")
    assert bare.cluster.topics["t"].rules.max_behind_ms == (1 << 63) - 1


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("preallocate", ["true", "FALSE"], ["1", ""]),
        (
            "retention.ms",
            ["-1", "0", str((1 << 63) - 1)],
            ["-2", str(1 << 63), "1.5", "", "1_0", "9" * 5000],
        ),
        ("segment.bytes", [str(1 << 20)], ["1", str(1 << 31)]),
        ("min.cleanable.dirty.ratio", ["0", "0.5", "1"], ["1.1", "-1", "x", "nan", "inf"]),
        ("cleanup.policy", ["compact", "delete,compact", ""], ["burn", "delete,burn"]),
        ("compression.type", ["gzip"], ["GZIP", "lzma"]),
    ],
)
def test_values_are_checked_by_type_and_range(name: str, good: list[str], bad: list[str]) -> None:
    setting: Setting = TOPIC[name]
    assert [problem_with(setting, value) for value in good] == [None] * len(good)
    assert all(problem_with(setting, value) for value in bad)


def test_old_brokers_say_what_is_default() -> None:
    bare = Bare(version="2.8")
    bare.cluster.create_topic("t", config={"retention.ms": "5"})
    item = {"resource_type": TOPIC_KIND, "resource_name": "t", "configuration_keys": None}
    found = bare.ask("DescribeConfigs", {"resources": [item]}, 0).results[0].configs
    changed = {config.name for config in found if not config.is_default}
    assert changed == {"retention.ms"}


def test_fenced_brokers_are_shown_to_those_who_ask() -> None:
    bare = Bare(3)
    bare.cluster.take_down(1)

    def shown(version: int, **body: Any) -> list[tuple[int, bool]]:
        answer = bare.ask("DescribeCluster", body, version, node_id=2)
        assert answer.controller_id == 2
        return [(broker.broker_id, broker.is_fenced) for broker in answer.brokers]

    assert shown(1) == shown(2) == [(2, False), (3, False)]
    assert shown(2, include_fenced_brokers=True) == [(1, True), (2, False), (3, False)]


def test_partition_without_leader_is_described() -> None:
    bare = Bare(2)
    bare.cluster.create_topic("t", assignments=[[1], [2]])
    bare.cluster.take_down(1)
    body = {"topics": [{"name": "t"}], "response_partition_limit": 9, "cursor": None}
    (topic,) = bare.ask("DescribeTopicPartitions", body, node_id=2).topics
    gone, led = topic.partitions
    assert (gone.error_code, gone.leader_id) == (errors.LeaderNotAvailable.code, -1)
    assert gone.offline_replicas == [1]
    assert (led.error_code, led.leader_id, led.offline_replicas) == (0, 2, [])


def test_sizes_are_told_by_the_node_that_has_the_replica() -> None:
    bare = Bare(2)
    bare.cluster.create_topic("t", assignments=[[1], [2]])
    for node_id, partition in ((1, 0), (2, 1)):
        (folder,) = bare.ask("DescribeLogDirs", {"topics": None}, node_id=node_id).results
        (topic,) = folder.topics
        assert [found.partition_index for found in topic.partitions] == [partition]


def test_only_the_controller_of_old_clusters_changes_topics() -> None:
    bare = Bare(2, version="2.8")
    bare.cluster.create_topic("t")
    not_controller = errors.NotController.code
    topic = {"name": "u", "num_partitions": 1, "replication_factor": 1}
    (made,) = bare.ask("CreateTopics", {"topics": [topic]}, node_id=2).topics
    (gone,) = bare.ask("DeleteTopics", {"topics": [{"name": "t"}]}, node_id=2).responses
    more = {"topics": [{"name": "t", "count": 2, "assignments": None}]}
    (grown,) = bare.ask("CreatePartitions", more, node_id=2).results
    assert made.error_code == gone.error_code == grown.error_code == not_controller
