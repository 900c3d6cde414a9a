"""What a consumer wants to read: topics by name, or by a pattern that names may match.

Rules:
- A pattern is matched against whole names, also against those of topics that come later. Internal
  topics match only if they are named.
- With the new group protocol the broker matches (KIP-848); else the consumer does, and looks again
  every ``metadata_max_age``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from karrow.errors import ConfigError
from karrow.types import ClusterMetadata, is_topic_name

if TYPE_CHECKING:
    from karrow.config import ConsumerConfig

Topic: TypeAlias = str | re.Pattern[str]

# librdkafka's sign for a pattern among names.
PATTERN_SIGN = "^"


class Subscription:
    """Topics, now and as they come.

    ``topics`` are those that are known to be wanted; ``pattern`` is what names may match.
    """

    def __init__(self, wanted: Iterable[Topic | Iterable[Topic]] = (), *, remote: bool) -> None:
        self.names: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.matched: frozenset[str] = frozenset()
        self._remote = remote
        asked = [one for given in wanted for one in _each(given)]
        patterns = [one for one in asked if _is_pattern(one)]
        names = [one for one in asked if not _is_pattern(one)]
        if patterns:
            self.pattern = _one_pattern(patterns)
        self.names = frozenset(map(_checked, names))
        if self.pattern is not None and self.names and remote:
            raise ConfigError(
                "names and a pattern cannot be mixed with protocol='consumer'",
                hint="put the names into the pattern: orders|billing-.*",
            )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wanted."""
        return not self.names and self.pattern is None

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are wanted, as far as they are known."""
        return self.names | self.matched

    @property
    def remote_pattern(self) -> str | None:
        """The pattern, where the broker matches it."""
        return self.pattern.pattern if self.pattern is not None and self._remote else None

    def match(self, known: ClusterMetadata) -> bool:
        """Match all topics of the cluster; True if others than before are wanted."""
        if self.pattern is None:
            return False
        matched = frozenset(
            name
            for name, topic in known.topics.items()
            if not topic.internal and topic.error is None and self.pattern.fullmatch(name)
        )
        is_new = matched != self.matched
        self.matched = matched
        return is_new

    def __repr__(self) -> str:
        shown = sorted(self.names)
        return f"<Subscription to {', '.join(shown)}{self.pattern.pattern if self.pattern else ''}>"


def subscribed(config: ConsumerConfig, wanted: Iterable[Topic | Iterable[Topic]]) -> Subscription:
    """What is wanted, checked."""
    return Subscription(wanted, remote=config.protocol == "consumer")


def _each(given: Topic | Iterable[Topic]) -> Iterable[Topic]:
    """Topics may come one by one, or as a list."""
    return [given] if isinstance(given, str | re.Pattern) else given


def _is_pattern(one: object) -> bool:
    return isinstance(one, re.Pattern) or (isinstance(one, str) and one.startswith(PATTERN_SIGN))


def _one_pattern(patterns: list[Topic]) -> re.Pattern[str]:
    parts = []
    for one in patterns:
        text = one.pattern if isinstance(one, re.Pattern) else one
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(f"{text!r} is no pattern: {error}") from None
        parts.append(text)
    return re.compile("|".join(f"(?:{part})" for part in parts) if len(parts) > 1 else parts[0])


def _checked(name: object) -> str:
    if not isinstance(name, str) or not is_topic_name(name):
        raise ConfigError(
            f"{name!r} is no name of a topic",
            hint="up to 249 letters, digits, dots, underscores and hyphens; a pattern is a "
            "re.compile(...) or begins with ^",
        )
    return name
