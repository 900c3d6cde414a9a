"""The options of a consumer: defaults, limits, what excludes what, environment."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import karrow
from karrow import config
from karrow.config import ClientConfig, ConsumerConfig
from karrow.config.options import ClientOptions, ConsumerOptions
from karrow.errors import ConfigError
from karrow.types import Offset, OffsetSpec, TopicPartition

OPTIONS = ConsumerConfig.describe()
OWN = [name for name in OPTIONS if name not in ClientConfig.describe()]
ORDERS = TopicPartition("orders", 0)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
MEBIBYTE = 1024 * 1024


class Custom:
    name = "custom"


def made(**options: Any) -> ConsumerConfig:
    return ConsumerConfig.make(None, options)


@pytest.mark.parametrize("name", OWN)
def test_every_option_is_documented_and_in_range_by_default(name: str) -> None:
    assert OPTIONS[name].doc.endswith(".")
    default = next(f.default for f in dataclasses.fields(ConsumerConfig) if f.name == name)
    if default is not None:
        assert OPTIONS[name].check(name, default) == default


def test_keyword_arguments_are_the_options_that_are_not_positional() -> None:
    keywords = set(ConsumerOptions.__annotations__)
    assert keywords == {name for name, about in OPTIONS.items() if not about.positional}
    assert keywords - set(ClientOptions.__annotations__) == set(OWN)


@pytest.mark.parametrize(
    ("start", "spec"),
    [
        ("earliest", Offset.earliest()),
        ("latest", Offset.latest()),
        ("max_timestamp", Offset.max_timestamp()),
        (17, Offset.at(17)),
        (NEW_YEAR, Offset.at_time(NEW_YEAR)),
        ("2026-01-01T00:00:00Z", Offset.at_time(NEW_YEAR)),
        ("-1h", Offset.ago(timedelta(hours=1))),
        (timedelta(hours=1), Offset.ago(timedelta(hours=1))),
        (Offset.at(17), Offset.at(17)),
        ("none", None),
    ],
)
def test_a_start_is_a_place_or_none(start: Any, spec: OffsetSpec | None) -> None:
    assert made(start=start).start_spec == spec


@pytest.mark.parametrize(
    ("start", "spec"),
    [
        ("earliest", Offset.earliest()),
        ("latest", Offset.latest()),
        (Offset.latest(), Offset.latest()),
        (17, None),
        ("-1h", None),
        (NEW_YEAR, None),
        ("none", None),
    ],
)
def test_what_is_out_of_range_goes_on_at_the_start_if_that_is_an_end(
    start: Any, spec: OffsetSpec | None
) -> None:
    assert made(start=start).out_of_range_spec(ORDERS, 17) == spec


@pytest.mark.parametrize(
    ("policy", "spec"),
    [
        ("earliest", Offset.earliest()),
        ("latest", Offset.latest()),
        ("none", None),
        ("-1h", Offset.ago(timedelta(hours=1))),
        (lambda _partition, offset: offset - 7, Offset.at(10)),
        (lambda partition, _offset: ["earliest", "none"][partition.partition], Offset.earliest()),
        (lambda _partition, _offset: "none", None),
    ],
)
def test_a_policy_says_where_to_go_on(policy: Any, spec: OffsetSpec | None) -> None:
    assert made(start="latest", out_of_range=policy).out_of_range_spec(ORDERS, 17) == spec


def test_a_policy_that_names_no_place_is_refused_when_it_does() -> None:
    policy = made(out_of_range=lambda _partition, _offset: "here")
    with pytest.raises(ConfigError, match="out_of_range='here'"):
        policy.out_of_range_spec(ORDERS, 17)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group", ""),
        ("group", 5),
        ("start", "beginning"),
        ("start", -1),
        ("start", True),
        ("start", None),
        ("start", datetime(2026, 1, 1)),  # noqa: DTZ001 - the missing zone is the point
        ("out_of_range", "error"),
        ("out_of_range", 17),
        ("isolation", "serializable"),
        ("protocol", "share"),
        ("assignors", ()),
        ("assignors", None),
        ("assignors", ["range", "range"]),
        ("assignors", [Custom(), Custom()]),
        ("assignors", [object()]),
        ("assignors", "range,uniform"),
        ("auto_commit_interval", -1),
        ("session_timeout", 0),
        ("session_timeout", 2_147_484),
        ("heartbeat_interval", 0),
        ("max_poll_interval", 0),
        ("max_poll_records", 0),
        ("min_bytes", -1),
        ("max_bytes", 0),
        ("max_bytes", 2**31 - 512),
        ("partition_max_bytes", 0),
        ("max_wait", -0.1),
        ("buffer_bytes", 1023),
        ("max_decompressed_bytes", 1023),
        ("on_assigned", "print"),
        ("on_revoked", 1),
        ("on_lost", ()),
    ],
)
def test_a_value_outside_its_range_is_refused_by_the_options_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        made(**{name: value})


@pytest.mark.parametrize("instance_id", ["", 5, "..", "a b", "x" * 250])
def test_a_member_has_a_name_that_brokers_accept(instance_id: object) -> None:
    with pytest.raises(ConfigError, match="instance_id"):
        made(group="g", instance_id=instance_id)
    assert made(group="g", instance_id="host-1.rack_2").instance_id == "host-1.rack_2"


def test_assignors_are_names_or_objects_in_their_order() -> None:
    custom = Custom()
    assert made().assignors == ("range", "cooperative-sticky")
    assert made(assignors=[custom, "sticky"]).assignors == (custom, "sticky")
    assert made(assignors="roundrobin, range").assignors == ("roundrobin", "range")


def test_a_misspelt_assignor_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'cooperative'.*did you mean 'cooperative-sticky'"):
        made(assignors=["cooperative"])


@pytest.mark.parametrize(
    ("options", "problem", "advice"),
    [
        ({"session_timeout": 3.0}, "heartbeat_interval=3.0 is not below", "a third"),
        ({"heartbeat_interval": 45.0}, "session_timeout=45.0", "a third"),
        ({"max_wait": 30.0}, "max_wait=30.0 is not below request_timeout=30.0", "gone"),
        ({"request_timeout": 0.5}, "max_wait=0.5 is not below request_timeout=0.5", "gone"),
        ({"max_bytes": MEBIBYTE}, "above max_bytes=1048576", "lower partition_max_bytes"),
        ({"max_bytes": 100 * MEBIBYTE}, "max_frame_bytes=104857600", "512 bytes more"),
        ({"max_frame_bytes": MEBIBYTE}, "max_bytes=52428800 does not fit", "512 bytes more"),
        ({"instance_id": "i"}, "instance_id needs a group", "set group="),
        ({"remote_assignor": "uniform"}, "remote_assignor needs a group", "set group="),
        ({"rebalance_timeout": 60}, "rebalance_timeout needs a group", "set group="),
        ({"protocol": "consumer"}, "protocol='consumer' needs a group", "set group="),
        ({"group": "g", "remote_assignor": "range"}, "needs protocol='consumer'", "assignors="),
        (
            {"group": "g", "protocol": "consumer", "assignors": ["range"]},
            "assignors have no say",
            "remote_assignor=",
        ),
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
        {"group": "g", "protocol": "consumer", "remote_assignor": "uniform", "instance_id": "i"},
        {"max_bytes": 200 * MEBIBYTE, "max_frame_bytes": 201 * MEBIBYTE},
        {"max_bytes": MEBIBYTE, "partition_max_bytes": MEBIBYTE},
        {"auto_commit": False, "isolation": "read_committed", "min_bytes": 0, "max_wait": 0.0},
        {"on_assigned": print, "on_revoked": print, "on_lost": print},
    ],
)
def test_options_that_go_together_are_accepted(options: dict[str, Any]) -> None:
    whole = made(**options)
    assert {name: getattr(whole, name) for name in options} == options


def test_only_a_group_has_commits() -> None:
    assert made(group="g").commits_itself
    assert not made().commits_itself
    assert not made(group="g", auto_commit=False).commits_itself


def test_members_may_take_the_time_of_a_poll_to_join_again() -> None:
    assert made(max_poll_interval=60).rebalance_time == 60.0
    assert made(group="g", max_poll_interval=60, rebalance_timeout=5).rebalance_time == 5.0


def test_what_every_client_checks_is_checked_too() -> None:
    assert made(bootstrap="b1").addresses() == (("b1", 9092),)
    with pytest.raises(ConfigError, match="retry_backoff_max"):
        made(retry_backoff=1000.0)


def test_a_changed_copy_is_checked() -> None:
    assert config.replace(made(group="g"), start="earliest").group == "g"
    with pytest.raises(ConfigError, match="start"):
        config.replace(made(), start="beginning")


def test_its_home_is_karrow() -> None:
    assert karrow.ConsumerConfig is ConsumerConfig
    assert pickle.loads(pickle.dumps(made(start=NEW_YEAR))) == made(start=NEW_YEAR)


def test_the_environment_sets_plain_options() -> None:
    read = config.from_env(
        {
            "KARROW_BOOTSTRAP": "b1",
            "KARROW_GROUP": "g",
            "KARROW_START": "-1h",
            "KARROW_OUT_OF_RANGE": "earliest",
            "KARROW_ISOLATION": "read_committed",
            "KARROW_ASSIGNORS": "sticky,range",
            "KARROW_AUTO_COMMIT": "no",
            "KARROW_MAX_POLL_RECORDS": "7",
            "KARROW_SESSION_TIMEOUT": "10",
            "KARROW_INSTANCE_ID": "i",
        },
        into=ConsumerConfig,
    )
    assert read == ConsumerConfig(
        bootstrap="b1",
        group="g",
        start="-1h",
        out_of_range="earliest",
        isolation="read_committed",
        assignors=("sticky", "range"),
        auto_commit=False,
        max_poll_records=7,
        session_timeout=10.0,
        instance_id="i",
    )


def test_the_environment_names_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="isolation='dirty'"):
        config.from_env({"KARROW_ISOLATION": "dirty"}, into=ConsumerConfig)


def test_a_consumers_variables_do_not_disturb_other_clients() -> None:
    assert config.from_env({f"KARROW_{name.upper()}": "1" for name in OWN}) == ClientConfig()


def test_defaults_are_the_documented_ones() -> None:
    """What programs rely on that say nothing; a change of these is a change of behaviour."""
    chosen = made(group="g")
    documented = {
        "start": "latest",
        "out_of_range": None,
        "protocol": "classic",
        "assignors": ("range", "cooperative-sticky"),
        "remote_assignor": None,
        "isolation": "read_uncommitted",
        "auto_commit": True,
        "auto_commit_interval": 5.0,
        "instance_id": None,
        "rack": None,
        "session_timeout": 45.0,
        "heartbeat_interval": 3.0,
        "rebalance_timeout": None,
        "max_poll_interval": 300.0,
        "max_poll_records": 500,
        "min_bytes": 1,
        "max_bytes": 50 * MEBIBYTE,
        "partition_max_bytes": 4 * MEBIBYTE,
        "max_wait": 0.5,
        "buffer_bytes": 64 * MEBIBYTE,
        "max_decompressed_bytes": 128 * MEBIBYTE,
        "check_crcs": True,
        "fetch_sessions": True,
        "on_assigned": None,
        "on_revoked": None,
        "on_lost": None,
    }
    assert {name: getattr(chosen, name) for name in documented} == documented
    # Whatever is added has its default written down here.
    assert set(OWN) <= documented.keys() | {"group"}
    assert made().group is None


def test_what_follows_from_the_defaults() -> None:
    chosen = made(group="g")
    assert chosen.start_spec == Offset.latest()
    assert chosen.out_of_range_spec(ORDERS, 17) == Offset.latest()
    assert chosen.commits_itself
    assert chosen.rebalance_time == chosen.max_poll_interval
    assert (chosen.request_timeout, chosen.connect_timeout) == (30.0, 10.0)
    assert (chosen.metadata_max_age, chosen.api_timeout) == (300.0, None)
    assert chosen.call_timeout == 4 * chosen.request_timeout
    assert made(request_timeout=2.0).call_timeout == 8.0
    assert made(request_timeout=2.0, api_timeout=3.0).call_timeout == 3.0
