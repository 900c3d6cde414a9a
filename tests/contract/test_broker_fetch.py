"""Reading records: the same observations on the embedded broker and on real ones."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.contract.reading import EPOCHS, FETCHED, IDS, SESSIONS, Reader
from tests.contract.transactional import Producer, batch, name_of, new_id
from tests.fix_admin import eventually
from tests.fix_any import AnyKafka

COMMITTED = 1
NEW, NEXT = 0, 1


@pytest.fixture
def reader(any_kafka: AnyKafka) -> Iterator[Reader]:
    with Reader(any_kafka) as reader:
        yield reader


# Batches.


def test_reading_begins_with_the_batch_that_has_the_offset(
    any_kafka: AnyKafka, reader: Reader
) -> None:
    topic = any_kafka.create_topic()
    reader.produce(topic, b"0", b"1")
    reader.produce(topic, b"2", b"3", b"4")
    for version in reader.versions("Fetch"):
        if version < 4:
            continue  # of message sets, real brokers give what they have converted at once
        assert reader.read(topic, 0, version).values == [b"0", b"1", b"2", b"3", b"4"]
        assert reader.read(topic, 1, version).values == [b"0", b"1", b"2", b"3", b"4"]
        found = reader.read(topic, 3, version)
        assert found.values == [b"2", b"3", b"4"]
        assert (found.error, found.high_watermark, found.last_stable_offset) == ("NONE", 5, 5)
        assert found.log_start_offset == (0 if version >= 5 else -1)
        assert reader.read(topic, 5, version).values == []


def test_first_batch_comes_whole_and_others_if_they_fit(
    any_kafka: AnyKafka, reader: Reader
) -> None:
    topic = any_kafka.create_topic(partitions=2)
    size = len(batch(b"x" * 1000))
    for partition in (0, 1):
        for _ in range(3):
            reader.produce(topic, b"x" * 1000, partition=partition)
    both = {(topic, 0): 0, (topic, 1): 0}

    def counts(**limits: int) -> list[int]:
        found = reader.fetch(both, **limits).parts
        return [len(found[topic, partition].values) for partition in (0, 1)]

    assert counts() == [3, 3]
    assert counts(max_bytes=1) == [1, 0]
    assert counts(max_bytes=0) == [1, 0]
    assert counts(max_bytes=2 * size) == [2, 0]
    assert counts(max_bytes=4 * size) == [3, 1]
    small = {"fetch_offset": 0, "partition_max_bytes": 1}
    found = reader.fetch({(topic, 0): small, (topic, 1): small}).parts
    assert [len(found[topic, partition].values) for partition in (0, 1)] == [1, 0]
    found = reader.fetch({(topic, 1): small, (topic, 0): 0}).parts
    assert [len(found[topic, partition].values) for partition in (1, 0)] == [1, 3]


def test_what_is_not_there_is_told_by_partition(any_kafka: AnyKafka, reader: Reader) -> None:
    topic, absent = any_kafka.create_topic(), new_id("absent")
    reader.produce(topic, b"x")
    for version in reader.versions("Fetch"):
        wanted = {(topic, 0): 0, (topic, 7): 0, (absent, 0): 0}
        found = reader.fetch(wanted, version)
        assert found.error == "NONE"
        unknown = "UNKNOWN_TOPIC_ID" if version >= IDS else "UNKNOWN_TOPIC_OR_PARTITION"
        assert {place: part.error for place, part in found.parts.items()} == {
            (topic, 0): "NONE",
            (topic, 7): "UNKNOWN_TOPIC_OR_PARTITION",
            (absent, 0): unknown,
        }
        assert found.parts[topic, 0].high_watermark == 1
        assert found.parts[topic, 7].high_watermark == -1
        assert found.parts[topic, 7].values == []


def test_offsets_that_are_not_there_are_out_of_range(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    for _ in range(4):
        reader.produce(topic, b"x")
    trimmed = {"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}
    answer = reader.connection.request("DeleteRecords", {"topics": [trimmed], "timeout_ms": 9999})
    assert answer.topics[0].partitions[0].low_watermark == 2
    for offset in (-1, 0, 1, 5, 1 << 40):
        found = reader.read(topic, offset)
        assert found.error == "OFFSET_OUT_OF_RANGE"
        assert (found.values, found.high_watermark, found.log_start_offset) == ([], -1, -1)
    found = reader.read(topic, 2)
    assert (found.error, found.log_start_offset, len(found.values)) == ("NONE", 2, 2)
    assert reader.read(topic, 4).error == "NONE"


def test_what_a_reader_believes_of_the_leader_is_checked(
    any_kafka: AnyKafka, reader: Reader
) -> None:
    topic = any_kafka.create_topic()
    reader.produce(topic, b"x")

    def told(version: int, **more: int) -> str:
        return reader.read(topic, {"fetch_offset": 0, **more}, version).error

    for version in reader.versions("Fetch"):
        if version >= EPOCHS:
            assert told(version, current_leader_epoch=-1) == "NONE"
            assert told(version, current_leader_epoch=0) == "NONE"
            assert told(version, current_leader_epoch=1) == "UNKNOWN_LEADER_EPOCH"
        if version >= FETCHED:
            assert told(version, last_fetched_epoch=0) == "NONE"


def test_readers_of_what_is_gone_are_told_where_to_go_back(
    any_kafka: AnyKafka, reader: Reader
) -> None:
    topic = any_kafka.create_topic()
    reader.produce(topic, b"x")
    version = reader.connection.newest("Fetch")
    assert version >= FETCHED
    place = {"fetch_offset": 2, "last_fetched_epoch": 0}
    reader.send_fetch({(topic, 0): place}, version, wait_ms=20_000, min_bytes=1)
    item = reader.connection.receive().responses[0].partitions[0]
    assert (name_of(item.error_code), bytes(item.records or b"")) == ("NONE", b"")
    assert (item.diverging_epoch.epoch, item.diverging_epoch.end_offset) == (0, 1)
    for offset in (0, 1, 2):
        never = {"fetch_offset": offset, "last_fetched_epoch": 3}
        assert reader.read(topic, never).error == "OFFSET_OUT_OF_RANGE"


# Waiting.


def took(begun: float) -> float:
    return time.monotonic() - begun


def test_waiting_ends_with_the_time(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    begun = time.monotonic()
    found = reader.read(topic, wait_ms=300, min_bytes=1)
    assert (found.error, found.values) == ("NONE", [])
    assert 0.25 < took(begun) < 5


def test_waiting_ends_with_enough_bytes(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    enough = len(batch(b"first")) + 1
    with Reader(any_kafka) as writer:
        reader.send_fetch({(topic, 0): 0}, wait_ms=20_000, min_bytes=enough)
        writer.produce(topic, b"first")
        writer.produce(topic, b"second")
        begun = time.monotonic()
        assert reader.receive_fetch().parts[topic, 0].values == [b"first", b"second"]
        assert took(begun) < 10


def test_who_wants_nothing_or_fails_does_not_wait(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    begun = time.monotonic()
    assert reader.read(topic, wait_ms=20_000, min_bytes=0).values == []
    assert reader.read(topic, 7, wait_ms=20_000, min_bytes=1).error == "OFFSET_OUT_OF_RANGE"
    assert reader.fetch({}, wait_ms=20_000, min_bytes=1).parts == {}
    absent = reader.fetch({(topic, 9): 0}, wait_ms=20_000, min_bytes=1).parts[topic, 9]
    assert absent.error == "UNKNOWN_TOPIC_OR_PARTITION"
    assert took(begun) < 10


def test_what_is_not_there_does_not_end_the_wait_for_what_is(
    any_kafka: AnyKafka, reader: Reader
) -> None:
    topic = any_kafka.create_topic()
    begun = time.monotonic()
    found = reader.fetch({(topic, 0): 0, (topic, 9): 0}, wait_ms=300, min_bytes=1)
    assert found.parts[topic, 9].error == "UNKNOWN_TOPIC_OR_PARTITION"
    assert took(begun) > 0.25


# Sessions.


def test_session_tells_what_has_changed(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic(partitions=3)
    places = [(topic, partition) for partition in range(3)]
    for version in reader.versions("Fetch"):
        if version < SESSIONS:
            continue
        ends = {place: reader.read(place[0], 0).high_watermark for place in places[:1]}
        first = reader.fetch(dict.fromkeys(places, 0), version, session=(0, NEW))
        assert (first.error, sorted(first.parts)) == ("NONE", places)
        assert first.session > 0
        # What had records is wanted from its end on.
        wanted = {places[0]: ends[places[0]]}
        quiet = reader.fetch(wanted, version, session=(first.session, NEXT))
        assert quiet == ("NONE", first.session, {})
        reader.produce(topic, b"new")
        news = reader.fetch({}, version, session=(first.session, 2))
        assert list(news.parts) == [places[0]]
        assert news.parts[places[0]].values == [b"new"]
        gone = reader.fetch({}, version, session=(first.session, 3), forgotten=[places[0]])
        assert gone.parts == {}
        reader.fetch({places[0]: 0}, version, session=(first.session, -1))


def test_session_goes_on_with_new_partitions_and_offsets(
    any_kafka: AnyKafka, reader: Reader
) -> None:
    topic, other = any_kafka.create_topic(), any_kafka.create_topic()
    reader.produce(topic, b"a")
    reader.produce(other, b"b")
    opened = reader.fetch({(topic, 0): 0}, session=(0, NEW))
    more = reader.fetch({(other, 0): 0}, session=(opened.session, 1))
    assert sorted(more.parts) == sorted([(topic, 0), (other, 0)])
    read = reader.fetch({(topic, 0): 1, (other, 0): 1}, session=(opened.session, 2))
    assert read.parts == {}
    again = reader.fetch({(topic, 0): 0}, session=(opened.session, 3))
    assert {place: part.values for place, part in again.parts.items()} == {(topic, 0): [b"a"]}


def test_session_tells_errors_each_time(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    opened = reader.fetch({(topic, 0): 0, (topic, 5): 0}, session=(0, NEW))
    assert opened.session > 0
    for epoch in (1, 2):
        found = reader.fetch({}, session=(opened.session, epoch))
        assert {place: part.error for place, part in found.parts.items()} == {
            (topic, 5): "UNKNOWN_TOPIC_OR_PARTITION"
        }


def test_session_must_be_known_and_in_step(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    opened = reader.fetch({(topic, 0): 0}, session=(0, NEW))

    def told(session: int, epoch: int) -> tuple[str, int, int]:
        found = reader.fetch({}, session=(session, epoch))
        return found.error, found.session, len(found.parts)

    assert told(opened.session, 2) == ("INVALID_FETCH_SESSION_EPOCH", 0, 0)
    assert told(opened.session, 1) == ("NONE", opened.session, 0)
    assert told(opened.session, 1) == ("INVALID_FETCH_SESSION_EPOCH", 0, 0)
    assert told(opened.session ^ 1, 1) == ("FETCH_SESSION_ID_NOT_FOUND", 0, 0)
    assert told(0, 1) == ("FETCH_SESSION_ID_NOT_FOUND", 0, 0)


def test_session_is_closed_and_replaced(any_kafka: AnyKafka, reader: Reader) -> None:
    topic = any_kafka.create_topic()
    opened = reader.fetch({(topic, 0): 0}, session=(0, NEW))
    replaced = reader.fetch({(topic, 0): 0}, session=(opened.session, NEW))
    assert replaced.session not in (0, opened.session)
    closed = reader.fetch({(topic, 0): 0}, session=(replaced.session, -1))
    assert (closed.error, closed.session, list(closed.parts)) == ("NONE", 0, [(topic, 0)])
    for session in (opened.session, replaced.session):
        assert reader.fetch({}, session=(session, 1)).error == "FETCH_SESSION_ID_NOT_FOUND"
    assert reader.fetch({}, session=(0, NEW)).session > 0


def test_session_keeps_its_way_to_name_topics(any_kafka: AnyKafka, reader: Reader) -> None:
    if reader.connection.newest("Fetch") < IDS:
        pytest.skip("Fetch 13")
    topic = any_kafka.create_topic()
    for opening, going_on in ((12, 13), (13, 12)):
        opened = reader.fetch({(topic, 0): 0}, opening, session=(0, NEW))
        found = reader.fetch({}, going_on, session=(opened.session, 1))
        assert found.error == "FETCH_SESSION_TOPIC_ID_ERROR"


# Transactions.


def test_isolation_hides_what_is_open_and_lists_what_was_aborted(
    any_kafka: AnyKafka, reader: Reader
) -> None:
    topic = any_kafka.create_topic()
    reader.produce(topic, b"plain")
    with Producer(any_kafka, new_id("tx")) as producer:
        assert producer.init() == "NONE"
        if producer.version < 2:
            assert producer.add(topic, 0) == ["NONE"]
        assert producer.produce(topic, b"lost", sequence=0)[0] == "NONE"
        reader.produce(topic, b"behind")
        found = reader.read(topic, isolation=COMMITTED)
        assert (found.values, found.aborted) == ([b"plain"], [])
        assert (found.high_watermark, found.last_stable_offset) == (3, 1)
        seen = reader.read(topic)
        assert (seen.values, seen.aborted) == ([b"plain", b"lost", b"behind"], None)
        assert (seen.high_watermark, seen.last_stable_offset) == (3, 1)
        lost = producer.id
        assert producer.end(commit=False) == "NONE"
    eventually(lambda: reader.read(topic).last_stable_offset == 4)
    found = reader.read(topic, isolation=COMMITTED)
    # The reader has to leave out what the list names: the marker is at offset 3.
    assert found.values == [b"plain", b"lost", b"behind"]
    assert found.aborted == [(lost, 1)]
    assert (found.high_watermark, found.last_stable_offset) == (4, 4)
    assert reader.read(topic, 2, isolation=COMMITTED).aborted == [(lost, 1)]
    assert reader.read(topic, 4, isolation=COMMITTED).aborted == []
    assert reader.read(topic).aborted is None
