"""Every method of the explicit client on any broker: what it does, and how it fails."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

import karrow
from karrow import errors
from karrow.types import CommittedOffset, NewTopic, Node, Offset, TopicPartition
from tests.fix_admin import eventually
from tests.fix_any import AnyKafka

F = TypeVar("F", bound=Callable[..., None])

# The brokers delete what is older than a week, and look often; old timestamps count.
FOR_EVER = {"retention.ms": "-1"}

SUCCESSES: set[str] = set()
FAILURES: set[str] = set()


def succeeds(*methods: str) -> Callable[[F], F]:
    """The test shows that these methods work."""
    SUCCESSES.update(methods)
    return lambda test: test


def fails(*methods: str) -> Callable[[F], F]:
    """The test shows how these methods fail."""
    FAILURES.update(methods)
    return lambda test: test


@pytest.fixture
def client(any_kafka: AnyKafka) -> Iterator[karrow.Client]:
    with karrow.Client(any_kafka.bootstrap, client_id="contract", api_timeout=20.0) as client:
        yield client


@pytest.fixture
def dead() -> Iterator[karrow.Client]:
    """A client of a cluster that does not exist."""
    with karrow.Client("127.0.0.1:1", api_timeout=0.3) as client:
        yield client


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def public_methods() -> set[str]:
    return {
        name
        for name in dir(karrow.AsyncClient)
        if not name.startswith("_") and callable(getattr(karrow.AsyncClient, name))
    }


def test_every_method_has_a_success_and_a_failure() -> None:
    never_fails = {"close", "default_protocol"}
    gone_from_4_0 = {"offsets_before"}  # see test_client_versions
    assert public_methods() - SUCCESSES == gone_from_4_0
    assert public_methods() - FAILURES - never_fails == set()


# ---- the cluster


@succeeds("api_versions", "brokers")
@pytest.mark.since("4.3")
def test_versions_and_brokers(client: karrow.Client, any_kafka: AnyKafka) -> None:
    assert client.api_versions()["Fetch"] == (4, 18)
    assert client.api_versions(1) == client.api_versions()
    (broker,) = client.brokers()
    assert (broker.id, f"{broker.host}:{broker.port}") == (1, any_kafka.bootstrap)


@fails("api_versions")
def test_versions_of_no_broker(client: karrow.Client) -> None:
    with pytest.raises(errors.BrokerNotAvailable, match=r"no broker 77.*its brokers are 1"):
        client.api_versions(77)


@fails("brokers", "metadata", "cluster_metadata")
def test_unreachable_cluster_is_named(dead: karrow.Client) -> None:
    for call in (dead.brokers, dead.metadata, dead.cluster_metadata):
        with pytest.raises(errors.ConnectError, match=r"refused .broker 127\.0\.0\.1:1"):
            call()


@succeeds("metadata", "cluster_metadata")
@pytest.mark.parametrize("version", range(14))
@pytest.mark.since("4.3")
def test_metadata_in_every_version(
    client: karrow.Client, any_kafka: AnyKafka, version: int
) -> None:
    topic = any_kafka.create_topic(partitions=2)
    found = client.metadata([topic], api_version=version)
    assert set(found.topics) == {topic}
    assert set(found.topics[topic].partitions) == {0, 1}
    assert found.topics[topic].partitions[1].leader == 1
    assert found.topics[topic].error is None
    assert (found.topics[topic].topic_id is not None) is (version >= 10)
    assert found.cluster_id == (any_kafka.cluster_id if version >= 2 else None)
    assert topic in client.cluster_metadata().topics


def test_metadata_asks_without_creating(client: karrow.Client) -> None:
    name = new_name("absent")
    for version in (0, 1, 3, 4, None):
        found = client.metadata([name], api_version=version)
        assert name not in found.topics or isinstance(
            found.topics[name].error, errors.UnknownTopicOrPartition
        )
    assert name not in client.metadata().topics


def test_metadata_creates_when_told(client: karrow.Client) -> None:
    name = new_name("created")
    client.metadata([name], create=True)
    eventually(lambda: name in client.metadata().topics)


# ---- records


@succeeds("produce", "fetch")
@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back(
    client: karrow.Client, any_kafka: AnyKafka, compression: str | None
) -> None:
    topic = any_kafka.create_topic(config=FOR_EVER)
    written = client.produce(
        topic,
        [
            b"plain",
            ("key", "text"),
            (b"k", None),
            None,
            karrow.Record(value=b"v", headers=[("h", b"1"), ("h", None)], timestamp_ms=12345),
        ],
        partition=0,
        compression=compression,
    )
    assert [place.offset for place in written] == [0, 1, 2, 3, 4]
    assert written[4].timestamp_ms == 12345
    found = client.fetch(topic, 0, 0)
    assert [(r.key, r.value) for r in found.records] == [
        (None, b"plain"),
        (b"key", b"text"),
        (b"k", None),
        (None, None),
        (None, b"v"),
    ]
    assert found.records[4].headers == (("h", b"1"), ("h", None))
    assert found.records[4].timestamp_ms == 12345
    assert (found.high_watermark, found.next_offset, found.log_start_offset) == (5, 5, 0)
    assert (found.last_stable_offset, found.aborted_transactions) == (5, ())


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.since("4.3")
def test_produce_in_every_version(client: karrow.Client, any_kafka: AnyKafka, version: int) -> None:
    topic = any_kafka.create_topic()
    for acks in ("all", 1):
        client.produce(topic, [b"x"], partition=0, acks=acks, api_version=version)
    (silent,) = client.produce(topic, [b"x"], partition=0, acks=0, api_version=version)
    assert silent.offset is None
    eventually(lambda: client.latest_offset(topic, 0) == 3)


def test_unanswered_records_are_written_before_the_end(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic(config={"max.message.bytes": "50000000"})
    with karrow.Client(any_kafka.bootstrap) as client:
        client.produce(topic, [b"x" * 20_000_000], partition=0, acks=0)
    with karrow.Client(any_kafka.bootstrap) as client:
        eventually(lambda: client.latest_offset(topic, 0) == 1)


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.since("4.3")
def test_fetch_in_every_version(client: karrow.Client, any_kafka: AnyKafka, version: int) -> None:
    topic = any_kafka.create_topic()
    client.produce(topic, [b"0", b"1", b"2"], partition=0)
    found = client.fetch(topic, 0, 1, api_version=version)
    assert [record.value for record in found.records] == [b"1", b"2"]
    assert found.high_watermark == 3


@fails("produce")
@pytest.mark.since("4.3")
def test_produce_refuses(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with pytest.raises(errors.UnknownTopicOrPartition, match="partitions 0 to 0"):
        client.produce(topic, [b"x"], partition=7, retries=0)
    with pytest.raises(errors.InvalidRequiredAcks):
        client.produce(topic, [b"x"], partition=0, acks=3)
    with pytest.raises(errors.UnsupportedVersion, match="speaks 0 to 13, the broker 3 to 13"):
        client.produce(topic, [b"x"], partition=0, api_version=2)
    with pytest.raises(errors.UnsupportedVersion, match="v6 cannot carry zstd"):
        client.produce(topic, [b"x"], partition=0, api_version=6, compression="zstd")
    with pytest.raises(errors.MessageTooLarge):
        client.produce(topic, [b"x" * 2_000_000], partition=0)
    with pytest.raises(errors.ConfigError, match="produce_one"):
        client.produce(topic, b"abc")  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="exclude each other"):
        client.produce(topic, [b"x"], partition=0, partitioner="murmur2")
    assert client.latest_offset(topic, 0) == 0


def test_produce_of_nothing_writes_nothing(client: karrow.Client, any_kafka: AnyKafka) -> None:
    assert client.produce(any_kafka.create_topic(), []) == []


def test_partitioners_choose(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic(partitions=5)
    keys = [f"key-{number}" for number in range(20)]
    by_hash = client.produce(topic, [(key, b"v") for key in keys])
    assert [one.partition for one in by_hash] == [
        karrow.records.partition_for(key, 5) for key in keys
    ]
    by_name = client.produce(topic, [(key, b"v") for key in keys], partitioner="fnv1a")
    assert [one.partition for one in by_name] == [
        karrow.records.partition_for(key, 5, "fnv1a") for key in keys
    ]
    own = client.produce(topic, [(b"k", b"v")], partitioner=lambda _t, _k, count: count - 1)
    assert own[0].partition == 4
    assert len({one.partition for one in client.produce(topic, [b"a", b"b", b"c"])}) == 1
    with pytest.raises(errors.ConfigError, match="chose 9 of 5"):
        client.produce(topic, [b"v"], partitioner=lambda _t, _k, _count: 9)


def test_produce_creates_the_topic_if_the_broker_does(client: karrow.Client) -> None:
    assert client.produce_one(new_name("auto"), b"v", partition=0).offset == 0


def test_produce_creates_nothing_when_told_so(any_kafka: AnyKafka) -> None:
    name = new_name("absent")
    with karrow.Client(any_kafka.bootstrap, allow_auto_topic_creation=False) as client:
        with pytest.raises(errors.UnknownTopicOrPartition, match="does not exist"):
            client.produce_one(name, b"v")
        assert name not in client.metadata().topics


@succeeds("produce_one")
def test_produce_one(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    place = client.produce_one(topic, "v", key="k", headers=[("a", b"b")], timestamp_ms=5)
    assert (place.topic, place.partition, place.offset, place.timestamp_ms) == (topic, 0, 0, 5)


@fails("produce_one")
def test_produce_one_refused_by_the_broker(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic(config={"cleanup.policy": "compact"})
    with pytest.raises(errors.InvalidRecord, match="record 0") as caught:
        client.produce_one(topic, b"no key")
    assert caught.value.context["topic"] == topic


@fails("fetch")
def test_fetch_fails(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with pytest.raises(errors.OffsetOutOfRange) as caught:
        client.fetch(topic, 0, 10)
    assert (caught.value.context["topic"], caught.value.context["partition"]) == (topic, 0)
    start = time.monotonic()
    with pytest.raises(errors.UnknownTopicOrPartition):
        client.fetch(new_name("absent"), 0, 0)
    assert time.monotonic() - start < 5


def test_fetch_chooses_partition_and_offset(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic(partitions=3)
    client.produce(topic, [b"a"], partition=0)
    client.produce(topic, [b"b", b"c"], partition=1)
    found = client.fetch(topic)
    assert (found.partition, [record.value for record in found.records]) == (1, [b"c"])
    assert client.fetch(topic, 2).records == []
    assert [r.value for r in client.fetch(topic, 1, "earliest").records] == [b"b", b"c"]


def test_fetch_waits_for_records(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    start = time.monotonic()
    assert client.fetch(topic, 0, 0, max_wait=0.7).records == []
    assert 0.6 < time.monotonic() - start < 5


@succeeds("fetch_all")
def test_fetch_all(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    for number in range(20):
        client.produce(topic, [b"%d" % number] * 10, partition=0)
    found = client.fetch_all(topic, 0, max_bytes=300)
    assert [record.offset for record in found.records] == list(range(200))
    assert (found.next_offset, found.high_watermark) == (200, 200)
    assert client.fetch_all(any_kafka.create_topic(), 0).records == []


@fails("fetch_all")
def test_fetch_all_of_nothing(client: karrow.Client) -> None:
    with pytest.raises(errors.UnknownTopicOrPartition):
        client.fetch_all(new_name("absent"), 0)


def test_aborted_data_is_left_out(client: karrow.Client, any_kafka: AnyKafka) -> None:
    import confluent_kafka  # noqa: PLC0415

    topic = any_kafka.create_topic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": any_kafka.bootstrap, "transactional.id": new_name("tx")}
    )
    producer.init_transactions()
    for value, ends_well in ((b"good", True), (b"bad", False), (b"fine", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        (producer.commit_transaction if ends_well else producer.abort_transaction)()
    committed = client.fetch_all(topic, 0, isolation="read_committed")
    assert [record.value for record in committed.records] == [b"good", b"fine"]
    assert committed.next_offset == committed.high_watermark == 6
    assert len(client.fetch(topic, 0, 0, isolation="read_committed").aborted_transactions) == 1
    everything = client.fetch_all(topic, 0)
    assert [record.value for record in everything.records] == [b"good", b"bad", b"fine"]


# ---- offsets


@succeeds("list_offsets", "earliest_offset", "latest_offset")
@pytest.mark.parametrize("version", [*range(1, 12), None])
@pytest.mark.since("4.3")
def test_offsets(client: karrow.Client, any_kafka: AnyKafka, version: int | None) -> None:
    topic = any_kafka.create_topic(partitions=2, config=FOR_EVER)
    base = datetime(2024, 1, 1, tzinfo=UTC)
    stamps = [int((base + timedelta(hours=n)).timestamp() * 1000) for n in (0, 2, 1)]
    client.produce(topic, [karrow.Record(value=b"v", timestamp_ms=t) for t in stamps], partition=0)

    def offset(spec: Any) -> int | None:
        found = client.list_offsets({(topic, 0): spec}, api_version=version)
        return found[topic, 0].offset

    assert (offset("earliest"), offset("latest")) == (0, 3)
    assert offset(base + timedelta(minutes=30)) == 1
    assert offset(Offset.at_timestamp_ms(stamps[1])) == 1
    assert offset(base + timedelta(days=1)) is None
    if version is None or version >= 7:
        assert offset("max_timestamp") == 1
    assert client.earliest_offset(topic, 0, api_version=version) == 0
    assert client.latest_offset(topic, 0, api_version=version) == 3
    both = client.list_offsets({(topic, 0): "latest", (topic, 1): "latest"}, api_version=version)
    assert {key: found.offset for key, found in both.items()} == {(topic, 0): 3, (topic, 1): 0}


@fails("list_offsets", "earliest_offset", "latest_offset", "offsets_before")
@pytest.mark.since("4.3")
def test_offsets_fail(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with pytest.raises(karrow.errors.PartialError) as caught:
        client.list_offsets({(topic, 0): "latest", (topic, 9): "latest"})
    assert caught.value.results[topic, 0].offset == 0
    assert isinstance(caught.value.errors[topic, 9], errors.UnknownTopicOrPartition)
    with pytest.raises(errors.UnknownTopicOrPartition):
        client.earliest_offset(topic, 9)
    with pytest.raises(errors.UnknownTopicOrPartition):
        client.latest_offset(topic, 9)
    with pytest.raises(errors.UnsupportedVersion, match="v6 cannot carry 'max_timestamp'"):
        client.list_offsets({(topic, 0): "max_timestamp"}, api_version=6)
    with pytest.raises(errors.ConfigError, match="at_timestamp_ms"):
        client.list_offsets({(topic, 0): 1_700_000_000_000})
    with pytest.raises(errors.UnsupportedVersion, match="the broker 1 to 11"):
        client.offsets_before({(topic, 0): "latest"}, max_offsets=3)


# ---- groups


@succeeds("commit_offsets", "committed_offsets")
@pytest.mark.parametrize("version", range(2, 11))
@pytest.mark.since("4.3")
def test_committed_offsets_come_back(
    client: karrow.Client, any_kafka: AnyKafka, version: int
) -> None:
    topic, group = any_kafka.create_topic(partitions=3), new_name("group")
    client.commit_offsets(
        group,
        {(topic, 0): 5, (topic, 1): (6, "note"), (topic, 2): CommittedOffset(7, leader_epoch=0)},
        api_version=version,
    )
    for read in range(1, 11):
        found = client.committed_offsets(group, [topic], api_version=read)
        assert {key.partition: one.offset for key, one in found.items()} == {0: 5, 1: 6, 2: 7}
        assert found[TopicPartition(topic, 1)].metadata == "note"
    assert len(client.committed_offsets(group)) == 3
    assert len(client.committed_offsets(group, [(topic, 1)])) == 1
    assert len(client.committed_offsets(group, {topic: [0, 2]}, stable=True)) == 2


def test_retention_travels_where_it_exists(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic, group = any_kafka.create_topic(), new_name("group")
    client.commit_offsets(group, {(topic, 0): 1}, retention=3600.0)
    with pytest.raises(errors.UnsupportedVersion, match="retention time, which takes v2 to v4"):
        client.commit_offsets(group, {(topic, 0): 1}, retention=3600.0, api_version=8)


def test_default_group(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with pytest.raises(errors.ConfigError, match="no group is named"):
        client.committed_offsets()
    client.default_group = new_name("group")
    client.commit_offsets(None, {(topic, 0): 4})
    assert client.committed_offsets(topics=[topic])[TopicPartition(topic, 0)].offset == 4


@fails("commit_offsets", "committed_offsets")
@pytest.mark.since("4.3")
def test_commit_fails(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic, group = any_kafka.create_topic(), new_name("group")
    with pytest.raises(errors.PartialError) as caught:
        client.commit_offsets(group, {(topic, 0): 1, (topic, 99): 1}, api_version=9, retries=0)
    assert list(caught.value.errors) == [(topic, 99)]
    with pytest.raises((errors.IllegalGeneration, errors.UnknownMemberId)):
        client.commit_offsets(group, {(topic, 0): 1}, generation=5, member_id="nobody")
    with pytest.raises(errors.ConfigError):
        client.commit_offsets(group, {(topic, 0): -1})
    with pytest.raises(errors.UnsupportedVersion, match="the broker 1 to 10"):
        client.committed_offsets(group, [topic], api_version=0)
    with pytest.raises(errors.UnsupportedVersion, match="v1 cannot carry all topics"):
        client.committed_offsets(group, api_version=1)


@succeeds("unread_offsets")
def test_unread_offsets(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic, group = any_kafka.create_topic(partitions=2), new_name("group")
    client.produce(topic, [b"x"] * 3, partition=0)
    client.produce(topic, [b"x"] * 2, partition=1)
    client.commit_offsets(group, {(topic, 0): 1})
    assert client.unread_offsets(topic, group) == [(0, 1), (1, 0), (0, 2), (1, 1)]
    assert client.unread_offsets(topic, group, 2) == [(0, 1), (1, 0)]
    assert client.unread_offsets((topic, [1]), group) == [(1, 0), (1, 1)]


@fails("unread_offsets")
def test_unread_offsets_of_nothing(client: karrow.Client) -> None:
    with pytest.raises(errors.UnknownTopicOrPartition):
        client.unread_offsets(new_name("absent"), "g")


@succeeds("find_coordinator")
@pytest.mark.parametrize("version", range(7))
@pytest.mark.since("3.9")
def test_coordinator_is_found(client: karrow.Client, version: int) -> None:
    found = client.find_coordinator("g", api_version=version)
    assert found.broker is not None
    assert found.broker.id == 1
    if version >= 1:
        assert client.find_coordinator("t", "transaction", api_version=version).broker is not None


@fails("find_coordinator")
def test_coordinator_of_a_transaction_takes_version_1(client: karrow.Client) -> None:
    with pytest.raises(errors.UnsupportedVersion, match="cannot find the coordinator"):
        client.find_coordinator("t", "transaction", api_version=0)


@succeeds("join_group", "sync_group", "heartbeat", "leave_group", "default_protocol")
@succeeds("list_groups", "describe_group")
@pytest.mark.parametrize("version", range(10))
@pytest.mark.since("4.3")
def test_a_member_lives(client: karrow.Client, any_kafka: AnyKafka, version: int) -> None:
    topic, group = any_kafka.create_topic(partitions=2), new_name("group")
    protocol = client.default_protocol("range", 0, [topic], b"mine")
    joined = client.join_group(group, [protocol], api_version=version)
    assert joined.is_leader
    assert [member.member_id for member in joined.members] == [joined.member_id]
    assert karrow.wire.decode_subscription(joined.members[0].metadata_bytes).user_data == b"mine"
    member = {"generation": joined.generation, "member_id": joined.member_id}
    assigned = client.sync_group(
        group,
        **member,  # type: ignore[arg-type]
        assignments={joined.member_id: ({topic: [0, 1]}, b"yours")},
        protocol_type="consumer" if version >= 5 else None,
        protocol="range" if version >= 5 else None,
        api_version=min(version, 5),
    )
    assert (assigned.topics, assigned.user_data) == ({topic: (0, 1)}, b"yours")
    client.heartbeat(group, **member, api_version=min(version, 4))  # type: ignore[arg-type]
    client.commit_offsets(group, {(topic, 0): 3}, **member)  # type: ignore[arg-type]
    described = client.describe_group(group, api_version=min(version, 6))
    assert (described.state, described.protocol, described.active) == ("Stable", "range", True)
    assert described.members[0].assignment == ((topic, 0), (topic, 1))
    assert described.members[0].topics == (topic,)
    listed = {one.group: one for one in client.list_groups(api_version=min(version, 5))}
    assert listed[group].protocol_type == "consumer"
    client.leave_group(group, joined.member_id, api_version=min(version, 5))
    assert client.describe_group(group).state == "Empty"


def test_two_members_share_a_group_and_a_client(client: karrow.Client, any_kafka: AnyKafka) -> None:
    """Each join waits for the other, so they must not wait on one connection."""
    topic, group = any_kafka.create_topic(partitions=2), new_name("group")

    async def main() -> None:
        async with karrow.AsyncClient(any_kafka.bootstrap) as both:
            protocol = [both.default_protocol("range", 0, [topic])]
            first = await both.join_group(group, protocol)
            joining = asyncio.create_task(both.join_group(group, protocol))
            while (await both.describe_group(group)).state != "PreparingRebalance":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            again = await both.join_group(group, protocol, member_id=first.member_id)
            second = await joining
            assert second.generation == again.generation > first.generation
            assert {second.is_leader, again.is_leader} == {True, False}
            leader, other = (second, again) if second.is_leader else (again, second)
            shares = {leader.member_id: {topic: [0]}, other.member_id: {topic: [1]}}
            mine, yours = await asyncio.gather(
                both.sync_group(
                    group,
                    generation=leader.generation,
                    member_id=leader.member_id,
                    assignments=shares,
                ),
                both.sync_group(group, generation=other.generation, member_id=other.member_id),
            )
            assert (mine.topics, yours.topics) == ({topic: (0,)}, {topic: (1,)})
            for member in (first, second):
                await both.leave_group(group, member.member_id)

    asyncio.run(main())


def test_static_member(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic, group = any_kafka.create_topic(), new_name("group")
    protocol = client.default_protocol("range", 0, [topic])
    joined = client.join_group(group, [protocol], instance_id="i-1")
    again = client.join_group(group, [protocol], instance_id="i-1")
    assert again.member_id != joined.member_id
    with pytest.raises(errors.FencedInstanceId):
        client.heartbeat(
            group, generation=again.generation, member_id=joined.member_id, instance_id="i-1"
        )
    client.leave_group(group, instance_id="i-1")


@fails("join_group", "sync_group", "heartbeat", "leave_group", "list_groups", "describe_group")
@pytest.mark.since("4.3")
def test_groups_fail(client: karrow.Client) -> None:
    group = new_name("group")
    protocol = client.default_protocol("range", 0, ["t"])
    with pytest.raises(errors.InvalidSessionTimeout):
        client.join_group(group, [protocol], session_timeout=0.001)
    with pytest.raises(errors.UnsupportedVersion, match="v4 cannot carry an instance id"):
        client.join_group(group, [protocol], instance_id="i", api_version=4)
    with pytest.raises(errors.UnknownMemberId):
        client.sync_group(group, generation=1, member_id="nobody")
    with pytest.raises(errors.UnknownMemberId) as caught:
        client.heartbeat(group, generation=1, member_id="nobody")
    assert (caught.value.context["api"], caught.value.context["group"]) == ("Heartbeat", group)
    with pytest.raises(errors.UnknownMemberId):
        client.leave_group(group, "nobody")
    with pytest.raises(errors.UnsupportedVersion, match="v3 cannot carry states"):
        client.list_groups(states=["Empty"], api_version=3)
    with pytest.raises(errors.GroupIdNotFound):
        client.describe_group(group)
    assert client.describe_group(group, api_version=5).state == "Dead"


@pytest.mark.since("4.3")
def test_group_of_the_new_protocol_is_described(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic, group = any_kafka.create_topic(), new_name("group")
    member = str(uuid.uuid4())
    body = {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout_ms": 5000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    answer = client.request("ConsumerGroupHeartbeat", body, to=Node.coordinator(group))
    assert answer.error_code == 0
    described = client.describe_group(group)
    assert (described.type, described.members[0].member_id) == ("consumer", member)
    assert described.members[0].topics == (topic,)
    assert group in {one.group for one in client.list_groups(types=["consumer"])}


# ---- topics


@succeeds("create_topic", "create_topics", "delete_topic", "delete_topics")
@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_made_and_deleted(client: karrow.Client, version: int) -> None:
    name, placed = new_name("topic"), new_name("topic")
    made = client.create_topic(
        name, 2, 1, {"retention.ms": "1000"}, api_version=version, timeout=10.0
    )
    assert made.name == name
    assert made.partitions == (2 if version >= 5 else None)
    more = client.create_topics([NewTopic(placed, assignments={0: [1]})], api_version=version)
    assert list(more) == [placed]
    eventually(lambda: set(client.metadata([name]).topics[name].partitions) == {0, 1})
    client.delete_topic(name, api_version=min(version, 6))
    client.delete_topics([placed])
    eventually(lambda: not {name, placed} & set(client.metadata().topics))


def test_validation_creates_nothing(client: karrow.Client) -> None:
    name = new_name("topic")
    client.create_topic(name, 1, 1, validate_only=True)
    assert name not in client.metadata().topics


def test_deleting_an_absent_topic_fails_at_once(client: karrow.Client) -> None:
    begun = time.monotonic()
    with pytest.raises(errors.UnknownTopicOrPartition):
        client.delete_topic(new_name("absent"))
    assert time.monotonic() - begun < 5


@fails("create_topic", "create_topics", "delete_topic", "delete_topics")
def test_topics_fail(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic, fresh = any_kafka.create_topic(), new_name("topic")
    with pytest.raises(errors.TopicAlreadyExists) as caught:
        client.create_topic(topic)
    assert caught.value.context["topic"] == topic
    with pytest.raises(errors.PartialError) as partial:
        client.create_topics([topic, fresh])
    assert (list(partial.value.results), list(partial.value.errors)) == ([fresh], [topic])
    with pytest.raises(errors.InvalidReplicationFactor):
        client.create_topic(new_name("topic"), 1, 9)
    with pytest.raises(errors.UnsupportedVersion, match="v3 cannot carry the broker's default"):
        client.create_topic(new_name("topic"), api_version=3)
    with pytest.raises(errors.UnknownTopicOrPartition):
        client.delete_topic(new_name("absent"))
    with pytest.raises(errors.PartialError):
        client.delete_topics([fresh, new_name("absent")])


# ---- anything else


@succeeds("request", "close")
@pytest.mark.since("3.9")
def test_request_goes_anywhere(client: karrow.Client, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    for node in (
        Node.any(),
        Node.random(),
        Node.id(1),
        Node.controller(),
        Node.leader(topic, 0),
        Node.coordinator("g"),
        Node.transaction_coordinator("t"),
    ):
        answer = client.request("DescribeCluster", {}, to=node, api_version=0)
        assert answer.cluster_id == any_kafka.cluster_id
    before = client.correlation_id
    client.request("DescribeCluster")
    assert client.correlation_id > before >= 0


@fails("request")
@pytest.mark.since("4.3")
def test_request_fails(client: karrow.Client) -> None:
    with pytest.raises(errors.LocalProtocolError, match="did you mean 'Fetch'"):
        client.request("Fatch")
    with pytest.raises(errors.LocalProtocolError, match="group_idd"):
        client.request("Heartbeat", {"group_idd": "g"})
    with pytest.raises(errors.UnsupportedVersion, match="the broker 4 to 18"):
        client.request("Fetch", {}, api_version=3)
    with pytest.raises(errors.UnsupportedVersion, match="the broker does not have it"):
        client.request("LeaderAndIsr")
    answer = client.request("Heartbeat", {"group_id": "g"}, to=Node.coordinator("g"))
    assert answer.error_code == errors.UnknownMemberId.code  # a value, not raised


def test_client_without_a_bootstrap_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="no bootstrap servers"):
        karrow.Client()
    with pytest.raises(errors.ConfigError, match="did you mean 'client_id'"):
        karrow.Client("b1", clientid="x")  # type: ignore[call-arg]


def test_closed_client_says_so(any_kafka: AnyKafka) -> None:
    client = karrow.Client(any_kafka.bootstrap)
    client.brokers()
    client.close()
    client.close()
    with pytest.raises(errors.StateError, match="closed"):
        client.brokers()
