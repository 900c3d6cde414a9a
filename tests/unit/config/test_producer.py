"""The options of a producer: defaults, limits, what excludes what, environment."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

import karrow
from karrow import config
from karrow.config import ClientConfig, ProducerConfig
from karrow.config.options import ClientOptions, ProducerOptions
from karrow.errors import ConfigError

OPTIONS = ProducerConfig.describe()
OWN = [name for name in OPTIONS if name not in ClientConfig.describe()]


def made(**options: Any) -> ProducerConfig:
    return ProducerConfig.make(None, options)


@pytest.mark.parametrize("name", OWN)
def test_every_option_is_documented_and_in_range_by_default(name: str) -> None:
    assert OPTIONS[name].doc.endswith(".")
    default = next(f.default for f in dataclasses.fields(ProducerConfig) if f.name == name)
    if default is not None:
        assert OPTIONS[name].check(name, default) == default


def test_keyword_arguments_are_the_options_that_are_not_positional() -> None:
    keywords = set(ProducerOptions.__annotations__)
    assert keywords == {name for name, about in OPTIONS.items() if not about.positional}
    assert keywords - set(ClientOptions.__annotations__) == set(OWN)


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_acks_stay_as_they_are_given(acks: object) -> None:
    assert made(acks=acks, idempotent=acks == "all").acks == acks


def test_minus_one_is_another_name_for_all() -> None:
    assert made(acks=-1).acks == "all"


def test_no_compression_has_one_value() -> None:
    assert made(compression="none").compression is None
    assert made(compression="zstd").compression == "zstd"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", 2),
        ("acks", "1"),
        ("acks", True),
        ("acks", None),
        ("linger", -0.001),
        ("batch_bytes", 0),
        ("batch_bytes", 2**30 + 1),
        ("buffer_bytes", 1023),
        ("compression", "brotli"),
        ("compression_level", "9"),
        ("delivery_timeout", 0),
        ("max_request_bytes", 999),
        ("max_block", -1),
        ("transaction_timeout", 0),
        ("callbacks", "loop"),
        ("after_fork", "ignore"),
        ("connections_per_broker", 0),
        ("connections_per_broker", 17),
        ("topic_propagation", -1),
        ("exit_timeout", -1),
        ("partitioner", "murmur3"),
        ("partitioner", None),
    ],
)
def test_a_value_outside_its_range_is_refused_by_the_options_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        made(**{name: value})


@pytest.mark.parametrize("name", ["murmur2", "murmur2_legacy", "consistent", "fnv1a", "random"])
def test_partitioners_have_names(name: str) -> None:
    assert made(partitioner=name).partitioner == name


def test_a_function_is_a_partitioner() -> None:
    def first(_topic: str, _key: bytes | None, _partitions: int) -> int:
        return 0

    assert ProducerConfig(partitioner=first).partitioner is first


def test_a_misspelt_partitioner_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"partitioner='murmur'.*'murmur2'"):
        made(partitioner="murmur")


@pytest.mark.parametrize(
    ("options", "problem", "advice"),
    [
        ({"acks": 1}, "idempotent needs acks='all', not 1", "set idempotent=False"),
        ({"acks": 0}, "idempotent needs acks='all', not 0", "set idempotent=False"),
        ({"max_in_flight": 6}, "idempotent needs max_in_flight up to 5, not 6", "lower"),
        ({"allow_duplicates": True}, "allow_duplicates contradicts idempotent", "leave out"),
        ({"gapless": True, "idempotent": False}, "gapless needs idempotent", "leave out"),
        ({"transactional_id": "t", "idempotent": False}, "transactional_id needs", "leave out"),
        ({"transactional_id": ""}, "transactional_id is empty", "give it a name"),
        ({"compression_level": 3}, "compression_level=3 without compression", "set compression="),
        ({"compression_level": 3, "compression": "none"}, "without compression", "leave out"),
    ],
)
def test_options_that_exclude_each_other_are_refused_with_a_way_out(
    options: dict[str, Any], problem: str, advice: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        made(**options)
    assert problem in str(caught.value)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 1, "idempotent": False, "max_in_flight": 100, "allow_duplicates": True},
        {"transactional_id": "t", "gapless": True},
        {"compression": "zstd", "compression_level": -5},
    ],
)
def test_options_that_go_together_are_accepted(options: dict[str, Any]) -> None:
    assert dataclasses.asdict(made(**options)).items() >= options.items()


def test_what_every_client_checks_is_checked_too() -> None:
    assert made(bootstrap="b1").addresses() == (("b1", 9092),)
    with pytest.raises(ConfigError, match="retry_backoff_max"):
        made(retry_backoff=1000.0)


def test_a_changed_copy_is_checked() -> None:
    assert config.replace(made(linger=1), acks=-1).linger == 1.0
    with pytest.raises(ConfigError, match="acks"):
        config.replace(made(), acks=1)


def test_its_home_is_karrow() -> None:
    assert karrow.ProducerConfig is ProducerConfig
    assert pickle.loads(pickle.dumps(made(linger=1))) == made(linger=1)


def test_the_environment_sets_plain_options() -> None:
    read = config.from_env(
        {
            "KARROW_BOOTSTRAP": "b1",
            "KARROW_ACKS": "1",
            "KARROW_LINGER": "0.5",
            "KARROW_COMPRESSION": "gzip",
            "KARROW_COMPRESSION_LEVEL": "3",
            "KARROW_IDEMPOTENT": "false",
            "KARROW_PARTITIONER": "random",
            "KARROW_CALLBACKS": "thread",
        },
        into=ProducerConfig,
    )
    assert (read.acks, read.linger, read.idempotent) == (1, 0.5, False)
    assert (read.compression, read.compression_level) == ("gzip", 3)
    assert (read.partitioner, read.callbacks) == ("random", "thread")


def test_the_environment_names_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="acks='2'"):
        config.from_env({"KARROW_ACKS": "2"}, into=ProducerConfig)


def test_a_producers_variables_do_not_disturb_other_clients() -> None:
    assert config.from_env({f"KARROW_{name.upper()}": "1" for name in OWN}) == ClientConfig()
