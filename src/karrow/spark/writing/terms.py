"""What the options of the sink say, read in every process for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from karrow.config import ProducerConfig
from karrow.errors import ConfigError
from karrow.spark import options as spark_options
from karrow.types import is_topic_name

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
# Spark's sink takes includeHeaders and writes the column, if it is there, whatever it says.
KNOWN = ("topic", "includeHeaders", "delivery")


@dataclass(frozen=True, slots=True)
class Terms:
    """Where rows go, and what is promised about them."""

    topic: str | None
    config: ProducerConfig

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
        return cls(_topic(options), config)


def _topic(options: Mapping[str, str]) -> str | None:
    topic = spark_options.text(options, "topic")
    if topic is not None and not is_topic_name(topic):
        raise ConfigError(
            f"topic={topic!r} is no name of a topic",
            hint="1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
        )
    return topic
