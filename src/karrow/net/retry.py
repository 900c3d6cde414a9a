"""Back-off and the questions that decide about a retry; public as ``karrow.retry``.

A classifier reads what an error says of itself (``retriable``, the kinds it is mixed with), never
a list of classes, so an error code of tomorrow is judged by Kafka's own flags.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from karrow.errors import (
    ConnectError,
    StaleCoordinator,
    StaleMetadata,
)

if TYPE_CHECKING:
    from karrow.config import ClientConfig

__all__ = [
    "backoff_delay",
    "is_commit_retriable",
    "is_consumer_group_retriable",
    "is_coordinator",
    "is_leadership",
    "is_produce_safe",
    "is_transient",
    "with_retry",
]

T = TypeVar("T")
Classifier = Callable[[BaseException], bool]

# KIP-580: the delay doubles, and each client strays by up to a fifth, so that a thousand of them
# do not come back in the same instant.
JITTER = 0.2
_MOST_DOUBLINGS = 62


def backoff_delay(
    attempt: int, base_delay: float = 0.1, max_delay: float | None = None, *, jitter: float = 0.0
) -> float:
    """Seconds before retry ``attempt``, counted from 0: the base, doubled each time, capped.

    ``jitter`` spreads it by that share in both directions.

    >>> [backoff_delay(n, 0.1, 0.5) for n in range(4)]
    [0.1, 0.2, 0.4, 0.5]
    """
    delay: float = base_delay * 2 ** min(max(attempt, 0), _MOST_DOUBLINGS)
    if max_delay is not None:
        delay = min(delay, max_delay)
    return delay * (1 + random.uniform(-jitter, jitter)) if jitter else delay  # noqa: S311


def retry_pause(config: ClientConfig, attempt: int) -> float:
    """Seconds before a client's retry ``attempt``, counted from 0, as its options want it."""
    return backoff_delay(attempt, config.retry_backoff, config.retry_backoff_max, jitter=JITTER)


def is_coordinator(error: BaseException) -> bool:
    """Whether the group's or transaction's coordinator moved or is loading."""
    return isinstance(error, StaleCoordinator)


def is_leadership(error: BaseException) -> bool:
    """Whether the broker asked was not the one in charge: refresh the metadata, then retry.

    A network or storage failure also makes metadata stale, but says nothing about whether the
    request was carried out, so it does not count.
    """
    return isinstance(error, StaleMetadata) and not _is_indefinite(error)


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed in a moment."""
    return bool(getattr(error, "retriable", False))


def is_commit_retriable(error: BaseException) -> bool:
    """Whether a commit may be repeated: storing the same offsets twice changes nothing."""
    return is_transient(error) or is_coordinator(error) or isinstance(error, StaleMetadata)


def is_consumer_group_retriable(error: BaseException) -> bool:
    """Whether a join, sync or heartbeat may be repeated.

    Includes unknown topics, which may only be unknown yet (KAFKA-6829).
    """
    return is_transient(error) or is_coordinator(error) or isinstance(error, StaleMetadata)


def is_produce_safe(error: BaseException) -> bool:
    """Whether the write surely did not happen, so that repeating it makes no duplicate.

    A time-out or a lost connection does not count: the record may have been written. Nor does an
    error that a broker met after it had appended the record, which it then says the offset of.
    """
    if getattr(error, "indefinite", False):
        return False
    is_refused = getattr(error, "name", "") == "NOT_ENOUGH_REPLICAS"
    return is_refused or is_leadership(error) or isinstance(error, ConnectError)


def _is_indefinite(error: BaseException) -> bool:
    """Whether a broker's error leaves open what it did before it failed."""
    return getattr(error, "name", "") in ("NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR")


async def with_retry(
    call: Callable[[], Awaitable[T]],
    *,
    max_retries: int = 3,
    base_delay: float = 0.1,
    max_delay: float | None = None,
    retryable: Classifier = is_transient,
    on_retry: Callable[[BaseException, int, float], object] | None = None,
) -> T:
    """Await ``call()``, again after a growing pause while it fails with a retryable error.

    ``on_retry(error, attempt, delay)`` is told of each retry before its pause; ``attempt`` counts
    from 0. The last error is raised as it is.
    """
    for attempt in range(max_retries):
        try:
            return await call()
        except Exception as error:
            if not retryable(error):
                raise
            delay = backoff_delay(attempt, base_delay, max_delay, jitter=JITTER)
            if on_retry is not None:
                on_retry(error, attempt, delay)
            await asyncio.sleep(delay)
    return await call()
