"""The producer while the embedded broker fails on request; rows are those of the failure table.

Here is what happens between a producer and a cluster; what happens to a producer in its own process
(forks, signals, cancellation, memory) is in test_producer_process.py.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import pytest

import karrow
from karrow import errors
from karrow.aio._delivery import Delivery
from karrow.aio.producing.sequences import MAX_EPOCH, Progress
from karrow.broker.threaded import Broker
from karrow.records import batches
from karrow.sync.loop import run
from tests.proxy import Proxy

TOPIC = "topic"
TIMEOUT = 15.0
SLOWLY: dict[str, Any] = {"retry_backoff": 0.5, "retry_backoff_max": 0.5}
QUICK: dict[str, Any] = {"retry_backoff": 0.02, "retry_backoff_max": 0.1}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(brokers=3) as broker:
        broker.create_topic(TOPIC, 2, 3)
        yield broker


def producer_for(broker: Broker, **options: Any) -> karrow.Producer:
    """A producer of one record per batch, unless told otherwise; it has sent one record."""
    producer = karrow.Producer(
        broker.bootstrap, **{"batch_bytes": 1, "linger": 0.0, **QUICK, **options}
    )
    producer.send(TOPIC, b"first", partition=0).result(TIMEOUT)
    broker.clear_requests()
    return producer


def send_many(producer: karrow.Producer, *values: bytes) -> list[Delivery]:
    return [producer.send(TOPIC, value, partition=0) for value in values]


def offsets(deliveries: list[Delivery]) -> list[int | None]:
    return [one.result(TIMEOUT).offset for one in deliveries]


def values(broker: Broker, partition: int = 0) -> list[bytes]:
    with karrow.Client(broker.bootstrap) as client:
        return [record.value or b"" for record in client.fetch_all(TOPIC, partition).records]


def produced(broker: Broker) -> list[int]:
    """The nodes that got Produce requests, in order."""
    return [seen.broker for seen in broker.requests if seen.api == "Produce"]


def wait_until(condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def on_loop(work: Callable[[], object]) -> None:
    """Do something where the producer's sender runs."""

    async def main() -> None:
        work()

    run(main(), "AsyncProducer")


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


def epochs(broker: Broker, partition: int = 0) -> list[int]:
    return [info.producer_epoch for info in infos(broker, partition)]


def infos(broker: Broker, partition: int = 0) -> list[Any]:
    with karrow.Client(broker.bootstrap) as client:
        body = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 10_000_000,
            "topics": [
                {
                    "topic": TOPIC,
                    "partitions": [
                        {
                            "partition": partition,
                            "fetch_offset": 0,
                            "partition_max_bytes": 10_000_000,
                        }
                    ],
                }
            ],
        }
        to = karrow.Node.leader(TOPIC, partition)
        answer = client.request("Fetch", body, to=to, api_version=11)
        return list(batches(answer.responses[0].partitions[0].records))


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


# What the broker says of sequences.


def test_duplicate_sequence_is_a_success_without_a_place(broker: Broker) -> None:
    """Row 6: the broker has it and does not know where any more."""
    with producer_for(broker) as producer:
        broker.fail("Produce", "DUPLICATE_SEQUENCE_NUMBER", topic=TOPIC, partition=0)
        assert offsets(send_many(producer, b"a")) == [None]


def test_gap_at_the_head_of_the_line_raises_the_epoch(broker: Broker) -> None:
    """Row 6: nothing is missing here, so the broker has lost something: on with a new epoch."""
    with producer_for(broker) as producer:
        send_many(producer, b"lost")[0].result(TIMEOUT)
        broker.truncate(TOPIC, 0, 1)
        sent = send_many(producer, *(b"%d" % number for number in range(10)))
        assert offsets(sent) == list(range(1, 11))
        assert set(epochs(broker)) == {0, 1}
    assert values(broker) == [b"first", *(b"%d" % number for number in range(10))]


def test_unknown_producer_goes_on(broker: Broker) -> None:
    """Row 6: the broker has forgotten who we are."""
    with producer_for(broker) as producer:
        broker.fail("Produce", "UNKNOWN_PRODUCER_ID", topic=TOPIC, partition=0, times=2)
        assert offsets(send_many(producer, b"a", b"b", b"c")) == [1, 2, 3]
    assert values(broker) == [b"first", b"a", b"b", b"c"]


def test_records_that_are_deleted_do_not_stop_their_producer(broker: Broker) -> None:
    """Row 6: all its records are gone, and so may be what the broker knew of it."""
    with producer_for(broker) as producer, karrow.Admin(broker.bootstrap) as admin:
        admin.delete_records({(TOPIC, 0): 1})
        assert offsets(send_many(producer, b"a", b"b")) == [1, 2]


def test_damaged_answer_is_asked_for_again(broker: Broker) -> None:
    """Row 2: it was written, and what came back is no answer."""
    with producer_for(broker) as producer:
        broker.raw("Produce", b"\x00\x00\x00\x04junk")
        assert offsets(send_many(producer, b"a", b"b")) == [1, 2]
    assert values(broker) == [b"first", b"a", b"b"]


def test_damaged_answer_without_idempotence_is_told(broker: Broker) -> None:
    """Row 3: it may have been written."""
    with producer_for(broker, idempotent=False) as producer:
        broker.raw("Produce", b"\x00\x00\x00\x04junk")
        failed, other = send_many(producer, b"a", b"b")
        error = failed.exception(TIMEOUT)
        assert error is not None
        assert error.indefinite
        assert other.result(TIMEOUT).offset is not None


# Topics that go.


def test_topic_made_anew_is_written_to(broker: Broker) -> None:
    """Row 22: another topic under the name; sequences begin anew there."""
    with producer_for(broker) as producer, karrow.Client(broker.bootstrap) as client:
        offsets(send_many(producer, b"a", b"b"))
        client.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 2, 3)
        assert offsets(send_many(producer, b"c", b"d", b"e")) == [0, 1, 2]
    assert values(broker) == [b"c", b"d", b"e"]


def test_topic_made_anew_with_fewer_partitions(broker: Broker) -> None:
    """Row 22: records for partitions that are gone fail, later ones go where there is one."""
    with producer_for(broker) as producer, karrow.Client(broker.bootstrap) as client:
        producer.send(TOPIC, b"v", partition=1).result(TIMEOUT)
        client.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 1)
        gone = producer.send(TOPIC, b"gone", partition=1).exception(TIMEOUT)
        assert isinstance(gone, errors.UnknownTopicOrPartition)
        assert not gone.indefinite
        sent = [producer.send(TOPIC, b"v", key=b"%d" % number) for number in range(8)]
        assert offsets(sent) == list(range(8))
        with pytest.raises(errors.UnknownTopicOrPartition, match="0 to 0"):
            producer.send(TOPIC, b"v", partition=1)


def test_topic_made_anew_within_a_transaction_ends_it(broker: Broker) -> None:
    """Row 22: what was written to the first topic is gone, so nothing is committed."""
    with (
        karrow.Producer(broker.bootstrap, transactional_id="t", linger=0.0, **QUICK) as producer,
        karrow.Client(broker.bootstrap) as client,
    ):
        producer.begin_transaction()
        producer.send(TOPIC, b"lost", partition=0).result(TIMEOUT)
        client.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 2, 3)
        producer.send(TOPIC, b"alone", partition=0).exception(TIMEOUT)
        with pytest.raises(errors.StateError, match="made anew within the transaction"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(TOPIC, b"again", partition=0)
        found = client.fetch_all(TOPIC, 0, isolation="read_committed").records
        assert [record.value for record in found] == [b"again"]


def test_topic_that_is_missing_for_a_moment_is_waited_for(broker: Broker) -> None:
    """Row 23: metadata without the topic is not the end of its records."""
    with producer_for(broker) as producer:
        fault = broker.fail("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic=TOPIC, times=4)
        broker.fail("Produce", "NETWORK_EXCEPTION", topic=TOPIC, partition=0)
        assert offsets(send_many(producer, b"a", b"b")) == [1, 2]
        assert fault.met == 4


def test_topic_that_stays_away_fails_its_records_alone(broker: Broker) -> None:
    """Row 23: after the time for that, they fail; other topics have gone on meanwhile."""
    broker.create_topic("other", 1)
    with producer_for(broker, topic_propagation=0.5) as producer:
        producer.send("other", b"v").result(TIMEOUT)
        broker.fail("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic=TOPIC, times=1000)
        broker.fail("Produce", "UNKNOWN_TOPIC_OR_PARTITION", topic=TOPIC, partition=0, times=1000)
        began = time.monotonic()
        failed = producer.send(TOPIC, b"a", partition=0)
        assert producer.send("other", b"v").result(TIMEOUT).offset == 1
        error = failed.exception(TIMEOUT)
        assert isinstance(error, errors.UnknownTopicOrPartition)
        assert TOPIC in str(error)
        assert 0.4 < time.monotonic() - began < 5
        broker.clear_faults()
        assert offsets(send_many(producer, b"b")) == [1]


# Sizes.


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_record_that_is_too_large_for_its_topic_fails_alone(codec: Any) -> None:
    """Row 27: its batch is split until it is alone; the others arrive, in order."""
    with Broker() as broker:
        broker.create_topic(TOPIC, 1, config={"max.message.bytes": "3000"})
        with karrow.Producer(broker.bootstrap, linger=5.0, compression=codec) as producer:
            large = random.Random(1).randbytes(4000)
            texts = [b"%d" % number for number in range(100)]
            sent = [producer.send(TOPIC, text) for text in texts[:50]]
            alone = producer.send(TOPIC, large)
            sent += [producer.send(TOPIC, text) for text in texts[50:]]
            producer.flush(TIMEOUT)
            assert isinstance(alone.exception(0), errors.MessageTooLarge)
            assert offsets(sent) == list(range(100))
        assert values(broker) == texts


def test_split_behind_a_retry_keeps_the_order(broker: Broker) -> None:
    """Row 27: one is sent again while the next is found to be too large."""
    with producer_for(broker, batch_bytes=1000, linger=5.0) as producer:
        broker.delay("Produce", 0.1)
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=TOPIC, partition=0)
        broker.fail("Produce", "MESSAGE_TOO_LARGE", topic=TOPIC, partition=0)
        texts = [b"%d" % number + b"x" * 300 for number in range(10)]
        sent = send_many(producer, *texts)
        producer.flush(TIMEOUT)
        assert offsets(sent) == list(range(1, 11))
    assert values(broker) == [b"first", *texts]


def test_batch_that_may_be_written_is_not_split(broker: Broker) -> None:
    """Row 27: its parts would be strangers to a broker that has the whole."""
    with producer_for(broker, batch_bytes=10_000, linger=5.0, **SLOWLY) as producer:
        lost = broker.close("Produce", when="after")
        texts = [b"%d" % number for number in range(10)]
        sent = send_many(producer, *texts)
        threading.Thread(target=producer.flush).start()
        wait_until(lambda: lost.is_spent)
        broker.fail("Produce", "MESSAGE_TOO_LARGE", topic=TOPIC, partition=0)
        for one in sent:
            error = one.exception(TIMEOUT)
            assert isinstance(error, errors.MessageTooLarge)
            assert error.indefinite
        assert offsets(send_many(producer, b"after")) == [11]
    assert values(broker) == [b"first", *texts, b"after"]


def test_record_larger_than_a_request_is_refused_at_once(broker: Broker) -> None:
    """Row 27: without asking anybody."""
    with producer_for(broker, max_request_bytes=10_000) as producer:
        with pytest.raises(errors.MessageTooLarge, match="max_request_bytes is 10000"):
            producer.send(TOPIC, bytes(10_000), partition=0)
        assert produced(broker) == []
        assert offsets(send_many(producer, bytes(9_000))) == [1]


# Numbers that end.


def test_last_epoch_is_followed_by_another_producer_id(broker: Broker) -> None:
    """Row 37: at 32767 a new id is asked for, and the order is kept."""
    producer = karrow.Producer(broker.bootstrap, batch_bytes=1, linger=0.0, **QUICK)
    with producer:
        producer.send(TOPIC, b"other", partition=1).result(TIMEOUT)
        sequences = producer.twin.sender.sequences
        old = sequences.producer_id
        on_loop(lambda: sequences.take_identity(old, MAX_EPOCH))
        assert offsets(send_many(producer, b"a", b"b")) == [0, 1]
        broker.fail("Produce", "INVALID_RECORD", topic=TOPIC, partition=0)
        failed, *others = send_many(producer, b"failed", b"c", b"d")
        assert isinstance(failed.exception(TIMEOUT), errors.InvalidRecord)
        assert offsets(others) == [2, 3]
        producer.send(TOPIC, b"other", partition=1).result(TIMEOUT)
        assert sequences.producer_id != old
    assert values(broker) == [b"a", b"b", b"c", b"d"]
    found = [(info.producer_id == old, info.producer_epoch) for info in infos(broker)]
    assert found == [(True, MAX_EPOCH), (True, MAX_EPOCH), (False, 0), (False, 0)]
    assert [info.producer_id == old for info in infos(broker, 1)] == [True, False]


@pytest.mark.parametrize("lost", [False, True])
def test_sequences_begin_anew_after_their_last(broker: Broker, lost: bool) -> None:
    """Row 38: 2^31 - 1 is followed by 0, between batches and inside of one."""
    with producer_for(broker, batch_bytes=400, linger=0.05) as producer:
        begin_at(producer, 1, 2**31 - 7)
        producer.send(TOPIC, b"known", partition=1).result(TIMEOUT)
        if lost:
            broker.close("Produce", when="after", times=2)
        texts = [b"%d" % number + b"x" * 100 for number in range(30)]
        sent = [producer.send(TOPIC, text, partition=1) for text in texts]
        assert offsets(sent) == list(range(1, 31))
    assert values(broker, 1) == [b"known", *texts]
    assert [epoch for epoch in epochs(broker, 1) if epoch] == []


def begin_at(producer: karrow.Producer, partition: int, sequence: int) -> None:
    """Let the next record of a partition have this sequence."""
    sender = producer.twin.sender

    def set_to() -> None:
        topic = sender.accumulator.topic(TOPIC)
        assert topic is not None
        found = topic.partitions[partition]
        progress: Progress = sender.sequences.progress(found)
        progress.restart(sender.sequences.producer_id, sender.sequences.epoch)
        progress.next_sequence = sequence
        progress.acked_sequence = sequence - 1

    on_loop(set_to)


# The cluster goes.


def test_close_ends_in_time_without_brokers() -> None:
    """Row 40: what could not be written fails, for certain or not."""
    with Broker() as broker:
        broker.create_topic(TOPIC, 1)
        producer = producer_for(broker)
        broker.kill_node(1)
        sent = send_many(producer, b"a", b"b")
        began = time.monotonic()
        producer.close(0.5)
        assert time.monotonic() - began < 3
        assert all(isinstance(one.exception(0), errors.StateError) for one in sent)


def test_delivery_time_bounds_close_without_a_time_of_its_own() -> None:
    """Row 40: closing takes no longer than a record may take."""
    with Broker() as broker:
        broker.create_topic(TOPIC, 1)
        producer = producer_for(broker, delivery_timeout=0.8)
        broker.kill_node(1)
        sent = send_many(producer, b"a", b"b")
        began = time.monotonic()
        producer.close()
        assert time.monotonic() - began < 4
        assert all(isinstance(one.exception(0), errors.RequestTimeout) for one in sent)


def test_flush_says_what_is_left(broker: Broker) -> None:
    """Row 40: the records stay on their way."""
    with producer_for(broker) as producer:
        broker.delay("Produce", 0.8)
        (late,) = send_many(producer, b"late")
        with pytest.raises(errors.RequestTimeout, match="1 records had no outcome after"):
            producer.flush(0.1)
        with pytest.raises(errors.RequestTimeout, match="still on its way"):
            late.result(0.05)
        producer.flush(TIMEOUT)
        assert late.result(0).offset == 1


def test_purging_what_is_under_way_says_that_it_may_be_written(broker: Broker) -> None:
    """Row 40: giving up does not undo."""
    with producer_for(broker) as producer:
        broker.delay("Produce", 0.5, when="after")
        (gone,) = send_many(producer, b"under way")
        wait_until(lambda: produced(broker))
        assert producer.purge(in_flight=True) == 1
        error = gone.exception(0)
        assert error is not None
        assert error.indefinite
        assert offsets(send_many(producer, b"after")) == [2]
    assert values(broker) == [b"first", b"under way", b"after"]


def test_purging_while_batches_are_compressed_harms_nothing(broker: Broker) -> None:
    """Row 40: threads are at work on what is given up."""
    noise = random.Random(1).randbytes(1_000_000)
    with producer_for(broker, compression="gzip", compression_level=9) as producer:
        for _ in range(3):
            sent = send_many(producer, *[noise] * 6)
            producer.purge(in_flight=True)
            wait_until(lambda sent=sent: all(one.done() for one in sent))  # type: ignore[misc]
        assert offsets(send_many(producer, b"after"))[0] is not None
    assert values(broker)[-1] == b"after"


def test_waiting_for_a_blocking_producers_record_on_a_loop(broker: Broker) -> None:
    """Row 40: a Delivery may be awaited where its producer is not at home."""
    with producer_for(broker) as producer:

        async def main() -> int | None:
            delivery = producer.send(TOPIC, b"a", partition=0)
            return (await asyncio.wait_for(wrapped(delivery), TIMEOUT)).offset

        async def wrapped(delivery: Delivery) -> karrow.RecordMetadata:
            return await delivery

        began = time.monotonic()
        assert asyncio.run(main()) == 1
        assert time.monotonic() - began < TIMEOUT / 2


def test_wake_up_is_never_lost(broker: Broker) -> None:
    """Row 40: records that come while the sender looks elsewhere do not wait for its timer."""
    with producer_for(broker) as producer:
        slowest = [0.0] * 4

        def work(mine: int) -> None:
            for number in range(150):
                began = time.monotonic()
                producer.send(TOPIC, b"v", partition=(mine + number) % 2).result(TIMEOUT)
                slowest[mine] = max(slowest[mine], time.monotonic() - began)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert max(slowest) < 0.9


def test_topic_is_waited_for_no_longer_than_a_record_may_wait() -> None:
    with karrow.Broker() as gone:
        bootstrap = gone.bootstrap
    with karrow.Producer(bootstrap, max_block=0.3) as producer:
        began = time.monotonic()
        with pytest.raises(karrow.errors.RequestTimeout, match=r"within 0\.3 s.*refused"):
            producer.send(TOPIC, b"v")
        assert time.monotonic() - began < 5
