"""Properties of producers: values in the peers' words and units, and what follows from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from karrow.config import ClientConfig, Plain, ProducerConfig, from_file, from_properties
from karrow.config.dialects import Dialect, properties
from karrow.errors import ConfigError

DIALECTS: list[Dialect] = ["librdkafka", "java"]
YEAR = 86_400 * 365


def librdkafka(mapping: dict[str, Any], **options: Any) -> ProducerConfig:
    return from_properties(mapping, dialect="librdkafka", into=ProducerConfig, **options)


def java(mapping: dict[str, Any], **options: Any) -> ProducerConfig:
    return from_properties(mapping, dialect="java", into=ProducerConfig, **options)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_producers_know_what_clients_know(dialect: Dialect) -> None:
    assert set(properties(dialect, ClientConfig)) < set(properties(dialect, ProducerConfig))


@pytest.mark.parametrize("name", ["message.max.bytes", "linger.ms"])
def test_what_belongs_to_producers_is_refused_for_other_clients(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        from_properties({name: 5000}, dialect="librdkafka")
    librdkafka({name: 5000})


def test_an_unknown_property_is_no_producers() -> None:
    with pytest.raises(ConfigError, match=r"no producer property 'linger'.*'linger.ms'"):
        java({"linger": 5})


def test_librdkafkas_names_and_units() -> None:
    made = librdkafka(
        {
            "queue.buffering.max.ms": "2.5",
            "queue.buffering.max.kbytes": "2048",
            "batch.size": "5000",
            "message.max.bytes": 2_000_000,
            "compression.type": "LZ4",
            "compression.level": "5",
            "delivery.timeout.ms": 1500,
            "enable.idempotence": "true",
            "enable.gapless.guarantee": "true",
            "transactional.id": "t",
            "transaction.timeout.ms": "1000",
            "topic.metadata.propagation.max.ms": "0",
        }
    )
    assert made == ProducerConfig(
        linger=0.0025,
        buffer_bytes=2 * 1024 * 1024,
        batch_bytes=5000,
        max_request_bytes=2_000_000,
        compression="lz4",
        compression_level=5,
        delivery_timeout=1.5,
        gapless=True,
        transactional_id="t",
        transaction_timeout=1.0,
        topic_propagation=0.0,
    )


def test_javas_names_and_units() -> None:
    made = java(
        {
            "acks": "all",
            "linger.ms": "20",
            "buffer.memory": "33554432",
            "batch.size": "16384",
            "max.request.size": "1048576",
            "compression.type": "zstd",
            "delivery.timeout.ms": "1500",
            "max.block.ms": "60000",
            "partitioner.adaptive.partitioning.enable": "false",
            "enable.idempotence": "true",
            "transactional.id": "t",
            "transaction.timeout.ms": "1000",
        }
    )
    assert made == ProducerConfig(
        linger=0.02,
        buffer_bytes=32 * 1024 * 1024,
        batch_bytes=16384,
        max_request_bytes=1024 * 1024,
        compression="zstd",
        delivery_timeout=1.5,
        max_block=60.0,
        adaptive_partitioning=False,
        transactional_id="t",
        transaction_timeout=1.0,
    )


@pytest.mark.parametrize(
    ("alias", "value", "name"),
    [
        ("linger.ms", 7, "queue.buffering.max.ms"),
        ("compression.codec", "gzip", "compression.type"),
        ("message.timeout.ms", 7000, "delivery.timeout.ms"),
        ("request.required.acks", "-1", "acks"),
    ],
)
def test_librdkafkas_aliases_say_the_same(alias: str, value: object, name: str) -> None:
    assert librdkafka({alias: value}) == librdkafka({name: value})
    assert librdkafka({alias: value, name: value}) == librdkafka({name: value})


def test_contradicting_aliases_are_refused() -> None:
    with pytest.raises(ConfigError, match="contradicts"):
        librdkafka({"linger.ms": 7, "queue.buffering.max.ms": 8})


@pytest.mark.parametrize(
    ("text", "acks"), [("all", "all"), ("-1", "all"), (-1, "all"), ("0", 0), ("1", 1), (1, 1)]
)
@pytest.mark.parametrize("read", [librdkafka, java])
def test_acks_are_read_from_text_and_numbers(read: Any, text: object, acks: object) -> None:
    assert read({"acks": text}).acks == acks


@pytest.mark.parametrize("read", [librdkafka, java])
def test_other_acks_are_refused(read: Any) -> None:
    with pytest.raises(ConfigError, match="acks='2'"):
        read({"acks": "2"})


@pytest.mark.parametrize("conflict", [{"acks": "1"}, {"acks": 0}, {"max.in.flight": "100"}])
def test_what_excludes_idempotence_switches_it_off_unless_it_is_asked_for(
    conflict: dict[str, Any],
) -> None:
    assert librdkafka({}).idempotent
    assert not librdkafka(conflict).idempotent
    for asked in ({"enable.idempotence": "true"}, {"transactional.id": "t"}):
        with pytest.raises(ConfigError, match="idempotent needs"):
            librdkafka({**conflict, **asked})
    with pytest.raises(ConfigError, match="idempotent needs"):
        librdkafka(conflict, idempotent=True)


def test_an_argument_that_excludes_idempotence_is_refused_as_ever() -> None:
    with pytest.raises(ConfigError, match="idempotent needs"):
        librdkafka({"acks": "all"}, acks=1)
    assert librdkafka({"acks": "1"}, acks="all").idempotent


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("consistent", "consistent"),
        ("consistent_random", "consistent"),
        ("fnv1a", "fnv1a"),
        ("fnv1a_random", "fnv1a"),
        ("murmur2", "murmur2"),
        ("murmur2_random", "murmur2"),
        ("random", "random"),
    ],
)
def test_librdkafkas_partitioners_have_names_here(theirs: str, ours: str) -> None:
    assert librdkafka({"partitioner": theirs}).partitioner == ours


def test_a_partitioner_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="partitioner='roundrobin'"):
        librdkafka({"partitioner": "roundrobin"})


def test_values_that_switch_something_off() -> None:
    assert librdkafka({"message.timeout.ms": 0}).delivery_timeout > YEAR
    assert librdkafka({"compression.codec": "inherit"}).compression is None
    assert librdkafka({"compression.level": "-1"}).compression_level is None
    assert java({"batch.size": "0"}).batch_bytes == 1
    with pytest.raises(ConfigError, match="delivery_timeout"):
        java({"delivery.timeout.ms": "0"})


@pytest.mark.parametrize(
    ("codec", "level"),
    [("gzip", 6), ("lz4", 9), ("zstd", -1), ("snappy", None), ("none", None), (None, None)],
)
def test_javas_level_of_the_codec_in_use_counts(codec: str | None, level: int | None) -> None:
    levels = {
        "compression.gzip.level": "6",
        "compression.lz4.level": "9",
        "compression.zstd.level": "-1",
    }
    named = {} if codec is None else {"compression.type": codec}
    assert java({**levels, **named}).compression_level == level
    assert java(levels, compression=codec).compression_level == level


def test_javas_default_level_of_gzip_is_none() -> None:
    mapping = {"compression.type": "gzip", "compression.gzip.level": "-1"}
    assert java(mapping).compression_level is None


def test_security_becomes_the_producers_too() -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"}
    made = librdkafka({"security.protocol": "SASL_SSL", **login})
    assert made.sasl == Plain("alice", "secret")


def test_a_file_makes_a_producers_options(tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text("bootstrap.servers=b1\nlinger.ms=20\ncompression.type=lz4\n")
    made = from_file(path, dialect="java", into=ProducerConfig, acks=-1)
    assert made == ProducerConfig(bootstrap="b1", linger=0.02, compression="lz4")
