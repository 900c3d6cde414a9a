"""Properties of consumers: values in the peers' words and units, and what follows from them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from karrow.config import ClientConfig, ConsumerConfig, from_file, from_properties
from karrow.config.dialects import Dialect, properties
from karrow.errors import ConfigError
from karrow.types import Offset, TopicPartition

DIALECTS: list[Dialect] = ["librdkafka", "java"]
YEAR = 86_400 * 365
MEBIBYTE = 1024 * 1024
ORDERS = TopicPartition("orders", 0)
CLASSES = "org.apache.kafka.clients.consumer"


def librdkafka(mapping: dict[str, Any], **options: Any) -> ConsumerConfig:
    return from_properties(mapping, dialect="librdkafka", into=ConsumerConfig, **options)


def java(mapping: dict[str, Any], **options: Any) -> ConsumerConfig:
    return from_properties(mapping, dialect="java", into=ConsumerConfig, **options)


READS = pytest.mark.parametrize("read", [librdkafka, java])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_consumers_know_what_clients_know(dialect: Dialect) -> None:
    assert set(properties(dialect, ClientConfig)) < set(properties(dialect, ConsumerConfig))


def test_what_belongs_to_producers_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"no consumer property 'linger\.ms'"):
        java({"linger.ms": 5})


def test_librdkafkas_names_and_units() -> None:
    made = librdkafka(
        {
            "group.id": "g",
            "group.instance.id": "i",
            "isolation.level": "read_committed",
            "auto.offset.reset": "smallest",
            "partition.assignment.strategy": "range, roundrobin",
            "enable.auto.commit": "false",
            "auto.commit.interval.ms": "1500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "2000",
            "max.poll.interval.ms": "86400000",
            "max.poll.records": "7",
            "fetch.min.bytes": "100",
            "fetch.max.bytes": "20971520",
            "fetch.message.max.bytes": "1048576",
            "fetch.wait.max.ms": "250",
            "queued.max.messages.kbytes": "2048",
            "check.crcs": "false",
        }
    )
    assert made == ConsumerConfig(
        group="g",
        instance_id="i",
        isolation="read_committed",
        start="earliest",
        assignors=("range", "roundrobin"),
        auto_commit=False,
        auto_commit_interval=1.5,
        session_timeout=6.0,
        heartbeat_interval=2.0,
        max_poll_interval=86_400.0,
        max_poll_records=7,
        min_bytes=100,
        max_bytes=20 * MEBIBYTE,
        partition_max_bytes=MEBIBYTE,
        max_wait=0.25,
        buffer_bytes=2 * MEBIBYTE,
        check_crcs=False,
    )


def test_javas_names_and_units() -> None:
    made = java(
        {
            "group.id": "g",
            "group.protocol": "CONSUMER",
            "group.remote.assignor": "uniform",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "true",
            "auto.commit.interval.ms": "0",
            "max.poll.interval.ms": "2147483647",
            "max.poll.records": "7",
            "fetch.min.bytes": "0",
            "fetch.max.bytes": "20971520",
            "max.partition.fetch.bytes": "1048576",
            "fetch.max.wait.ms": "250",
            "check.crcs": "false",
            "allow.auto.create.topics": "false",
        }
    )
    assert made == ConsumerConfig(
        group="g",
        protocol="consumer",
        remote_assignor="uniform",
        isolation="read_committed",
        start="earliest",
        auto_commit_interval=0.0,
        max_poll_interval=2_147_483.647,
        max_poll_records=7,
        min_bytes=0,
        max_bytes=20 * MEBIBYTE,
        partition_max_bytes=MEBIBYTE,
        max_wait=0.25,
        check_crcs=False,
        allow_auto_topic_creation=False,
    )


@READS
def test_the_group_is_the_consumers_own(read: Any) -> None:
    made = read({"group.id": "g"})
    assert (made.group, made.default_group) == ("g", None)


def test_librdkafkas_two_names_for_a_partitions_bytes_say_the_same() -> None:
    names = ("fetch.message.max.bytes", "max.partition.fetch.bytes")
    one, other = (librdkafka({name: 9}) for name in names)
    assert one == other == librdkafka(dict.fromkeys(names, 9))
    with pytest.raises(ConfigError, match="contradicts"):
        librdkafka({names[0]: 9, names[1]: 8})


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("smallest", "earliest"),
        ("beginning", "earliest"),
        (" Latest ", "latest"),
        ("largest", "latest"),
        ("end", "latest"),
        ("none", "none"),
        ("error", "none"),
    ],
)
@READS
def test_both_peers_names_for_a_reset_are_read(read: Any, text: str, start: str) -> None:
    made = read({"auto.offset.reset": text})
    assert made == ConsumerConfig(start=start)
    assert made.out_of_range_spec(ORDERS, 17) == made.start_spec


@pytest.mark.parametrize(
    ("duration", "age"),
    [
        ("PT1H", timedelta(hours=1)),
        ("P3D", timedelta(days=3)),
        ("p1dt2h3m4.5s", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("PT0S", timedelta()),
    ],
)
def test_a_reset_by_duration_is_an_age_for_lost_offsets_too(duration: str, age: timedelta) -> None:
    made = java({"auto.offset.reset": f"by_duration:{duration}"})
    assert made.start_spec == made.out_of_range_spec(ORDERS, 17) == Offset.ago(age)
    assert java({"auto.offset.reset": "by_duration:PT1H"}, start="latest") == ConsumerConfig()


@pytest.mark.parametrize(
    "text",
    [
        "newest",
        "-1h",
        "17",
        "by_duration",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:1h",
        "by_duration:-PT1H",
        "by_duration:P99999999999D",
        None,
    ],
)
@READS
def test_another_reset_is_refused(read: Any, text: object) -> None:
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        read({"auto.offset.reset": text})


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("RangeAssignor", "range"),
        ("RoundRobinAssignor", "roundrobin"),
        ("StickyAssignor", "sticky"),
        ("CooperativeStickyAssignor", "cooperative-sticky"),
    ],
)
def test_javas_assignors_have_names_here(kind: str, name: str) -> None:
    strategy = "partition.assignment.strategy"
    assert java({strategy: f"{CLASSES}.{kind}"}).assignors == (name,)
    assert java({strategy: [f"{CLASSES}.{kind}"]}).assignors == (name,)


def test_assignors_keep_their_order() -> None:
    both = f"{CLASSES}.StickyAssignor, {CLASSES}.RangeAssignor"
    assert java({"partition.assignment.strategy": both}).assignors == ("sticky", "range")


def test_an_assignor_that_is_a_class_of_somebodys_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"com\.example\.Mine.*assignors= an object"):
        java({"partition.assignment.strategy": "com.example.Mine"})


@pytest.mark.parametrize("value", ["uniform", 5, ""])
def test_an_assignor_nobody_knows_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="assignors"):
        librdkafka({"partition.assignment.strategy": value})


def test_values_that_switch_something_off() -> None:
    assert librdkafka({"auto.commit.interval.ms": 0}).auto_commit_interval > YEAR
    assert java({"auto.commit.interval.ms": 0}).auto_commit_interval == 0.0
    assert java({"fetch.max.bytes": "0"}).max_bytes == 1
    assert java({"max.partition.fetch.bytes": "0"}).partition_max_bytes == 1


@READS
def test_a_partition_sends_no_more_than_the_whole(read: Any) -> None:
    assert read({"fetch.max.bytes": 1000}).partition_max_bytes == 1000
    both = {"fetch.max.bytes": 1000, "max.partition.fetch.bytes": 2000}
    assert read(both).partition_max_bytes == 1000
    assert read({"max.partition.fetch.bytes": 2000}).partition_max_bytes == 2000
    with pytest.raises(ConfigError, match="partition_max_bytes=2000 is above"):
        read({"fetch.max.bytes": 1000}, partition_max_bytes=2000)


@READS
def test_a_large_fetch_lifts_the_limit_of_answers(read: Any) -> None:
    assert read({"fetch.max.bytes": 200 * MEBIBYTE}).max_frame_bytes == 201 * MEBIBYTE
    assert read({"fetch.max.bytes": 2_147_483_135}).max_frame_bytes == 2**31 - 1
    with pytest.raises(ConfigError, match="max_frame_bytes"):
        read({"fetch.max.bytes": 200 * MEBIBYTE}, max_frame_bytes=100 * MEBIBYTE)


def test_javas_largest_fetch_is_the_largest() -> None:
    largest = {"fetch.max.bytes": 2**31 - 1, "max.partition.fetch.bytes": 2**31 - 1}
    assert java(largest).max_bytes == java(largest).partition_max_bytes == 2**31 - 513


def test_a_set_of_options_is_checked_as_a_whole() -> None:
    with pytest.raises(ConfigError, match="heartbeat_interval"):
        librdkafka({"session.timeout.ms": 3000})
    with pytest.raises(ConfigError, match="instance_id needs a group"):
        java({"group.instance.id": "i"})


def test_a_file_makes_a_consumers_options(tmp_path: Path) -> None:
    path = tmp_path / "consumer.properties"
    path.write_text("bootstrap.servers=b1\ngroup.id=g\nauto.offset.reset=earliest\n")
    made = from_file(path, dialect="java", into=ConsumerConfig, isolation="read_committed")
    assert made == ConsumerConfig(
        bootstrap="b1", group="g", start="earliest", isolation="read_committed"
    )
