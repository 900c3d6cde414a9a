"""Topics and coordinators are found: the same observations on the embedded broker and real ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.contract.reading import NO_ID, Reader
from tests.contract.transactional import PATIENCE, name_of, new_id
from tests.fix_admin import eventually
from tests.fix_any import AnyKafka

GROUP, TRANSACTION = 0, 1
# From these versions on: topics are made only if told so; ids are told; ids are asked for.
TOLD, IDS, BY_ID = 4, 10, 12
STRANGE = UUID(int=77)


@pytest.fixture
def reader(any_kafka: AnyKafka) -> Iterator[Reader]:
    with Reader(any_kafka) as reader:
        yield reader


def ask(reader: Reader, version: int, *topics: Any, create: bool = False) -> Any:
    """Ask for topics by name, by id, or by both."""
    items = [topic if isinstance(topic, dict) else {"name": topic} for topic in topics]
    body: dict[str, Any] = {"topics": items}
    if version >= TOLD:
        body["allow_auto_topic_creation"] = create
    return reader.connection.request("Metadata", body, version)


def told(answer: Any) -> list[tuple[str, str | None, int]]:
    """Error, name and number of partitions of each topic."""
    return [(name_of(t.error_code), t.name, len(t.partitions)) for t in answer.topics]


def test_topics_are_told_in_every_version(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic(partitions=2)
    for version in reader.versions("Metadata"):
        answer = ask(reader, version, topic)
        assert told(answer) == [("NONE", topic, 2)]
        (broker,) = answer.brokers
        assert f"{broker.host}:{broker.port}" == any_kafka.bootstrap
        (found,) = answer.topics
        assert (found.topic_id != NO_ID) is (version >= IDS)
        assert not found.is_internal
        for part in found.partitions:
            assert (part.error_code, part.leader_id) == (0, broker.node_id)
            assert part.replica_nodes == part.isr_nodes == [broker.node_id]
            assert part.leader_epoch == (0 if version >= 7 else -1)
            assert part.offline_replicas == []


def test_names_are_checked_before_topics_are_looked_for(
    any_kafka: AnyKafka, reader: Reader
) -> None:
    absent = new_id("absent")
    for version in reader.versions("Metadata"):
        if version < TOLD:
            continue
        for create in (False, True):
            for name in ("a b", "", "x" * 250):
                found = told(ask(reader, version, name, create=create))
                assert found == [("INVALID_TOPIC_EXCEPTION", name, 0)]
        assert told(ask(reader, version, absent)) == [("UNKNOWN_TOPIC_OR_PARTITION", absent, 0)]


def test_topics_named_twice_are_told_once(any_kafka: AnyKafka, reader: Reader) -> None:
    topic, absent = any_kafka.create_topic(), new_id("absent")
    found = told(ask(reader, reader.connection.newest("Metadata"), topic, absent, topic, absent))
    unknown = ("UNKNOWN_TOPIC_OR_PARTITION", absent, 0)
    assert sorted(found) == sorted([("NONE", topic, 1), unknown])


def test_all_topics_or_none_are_told(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    for version in reader.versions("Metadata"):
        everything: list[Any] | None = [] if version == 0 else None
        answer = reader.connection.request("Metadata", {"topics": everything}, version)
        assert topic in [found.name for found in answer.topics]
        assert version == 0 or told(ask(reader, version)) == []


def test_topics_are_made_on_demand(any_kafka: AnyKafka, reader: Reader) -> None:
    for version in reader.versions("Metadata"):
        name = new_id("made")

        def is_there(name: str = name, version: int = version) -> bool:
            return told(ask(reader, version, name, create=True)) == [("NONE", name, 1)]

        if version >= TOLD:
            unknown = [("UNKNOWN_TOPIC_OR_PARTITION", name, 0)]
            assert told(ask(reader, version, name)) == unknown
        eventually(is_there)


def test_topics_are_asked_for_by_id(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    versions = [version for version in reader.versions("Metadata") if version >= IDS]
    for version in versions:
        known = ask(reader, version, topic).topics[0].topic_id
        for topic_id, name in ((known, None), (STRANGE, None), (STRANGE, topic)):
            answer = ask(reader, version, {"topic_id": topic_id, "name": name})
            if version < BY_ID:
                # The version has the field, but brokers do not look at it yet.
                assert told(answer) == [("INVALID_REQUEST", name or "", 0)]
                assert answer.brokers == []
            elif topic_id == known:
                assert told(answer) == [("NONE", topic, 1)]
            else:
                assert told(answer) == [("UNKNOWN_TOPIC_ID", None, 0)]
                assert answer.topics[0].topic_id == STRANGE


def find(reader: Reader, version: int, kind: int, *keys: str) -> list[tuple[str, str, int]]:
    """Key, error and node for each key, once the broker has made its topics for them."""
    body: dict[str, Any] = {"coordinator_keys": list(keys)} if version >= 4 else {"key": keys[0]}
    if version >= 1:
        body["key_type"] = kind
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = reader.connection.request("FindCoordinator", body, version)
        if version >= 4:
            found = [(c.key, name_of(c.error_code), c.node_id) for c in answer.coordinators]
        else:
            found = [(keys[0], name_of(answer.error_code), answer.node_id)]
        if all(error != "COORDINATOR_NOT_AVAILABLE" for _, error, _ in found):
            return found
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_coordinators_are_found(any_kafka: AnyKafka, reader: Reader) -> None:
    (node,) = ask(reader, 1).brokers
    for version in reader.versions("FindCoordinator"):
        for kind in (GROUP, TRANSACTION) if version >= 1 else (GROUP,):
            for key in ("one", ""):
                assert find(reader, version, kind, key) == [(key, "NONE", node.node_id)]
        for kind in (5, -1) if version >= 1 else ():
            assert find(reader, version, kind, "x") == [("x", "INVALID_REQUEST", -1)]
        if version >= 4:
            several = find(reader, version, GROUP, "a", "b", "a")
            assert [key for key, _, _ in several] == ["a", "b", "a"]
            assert {(error, id_) for _, error, id_ in several} == {("NONE", node.node_id)}
