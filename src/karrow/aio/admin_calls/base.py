"""How a call of Admin is split over brokers, and how many outcomes are read from one answer.

Rules:
- Keys go to the broker in charge of each, one request for each broker, all brokers at once.
- A broker's word that a topic does not exist is final: the caller named it, so asking again would
  only put off the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from karrow.aio.calls.base import Calls, K, Reply, Request
from karrow.errors import (
    KarrowError,
    RemoteProtocolError,
    UnknownTopicOrPartition,
    error_for,
)
from karrow.types import Node, TopicPartition

if TYPE_CHECKING:
    from karrow.aio.client import AsyncClient

T = TypeVar("T")


class AdminCalls(Calls):
    """What every noun of Admin needs besides: the client it holds, and splitting by broker."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client.config, client.cluster)
        self._client = client

    async def _outcomes(
        self, request: Request, read: Callable[[Reply], Mapping[K, T | KarrowError]]
    ) -> Mapping[K, T | KarrowError]:
        """One attempt whose answer has an outcome for each key.

        A leader may only not know yet that it leads; anybody else knows which topics there are.
        """
        outcomes = read(await self._send(request))
        for outcome in outcomes.values():
            if isinstance(outcome, UnknownTopicOrPartition) and request.to.kind != "id":
                outcome.retriable = False
        self._learn_all(outcomes.values(), request.to)
        return outcomes

    async def _split(
        self,
        keys: list[K],
        to: Callable[[K], Node],
        ask: Callable[[Node, list[K]], Awaitable[Mapping[K, T | KarrowError]]],
    ) -> dict[K, T | KarrowError]:
        """Ask each broker about the keys it is in charge of, all brokers at once."""
        places = await self._places([to(key) for key in keys])
        outcomes: dict[K, T | KarrowError] = {}
        groups: dict[Node, list[K]] = {}
        for key, place in zip(keys, places, strict=True):
            if isinstance(place, KarrowError):
                outcomes[key] = place
            else:
                groups.setdefault(place, []).append(key)
        answers = await settled(ask(place, group) for place, group in groups.items())
        for (place, group), answer in zip(groups.items(), answers, strict=True):
            found = dict.fromkeys(group, answer) if isinstance(answer, KarrowError) else answer
            for key, outcome in found.items():
                outcomes[key] = outcome
                if isinstance(outcome, KarrowError):
                    self._cluster.learn(outcome, to(key), _id(place))
        return outcomes

    async def _places(self, nodes: list[Node]) -> list[Node | KarrowError]:
        """The brokers that leaders and coordinators are now; other selectors stay what they are."""
        lost = await self._cluster.find_coordinators(nodes)

        async def place(to: Node) -> Node:
            if to in lost:
                raise lost[to]
            if to.kind in ("leader", "coordinator", "transaction_coordinator"):
                return Node.id((await self._cluster.broker(to)).id)
            return to

        return await settled(map(place, nodes))

    async def _everywhere(
        self, call: Callable[[int], Awaitable[list[T]]], retries: int | None
    ) -> list[T]:
        """What all brokers have, each asked for its part."""
        found = await self._attempts(lambda: self._cluster.refresh(()), retries=retries)
        parts = await asyncio.gather(*(call(broker_id) for broker_id in sorted(found.brokers)))
        return [item for part in parts for item in part]

    async def _has(self, name: str, to: Node) -> bool:
        """Whether the broker has an API at all."""
        return name in (await self._cluster.connection(to)).versions

    def _limit(self, timeout: float | None) -> float:
        """How long the broker may take over what it is asked to do."""
        return self._config.request_timeout if timeout is None else timeout

    def _wait(self, limit: float) -> float:
        """How long to wait for a broker that may take ``limit``."""
        return limit + self._config.request_timeout


async def settled(calls: Iterable[Awaitable[T]]) -> list[T | KarrowError]:
    """What each call returned or failed with; anything but a KarrowError is raised."""

    async def settle(call: Awaitable[T]) -> T | KarrowError:
        try:
            return await call
        except KarrowError as error:
            return error

    return await asyncio.gather(*(settle(call) for call in calls))


def _id(place: Node) -> int | None:
    return place.broker_id if place.kind == "id" else None


def read_each(
    reply: Reply,
    name: str,
    answers: Mapping[K, Any],
    where: Mapping[K, Mapping[str, Any]],
    result: Callable[[Any], T],
) -> dict[K, T | KarrowError]:
    """The outcome for each key that was asked for: its error, or what ``result`` makes of it.

    ``where`` has the keys, and for each what an error names besides the API and the broker.
    """
    outcomes: dict[K, T | KarrowError] = {}
    for key, more in where.items():
        context = reply.context(name, **more)
        answer = answers.get(key)
        if answer is None:
            outcomes[key] = RemoteProtocolError(f"the answer lacks {key}", **context)
        else:
            text = getattr(answer, "error_message", None) or None
            outcomes[key] = error_for(answer.error_code, text, **context) or result(answer)
    return outcomes


def nothing(_: Any) -> None:
    """The result of a call that only succeeds or fails."""
    return


def named(kind: str, keys: Iterable[K]) -> dict[K, dict[str, Any]]:
    """What errors say about keys of one kind."""
    return {key: {kind: key} for key in keys}


def partitions_named(keys: Iterable[tuple[str, int]]) -> dict[TopicPartition, dict[str, Any]]:
    """What errors say about partitions."""
    return {TopicPartition(*key): {"topic": key[0], "partition": key[1]} for key in keys}


def by_topic(keys: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Partitions by their topics."""
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    return topics


def raise_for(reply: Reply, name: str, **more: Any) -> None:
    """Raise the error of an answer as a whole."""
    text = getattr(reply.message, "error_message", None) or None
    error = error_for(reply.message.error_code, text, **reply.context(name, **more))
    if error is not None:
        raise error
