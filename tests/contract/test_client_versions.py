"""The explicit client on every release: what it has works, what it lacks is refused by name."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.types import Offset
from tests.brokers import KafkaCluster
from tests.fix_any import AnyKafka


def client_of(cluster: AnyKafka) -> karrow.Client:
    return karrow.Client(cluster.bootstrap, api_timeout=30.0)


def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def versions(client: karrow.Client, name: str, *, since: int = 0) -> range:
    """The versions of an API that both sides have."""
    low, high = client.twin.cluster.pool.connected()[0].connection.versions.usable(name)  # type: ignore[union-attr]
    last = karrow.wire.versions(name).stable or 0
    return range(max(low, since), min(high, last) + 1)


@pytest.mark.kafka(every_release=True)
def test_smoke(every_kafka: AnyKafka) -> None:
    topic, name = every_kafka.create_topic(partitions=2), group()
    with client_of(every_kafka) as client:
        written = client.produce(topic, [b"a", (b"k", b"v")], partition=1)
        assert [one.offset for one in written] == [0, 1]
        found = client.fetch(topic, 1, "earliest")
        assert [(record.key, record.value) for record in found.records] == [
            (None, b"a"),
            (b"k", b"v"),
        ]
        client.commit_offsets(name, {(topic, 1): 1})
        assert client.unread_offsets(topic, name) == [(1, 1)]
        assert client.describe_group(name).state in ("Empty", "Dead")


def test_produce_and_fetch_in_every_common_version(every_kafka: AnyKafka) -> None:
    topic = every_kafka.create_topic()
    with client_of(every_kafka) as client:
        client.brokers()
        count = 0
        for version in versions(client, "Produce"):
            for compression in (None, "gzip", "snappy", "lz4"):
                client.produce(
                    topic, [b"a", b"b"], partition=0, api_version=version, compression=compression
                )
                count += 2
        for version in versions(client, "Fetch"):
            found = client.fetch(topic, 0, 0, api_version=version, max_bytes=1 << 22)
            assert [record.value for record in found.records] == [b"a", b"b"] * (count // 2)
            assert [record.offset for record in found.records] == list(range(count))


def test_what_a_format_lacks_is_refused(every_kafka: AnyKafka) -> None:
    topic = every_kafka.create_topic()
    with client_of(every_kafka) as client:
        client.brokers()
        for version in versions(client, "Produce"):
            headers = karrow.Record(value=b"v", headers=[("h", b"1")])
            stamped = karrow.Record(value=b"v", timestamp_ms=1_600_000_000_000)
            attempts: list[tuple[Any, str | None, int, str]] = [
                (headers, None, 3, "headers"),
                (stamped, None, 2, "timestamps"),
                (b"v", "zstd", 7, "zstd"),
            ]
            for message, compression, since, what in attempts:
                if version >= since:
                    continue
                with pytest.raises(errors.UnsupportedVersion, match=f"cannot carry {what}"):
                    client.produce(
                        topic,
                        [message],
                        partition=0,
                        api_version=version,
                        compression=compression,
                    )
        assert client.latest_offset(topic, 0) == 0


def test_offsets_in_every_common_version(every_kafka: AnyKafka) -> None:
    topic, name = every_kafka.create_topic(), group()
    with client_of(every_kafka) as client:
        client.produce(topic, [b"v"] * 3, partition=0)
        for version in versions(client, "ListOffsets"):
            assert client.latest_offset(topic, 0, api_version=version) == 3
            assert client.earliest_offset(topic, 0, api_version=version) == 0
        for version in versions(client, "OffsetCommit", since=1):
            client.commit_offsets(name, {(topic, 0): version}, api_version=version)
            for read in versions(client, "OffsetFetch", since=1):
                found = client.committed_offsets(name, [topic], api_version=read)
                assert [one.offset for one in found.values()] == [version]


def test_offsets_in_zookeeper(every_kafka: AnyKafka) -> None:
    """Version 0 stores in ZooKeeper, apart from what later versions store."""
    if every_kafka.is_embedded:
        pytest.skip("the embedded broker has no ZooKeeper: its version 0 stores as the others do")
    topic, name = every_kafka.create_topic(), group()
    with client_of(every_kafka) as client:
        client.brokers()
        if 0 not in versions(client, "OffsetCommit") or not every_kafka.release.zookeeper:
            with pytest.raises((errors.UnsupportedVersion, errors.KarrowError)):
                client.commit_offsets(name, {(topic, 0): 2}, api_version=0, retries=0)
            return
        (none,) = client.committed_offsets(name, [topic], api_version=0).values()
        assert none.offset is None
        client.commit_offsets(name, {(topic, 0): 2}, api_version=0)
        (stored,) = client.committed_offsets(name, [topic], api_version=0).values()
        assert stored.offset == 2
        (other,) = client.committed_offsets(name, [topic], api_version=1).values()
        assert other.offset is None


def test_starts_of_segments(every_kafka: AnyKafka) -> None:
    topic = every_kafka.create_topic(config={"segment.bytes": "1048576"})
    with client_of(every_kafka) as client:
        client.brokers()
        if 0 not in versions(client, "ListOffsets"):
            with pytest.raises(errors.UnsupportedVersion, match="the broker 1 to"):
                client.offsets_before({(topic, 0): "latest"}, max_offsets=5)
            return
        for _ in range(4):
            client.produce(topic, [b"x" * 600_000], partition=0)
        found = client.offsets_before({(topic, 0): "latest"}, max_offsets=3)[topic, 0]
        assert found[0] == 4
        assert list(found) == sorted(found, reverse=True)
        assert len(found) == 3
        assert client.offsets_before({(topic, 0): "latest"})[topic, 0] == (4,)


def test_times_in_every_release(every_kafka: AnyKafka) -> None:
    # Brokers delete what is older than a week by its timestamp.
    topic = every_kafka.create_topic(config={"retention.ms": "-1"})
    with client_of(every_kafka) as client:
        records = [karrow.Record(value=b"v", timestamp_ms=1000 * n) for n in (1, 2, 3)]
        client.produce(topic, records, partition=0)
        found = client.list_offsets({(topic, 0): Offset.at_timestamp_ms(1500)})[topic, 0]
        assert (found.offset, found.timestamp_ms) == (1, 2000)


def test_membership_in_every_common_version(every_kafka: AnyKafka) -> None:
    topic = every_kafka.create_topic()
    with client_of(every_kafka) as client:
        client.brokers()
        for version in versions(client, "JoinGroup"):
            name = group()
            protocol = client.default_protocol("range", 0, [topic])
            joined = client.join_group(name, [protocol], api_version=version)
            last = versions(client, "SyncGroup")[-1]
            assigned = client.sync_group(
                name,
                generation=joined.generation,
                member_id=joined.member_id,
                assignments={joined.member_id: {topic: [0]}},
                protocol="range",
                protocol_type="consumer",
                api_version=min(version, last),
            )
            assert assigned.topics == {topic: (0,)}
            client.heartbeat(name, generation=joined.generation, member_id=joined.member_id)
            assert client.describe_group(name).state == "Stable"
            assert name in {one.group for one in client.list_groups()}
            client.leave_group(name, joined.member_id)


def test_topics_in_every_common_version(every_kafka: AnyKafka) -> None:
    with client_of(every_kafka) as client:
        client.brokers()
        for version in versions(client, "CreateTopics"):
            name = f"topic-{uuid.uuid4().hex[:12]}"
            client.create_topic(name, 2, 1, api_version=version)
            deadline = time.monotonic() + 20
            while len(client.metadata([name]).topics[name].partitions) != 2:
                assert time.monotonic() < deadline
            client.delete_topic(name)
            if version == 0:
                with pytest.raises(errors.UnsupportedVersion, match="cannot carry validate_only"):
                    client.create_topic(name, 2, 1, api_version=0, validate_only=True)


def test_metadata_never_creates_unasked(every_kafka: AnyKafka) -> None:
    name = f"absent-{uuid.uuid4().hex[:12]}"
    with client_of(every_kafka) as client:
        with pytest.raises(errors.UnknownTopicOrPartition):
            client.fetch(name, 0, 0)
        for version in versions(client, "Metadata"):
            client.metadata([name], api_version=version)
        assert name not in client.metadata().topics


def test_sasl_plain_on_every_release(kafka_version: KafkaCluster) -> None:
    if "SASL_PLAINTEXT" not in kafka_version.listeners:
        pytest.skip("this release has no such listener here")

    async def main(password: str) -> None:
        async with karrow.AsyncClient(
            kafka_version.bootstrap("SASL_PLAINTEXT"),
            sasl=karrow.Plain("alice", password),
            allow_plaintext_password=True,
            api_timeout=10.0,
        ) as client:
            assert await client.brokers()

    asyncio.run(main("alice-secret"))
    with pytest.raises(errors.AuthenticationError):
        asyncio.run(main("wrong"))
