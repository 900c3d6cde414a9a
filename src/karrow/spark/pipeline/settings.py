"""What sources and sinks say, in the options of ``format("karrow")``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from karrow.errors import ConfigError

if TYPE_CHECKING:
    from karrow.spark.pipeline.definition import DeadLetter, Sink, Source
    from karrow.spark.pipeline.table import Setting

__all__ = ["letter_options", "sink_options", "source_options", "unread"]

SERVERS = "kafka.bootstrap.servers"


def source_options(source: Source) -> dict[str, str]:
    """The options of a source; those whose value is not to be had here are left out."""
    options = {SERVERS: source.bootstrap, "startingOffsets": source.start}
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    keys = {SERVERS: "bootstrap", "startingOffsets": "start"}
    keys |= dict.fromkeys(("subscribe", "subscribePattern", "assign"), "topic")
    return options | _own(source.kafka, source.options, keys)


def sink_options(sink: Sink) -> dict[str, str]:
    """The options of a topic's sink."""
    options = {SERVERS: sink.bootstrap}
    if sink.topic is not None:
        options["topic"] = sink.topic
    keys = {SERVERS: "bootstrap", "topic": "topic", "delivery": "delivery", "sinkId": "sink_id"}
    return options | _own(sink.kafka, sink.options, keys)


def letter_options(source: Source, letter: DeadLetter) -> dict[str, str]:
    """The options of a source's dead letters: its own connection, without how it reads."""
    return {SERVERS: source.bootstrap, "topic": letter.topic} | _own(source.kafka, (), {})


def unread(settings: Iterable[Setting]) -> list[Setting]:
    """Those whose values are not to be had here."""
    return [setting for setting in settings if not setting.known]


def _own(
    kafka: Iterable[Setting], options: Iterable[Setting], keys: dict[str, str]
) -> dict[str, str]:
    lower = {name.lower(): key for name, key in keys.items()}
    for setting in (*kafka, *options):
        if setting.name.lower() in lower:
            raise ConfigError(
                f"{setting.where} has a key of its own", hint=f"{lower[setting.name.lower()]!r}"
            )
    return {setting.name: setting.value for setting in (*kafka, *options) if setting.known}
