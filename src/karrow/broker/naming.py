"""Which topics and partitions a request is about, whatever its API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from karrow.wire.structs import NO_UUID, Struct

if TYPE_CHECKING:
    from karrow.broker.cluster import Cluster

TOPIC_FIELDS = ("name", "topic", "topic_name")
PARTITION_FIELDS = ("partition", "partition_index", "index")


def named(cluster: Cluster, request: Struct | None) -> list[tuple[str, int | None]]:
    """The topics and partitions in a request; a partition of None means the topic as such."""
    found: dict[tuple[str, int | None], None] = {}
    if request is not None:
        for item in _lists(request):
            topic = _topic(cluster, item)
            if topic is not None:
                found.update(dict.fromkeys(_partitions(topic, item)))
    return list(found)


def _lists(request: Struct) -> Iterator[Struct]:
    for field in request.fields:
        value = getattr(request, field.name) if field.array and field.is_struct else None
        for item in value or ():
            yield item
            if _name(item) is None:  # a group or a transaction, with topics inside
                yield from _lists(item)


def _partitions(topic: str, item: Struct) -> list[tuple[str, int | None]]:
    numbers = [
        _number(inner)
        for field in item.fields
        if field.array and (field.is_struct or field.type == "int32")
        for inner in getattr(item, field.name) or ()
    ]
    return [(topic, number) for number in numbers if number is not None] or [(topic, None)]


def _number(item: object) -> int | None:
    if isinstance(item, int):
        return item
    for name in PARTITION_FIELDS:
        number = getattr(item, name, None)
        if isinstance(number, int):
            return number
    return None


def _topic(cluster: Cluster, item: Struct) -> str | None:
    topic_id = getattr(item, "topic_id", NO_UUID)
    if isinstance(topic_id, UUID) and topic_id != NO_UUID:
        known = cluster.find_by_id(topic_id)
        return None if known is None else known.name
    return _name(item)


def _name(item: Struct) -> str | None:
    for field in TOPIC_FIELDS:
        name = getattr(item, field, None)
        if isinstance(name, str):
            return name
    return None
