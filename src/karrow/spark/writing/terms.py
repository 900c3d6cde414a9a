"""What the options of the sink say, read in every process for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from karrow.config import ProducerConfig
from karrow.errors import ConfigError
from karrow.spark import options as spark_options
from karrow.spark.exactly.batches import ON_MISSING, OnMissing
from karrow.spark.exactly.ledger import KINDS
from karrow.spark.exactly.settings import Settings
from karrow.spark.writing.words import options_by_name
from karrow.types import is_topic_name

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
OF_EXACTLY_ONCE = ("sinkId", "ledger", "ledgerTopic", "onMissingLedger")
# Spark's sink takes includeHeaders and writes the column, if it is there, whatever it says.
KNOWN = ("topic", "includeHeaders", "delivery", *OF_EXACTLY_ONCE)


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """What delivery=exactly-once needs to know."""

    settings: Settings = field(compare=False)
    sink_id: str
    ledger: str
    ledger_topic: str | None
    on_missing: OnMissing


@dataclass(frozen=True, slots=True)
class Terms:
    """Where rows go, and what is promised about them."""

    topic: str | None
    config: ProducerConfig
    exactly_once: ExactlyOnce | None

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Terms:
        """Read the options; what is unknown or impossible is refused by name."""
        spark_options.check_known(options, KNOWN)
        spark_options.flag(options, "includeHeaders", False)
        config = spark_options.connection(options, ProducerConfig)
        if config.transactional_id is not None:
            raise ConfigError(
                "kafka.transactional.id is not for tasks, of which several run at once",
                hint="delivery=exactly-once with a sinkId writes each batch in one transaction",
            )
        topic = _topic(options, "topic")
        return cls(topic, config, _exactly_once(options, topic, config))


def _topic(options: Mapping[str, str], name: str) -> str | None:
    topic = spark_options.text(options, name)
    if topic is not None and not is_topic_name(topic):
        raise ConfigError(
            f"{name}={topic!r} is no name of a topic",
            hint="1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
        )
    return topic


def _exactly_once(
    options: Mapping[str, str], topic: str | None, config: ProducerConfig
) -> ExactlyOnce | None:
    delivery = spark_options.choice(
        options, "delivery", (AT_LEAST_ONCE, EXACTLY_ONCE), AT_LEAST_ONCE
    )
    if delivery == AT_LEAST_ONCE:
        for name in OF_EXACTLY_ONCE:
            if spark_options.text(options, name) is not None:
                raise ConfigError(f"{name} is for delivery=exactly-once", hint="give delivery too")
        return None
    sink_id = spark_options.text(options, "sinkId")
    if sink_id is None:
        raise ConfigError(
            "delivery=exactly-once needs a sinkId",
            hint="a name of your choice that stays the same as long as the checkpoint does",
        )
    ledger = spark_options.choice(options, "ledger", KINDS, KINDS[0])
    ledger_topic = _topic(options, "ledgerTopic")
    if ledger == "group" and topic is None and ledger_topic is None:
        raise ConfigError(
            "delivery=exactly-once with a column 'topic' needs a ledgerTopic",
            hint="a topic that always exists, or ledger=topic to have one made",
        )
    if not config.idempotent:
        raise ConfigError(
            "delivery=exactly-once needs kafka.acks=all and kafka.enable.idempotence=true",
            hint="leave them out, and kafka.max.in.flight.requests.per.connection too",
        )
    on_missing = spark_options.choice(options, "onMissingLedger", ON_MISSING, ON_MISSING[0])
    with options_by_name():
        settings = Settings(None, sink_id, spark_options.of_connection(options))
    return ExactlyOnce(settings, sink_id, ledger, ledger_topic, cast("OnMissing", on_missing))
