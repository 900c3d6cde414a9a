"""What a consumer wants to read: topics by name, or by a pattern that names may match.

Rules:
- A pattern is matched against whole names, also against those of topics that come later. Internal
  topics match only if they are named, or where the broker matches, which does not tell them apart.
- With the new group protocol the broker matches (KIP-848); else the consumer does, and looks again
  every ``metadata_max_age``.
- The broker has RE2 and one pattern: flags are written into it, and one that RE2 lacks is refused.
  Names of topics are ASCII, so re.ASCII and re.UNICODE mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from karrow.errors import ConfigError
from karrow.types import ClusterMetadata, is_topic_name

if TYPE_CHECKING:
    from karrow.config import ConsumerConfig

Topic: TypeAlias = str | re.Pattern[str]

# librdkafka's sign for a pattern among names.
PATTERN_SIGN = "^"
# The flags that RE2 has too, and those in front of a pattern, which are no part of a longer one.
LETTERS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}
LEADING_FLAGS = re.compile(r"(?:\(\?[aimsux]+\))*")


class Subscription:
    """Topics, now and as they come.

    ``topics`` are those that are known to be wanted; ``patterns`` are what names may match.
    """

    def __init__(self, wanted: Iterable[Topic | Iterable[Topic]] = (), *, remote: bool) -> None:
        self.matched: frozenset[str] = frozenset()
        asked = [one for given in wanted for one in _each(given)]
        self.patterns = tuple(_compiled(one) for one in asked if _is_pattern(one))
        self.names = frozenset(_checked(one) for one in asked if not _is_pattern(one))
        # The pattern, where the broker matches it.
        self.remote_pattern = _for_brokers(self.patterns) if self.patterns and remote else None
        if self.patterns and self.names and remote:
            raise ConfigError(
                "names and a pattern cannot be mixed with protocol='consumer'",
                hint="put the names into the pattern: orders|billing-.*",
            )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wanted."""
        return not (self.names or self.patterns)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are wanted, as far as they are known."""
        return self.names | self.matched

    def wants(self, topic: str) -> bool:
        """Whether a topic is among the names, or matches."""
        return topic in self.names or any(one.fullmatch(topic) for one in self.patterns)

    def match(self, known: ClusterMetadata) -> bool:
        """Match all topics of the cluster; True if others than before are wanted."""
        if not self.patterns:
            return False
        matched = frozenset(
            name
            for name, topic in known.topics.items()
            if not topic.internal
            and topic.error is None
            and any(one.fullmatch(name) for one in self.patterns)
        )
        is_new = matched != self.matched
        self.matched = matched
        return is_new

    def __repr__(self) -> str:
        shown = [*sorted(self.names), *(one.pattern for one in self.patterns)]
        return f"<Subscription to {', '.join(shown)}>"


def subscribed(config: ConsumerConfig, wanted: Iterable[Topic | Iterable[Topic]]) -> Subscription:
    """What is wanted, checked."""
    return Subscription(wanted, remote=config.protocol == "consumer")


def _each(given: object) -> Iterable[object]:
    """Topics may come one by one, or as a list."""
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return given
    return [given]


def _is_pattern(one: object) -> bool:
    return isinstance(one, re.Pattern) or (isinstance(one, str) and one.startswith(PATTERN_SIGN))


def _compiled(one: Any) -> re.Pattern[str]:
    try:
        found = re.compile(one)
    except re.error as error:
        raise ConfigError(f"{one!r} is no pattern: {error}") from None
    if isinstance(found.pattern, bytes):
        raise ConfigError(
            f"{found.pattern!r} is a pattern of bytes, which matches no topic",
            hint="names of topics are text",
        )
    return found


def _for_brokers(patterns: tuple[re.Pattern[str], ...]) -> str:
    """All patterns as one, in the syntax of RE2."""
    texts = [_with_flags(one) for one in patterns]
    return texts[0] if len(texts) == 1 else "|".join(f"(?:{text})" for text in texts)


def _with_flags(pattern: re.Pattern[str]) -> str:
    if pattern.flags & re.VERBOSE:
        raise ConfigError(
            "a pattern with re.VERBOSE cannot be matched by brokers",
            hint="write it without, or use protocol='classic'",
        )
    letters = "".join(letter for flag, letter in LETTERS.items() if pattern.flags & flag)
    text = LEADING_FLAGS.sub("", pattern.pattern, count=1)
    return f"(?{letters}:{text})" if letters else text


def _checked(name: object) -> str:
    if not isinstance(name, str) or not is_topic_name(name):
        raise ConfigError(
            f"{name!r} is no name of a topic",
            hint="up to 249 letters, digits, dots, underscores and hyphens; a pattern is a "
            "re.compile(...) or begins with ^",
        )
    return name
