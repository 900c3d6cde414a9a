"""Where logs begin and end: the same observations on the embedded broker and on real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.brokers import KafkaCluster
from tests.contract.reading import Reader
from tests.contract.transactional import Producer, batch, name_of, new_id
from tests.fix_admin import eventually
from tests.fix_any import AnyKafka

# The brokers delete what is older than a week, and look often; old timestamps count.
FOR_EVER = {"retention.ms": "-1"}
LATEST, EARLIEST, NEWEST, LOCAL, TIERED, PENDING, NONE_SUCH = -1, -2, -3, -4, -5, -6, -7
# The first version with each of these places.
SINCE = {LATEST: 0, EARLIEST: 0, NEWEST: 7, LOCAL: 8, TIERED: 9, PENDING: 11, NONE_SUCH: 99}
NOTHING = ("NONE", -1, -1, -1)
QUORUM, FOUR = (3, 0), (4, 0)


@pytest.fixture
def reader(any_kafka: AnyKafka) -> Iterator[Reader]:
    with Reader(any_kafka) as reader:
        yield reader


def listed(reader: Reader, topic: str, *places: Any, version: int, **more: Any) -> list[Any]:
    """The parts of an answer about partition 0, or about partitions given with their places."""
    items = [
        {
            "partition_index": 0,
            **({"max_num_offsets": 9} if version == 0 else {}),
            **(place if isinstance(place, dict) else {"timestamp": place}),
        }
        for place in places
    ]
    body = {"replica_id": -1, "topics": [{"name": topic, "partitions": items}], **more}
    return list(reader.connection.request("ListOffsets", body, version).topics[0].partitions)


def found(reader: Reader, topic: str, place: Any, version: int, **more: Any) -> tuple[Any, ...]:
    """Error, time, offset and epoch."""
    (item,) = listed(reader, topic, place, version=version, **more)
    return name_of(item.error_code), item.timestamp, item.offset, item.leader_epoch


def filled(any_kafka: AnyKafka) -> str:
    topic = any_kafka.create_topic(config=FOR_EVER)
    with Producer(any_kafka) as producer:
        for stamp in (5000, 7000, 6000):
            assert producer.send(topic, batch(timestamp_ms=stamp))[0] == "NONE"
    return topic


def test_ends_and_times_are_told_in_every_version(any_kafka: AnyKafka, reader: Reader) -> None:
    topic, empty = filled(any_kafka), any_kafka.create_topic()
    for version in reader.versions("ListOffsets"):
        if version == 0:
            continue
        epoch = 0 if version >= 4 else -1
        assert found(reader, topic, LATEST, version) == ("NONE", -1, 3, epoch)
        assert found(reader, topic, EARLIEST, version) == ("NONE", -1, 0, epoch)
        assert found(reader, topic, 0, version) == ("NONE", 5000, 0, epoch)
        assert found(reader, topic, 5000, version) == ("NONE", 5000, 0, epoch)
        assert found(reader, topic, 5001, version) == ("NONE", 7000, 1, epoch)
        assert found(reader, topic, 7001, version) == NOTHING
        assert found(reader, empty, LATEST, version) == ("NONE", -1, 0, epoch)
        assert found(reader, empty, EARLIEST, version) == ("NONE", -1, 0, epoch)
        assert found(reader, empty, 0, version) == NOTHING


@pytest.mark.parametrize(
    ("place", "offset"),
    [(NEWEST, (7000, 1, 0)), (LOCAL, (-1, 0, 0)), (TIERED, (-1, -1, -1)), (PENDING, (-1, -1, -1))],
)
def test_special_places_came_one_by_one(
    any_kafka: AnyKafka, reader: Reader, place: int, offset: tuple[int, ...]
) -> None:
    topic = filled(any_kafka)
    for version in reader.versions("ListOffsets"):
        if version >= SINCE[place]:
            assert found(reader, topic, place, version) == ("NONE", *offset)
        elif any_kafka.number >= QUORUM:
            assert found(reader, topic, place, version)[0] == "UNSUPPORTED_VERSION"
        elif version > 0:
            # Every number below zero was a time long ago.
            assert found(reader, topic, place, version)[:3] == ("NONE", 5000, 0)


def test_first_version_tells_where_segments_begin(any_kafka: AnyKafka, reader: Reader) -> None:
    if 0 not in reader.versions("ListOffsets"):
        pytest.skip("ListOffsets 0")
    topic, empty = any_kafka.create_topic(config={"segment.bytes": "1048576"}), filled(any_kafka)
    for _ in range(3):
        reader.produce(topic, b"x" * 600_000)

    def told(name: str, place: int, count: int = 9) -> list[int]:
        item = {"timestamp": place, "max_num_offsets": count}
        (answer,) = listed(reader, name, item, version=0)
        assert answer.error_code == 0
        return list(answer.old_style_offsets)

    assert told(topic, LATEST) == [3, 2, 1, 0]
    assert told(topic, LATEST, 2) == [3, 2]
    assert told(topic, EARLIEST) == [0]
    assert told(topic, 5000) == []
    assert told(topic, 1 << 52) == [3, 2, 1, 0]
    assert told(empty, LATEST) == [3, 0]
    assert told(any_kafka.create_topic(), LATEST) == [0]


def test_partitions_are_asked_about_once(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    answers = listed(reader, topic, LATEST, LATEST, version=5)
    assert {name_of(item.error_code) for item in answers} == {"INVALID_REQUEST"}
    assert len(answers) == (1 if any_kafka.number >= FOUR else 2)


def test_what_is_not_there_has_no_offsets(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    unknown = ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1, -1)
    for version in reader.versions("ListOffsets"):
        assert found(reader, new_id("absent"), LATEST, version) == unknown
        other = {"partition_index": 9, "timestamp": LATEST}
        assert found(reader, topic, other, version) == unknown
        for epoch, error in ((-1, "NONE"), (0, "NONE"), (1, "UNKNOWN_LEADER_EPOCH")):
            if version >= 4:
                place = {"timestamp": LATEST, "current_leader_epoch": epoch}
                assert found(reader, topic, place, version)[0] == error


def test_offsets_follow_deleted_records(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = filled(any_kafka)
    version = reader.connection.newest("ListOffsets")
    for offset, places in (
        (2, {EARLIEST: (-1, 2, 0), 0: (6000, 2, 0), 6500: (-1, -1, -1), LATEST: (-1, 3, 0)}),
        (-1, {EARLIEST: (-1, 3, 0), 0: (-1, -1, -1), LATEST: (-1, 3, 0)}),
    ):
        trimmed = {"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}
        body = {"topics": [trimmed], "timeout_ms": 10_000}
        assert (
            reader.connection.request("DeleteRecords", body).topics[0].partitions[0].error_code == 0
        )
        for place, wanted in places.items():
            assert found(reader, topic, place, version) == ("NONE", *wanted)


def test_isolation_ends_before_what_is_open(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    reader.produce(topic, b"plain")
    with Producer(any_kafka, new_id("tx")) as producer:
        assert producer.init() == "NONE"
        if producer.version < 2:
            assert producer.add(topic, 0) == ["NONE"]
        assert producer.produce(topic, b"open", sequence=0)[0] == "NONE"
        assert found(reader, topic, LATEST, 5, isolation_level=1)[2] == 1
        assert found(reader, topic, LATEST, 5, isolation_level=0)[2] == 2
        future = 1 << 52
        assert found(reader, topic, future, 5, isolation_level=1) == NOTHING
        assert producer.end(commit=True) == "NONE"
    eventually(lambda: found(reader, topic, LATEST, 5, isolation_level=1)[2] == 3)


def epoch_end(
    reader: Reader, topic: str, epoch: int, version: int, **more: int
) -> tuple[str, int, int]:
    item = {"partition": 0, "leader_epoch": epoch, **more}
    body = {"topics": [{"topic": topic, "partitions": [item]}]}
    answer = reader.connection.request("OffsetForLeaderEpoch", body, version)
    (told,) = answer.topics[0].partitions
    return name_of(told.error_code), told.leader_epoch, told.end_offset


def test_epochs_end_where_the_log_does(any_kafka: AnyKafka, reader: Reader) -> None:
    topic, empty = filled(any_kafka), any_kafka.create_topic()
    for version in reader.versions("OffsetForLeaderEpoch"):
        epoch = 0 if version >= 1 else -1
        assert epoch_end(reader, topic, 0, version) == ("NONE", epoch, 3)
        assert epoch_end(reader, empty, 0, version) == ("NONE", epoch, 0)
        for unknown in (-1, 1, 5):
            assert epoch_end(reader, topic, unknown, version) == ("NONE", -1, -1)
        absent = epoch_end(reader, new_id("absent"), 0, version)
        assert absent == ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)
        if version >= 2:
            current = {"current_leader_epoch": 1}
            disputed = epoch_end(reader, topic, 0, version, **current)
            assert disputed == ("UNKNOWN_LEADER_EPOCH", -1, -1)


def restart(any_kafka: AnyKafka, topic: str) -> int:
    """Let the leader of a topic begin a new epoch; gives that."""
    if isinstance(any_kafka.broker, KafkaCluster):
        if any_kafka.number < FOUR:
            pytest.skip("a broker that comes back soon goes on leading")
        any_kafka.broker.node(1).kill()
        any_kafka.broker.heal()
    else:
        any_kafka.broker.move_leader(topic, 0)

    def epoch() -> int:
        with any_kafka.connect() as connection:
            body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
            part = connection.request("Metadata", body, 7).topics[0].partitions[0]
            return int(part.leader_epoch) if part.error_code == 0 else 0

    eventually(epoch)
    return epoch()


@pytest.mark.slow
def test_who_believes_in_an_older_leader_is_fenced(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka)
    epoch = restart(any_kafka, topic)
    old, known = {"current_leader_epoch": 0}, {"current_leader_epoch": epoch}
    with Reader(any_kafka) as reader:
        version = reader.connection.newest("ListOffsets")
        fenced = ("FENCED_LEADER_EPOCH", -1, -1, -1)
        assert found(reader, topic, {"timestamp": LATEST, **old}, version) == fenced
        place = {"timestamp": LATEST, **known}
        assert found(reader, topic, place, version) == ("NONE", -1, 3, epoch)
        for fetch in range(9, reader.connection.newest("Fetch") + 1):
            refused = reader.read(topic, {"fetch_offset": 0, **old}, fetch)
            assert refused.error == "FENCED_LEADER_EPOCH"
            assert reader.read(topic, {"fetch_offset": 0, **known}, fetch).error == "NONE"
        assert epoch_end(reader, topic, 0, 3, **old) == ("FENCED_LEADER_EPOCH", -1, -1)
        assert epoch_end(reader, topic, 0, 3) == ("NONE", 0, 3)
        # The epoch has begun where the older one ended, and has written nothing.
        assert epoch_end(reader, topic, epoch, 3) == ("NONE", epoch, 3)
        assert found(reader, topic, EARLIEST, version) == ("NONE", -1, 0, 0)
        reader.produce(topic, b"new")
        assert epoch_end(reader, topic, 0, 3) == ("NONE", 0, 3)
        assert epoch_end(reader, topic, epoch, 3) == ("NONE", epoch, 4)
        gone = {"fetch_offset": 4, "last_fetched_epoch": 0}
        reader.send_fetch({(topic, 0): gone})
        item = reader.connection.receive().responses[0].partitions[0]
        assert (item.diverging_epoch.epoch, item.diverging_epoch.end_offset) == (0, 3)
