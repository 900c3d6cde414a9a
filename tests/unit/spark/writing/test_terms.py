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
    assert terms(checkpointLocation="/tmp/c", includeHeaders="true").topic is None


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
