"""From a number in a broker's answer to an error class and an instance of it."""

from __future__ import annotations

from typing import Any

from karrow.errors.codes import BY_CODE
from karrow.errors.tree import BrokerError, UnknownBrokerError

__all__ = ["error_for", "for_code", "for_name"]


def for_code(code: int) -> type[BrokerError]:
    """The class of an error code; UnknownBrokerError for one that Kafka has not defined yet.

    >>> for_code(6).name
    'NOT_LEADER_OR_FOLLOWER'
    """
    if code == 0:
        raise ValueError("code 0 means success, it has no error class")
    return BY_CODE.get(code, UnknownBrokerError)


def for_name(name: str) -> type[BrokerError]:
    """The class of an error by Kafka's constant.

    >>> for_name("NOT_LEADER_OR_FOLLOWER").code
    6
    """
    for kind in BY_CODE.values():
        if kind.name == name:
            return kind
    raise ValueError(f"Kafka has no error {name!r}")


def error_for(code: int, message: str | None = None, **context: Any) -> BrokerError | None:
    """An error to raise or to keep as a value, or None when the code says success.

    ``message`` is the broker's own text where the answer has one; the rest is context.

    >>> error_for(0)
    >>> error_for(3, topic="orders")
    UnknownTopicOrPartition('UNKNOWN_TOPIC_OR_PARTITION: unknown topic or partition')
    """
    if code == 0:
        return None
    kind = BY_CODE.get(code)
    if kind is None:
        return UnknownBrokerError(message or "", code=code, **context)
    return kind(message or "", **context)
