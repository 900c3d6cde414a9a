"""The group that a stream is seen by: where it may begin, and where it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from karrow.errors import ConfigError, KarrowError, UnsupportedVersion
from karrow.spark.reading.places import EARLIEST
from karrow.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from karrow.aio.client import AsyncClient
    from karrow.spark.pool import Inline
    from karrow.types import CommittedOffset

__all__ = ["GroupCommits", "stored_offsets"]

_log = logging.getLogger(__name__)

# Lag tools can wait for the next batch; the query should not wait for them.
RETRIES = 2


async def stored_offsets(
    client: AsyncClient, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where a group is; partitions that its topics have got since are begun with."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    stored = await _stable(client, group, numbers)
    found: dict[TopicPartition, int] = {}
    for topic, wanted in numbers.items():
        places = {one: stored[TopicPartition(topic, one)].offset for one in wanted}
        if all(place is None for place in places.values()):
            raise ConfigError(
                f"startingOffsets=group: group {group!r} has stored no offset of topic {topic!r}",
                hint="say earliest or latest for a group that has not read it yet",
            )
        for one, place in places.items():
            found[TopicPartition(topic, one)] = EARLIEST if place is None else place
    return found


async def _stable(
    client: AsyncClient, group: str, numbers: Mapping[str, list[int]]
) -> dict[TopicPartition, CommittedOffset]:
    """What a group has stored, after transactions that are about to (KIP-447)."""
    try:
        return await client.committed_offsets(group, numbers, stable=True)
    except UnsupportedVersion:  # older than that, and such transactions cannot be waited for
        return await client.committed_offsets(group, numbers)


class GroupCommits:
    """Commits what a stream is done with, so that every lag tool sees it.

    Spark tells of a batch's end only when the next one begins, and of the last one's never; but it
    asks for the next offsets behind every batch. So both are taken as news, and said once.
    """

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._said: Mapping[TopicPartition, int] = {}

    def commit(
        self, find_client: Callable[[], Inline], offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Store offsets unless they are stored; trouble that passes is left to the next batch."""
        if self._group is None:
            return
        news = {one: offset for one, offset in offsets.items() if self._said.get(one) != offset}
        if not news:
            return
        client = find_client()
        try:
            client.run(client.client.commit_offsets(self._group, news, retries=RETRIES))
        except KarrowError as error:
            if not error.retriable:
                raise ConfigError(
                    f"commitGroup={self._group!r} cannot commit: {error}",
                    hint="the group must have no members of its own",
                ) from error
            _log.warning("group %s has no offsets of this batch: %s", self._group, error)
            return
        self._said = dict(offsets)
