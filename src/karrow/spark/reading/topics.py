"""Which partitions a query reads: ``subscribe``, ``subscribePattern`` or ``assign``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from karrow.errors import ConfigError, KarrowError, UnknownTopicOrPartition
from karrow.spark import options as spark_options
from karrow.types import TopicMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karrow.aio.client import AsyncClient

__all__ = ["Found", "Topics"]

SUBSCRIBE, PATTERN, ASSIGN = "subscribe", "subscribePattern", "assign"
_EXAMPLE = '{"orders": [0, 1]}'


@dataclass(frozen=True, slots=True)
class Found:
    """Partitions that exist now, their topics, and the ids of those where the broker has such."""

    partitions: tuple[TopicPartition, ...]
    topics: frozenset[str]
    ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Topics:
    """What was asked for."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: frozenset[TopicPartition] = frozenset()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Topics:
        """From the one option that says so."""
        given = {
            name: text
            for name in (SUBSCRIBE, PATTERN, ASSIGN)
            if (text := spark_options.text(options, name)) is not None
        }
        if len(given) != 1:
            said = " and ".join(given) + " are given" if given else "none is given"
            raise ConfigError(
                f"exactly one of {SUBSCRIBE}, {PATTERN} and {ASSIGN} says what to read: {said}",
                hint=f".option({SUBSCRIBE!r}, 'orders')",
            )
        name, text = next(iter(given.items()))
        if name == SUBSCRIBE:
            return cls(names=_names(text))
        if name == PATTERN:
            return cls(pattern=_pattern(text))
        assigned = _assigned(text)
        return cls(names=tuple(sorted({one.topic for one in assigned})), assigned=assigned)

    @property
    def option(self) -> str:
        """The option that was given."""
        if self.pattern is not None:
            return PATTERN
        return ASSIGN if self.assigned else SUBSCRIBE

    def holds(self, where: TopicPartition) -> bool:
        """Whether a partition of a topic that is read is read itself."""
        return not self.assigned or where in self.assigned

    async def find(self, client: AsyncClient, *, missing_ok: bool = False) -> Found:
        """The partitions that there are; with ``missing_ok`` topics that are gone are left out."""
        said = await client.metadata(self.names if self.pattern is None else None)
        found: list[TopicPartition] = []
        names: set[str] = set()
        ids: dict[str, str] = {}
        for name in self.names or sorted(said.topics):
            topic = said.topics.get(name)
            if self.pattern is not None:
                if topic is None or topic.internal or not self.pattern.search(name):
                    continue
            elif missing_ok and _is_gone(topic):
                continue
            found += self._partitions(name, topic, missing_ok=missing_ok)
            names.add(name)
            if topic is not None and topic.topic_id is not None:
                ids[name] = str(topic.topic_id)
        return Found(tuple(found), frozenset(names), ids)

    def _partitions(
        self, name: str, topic: TopicMetadata | None, *, missing_ok: bool
    ) -> list[TopicPartition]:
        if topic is None or topic.error is not None:
            raise self._refused(name, None if topic is None else topic.error)
        if topic.internal:
            raise ConfigError(
                f"{self.option} names {name}, and Spark's source reads no internal topics"
            )
        every = [TopicPartition(name, number) for number in sorted(topic.partitions)]
        if not self.assigned:
            return every
        wanted = sorted(one for one in self.assigned if one.topic == name)
        absent = [one.partition for one in wanted if one not in every]
        if absent and not missing_ok:
            raise ConfigError(
                f"{ASSIGN} names partition {absent[0]} of {name}, which has 0 to {len(every) - 1}"
            )
        return [one for one in wanted if one in every]

    def _refused(self, name: str, error: KarrowError | None) -> KarrowError:
        if error is None or isinstance(error, UnknownTopicOrPartition):
            return ConfigError(f"{self.option} names topic {name!r}, which does not exist")
        return error


def _is_gone(topic: TopicMetadata | None) -> bool:
    return topic is None or isinstance(topic.error, UnknownTopicOrPartition)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ConfigError(f"{SUBSCRIBE}={text!r} names no topic", hint="write 'orders,payments'")
    return names


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{PATTERN}={text!r} is no regular expression: {error}") from None


def _assigned(text: str) -> frozenset[TopicPartition]:
    read = read_json(ASSIGN, text, _EXAMPLE)
    found = {
        TopicPartition(topic, number)
        for topic, numbers in read.items()
        for number in (numbers if isinstance(numbers, list) else [numbers])
    }
    wrong = [one for one in found if type(one.partition) is not int or one.partition < 0]
    if wrong or not found:
        raise ConfigError(f"{ASSIGN}={text!r} names no partitions", hint=f"write {_EXAMPLE}")
    return frozenset(found)


def read_json(name: str, text: str, example: str) -> dict[str, Any]:
    """An option that is a JSON object."""
    try:
        read = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name} is no JSON: {error}", hint=f"write {example}") from None
    if not isinstance(read, dict):
        raise ConfigError(f"{name}={text!r} is no JSON object", hint=f"write {example}")
    return read
