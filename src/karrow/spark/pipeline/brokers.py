"""What only brokers can say of a pipeline: whether its topics are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from karrow.config import ConsumerConfig, ProducerConfig
from karrow.errors import ConfigError, KarrowError
from karrow.spark import options as spark_options
from karrow.spark import pool
from karrow.spark.pipeline.definition import TOPIC
from karrow.spark.pipeline.settings import letter_options, named, sink_options, source_options

if TYPE_CHECKING:
    from karrow.config import ClientConfig
    from karrow.spark.pipeline.definition import Definition

__all__ = ["check_topics", "topics"]


def check_topics(definition: Definition) -> None:
    """Ask for every topic that the file names; raises for the first that is not there."""
    for where, config, options, names in topics(definition):
        with named(where):
            client = pool.client(spark_options.connection(options, config))
        servers = options[spark_options.SERVERS]
        try:
            found = client.metadata(names).topics
        except KarrowError as error:
            raise ConfigError(f"{where} {error}", hint=f"asked {servers} for its topics") from error
        for name in names:
            missing = found[name].error
            if missing is not None:
                what = f"{where} topic {name!r}: {missing}"
                raise ConfigError(what, hint=f"create it at {servers}")


def topics(
    definition: Definition,
) -> Iterator[tuple[str, type[ClientConfig], dict[str, str], list[str]]]:
    """The topics of sources, sinks and dead letters: where they stand, whose options, and which."""
    for source in definition.sources.values():
        if source.topics:
            yield source.where, ConsumerConfig, source_options(source), list(source.topics)
        if source.dead_letter is not None:
            letter = source.dead_letter
            where = f"{source.where} dead_letter"
            yield where, ProducerConfig, letter_options(source, letter), [letter.topic]
    for sink in definition.sinks.values():
        if sink.kind == TOPIC and sink.topic is not None:
            yield sink.where, ProducerConfig, sink_options(sink), [sink.topic]
