"""The options of a sink: native names, Kafka's names, and what travels to tasks."""

from __future__ import annotations

import pickle

import pytest

from karrow.config import Scram
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
