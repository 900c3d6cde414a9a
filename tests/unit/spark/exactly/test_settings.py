"""The options of a sink: native names, Kafka's names, and what travels to tasks."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from karrow.config import TLS, Scram
from karrow.errors import ConfigError
from karrow.spark.exactly.ledger import new_ledger
from karrow.spark.exactly.settings import Settings


def test_transactions_have_the_sinks_name_and_time_for_a_batch() -> None:
    config = Settings("b:9092", "orders", {"compression": "lz4"}).config
    assert config.transactional_id == "karrow.sink.orders"
    assert config.transaction_timeout == 900.0
    assert config.compression == "lz4"


def test_kafkas_own_names_are_understood() -> None:
    given = {
        "kafka.bootstrap.servers": "b:9092",
        "kafka.transaction.timeout.ms": "60000",
        "kafka.compression.type": "zstd",
        "linger": 0.1,
    }
    config = Settings(None, "s", given).config
    assert (config.transaction_timeout, config.compression, config.linger) == (60.0, "zstd", 0.1)
    assert Settings("c:1", "s", {"kafka.linger.ms": "3"}).config.bootstrap is not None


SERVERS = (("h", 1), ("g", 2))


@pytest.mark.parametrize("options", [{}, {"kafka.linger.ms": "5"}])
@pytest.mark.parametrize(
    "bootstrap",
    [
        "h:1,g:2",
        ["h:1", "g:2"],
        [("h", 1), ("g", 2)],
        lambda: "h:1,g:2",
        lambda: [("h", 1), "g:2"],
        lambda: iter(["h:1", "g:2"]),
    ],
)
def test_servers_are_given_in_every_form(bootstrap: Any, options: dict[str, str]) -> None:
    settings = Settings(bootstrap, "s", options)
    assert settings.config.bootstrap == SERVERS
    assert pickle.loads(pickle.dumps(settings)).config.bootstrap == SERVERS


def test_servers_that_are_none() -> None:
    with pytest.raises(ConfigError, match="bootstrap cannot be a object"):
        Settings(object(), "s", {"kafka.linger.ms": "5"})  # type: ignore[arg-type]
    same = {"kafka.bootstrap.servers": "h:1, g:2"}
    assert Settings(["h:1", "g:2"], "s", same).config.bootstrap == SERVERS
    with pytest.raises(ConfigError, match=r"bootstrap and kafka\.bootstrap\.servers contradict"):
        Settings("h:1", "s", {"Kafka.Bootstrap.Servers": "g:2"})


@pytest.mark.parametrize(
    ("own", "kafka"),
    [
        ({"linger": 0.1}, {"kafka.linger.ms": "5"}),
        ({"transaction_timeout": 60.0}, {"Kafka.Transaction.Timeout.Ms": "30000"}),
        ({"tls": True}, {"kafka.security.protocol": "PLAINTEXT"}),
        ({"tls": True}, {"kafka.ssl.endpoint.identification.algorithm": "https"}),
    ],
)
def test_an_option_has_a_value_by_one_of_its_names(
    own: dict[str, Any], kafka: dict[str, str]
) -> None:
    (mine,), (theirs,) = own, kafka
    with pytest.raises(ConfigError, match=f"{mine} and {theirs.lower()} are about the same"):
        Settings("b:9092", "s", {**own, **kafka})


def test_that_there_is_tls_leaves_open_which() -> None:
    given = {"kafka.security.protocol": "SSL", "tls": TLS(ca="ca.pem")}
    assert Settings("b:9092", "s", given).config.tls == TLS(ca="ca.pem")


def test_names_of_kafka_count_without_their_case() -> None:
    given = {"Kafka.Transaction.Timeout.Ms": "60000", "kafka.LINGER.ms": 3}
    config = Settings("b:9092", "s", given).config
    assert (config.transaction_timeout, config.linger) == (60.0, 0.003)
    with pytest.raises(ConfigError, match="credentials='nothing' names no function"):
        Settings("b:9092", "s", {"Credentials": "nothing"})
    with pytest.raises(ConfigError, match=r"kafka\.linger\.ms stands there twice"):
        Settings("b:9092", "s", {"kafka.linger.ms": 3, "Kafka.Linger.Ms": 4})
    with pytest.raises(ConfigError, match="sink_id"):
        Settings("b:9092", "s", {"Kafka.Transactional.Id": "mine"})


def test_tasks_read_the_same_and_secrets_stay_out_of_sight() -> None:
    given = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": "ann",
        "kafka.sasl.password": "hidden",
    }
    settings = Settings("b:9092", "s", given)
    assert "hidden" not in repr(settings)
    again = pickle.loads(pickle.dumps(settings))
    assert again.config == settings.config
    assert again.client == settings.client
    assert again.of_producer["transactional_id"] == "karrow.sink.s"


def test_what_does_not_travel_is_refused() -> None:
    with pytest.raises(ConfigError, match="sasl cannot be sent to the tasks"):
        Settings("b:9092", "s", {"sasl": Scram("ann", "hidden")})


@pytest.mark.parametrize("name", ["transactional_id", "kafka.transactional.id"])
def test_transactional_id_is_not_for_users(name: str) -> None:
    with pytest.raises(ConfigError, match="sink_id"):
        Settings("b:9092", "s", {name: "mine"})


def test_ledger_is_read_from_its_leader() -> None:
    """A replica that is nearer may lack the last entry, and answers for the leader by silence."""
    settings = Settings("b:9092", "s", {"kafka.client.rack": "here"})
    assert settings.client.rack is None


def test_ledger_is_no_topic_of_rows() -> None:
    with pytest.raises(ConfigError, match="topic 'orders' is the ledger of this sink"):
        new_ledger("topic", "s", "orders", "orders")
    ledger = new_ledger("topic", "s", None, None)
    with pytest.raises(ConfigError, match=r"topic 'karrow\.ledger\.s' is the ledger of this sink"):
        ledger.check_rows(["orders", "karrow.ledger.s"])
    ledger.check_rows(["orders", "karrow.ledger.other"])
    new_ledger("group", "s", "orders", None).check_rows(["karrow.ledger.s"])
