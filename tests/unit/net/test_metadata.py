from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from karrow.errors import InconsistentClusterId, UnknownTopicOrPartition
from karrow.net.metadata import MOST_GONE, MetadataCache
from karrow.types import BrokerInfo
from karrow.types.topics import NO_TOPIC_ID
from karrow.wire import messages

Response = messages.MetadataResponse
ID, OTHER = UUID(int=1), UUID(int=2)


def broker(number: int, host: str = "b1", port: int = 9092) -> Response.MetadataResponseBroker:
    return Response.MetadataResponseBroker(node_id=number, host=host, port=port)


def topic(
    name: str, *leaders: tuple[int, int], topic_id: UUID = ID, error: int = 0
) -> Response.MetadataResponseTopic:
    return Response.MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        error_code=error,
        partitions=[
            Response.MetadataResponsePartition(
                partition_index=number, leader_id=leader, leader_epoch=epoch
            )
            for number, (leader, epoch) in enumerate(leaders)
        ],
    )


def answer(*topics: Any, brokers: Any = None, cluster: str | None = "c1") -> Response:
    return Response(
        brokers=[broker(1), broker(2, "b2")] if brokers is None else brokers,
        cluster_id=cluster,
        controller_id=1,
        topics=list(topics),
    )


def cache_of(*topics: Any, **options: Any) -> MetadataCache:
    cache = MetadataCache()
    cache.merge(answer(*topics, **options), now=1.0, everything=False)
    return cache


def leader(cache: MetadataCache, name: str = "t", number: int = 0) -> tuple[int | None, int | None]:
    found = cache.partition(name, number)
    assert found is not None
    return found.leader, found.leader_epoch


def test_answers_add_up() -> None:
    cache = cache_of(topic("a", (1, 0)))
    cache.merge(answer(topic("b", (2, 0), topic_id=OTHER)), now=2.0, everything=False)
    assert set(cache.snapshot.topics) == {"a", "b"}
    assert (cache.topic_id("a"), cache.topic_name(OTHER)) == (ID, "b")
    assert (cache.age_of("a", 5.0), cache.age_of("b", 5.0)) == (4.0, 3.0)


def test_answer_about_everything_forgets_the_rest() -> None:
    cache = cache_of(topic("a", (1, 0)), topic("b", (1, 0), topic_id=OTHER))
    cache.merge(answer(topic("b", (1, 0), topic_id=OTHER)), now=2.0, everything=True)
    assert set(cache.snapshot.topics) == {"b"}


def test_topic_with_an_error_is_told_but_not_kept() -> None:
    cache = cache_of(topic("a", (1, 0)))
    said, _ = cache.merge(answer(topic("a", error=3)), now=2.0, everything=False)
    assert isinstance(said.topics["a"].error, UnknownTopicOrPartition)
    assert "a" not in cache.snapshot.topics


def test_older_leader_epoch_never_replaces_a_newer_one() -> None:
    cache = cache_of(topic("t", (1, 5)))
    cache.merge(answer(topic("t", (2, 4))), now=2.0, everything=False)
    assert leader(cache) == (1, 5)
    cache.merge(answer(topic("t", (2, 6))), now=3.0, everything=False)
    assert leader(cache) == (2, 6)


@pytest.mark.parametrize("way", ["error", "everything", "brokers"])
def test_leader_epochs_outlive_a_topic_that_is_not_known_for_a_while(way: str) -> None:
    cache = cache_of(topic("t", (1, 5)))
    if way == "error":
        cache.merge(answer(topic("t", topic_id=NO_TOPIC_ID, error=3)), now=2.0, everything=False)
    elif way == "everything":
        cache.merge(answer(), now=2.0, everything=True)
    else:
        cache.forget_brokers()
    assert cache.partition("t", 0) is None
    cache.merge(answer(topic("t", (2, 4))), now=3.0, everything=False)
    assert leader(cache) == (1, 5)
    cache.merge(answer(topic("t", (2, 6))), now=4.0, everything=False)
    assert leader(cache) == (2, 6)


@pytest.mark.parametrize(("before", "after"), [(ID, OTHER), (NO_TOPIC_ID, NO_TOPIC_ID)])
def test_topic_that_was_unknown_and_may_be_another_starts_afresh(before: UUID, after: UUID) -> None:
    cache = cache_of(topic("t", (1, 5), topic_id=before))
    cache.merge(answer(topic("t", topic_id=NO_TOPIC_ID, error=3)), now=2.0, everything=False)
    cache.merge(answer(topic("t", (2, 0), topic_id=after)), now=3.0, everything=False)
    assert leader(cache) == (2, 0)


def test_topics_that_are_gone_are_not_remembered_without_end() -> None:
    cache = MetadataCache()
    for number in range(1, MOST_GONE + 3):
        only = topic(f"t{number}", (1, 5), topic_id=UUID(int=number))
        cache.merge(answer(only), now=1.0, everything=True)
    assert len(cache._gone) == MOST_GONE


def test_new_topic_id_starts_afresh() -> None:
    cache = cache_of(topic("t", (1, 5)))
    cache.merge(answer(topic("t", (2, 0), topic_id=OTHER)), now=2.0, everything=False)
    assert leader(cache) == (2, 0)
    assert cache.topic_id("t") == OTHER
    assert cache.topic_name(ID) is None


def test_leader_hint_is_followed_only_forwards() -> None:
    cache = cache_of(topic("t", (1, 5)))
    assert not cache.set_leader("t", 0, 2, 5, [])
    assert not cache.set_leader("t", 0, -1, 9, [])
    assert not cache.set_leader("t", 1, 2, 9, [])
    assert not cache.set_leader("t", 0, 3, 6, []), "a broker without an address"
    assert cache.set_leader("t", 0, 3, 6, [BrokerInfo(3, "b3", 9092)])
    assert leader(cache) == (3, 6)
    assert cache.snapshot.brokers[3].host == "b3"


def test_another_cluster_is_refused_as_a_whole() -> None:
    cache = cache_of(topic("t", (1, 5)))
    with pytest.raises(InconsistentClusterId, match=r"'c2'.*'c1'"):
        cache.merge(answer(topic("t", (2, 9)), cluster="c2"), now=2.0, everything=True)
    assert leader(cache) == (1, 5)
    cache.forget_brokers()
    with pytest.raises(InconsistentClusterId):
        cache.merge(answer(cluster="c2"), now=3.0, everything=True)


LIES = {
    "no host": broker(1, ""),
    "odd host": broker(1, "b1 && reboot"),
    "path": broker(1, "../etc"),
    "endless host": broker(1, "a" * 300),
    "port 0": broker(1, "b1", 0),
    "port too high": broker(1, "b1", 65536),
    "negative port": broker(1, "b1", -1),
    "negative id": broker(-5),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_impossible_broker_is_left_out_and_told(lie: Response.MetadataResponseBroker) -> None:
    cache = MetadataCache()
    said, lies = cache.merge(answer(brokers=[lie, broker(2)]), now=1.0, everything=False)
    assert set(said.brokers) == {2}
    assert len(lies) == 1


def test_contradictions_are_told() -> None:
    twice = topic("t", (1, 0))
    twice.partitions += [
        Response.MetadataResponsePartition(partition_index=0, leader_id=2),
        Response.MetadataResponsePartition(partition_index=-3, leader_id=2),
    ]
    cache = MetadataCache()
    said, lies = cache.merge(
        answer(twice, brokers=[broker(1), broker(1, "b9")]), now=1.0, everything=False
    )
    assert len(lies) == 3
    assert said.brokers[1].host == "b1"
    assert leader(cache) == (1, 0)


def test_answer_without_brokers_keeps_those_that_are_known() -> None:
    cache = cache_of()
    cache.merge(answer(brokers=[]), now=2.0, everything=False)
    assert set(cache.snapshot.brokers) == {1, 2}


def test_snapshot_of_before_does_not_change() -> None:
    cache = cache_of(topic("t", (1, 5)))
    before = cache.snapshot
    cache.set_leader("t", 0, 2, 6, [])
    assert before.topics["t"].partitions[0].leader == 1
