"""The options of the sink."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from karrow.errors import ConfigError
from karrow.spark.writing.terms import Terms

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}


def terms(**options: str) -> Terms:
    return Terms.read(CaseInsensitiveDict({**BROKER, **options}))


def test_options_of_kafka_reach_the_producer() -> None:
    found = terms(**{"kafka.linger.ms": "50", "kafka.compression.type": "lz4"}).config
    assert (found.linger, found.compression, found.idempotent) == (0.05, "lz4", True)


def test_the_topics_name_has_no_space_around_it() -> None:
    assert terms(topic=" orders ").topic == "orders"


def test_sparks_own_options_are_taken() -> None:
    assert terms(checkpointLocation="/c", path="/p", includeHeaders="true").topic is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topik": "t"}, "there is no option 'topik'; did you mean 'topic'"),
        ({"topic": "a b"}, "topic='a b' is no name of a topic"),
        ({"topic": " "}, "topic is empty"),
        ({"includeHeaders": "maybe"}, "includeHeaders='maybe' is neither true nor false"),
        ({"isolation": "read_committed"}, "isolation is an option of sources"),
        ({"subscribe": "t"}, "there is no option 'subscribe'"),
        (
            {"kafka.linger": "5"},
            "there is no option 'kafka.linger'; did you mean 'kafka.linger.ms'",
        ),
        ({"kafka.linger.ms": "x"}, "kafka.linger.ms='x' is no number"),
        ({"kafka.acks": "7"}, "kafka.acks"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer is not supported"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id is not for tasks"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_what_is_unknown_or_impossible_is_refused_by_name(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        terms(**options)


ONCE = {"delivery": "exactly-once", "sinkId": "totals", "topic": "t"}


def test_exactly_once_has_a_transactional_id_of_its_own() -> None:
    found = terms(**ONCE)
    assert found.config.transactional_id is None  # tasks write nothing themselves
    assert found.exactly_once is not None
    assert found.exactly_once.settings.config.transactional_id == "karrow.sink.totals"
    assert (found.exactly_once.ledger, found.exactly_once.on_missing) == ("group", "stop")


def test_a_transaction_may_last_as_long_as_the_option_says() -> None:
    found = terms(**ONCE, **{"kafka.transaction.timeout.ms": "30000"})
    assert found.exactly_once is not None
    assert found.exactly_once.settings.config.transaction_timeout == 30


def test_the_same_options_are_the_same_terms() -> None:
    assert {terms(**ONCE): 1}[terms(**ONCE)] == 1
    assert terms(**ONCE) != terms(**{**ONCE, "sinkId": "other"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delivery": "exactly-once"}, "delivery=exactly-once needs a sinkId"),
        ({"delivery": "twice"}, "delivery='twice' is none of"),
        ({"sinkId": "s"}, "sinkId is for delivery=exactly-once"),
        ({"ledger": "topic"}, "ledger is for delivery=exactly-once"),
        ({**ONCE, "topic": None}, "with a column 'topic' needs a ledgerTopic"),
        ({**ONCE, "ledger": "file"}, "ledger='file' is none of 'group', 'topic'"),
        ({**ONCE, "ledgerTopic": "a b"}, "ledgerTopic='a b' is no name of a topic"),
        ({**ONCE, "onMissingLedger": "cry"}, "onMissingLedger='cry' is none of"),
        ({**ONCE, "sinkId": "a/b"}, "sinkId='a/b' is no name for a sink"),
        ({**ONCE, "kafka.acks": "1"}, "needs kafka.acks=all"),
        ({**ONCE, "kafka.enable.idempotence": "false"}, "kafka.enable.idempotence=true"),
    ],
)
def test_exactly_once_is_refused_by_name(options: dict[str, str | None], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        terms(**{name: value for name, value in options.items() if value is not None})
