"""The producer while the embedded broker fails on request; rows are those of the failure table.

Here is what happens between a producer and a cluster; what happens to a producer in its own process
(forks, signals, cancellation, memory) is in test_producer_process.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from tests.embedded.producing import (
    QUICK,
    SLOWLY,
    TIMEOUT,
    TOPIC,
    epochs,
    offsets,
    produced,
    producer_for,
    send_many,
    values,
    wait_until,
)
from tests.proxy import Proxy


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(brokers=3) as broker:
        broker.create_topic(TOPIC, 2, 3)
        yield broker


# Leaders.


def test_moved_leader_is_followed_without_asking(broker: Broker) -> None:
    """Row 1: the answer names the new leader (KIP-951); same batches, in order, once."""
    with producer_for(broker) as producer:
        for _ in range(3):
            broker.clear_requests()
            leader = broker.move_leader(TOPIC, 0)
            offsets(send_many(producer, b"a", b"b", b"c"))
            apis = [seen.api for seen in broker.requests]
            assert produced(broker)[-1] == leader
            assert "Metadata" not in apis[: apis.index("Produce") + 2]
    assert values(broker) == [b"first", *[b"a", b"b", b"c"] * 3]


def test_killed_leader_is_replaced(broker: Broker) -> None:
    """Row 1: the leader dies with batches under way; they go to the next one, in order, once."""
    with producer_for(broker) as producer:
        found = leader_of(broker)
        broker.delay("Produce", 5.0, broker=found, times=3)
        sent = send_many(producer, *(b"%d" % number for number in range(20)))
        wait_until(lambda: produced(broker))
        broker.kill_node(found)
        assert offsets(sent) == list(range(1, 21))
        assert producer.stats().retries > 0
    assert values(broker) == [b"first", *(b"%d" % number for number in range(20))]


def test_partition_without_a_leader_waits_for_one(broker: Broker) -> None:
    """Row 1: nobody leads for a while; other partitions are not held up."""
    with producer_for(broker) as producer:
        broker.move_leader(TOPIC, 0, -1)
        sent = send_many(producer, b"a", b"b")
        other = producer.send(TOPIC, b"other", partition=1)
        assert other.result(TIMEOUT).offset == 0
        assert not sent[0].done()
        broker.move_leader(TOPIC, 0, 2)
        assert offsets(sent) == [1, 2]


def test_leader_that_the_metadata_does_not_show_is_waited_for(broker: Broker) -> None:
    """Row 1: a broker that just comes or goes may lead before, or after, it is listed."""
    leader = leader_of(broker)
    broker.hide_from_metadata(leader)
    with karrow.Producer(broker.bootstrap, **QUICK) as producer:
        sent = send_many(producer, b"a", b"b")
        wait_until(lambda: [seen.api for seen in broker.requests].count("Metadata") >= 3)
        asked = len(broker.requests)
        assert not any(one.done() for one in sent)
        time.sleep(0.3)
        assert len(broker.requests) - asked < 30
        broker.hide_from_metadata(leader, hidden=False)
        assert offsets(sent) == [0, 1]


# Lost answers.


@pytest.mark.parametrize("how", ["close", "drop"])
def test_lost_answer_makes_no_second_copy(broker: Broker, how: Literal["close", "drop"]) -> None:
    """Row 2: appended, and the answer is lost: sent again, one copy, its original offset."""
    with producer_for(broker, request_timeout=0.3) as producer:
        getattr(broker, how)("Produce", when="after")
        assert offsets(send_many(producer, b"a", b"b", b"c")) == [1, 2, 3]
    assert values(broker) == [b"first", b"a", b"b", b"c"]


def test_lost_answers_of_five_in_flight_make_no_copies(broker: Broker) -> None:
    """Row 2: as many as may be under way, all appended and all unanswered."""
    with producer_for(broker) as producer:
        broker.delay("Produce", 0.2, when="after", times=5)
        sent = send_many(producer, *(b"%d" % number for number in range(8)))
        wait_until(lambda: len(produced(broker)) >= 2)
        broker.close_connections()
        assert offsets(sent) == list(range(1, 9))
    assert values(broker) == [b"first", *(b"%d" % number for number in range(8))]


@pytest.mark.parametrize("acks", [1, "all"])
def test_lost_answer_without_idempotence_is_told(broker: Broker, acks: Any) -> None:
    """Row 3: nobody may send it again, so its caller hears that nobody knows."""
    with producer_for(broker, idempotent=False, acks=acks) as producer:
        broker.close("Produce", when="after")
        lost, *others = send_many(producer, b"lost", b"a", b"b")
        error = lost.exception(TIMEOUT)
        assert isinstance(error, errors.Disconnected)
        assert error.indefinite
        assert offsets(others) == [2, 3]
    assert values(broker) == [b"first", b"lost", b"a", b"b"]


def test_request_that_never_arrived_without_idempotence_is_told_too(broker: Broker) -> None:
    """Row 3: the same seen from here, though nothing was written."""
    with producer_for(broker, idempotent=False) as producer:
        broker.close("Produce", when="before")
        lost, other = send_many(producer, b"lost", b"a")
        error = lost.exception(TIMEOUT)
        assert error is not None
        assert error.indefinite
        assert offsets([other]) == [1]
    assert values(broker) == [b"first", b"a"]


def test_duplicates_are_made_where_they_are_allowed(broker: Broker) -> None:
    """Row 3: by option the record is sent again, and is there twice."""
    with producer_for(broker, idempotent=False, allow_duplicates=True) as producer:
        broker.close("Produce", when="after")
        assert offsets(send_many(producer, b"twice", b"a")) == [2, 3]
    assert values(broker) == [b"first", b"twice", b"twice", b"a"]


@pytest.mark.parametrize(
    "code", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "UNKNOWN_TOPIC_OR_PARTITION"]
)
def test_refused_batch_without_idempotence_is_sent_again(broker: Broker, code: str) -> None:
    """Row 3: what was surely not written may be repeated, in order."""
    with producer_for(broker, idempotent=False) as producer:
        broker.fail("Produce", code, topic=TOPIC, partition=0, times=2)
        assert offsets(send_many(producer, b"a", b"b", b"c")) == [1, 2, 3]
    assert values(broker) == [b"first", b"a", b"b", b"c"]


@pytest.mark.parametrize("code", ["REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"])
def test_doubtful_answer_without_idempotence_is_told(broker: Broker, code: str) -> None:
    """Row 3: a broker that may have written it."""
    with producer_for(broker, idempotent=False) as producer:
        broker.fail("Produce", code, topic=TOPIC, partition=0)
        failed, other = send_many(producer, b"a", b"b")
        error = failed.exception(TIMEOUT)
        assert error is not None
        assert error.indefinite
        assert offsets([other]) == [1]


# Time that is up.


def test_nothing_overtakes_a_batch_that_was_given_up_under_way(broker: Broker) -> None:
    """Row 4: the partition waits for the answer, and goes on behind what was written."""
    with producer_for(broker, delivery_timeout=1.0, request_timeout=5.0) as producer:
        broker.delay("Produce", 1.6)
        late = producer.send(TOPIC, b"late", partition=0)
        wait_until(lambda: produced(broker))
        time.sleep(0.9)
        after = producer.send(TOPIC, b"after", partition=0)
        error = late.exception(TIMEOUT)
        assert isinstance(error, errors.RequestTimeout)
        assert error.indefinite
        assert not after.done()
        assert after.result(TIMEOUT).offset == 2
    assert values(broker) == [b"first", b"late", b"after"]


def test_epoch_is_raised_behind_a_batch_that_was_given_up_and_not_written(broker: Broker) -> None:
    """Row 4: it never arrived; the rest goes on under a new epoch, which keeps the old one out."""
    chosen: dict[str, Any] = {"delivery_timeout": 1.0, "request_timeout": 0.4}
    with producer_for(broker, **chosen) as producer:
        broker.drop("Produce", topic=TOPIC, partition=0, times=3)
        late = producer.send(TOPIC, b"late", partition=0)
        error = late.exception(TIMEOUT)
        assert error is not None
        assert error.indefinite
        broker.clear_faults()
        assert offsets(send_many(producer, b"a", b"b")) == [1, 2]
    assert values(broker) == [b"first", b"a", b"b"]
    assert epochs(broker) == [0, 1, 1]


def test_record_that_was_never_sent_fails_for_certain(broker: Broker) -> None:
    """Row 4: its time was up before anything could be done for it."""
    with producer_for(broker, delivery_timeout=0.5) as producer:
        broker.move_leader(TOPIC, 0, -1)
        error = producer.send(TOPIC, b"never", partition=0).exception(TIMEOUT)
        assert isinstance(error, errors.RequestTimeout)
        assert not error.indefinite
        broker.move_leader(TOPIC, 0, 1)
        assert offsets(send_many(producer, b"a")) == [1]
    assert values(broker) == [b"first", b"a"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_doubt_outlives_the_wait_for_a_leader(
    broker: Broker, when: Literal["before", "after"]
) -> None:
    """Row 4: sent once without an answer, then never again; nobody knows, and is told so."""
    with producer_for(broker, delivery_timeout=1.0, **SLOWLY) as producer:
        lost = broker.close("Produce", when=when)
        (doubtful,) = send_many(producer, b"doubtful")
        wait_until(lambda: lost.is_spent)
        broker.move_leader(TOPIC, 0, -1)
        error = doubtful.exception(TIMEOUT)
        assert isinstance(error, errors.RequestTimeout)
        assert error.indefinite
        broker.move_leader(TOPIC, 0, 1)
        written = [b"doubtful"] if when == "after" else []
        assert offsets(send_many(producer, b"after")) == [1 + len(written)]
    assert values(broker) == [b"first", *written, b"after"]


# Order.


@pytest.mark.parametrize("warm", [True, False])
def test_order_is_kept_when_one_of_five_in_flight_fails(broker: Broker, warm: bool) -> None:
    """Row 5: those behind are out of order for the broker, and follow in order."""
    producer = karrow.Producer(broker.bootstrap, batch_bytes=1, linger=0.0, **QUICK)
    with producer:
        if warm:
            producer.send(TOPIC, b"first", partition=0).result(TIMEOUT)
        before = int(warm)
        broker.delay("Produce", 0.1)
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=TOPIC, partition=0)
        sent = send_many(producer, *(b"%d" % number for number in range(12)))
        assert offsets(sent) == list(range(before, 12 + before))
    assert values(broker)[before:] == [b"%d" % number for number in range(12)]


def test_random_refusals_keep_the_order(broker: Broker) -> None:
    """Row 5: again and again, in the middle of what is under way."""
    with producer_for(broker, retry_backoff=0.001) as producer:
        codes = ["NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR"]
        sent = []
        for number in range(150):
            if number % 5 == 0:
                broker.fail("Produce", codes[number % 3], topic=TOPIC, partition=0)
            sent.append(producer.send(TOPIC, b"%d" % number, partition=0))
        assert offsets(sent) == list(range(1, 151))
    assert values(broker) == [b"first", *(b"%d" % number for number in range(150))]


def test_failed_batch_leaves_no_gap_that_stops_the_rest(broker: Broker) -> None:
    """Row 5: it is refused for good, its caller hears it, and those behind it are written."""
    with producer_for(broker) as producer:
        broker.delay("Produce", 0.1)
        broker.fail("Produce", "INVALID_RECORD", topic=TOPIC, partition=0)
        failed, *others = send_many(producer, *(b"%d" % number for number in range(8)))
        error = failed.exception(TIMEOUT)
        assert isinstance(error, errors.InvalidRecord)
        assert not error.indefinite
        assert offsets(others) == list(range(1, 8))
        assert len(set(epochs(broker))) == 2
    assert values(broker) == [b"first", *(b"%d" % number for number in range(1, 8))]


def test_gapless_producer_ends_with_the_first_failure(broker: Broker) -> None:
    """Row 5: by option nothing is written behind a record that was not."""
    producer = producer_for(broker, gapless=True)
    broker.delay("Produce", 0.1)
    broker.fail("Produce", "INVALID_RECORD", topic=TOPIC, partition=0)
    sent = send_many(producer, *(b"%d" % number for number in range(8)))
    assert all(isinstance(one.exception(TIMEOUT), errors.InvalidRecord) for one in sent)
    with pytest.raises(errors.InvalidRecord):
        producer.send(TOPIC, b"more", partition=0)
    producer.close()
    assert values(broker) == [b"first"]


def test_no_more_are_under_way_than_brokers_remember(broker: Broker) -> None:
    """Row 5: answers are lost, and the leader moves meanwhile; a broker remembers five batches."""
    chosen: dict[str, Any] = {"metadata_max_age": 0.1, "request_timeout": 1.5, **QUICK}
    chosen |= {"batch_bytes": 1, "linger": 0.0, "delivery_timeout": 8.0}
    with proxied(broker) as proxies:
        bootstrap = ",".join(proxy.bootstrap for proxy in proxies.values())
        with karrow.Producer(bootstrap, **chosen) as producer:
            producer.send(TOPIC, b"first", partition=0).result(TIMEOUT)
            broker.clear_requests()
            proxies[leader_of(broker)].drop_answer("Produce", "stall")
            sent = send_many(producer, *(b"%d" % number for number in range(5)))
            wait_until(lambda: len(produced(broker)) == 5)
            broker.move_leader(TOPIC, 0)
            time.sleep(0.3)
            sent += send_many(producer, *(b"%d" % number for number in range(5, 15)))
            assert offsets(sent) == list(range(1, 16))
    assert values(broker) == [b"first", *(b"%d" % number for number in range(15))]
    assert set(epochs(broker)) == {0}


@contextmanager
def proxied(broker: Broker) -> Iterator[dict[int, Proxy]]:
    """A proxy in front of every node, by its id."""
    pairs = [address.rsplit(":", 1) for address in broker.bootstrap.split(",")]
    with ExitStack() as stack:
        found = [stack.enter_context(Proxy((host, int(port)))) for host, port in pairs]
        for proxy in found:
            proxy.map_addresses({each.target: each.address for each in found})
        yield dict(enumerate(found, start=1))


def leader_of(broker: Broker) -> int:
    with karrow.Client(broker.bootstrap) as client:
        found = client.metadata([TOPIC]).topics[TOPIC].partitions[0].leader
    assert found is not None
    return found
