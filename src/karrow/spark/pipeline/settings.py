"""What sources and sinks say, in the options of ``format("karrow")``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from karrow.config import ClientConfig, ConsumerConfig, ProducerConfig
from karrow.config.option import nearest
from karrow.errors import ConfigError
from karrow.spark import login
from karrow.spark.options import KAFKA, SERVERS, known_names

if TYPE_CHECKING:
    from karrow.spark.pipeline.definition import DeadLetter, Sink, Source
    from karrow.spark.pipeline.table import Setting

__all__ = [
    "SOURCE_KEYS",
    "check_known",
    "exactly_once_options",
    "known_to",
    "lacks_login",
    "letter_options",
    "letter_settings",
    "named",
    "sink_options",
    "source_options",
    "unread",
]

CREDENTIALS = "credentials"
# The options that a pipeline's file has keys for.
SINK_KEYS = {SERVERS: "bootstrap"}
SOURCE_KEYS = {
    **SINK_KEYS,
    "startingOffsets": "start",
    "subscribe": "topic",
    "subscribePattern": "pattern",
}
EXACTLY_ONCE_KEYS = ("ledger", "ledger_topic", "on_missing_ledger", "retries", CREDENTIALS)


def source_options(source: Source) -> dict[str, str]:
    """The options of a source; those whose value is not to be had here are left out."""
    options = {SERVERS: source.bootstrap, "startingOffsets": source.start}
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    return options | _own(source.kafka, source.options, {**SOURCE_KEYS, "assign": "topic"})


def sink_options(sink: Sink) -> dict[str, str]:
    """The options of a topic's sink."""
    options = {SERVERS: sink.bootstrap}
    if sink.topic is not None:
        options["topic"] = sink.topic
    keys = {**SINK_KEYS, "topic": "topic", "delivery": "delivery", "sinkId": "sink_id"}
    return options | _own(sink.kafka, sink.options, keys)


def exactly_once_options(sink: Sink) -> dict[str, Any]:
    """The keyword arguments of ``exactly_once`` among a sink's options."""
    found: dict[str, Any] = {one.name: one.value for one in sink.kafka if one.known}
    for setting in sink.options:
        if setting.name not in EXACTLY_ONCE_KEYS:
            near = nearest(setting.name, EXACTLY_ONCE_KEYS)
            hint = (
                f"did you mean {near!r}?" if near else f"there are {', '.join(EXACTLY_ONCE_KEYS)}"
            )
            raise ConfigError(f"{setting.where} is no option of exactly-once", hint=hint)
        if setting.known:
            found[setting.name] = _number(setting) if setting.name == "retries" else setting.value
    return found


def letter_options(source: Source, letter: DeadLetter) -> dict[str, str]:
    """The options of a source's dead letters: its own connection, without how it reads."""
    options = {SERVERS: source.bootstrap, "topic": letter.topic}
    options |= {one.name.lower(): one.value for one in _credentials(source.options) if one.known}
    return options | _own(letter.kafka, (), {})


def letter_settings(source: Source) -> tuple[Setting, ...]:
    """What the options of a source's dead letters are made of."""
    letter = source.dead_letter
    return () if letter is None else (*letter.kafka, *_credentials(source.options))


def _credentials(options: Iterable[Setting]) -> list[Setting]:
    return [one for one in options if one.name.lower() == CREDENTIALS]


def known_to(kind: type[ClientConfig], kafka: Iterable[Setting]) -> tuple[Setting, ...]:
    """Those of Kafka's properties that clients of a kind have."""
    names = {KAFKA + name for name in known_names(kind)}
    return tuple(setting for setting in kafka if setting.name.lower() in names)


def check_known(kafka: Iterable[Setting]) -> None:
    """Refuse names that neither sources nor sinks have: nobody else would look at them."""
    roles = (ConsumerConfig, ProducerConfig)
    names = [name for role in roles for name in known_names(role)]
    for setting in kafka:
        name = setting.name.lower().removeprefix(KAFKA)
        if name not in names:
            near = nearest(name, names)
            hint = f"did you mean {near!r}?" if near else "Kafka's own names stand there"
            raise ConfigError(f"{setting.where} is no property of Kafka's clients", hint=hint)


@contextmanager
def named(where: str, keys: Mapping[str, str] = SINK_KEYS) -> Iterator[None]:
    """What is raised inside begins with the place in the file, and names its keys."""
    options = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, keys))})(?![\w.])")

    def in_the_file(text: str) -> str:
        return options.sub(lambda found: keys[found[1]], text)

    try:
        yield
    except ConfigError as error:
        hint = error.hint and in_the_file(error.hint)
        raise ConfigError(f"{where} {in_the_file(error.message)}", hint=hint) from None


def unread(settings: Iterable[Setting]) -> list[Setting]:
    """Those whose values are not to be had here, nor a login that they leave to the environment."""
    return [setting for setting in settings if not setting.known or lacks_login(setting)]


def lacks_login(setting: Setting) -> bool:
    """Whether it leaves the login to the environment, which has none."""
    if setting.name.lower() != CREDENTIALS or not setting.known:
        return False
    return login.is_environment(setting.value) and not login.is_set(os.environ)


def _number(setting: Setting) -> int:
    if not setting.value.isdecimal():
        raise ConfigError(f"{setting.where} has to be a whole number, not {setting.value!r}")
    return int(setting.value)


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
