"""The options of a client: defaults, limits, copies, environment."""

from __future__ import annotations

import dataclasses
import ssl
from datetime import timedelta
from typing import Any

import pytest

import karrow
from karrow import config
from karrow.config import TLS, ClientConfig, ConsumerConfig, MskIam, OAuthBearer, Plain, Scram
from karrow.config.options import ClientOptions
from karrow.errors import ConfigError

OPTIONS = ClientConfig.describe()


def test_versions_are_numbers_of_apis_that_exist() -> None:
    assert ClientConfig(api_versions={"Fetch": 11}).api_versions == {"Fetch": 11}
    with pytest.raises(ConfigError, match="api_versions: -1 is no version of Fetch"):
        ClientConfig(api_versions={"Fetch": -1})
    with pytest.raises(ConfigError, match=r"api_versions.*'Fetsch'.*Fetch"):
        karrow.Client("localhost:9092", api_versions={"Fetsch": 1})


def test_bootstrap_is_normalised_and_a_callable_waits_until_it_is_used() -> None:
    assert ClientConfig(bootstrap="b1,b2:1").addresses() == (("b1", 9092), ("b2", 1))
    answers = ["b1"]
    later = ClientConfig(bootstrap=answers.pop)
    assert answers
    assert later.addresses() == (("b1", 9092),)
    assert not answers


def test_without_bootstrap_there_are_no_addresses() -> None:
    with pytest.raises(ConfigError, match="no bootstrap"):
        ClientConfig().addresses()


def test_a_call_may_take_four_requests_unless_it_is_said() -> None:
    assert ClientConfig(request_timeout=5).call_timeout == 20.0
    assert ClientConfig(request_timeout=5, api_timeout=7).call_timeout == 7.0


def test_a_timedelta_is_seconds() -> None:
    made = ClientConfig.make(None, {"request_timeout": timedelta(milliseconds=1500)})
    assert made.request_timeout == 1.5


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_documented_and_in_range_by_default(name: str) -> None:
    assert OPTIONS[name].doc.endswith(".")
    default = next(f.default for f in dataclasses.fields(ClientConfig) if f.name == name)
    if default is not None:
        assert OPTIONS[name].check(name, default) == default


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request_timeout", 0),
        ("request_timeout", -1.0),
        ("request_timeout", float("nan")),
        ("request_timeout", float("inf")),
        ("request_timeout", "5"),
        ("request_timeout", True),
        ("request_timeout", None),
        ("api_timeout", 0),
        ("retry_backoff", -0.1),
        ("max_in_flight", 0),
        ("max_in_flight", 2.5),
        ("max_frame_bytes", 999),
        ("max_frame_bytes", 2**31),
        ("metadata_recovery", "maybe"),
        ("send_buffer_bytes", 1),
    ],
)
def test_a_value_outside_its_range_is_refused_by_the_options_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        ClientConfig.make(None, {name: value})


@pytest.mark.parametrize("name", ["connect_timeout", "reconnect_backoff", "retry_backoff"])
def test_a_first_wait_above_the_last_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}_max"):
        ClientConfig.make(None, {name: 1000.0})


def test_an_unknown_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'reqest_timeout'.*'request_timeout'"):
        ClientConfig.make(None, {"reqest_timeout": 5})
    with pytest.raises(ConfigError, match="the options are"):
        config.replace(ClientConfig(), zzz=1)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("auto_offset_reset", "'start'"),
        ("enable.auto.commit", "'auto_commit'"),
        ("group_id", "'group'"),
        ("max_poll_interval_ms", "'max_poll_interval', in seconds"),
    ],
)
def test_a_name_of_other_clients_is_refused_with_ours(theirs: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=f"'{theirs}'; here it is called {ours}$"):
        ConsumerConfig.make(None, {theirs: 1})


def test_replace_changes_a_copy_and_checks_it() -> None:
    base = ClientConfig(client_id="a", tls=True)
    changed = config.replace(base, client_id="b")
    assert (base.client_id, changed.client_id, changed.tls) == ("a", "b", True)
    with pytest.raises(ConfigError, match="max_in_flight"):
        config.replace(base, max_in_flight=0)


def test_arguments_go_on_top_of_a_given_set() -> None:
    base = ClientConfig(client_id="a", request_timeout=5)
    made = ClientConfig.make(base, {"client_id": "b"})
    assert (made.client_id, made.request_timeout) == ("b", 5.0)


def test_plain_needs_tls_unless_it_is_allowed_by_name() -> None:
    login = Plain("alice", "canary-1")
    with pytest.raises(ConfigError, match="clear text") as caught:
        ClientConfig(sasl=login)
    assert "canary-1" not in str(caught.value)
    assert ClientConfig(sasl=login, tls=True).sasl is login
    assert ClientConfig(sasl=login, allow_plaintext_password=True).sasl is login
    assert ClientConfig(sasl=Scram("alice", "canary-1")).tls is None


@pytest.mark.parametrize("value", ["canary-1", {"password": "canary-1"}, 5])
def test_what_is_no_mechanism_is_refused_without_being_shown(value: Any) -> None:
    with pytest.raises(ConfigError, match="sasl cannot be") as caught:
        ClientConfig(sasl=value)
    assert "canary-1" not in str(caught.value)


def test_what_is_no_tls_is_refused() -> None:
    with pytest.raises(ConfigError, match="tls cannot be a str"):
        ClientConfig.make(None, {"tls": "yes"})


def test_tls_gives_a_context_or_none() -> None:
    own = ssl.create_default_context()
    assert ClientConfig().ssl_context() is None
    assert ClientConfig(tls=False).ssl_context() is None
    assert ClientConfig(tls=own).ssl_context() is own
    made = ClientConfig(tls=True).ssl_context()
    assert made is not None
    assert made.check_hostname


def test_the_whole_set_prints_without_secrets() -> None:
    made = ClientConfig(
        sasl=Scram("alice", "canary-1"), tls=TLS(certificate="c.pem", key_password="canary-2")
    )
    assert "canary" not in repr(made)


def test_equal_sets_are_equal_keys() -> None:
    def provider() -> str:
        return "abc"

    sets = [
        ClientConfig(bootstrap="b1", sasl=OAuthBearer(provider, {"tenant": "x"}), tls=TLS(ca="c"))
        for _ in range(2)
    ]
    assert len(set(sets)) == 1


def test_keyword_arguments_are_the_options_that_are_not_positional() -> None:
    keywords = set(ClientOptions.__annotations__)
    assert keywords == {name for name, about in OPTIONS.items() if not about.positional}


def test_the_environment_sets_plain_options() -> None:
    made = config.from_env(
        {
            "KARROW_BOOTSTRAP": "b1,b2",
            "KARROW_REQUEST_TIMEOUT": "2.5",
            "KARROW_MAX_IN_FLIGHT": "3",
            "KARROW_SOCKET_KEEPALIVE": "false",
            "KARROW_METADATA_RECOVERY": "none",
            "KARROW_TLS": "true",
            "KARROW_CACHE": "/tmp/elsewhere",
            "HOME": "/root",
        }
    )
    assert made.addresses() == (("b1", 9092), ("b2", 9092))
    assert (made.request_timeout, made.max_in_flight, made.socket_keepalive) == (2.5, 3, False)
    assert (made.metadata_recovery, made.tls) == ("none", True)


def test_the_environment_sets_credentials_too() -> None:
    made = config.from_env(
        {
            "KARROW_SASL_MECHANISM": "plain",
            "KARROW_SASL_USERNAME": "alice",
            "KARROW_SASL_PASSWORD": "canary-1",
            "KARROW_TLS_CA": "ca.pem",
        }
    )
    assert made.sasl == Plain("alice", "canary-1")
    assert made.tls == TLS(ca="ca.pem")


def test_arguments_go_before_the_environment() -> None:
    assert config.from_env({"KARROW_CLIENT_ID": "a"}, client_id="b").client_id == "b"


def test_a_misspelt_variable_is_refused_with_the_right_one() -> None:
    with pytest.raises(ConfigError, match="KARROW_REQUEST_TIMEOUT"):
        config.from_env({"KARROW_REQUEST_TIMOUT": "5"})


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("KARROW_REQUEST_TIMEOUT", "soon"),
        ("KARROW_MAX_IN_FLIGHT", "2.5"),
        ("KARROW_SOCKET_KEEPALIVE", "perhaps"),
        ("KARROW_TLS_VERIFY", "perhaps"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(variable: str, text: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        config.from_env({variable: text})


def test_option_sets_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ClientConfig().client_id = "b"  # type: ignore[misc]


@pytest.mark.parametrize("mechanism", [OAuthBearer(lambda: "t"), MskIam("eu-west-1")])
def test_token_mechanisms_are_accepted(mechanism: OAuthBearer | MskIam) -> None:
    assert ClientConfig(sasl=mechanism).sasl is mechanism
