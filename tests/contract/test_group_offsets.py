"""Offsets that groups store: the same on the embedded broker and on real ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.grouping import Peer, name_of, new_id, subscription, until
from tests.fix_any import AnyKafka

NOTHING = (-1, "", "")


@pytest.fixture
def topic(any_kafka: AnyKafka) -> str:
    return any_kafka.create_topic(partitions=3)


@pytest.fixture
def one(any_kafka: AnyKafka) -> Iterator[Peer]:
    with Peer(any_kafka, new_id()) as peer:
        peer.wait_until_coordinated()
        yield peer


def test_offsets_without_members(one: Peer, topic: str) -> None:
    assert one.fetch({topic: [0]}) == {(topic, 0): NOTHING}
    assert one.fetch(None) == {}
    assert one.listed() is None
    assert one.commit(topic, {0: 5, 2: 7}, metadata="note") == ["", ""]
    assert one.fetch({topic: [0, 1, 2], "unknown": [0]}) == {
        (topic, 0): (5, "note", ""),
        (topic, 1): NOTHING,
        (topic, 2): (7, "note", ""),
        ("unknown", 0): NOTHING,
    }
    assert one.fetch(None) == {(topic, 0): (5, "note", ""), (topic, 2): (7, "note", "")}
    assert one.describe()[1:] == ("Empty", "", 0)
    assert one.listed().protocol_type == ""
    assert one.delete() == [""]
    assert one.fetch(None) == {}


def test_every_version_of_storing(one: Peer, topic: str) -> None:
    for version in one.versions("OffsetCommit"):
        # Version 0 is not stored here by brokers that have ZooKeeper.
        if version > 0:
            assert one.commit(topic, {0: version}, version=version) == [""]
            assert one.fetch({topic: [0]}) == {(topic, 0): (version, "", "")}


def test_every_version_of_asking(one: Peer, topic: str) -> None:
    assert one.commit(topic, {0: 5}, metadata=None) == [""]
    for version in one.versions("OffsetFetch"):
        if version == 0:
            continue
        asked = one.fetch({topic: [0, 1]}, version)
        assert asked == {(topic, 0): (5, "", ""), (topic, 1): NOTHING}
        if version >= 2:
            everything = one.fetch(None, version)
            assert list(everything.values()) == [(5, "", "")]  # type: ignore[union-attr]


def test_several_groups_at_once(one: Peer, topic: str) -> None:
    if one.newest("OffsetFetch") < 8:
        pytest.skip("one group in a request")
    one.commit(topic, {0: 5})
    topics = [{"name": topic, "partition_indexes": [0]}]
    groups = [{"group_id": group, "topics": topics} for group in (one.group, new_id())]
    found = one.ask("OffsetFetch", {"groups": groups}, 8).groups
    assert [group.group_id for group in found] == [group["group_id"] for group in groups]
    offsets = [group.topics[0].partitions[0].committed_offset for group in found]
    assert offsets == [5, -1]


def test_topics_by_id(one: Peer, topic: str) -> None:
    if one.newest("OffsetCommit") < 10:
        pytest.skip("topics by name")
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    ids = [one.topic_id(topic), uuid.uuid4()]
    topics = [{"topic_id": id_, "partitions": partitions} for id_ in ids]
    stored = one.ask("OffsetCommit", {"group_id": one.group, "topics": topics}, 10).topics
    outcome = {item.topic_id: name_of(item.partitions[0].error_code) for item in stored}
    assert outcome == {ids[0]: "", ids[1]: "UNKNOWN_TOPIC_ID"}
    wanted = [{"topic_id": id_, "partition_indexes": [0]} for id_ in ids]
    body = {"groups": [{"group_id": one.group, "topics": wanted}]}
    fetched = one.ask("OffsetFetch", body, 10).groups[0].topics
    found = {
        item.topic_id: (item.partitions[0].committed_offset, name_of(item.partitions[0].error_code))
        for item in fetched
    }
    assert found == {ids[0]: (5, ""), ids[1]: (-1, "UNKNOWN_TOPIC_ID")}


def test_offsets_of_members(one: Peer, topic: str) -> None:
    joined = one.enter(protocols=[("range", subscription(topic))])
    mine = (joined.member, 1)
    assert one.commit(topic, {0: 1}, *mine) == ["REBALANCE_IN_PROGRESS"]
    one.sync(joined)
    assert one.commit(topic, {0: 1}, *mine) == [""]
    assert one.commit(topic, {0: 2}, joined.member, 7) == ["ILLEGAL_GENERATION"]
    assert one.commit(topic, {0: 2}, "stranger", 1) == ["UNKNOWN_MEMBER_ID"]
    assert one.commit(topic, {0: 2}) == ["UNKNOWN_MEMBER_ID"]
    static: Any = {"group_instance_id": "nobody"}
    # The oldest ones look for the instance only if the group has it.
    if one.kafka.number >= (3, 0):
        assert one.commit(topic, {0: 2}, *mine, **static) == ["UNKNOWN_MEMBER_ID"]
    assert one.fetch({topic: [0]}) == {(topic, 0): (1, "", "")}
    one.leave((joined.member, None))
    assert one.commit(topic, {0: 3}, *mine) == ["UNKNOWN_MEMBER_ID"]
    assert one.commit(topic, {0: 3}) == [""]


def test_offsets_that_are_refused(one: Peer, topic: str) -> None:
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert one.commit(topic, {0: 1, 9: 1}) == ["", unknown]
    assert one.commit("unknown", {0: 1}) == [unknown]
    assert one.commit(topic, {1: 1}, metadata="x" * 4096) == [""]
    assert one.commit(topic, {1: 2}, metadata="x" * 4097) == ["OFFSET_METADATA_TOO_LARGE"]
    one.group = new_id()
    assert one.commit(topic, {0: 1}, "stranger", 1, version=8) == ["ILLEGAL_GENERATION"]
    assert one.listed() is None
    if one.newest("OffsetCommit") >= 9 and one.kafka.number >= (4, 0):
        assert one.commit(topic, {0: 1}, "stranger", 1, version=9) == ["GROUP_ID_NOT_FOUND"]


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_are_unstable_while_a_transaction_may_change_them(
    one: Peer, topic: str, commits: bool
) -> None:
    one.commit(topic, {0: 5, 1: 5})
    producer = Transaction(one)
    producer.store(topic, {0: 9})
    assert one.fetch({topic: [0]}, 7) == {(topic, 0): (5, "", "")}
    unstable, stable = (-1, "", "UNSTABLE_OFFSET_COMMIT"), (5, "", "")
    for version in range(7, min(one.newest("OffsetFetch"), 9) + 1):
        asked = one.fetch({topic: [0, 1]}, version, stable=True)
        assert asked == {(topic, 0): unstable, (topic, 1): stable}
        assert one.fetch(None, version, stable=True) == asked
    producer.end(commits=commits)
    wanted = {(topic, 0): (9 if commits else 5, "", ""), (topic, 1): stable}
    until(lambda: one.fetch(None, 7, stable=True), lambda found: found == wanted)


class Transaction:
    """A transaction of an old producer, which says itself what takes part."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._id = new_id()
        body = {"transactional_id": self._id, "transaction_timeout_ms": 10_000}

        def init() -> Any:
            peer.ask("FindCoordinator", {"key": self._id, "key_type": 1}, 2)
            return peer.ask("InitProducerId", body, 1)

        answer = until(init, lambda answer: answer.error_code == 0)
        self._who = {
            "transactional_id": self._id,
            "producer_id": answer.producer_id,
            "producer_epoch": answer.producer_epoch,
        }

    def store(self, topic: str, offsets: dict[int, int]) -> None:
        group = {"group_id": self._peer.group}
        added = self._peer.ask("AddOffsetsToTxn", {**self._who, **group}, 1)
        assert added.error_code == 0
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            for index, offset in offsets.items()
        ]
        topics = {"topics": [{"name": topic, "partitions": partitions}]}
        answer = self._peer.ask("TxnOffsetCommit", {**self._who, **group, **topics}, 2)
        assert all(item.error_code == 0 for item in answer.topics[0].partitions)

    def end(self, *, commits: bool) -> None:
        answer = self._peer.ask("EndTxn", {**self._who, "committed": commits}, 1)
        assert answer.error_code == 0


def test_deleting_offsets(one: Peer, topic: str, any_kafka: AnyKafka) -> None:
    other = any_kafka.create_topic()
    assert one.delete_offsets(topic) == "GROUP_ID_NOT_FOUND"
    one.commit(topic, {0: 5, 1: 5})
    one.commit(other, {0: 5})
    assert one.delete_offsets(topic) == ""
    assert one.delete_offsets(topic) == ""
    assert one.fetch(None) == {(topic, 1): (5, "", ""), (other, 0): (5, "", "")}
    joined = one.enter(protocols=[("range", subscription(topic))])
    assert one.delete_offsets(topic, 1) == "GROUP_SUBSCRIBED_TO_TOPIC"
    assert one.delete_offsets(other) == ""
    assert one.delete_offsets("unknown") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert one.fetch(None) == {(topic, 1): (5, "", "")}
    one.leave((joined.member, None))
    one.enter(protocol_type="connect")
    assert one.delete_offsets(topic, 1) == "NON_EMPTY_GROUP"
    one.group = ""
    assert one.delete_offsets(topic) == "INVALID_GROUP_ID"


def test_offsets_go_with_their_topic(one: Peer, topic: str, any_kafka: AnyKafka) -> None:
    other = any_kafka.create_topic()
    one.commit(topic, {0: 5})
    one.commit(other, {0: 6})
    body = {"topic_names": [topic], "timeout_ms": 10_000}
    assert one.ask("DeleteTopics", body, 4).responses[0].error_code == 0
    left = {(other, 0): (6, "", "")}
    assert until(lambda: one.fetch(None), lambda found: found == left)
