"""Arrow data through a producer to the embedded broker, and what is found there."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import karrow
from karrow import SendSummary, TopicPartition, errors
from karrow.records import Record, partition_for
from tests.fix_loops import Run

PARTITIONS = 3
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
TIMEOUT = 20.0


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(seed=1) as broker:
        broker.create_topic("orders", partitions=PARTITIONS)
        broker.create_topic("single", partitions=1)
        yield broker


@pytest.fixture
def producer(broker: karrow.Broker) -> Iterator[karrow.Producer]:
    with karrow.Producer(broker.bootstrap) as producer:
        yield producer


def stored(broker: karrow.Broker, topic: str = "orders") -> dict[int, list[Record]]:
    """What the topic holds, by partition; partitions that hold nothing are left out."""
    with karrow.Client(broker.bootstrap) as client:
        count = len(client.metadata([topic]).topics[topic].partitions)
        found = {number: list(client.fetch_all(topic, number).records) for number in range(count)}
    return {number: records for number, records in found.items() if records}


def values(broker: karrow.Broker, topic: str = "orders") -> dict[int, list[Any]]:
    return {
        number: [record.value for record in records]
        for number, records in stored(broker, topic).items()
    }


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"%d" % number + b"." * size for number in range(count)]


def as_bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


# ---- columns


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(3),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
    ],
    ids=str,
)
def test_keys_and_values_of_every_type(
    broker: karrow.Broker, producer: karrow.Producer, kind: pa.DataType
) -> None:
    contents: list[Any] = (
        [b"abc", None, b"xyz"] if kind == pa.binary(3) else ["abc", None, "x" * 50]
    )
    data = pa.table({"key": pa.array(contents, kind), "value": pa.array(contents[::-1], kind)})
    producer.send_arrow("single", data).result(TIMEOUT)
    records = stored(broker, "single")[0]
    assert [record.key for record in records] == [as_bytes(key) for key in contents]
    assert [record.value for record in records] == [as_bytes(v) for v in contents[::-1]]


@pytest.mark.parametrize(
    ("unit", "per_second"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)]
)
def test_timestamps_of_every_unit(
    broker: karrow.Broker, producer: karrow.Producer, unit: str, per_second: int
) -> None:
    times = pa.array([1_700_000_000 * per_second, None, 0], pa.timestamp(unit, "UTC"))
    before = datetime.now(UTC).timestamp() * 1000 - 1
    producer.send_arrow("single", pa.table({"value": numbered(3), "timestamp": times})).result(
        TIMEOUT
    )
    first, now, last = [record.timestamp_ms for record in stored(broker, "single")[0]]
    assert (first, last) == (1_700_000_000_000, 0)
    assert now is not None
    assert before <= now <= before + 60_000


def test_headers(broker: karrow.Broker, producer: karrow.Producer) -> None:
    rows = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []]
    data = pa.table({"value": numbered(3), "headers": pa.array(rows, pa.list_(HEADER))})
    producer.send_arrow("single", data).result(TIMEOUT)
    found = [record.headers for record in stored(broker, "single")[0]]
    assert found == [(("a", b"1"), ("b", None)), (), ()]


def test_polars_frames(broker: karrow.Broker, producer: karrow.Producer) -> None:
    frame = pl.DataFrame(
        {
            "key": ["a", None, "c" * 40],
            "value": [b"1", None, b"3" * 40],
            "topic": pl.Series(["single", "orders", None], dtype=pl.Categorical),
            "partition": pl.Series([0, 2, 1], dtype=pl.UInt8),
        }
    )
    summary = producer.send_arrow("orders", frame).result(TIMEOUT)
    assert summary == SendSummary(
        3,
        {
            TopicPartition("single", 0): (1, 0),
            TopicPartition("orders", 2): (1, 0),
            TopicPartition("orders", 1): (1, 0),
        },
    )
    assert values(broker) == {1: [b"3" * 40], 2: [None]}
    assert values(broker, "single") == {0: [b"1"]}


def test_batches_streams_and_slices(broker: karrow.Broker, producer: karrow.Producer) -> None:
    table = pa.table({"value": numbered(40)})
    chunks = pa.concat_tables([table.slice(1, 9), table.slice(10, 0), table.slice(10, 10)])
    deliveries = [
        producer.send_arrow("single", table.slice(0, 1).to_batches()[0]),
        producer.send_arrow("single", chunks),
        producer.send_arrow("single", table.slice(20).to_reader(3)),
    ]
    assert [delivery.result(TIMEOUT).records for delivery in deliveries] == [1, 19, 20]
    assert values(broker, "single") == {0: numbered(40)}


def test_what_was_read_can_be_sent_on(broker: karrow.Broker, producer: karrow.Producer) -> None:
    columns = {"key": ["k", None], "value": numbered(2), "partition": [1, 1]}
    producer.send_arrow("orders", pa.table(columns)).result(TIMEOUT)
    batches = [
        karrow.records.encode(
            pa.table({"key": [r.key], "value": [r.value], "timestamp": [r.timestamp_ms]})
        )
        for r in stored(broker)[1]
    ]
    read = pa.record_batch(karrow.records.decode(b"".join(batches), topic="single", partition=0))
    assert "offset" in read.schema.names
    assert "timestamp_type" in read.schema.names
    producer.send_arrow(None, read).result(TIMEOUT)
    assert values(broker, "single") == {0: numbered(2)}


def test_no_rows(broker: karrow.Broker, producer: karrow.Producer) -> None:
    empty = pa.table({"value": pa.array([], pa.binary())})
    assert producer.send_arrow("orders", empty).result(TIMEOUT) == SendSummary(0, {})
    assert values(broker) == {}


# ---- where rows go


def test_keys_land_where_partition_for_says(
    broker: karrow.Broker, producer: karrow.Producer
) -> None:
    keys = [b"key-%d" % (number % 100) for number in range(2000)]
    summary = producer.send_arrow(
        "orders", pa.table({"key": keys, "value": numbered(2000)})
    ).result(TIMEOUT)
    found = stored(broker)
    for number, records in found.items():
        for record in records:
            assert record.key is not None
            assert partition_for(record.key, PARTITIONS) == number
        order = [int(record.value or b"") for record in records]
        assert order == sorted(order)
    assert summary.records == 2000
    assert summary.partitions == {("orders", p): (len(found[p]), 0) for p in found}


def test_topics_come_into_being_when_they_are_named(
    broker: karrow.Broker, producer: karrow.Producer
) -> None:
    table = pa.table({"value": numbered(3), "topic": ["new", "orders", "newer"]})
    assert producer.send_arrow(None, table).result(TIMEOUT).records == 3
    assert values(broker, "new") == {0: [b"0"]}


def test_a_partition_that_was_added_meanwhile_is_found(
    broker: karrow.Broker, producer: karrow.Producer
) -> None:
    assert producer.partitions_for("orders") == PARTITIONS
    with karrow.Admin(broker.bootstrap) as admin:
        admin.create_partitions({"orders": PARTITIONS + 2})
    table = pa.table({"value": [b"v"], "partition": [PARTITIONS + 1]})
    producer.send_arrow("orders", table).result(TIMEOUT)
    assert values(broker) == {PARTITIONS + 1: [b"v"]}


def test_order_with_what_is_sent_before_and_after(
    broker: karrow.Broker, producer: karrow.Producer
) -> None:
    expected = numbered(3 * 5000, 50)
    for start in range(0, len(expected), 5000):
        producer.send("single", expected[start])
        producer.send_arrow("single", pa.table({"value": expected[start + 1 : start + 4999]}))
        producer.send("single", expected[start + 4999])
    producer.flush(TIMEOUT)
    assert values(broker, "single") == {0: expected}


# ---- room


@pytest.mark.parametrize("keyed", [True, False])
def test_data_larger_than_the_buffer(broker: karrow.Broker, keyed: bool) -> None:
    sent = numbered(20_000, 100)
    columns = {"value": sent} | ({"key": numbered(20_000)} if keyed else {})
    with karrow.Producer(broker.bootstrap, buffer_bytes=100_000, batch_bytes=20_000) as producer:
        delivery = producer.send_arrow("orders", pa.table(columns))
        assert producer.accumulator.bytes <= 120_000
        assert delivery.result(TIMEOUT).records == 20_000
    found = values(broker)
    assert sorted(itertools.chain(*found.values())) == sorted(sent)
    for part in found.values():
        order = [int(value.rstrip(b".")) for value in part]
        assert order == sorted(order)


def test_no_room_in_time_says_how_far_it_came(broker: karrow.Broker) -> None:
    sent = numbered(2000, 100)
    with karrow.Producer(
        broker.bootstrap, buffer_bytes=50_000, batch_bytes=10_000, max_block=0.2
    ) as producer:
        producer.partitions_for("single")
        fault = broker.delay("Produce", 1.0)
        with pytest.raises(errors.BufferFull, match=r"the first (\d+) of 2000 rows") as caught:
            producer.send_arrow("single", pa.table({"value": sent}))
        assert fault.met
        broker.clear_faults()
        producer.flush(TIMEOUT)
    taken = int(str(caught.value).split("the first ")[1].split()[0])
    assert 0 < taken < 2000
    assert values(broker, "single") == {0: sent[:taken]}


def test_threads_send_beside_each_other(broker: karrow.Broker) -> None:
    with karrow.Producer(broker.bootstrap, buffer_bytes=200_000, batch_bytes=10_000) as producer:

        def send(name: str) -> None:
            rows = [f"{name} {number}" for number in range(3000)]
            producer.send_arrow("single", pa.table({"value": rows})).result(TIMEOUT)

        threads = [threading.Thread(target=send, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for number in range(3000):
            producer.send("single", f"d {number}")
        for thread in threads:
            thread.join()
    found = [value.split() for value in values(broker, "single")[0]]
    for name in (b"a", b"b", b"c", b"d"):
        assert [int(number) for who, number in found if who == name] == list(range(3000))


# ---- trouble


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"partition": [0, 1, 3]}, errors.UnknownTopicOrPartition, r"'partition' .*\(row 2\)"),
        ({"partition": [0, 1, -1]}, errors.UnknownTopicOrPartition, r"'partition' .*\(row 2\)"),
        ({"timestamp": [0, 1, -1]}, errors.LocalProtocolError, r"'timestamp' .*\(row 2\)"),
        ({"topic": ["orders", None, "?"]}, errors.InvalidTopicException, r"'topic' .*\(row 2\)"),
        ({"value": [b"", b"", b"." * 9000]}, errors.MessageTooLarge, r"'value' .*\(row 2\)"),
        ({"value": [1, 2, 3]}, errors.LocalProtocolError, "column 'value'"),
        ({"key": [True, False, None]}, errors.LocalProtocolError, "column 'key'"),
        ({"color": [1, 2, 3]}, errors.LocalProtocolError, "column 'color'"),
    ],
)
def test_wrong_data_raises_at_once_and_nothing_is_sent(
    broker: karrow.Broker, columns: dict[str, Any], error: type[Exception], message: str
) -> None:
    with karrow.Producer(broker.bootstrap, max_request_bytes=8000) as producer:
        with pytest.raises(error, match=message):
            producer.send_arrow("orders", pa.table({"value": numbered(3)} | columns))
        assert producer.stats().records_sent == 0
    assert values(broker) == {}


def test_a_topic_that_is_not_there_raises_before_anything_is_sent(broker: karrow.Broker) -> None:
    with karrow.Producer(
        broker.bootstrap, allow_auto_topic_creation=False, api_timeout=1.0
    ) as producer:
        table = pa.table({"value": numbered(2), "topic": ["orders", "nowhere"]})
        with pytest.raises(errors.UnknownTopicOrPartition, match="nowhere"):
            producer.send_arrow(None, table)
    assert values(broker) == {}


@pytest.mark.parametrize("topic", ["", "a b", 7])
def test_no_name_of_a_topic(producer: karrow.Producer, topic: Any) -> None:
    with pytest.raises(errors.InvalidTopicException):
        producer.send_arrow(topic, pa.table({"value": numbered(2)}))


def test_no_arrow_data(producer: karrow.Producer) -> None:
    data: Any = [b"value"]
    with pytest.raises(errors.LocalProtocolError, match="list is no Arrow data"):
        producer.send_arrow("orders", data)


def test_a_closed_producer_takes_nothing(broker: karrow.Broker) -> None:
    producer = karrow.Producer(broker.bootstrap)
    producer.close()
    with pytest.raises(errors.StateError, match="closed"):
        producer.send_arrow("orders", pa.table({"value": numbered(2)}))


def test_some_partitions_fail_and_the_others_are_told(
    broker: karrow.Broker, producer: karrow.Producer
) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="orders", partition=1, times=100)
    called: list[karrow.BulkDelivery] = []
    table = pa.table({"value": numbered(6), "partition": [0, 1, 2] * 2})
    delivery = producer.send_arrow("orders", table)
    delivery.add_done_callback(called.append)
    with pytest.raises(errors.TopicAuthorizationFailed):
        delivery.result(TIMEOUT)
    assert delivery.summary() == SendSummary(
        4, {TopicPartition("orders", 0): (2, 0), TopicPartition("orders", 2): (2, 0)}
    )
    assert called == [delivery]
    assert values(broker) == {0: [b"0", b"3"], 2: [b"2", b"5"]}


def test_passing_trouble_neither_loses_nor_repeats_rows(broker: karrow.Broker) -> None:
    sent = numbered(5000, 50)
    with karrow.Producer(broker.bootstrap, batch_bytes=10_000) as producer:
        producer.send("single", sent[0]).result(TIMEOUT)
        broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
        broker.close("Produce", when="after", times=2)
        producer.send_arrow("single", pa.table({"value": sent[1:]})).result(TIMEOUT)
    assert values(broker, "single") == {0: sent}


@pytest.mark.parametrize("after", [0.0, 0.001, 0.01, 0.03])
def test_every_row_has_an_outcome_when_the_producer_is_closed_meanwhile(
    broker: karrow.Broker, after: float
) -> None:
    producer = karrow.Producer(broker.bootstrap, buffer_bytes=100_000, batch_bytes=10_000)
    producer.partitions_for("orders")
    closing = threading.Timer(after, producer.close, args=(0.01,))
    closing.start()
    table = pa.table({"key": numbered(10_000), "value": numbered(10_000, 50)})
    deliveries = (producer.send_arrow("orders", table) for _ in itertools.count())
    with pytest.raises(errors.StateError, match="closed"):
        list(map(karrow.BulkDelivery.wait, deliveries))
    closing.join()
    assert producer.accumulator.incomplete == set()
    assert producer.accumulator.bytes == 0


def test_batches_too_large_for_the_topic_are_divided(broker: karrow.Broker) -> None:
    broker.create_topic("narrow", partitions=1, config={"max.message.bytes": "2000"})
    sent = numbered(300, 50)
    with karrow.Producer(broker.bootstrap) as producer:
        summary = producer.send_arrow("narrow", pa.table({"value": sent})).result(TIMEOUT)
    assert summary == SendSummary(300, {TopicPartition("narrow", 0): (300, 0)})
    assert values(broker, "narrow") == {0: sent}


def test_compressed(broker: karrow.Broker) -> None:
    with karrow.Producer(broker.bootstrap, compression="zstd", batch_bytes=50_000) as producer:
        producer.send_arrow("single", pa.table({"value": numbered(5000, 100)})).result(TIMEOUT)
    assert values(broker, "single") == {0: numbered(5000, 100)}


# ---- the async twin


def test_async(broker: karrow.Broker, on_loop: Run) -> None:
    sent = numbered(20_000, 100)

    async def main() -> None:
        async with karrow.AsyncProducer(
            broker.bootstrap, buffer_bytes=100_000, batch_bytes=20_000
        ) as producer:
            called: list[karrow.BulkDelivery] = []
            deliveries = await asyncio.gather(
                producer.send_arrow("orders", pa.table({"value": sent})),
                producer.send_arrow(None, pa.table({"value": sent, "topic": ["single"] * 20_000})),
            )
            deliveries[0].add_done_callback(called.append)
            assert [(await delivery).records for delivery in deliveries] == [20_000, 20_000]
            await asyncio.sleep(0)
            assert called == [deliveries[0]]

    on_loop(main())
    assert sorted(itertools.chain(*values(broker).values())) == sorted(sent)
    assert values(broker, "single") == {0: sent}


def test_async_with_very_many_rows_leaves_the_loop_alone(
    broker: karrow.Broker, on_loop: Run
) -> None:
    async def main() -> None:
        async with karrow.AsyncProducer(broker.bootstrap) as producer:
            table = pa.table({"key": ["k"] * 150_000, "value": ["v"] * 150_000})
            delivery = await producer.send_arrow("orders", table)
            assert (await delivery).records == 150_000

    on_loop(main())
    assert {number: len(part) for number, part in values(broker).items()} == {
        partition_for("k", PARTITIONS): 150_000
    }


def test_async_trouble(broker: karrow.Broker, on_loop: Run) -> None:
    async def main() -> None:
        async with karrow.AsyncProducer(
            broker.bootstrap, buffer_bytes=50_000, batch_bytes=10_000, max_block=0.2
        ) as producer:
            absent = pa.table({"value": [b"v"], "partition": [9]})
            with pytest.raises(errors.UnknownTopicOrPartition, match=r"'partition' .*\(row 0\)"):
                await producer.send_arrow("orders", absent)
            broker.delay("Produce", 1.0)
            with pytest.raises(errors.BufferFull, match="of 2000 rows"):
                await producer.send_arrow("single", pa.table({"value": numbered(2000, 100)}))
            broker.clear_faults()

    on_loop(main())


def test_transactions(broker: karrow.Broker) -> None:
    table = pa.table({"key": numbered(100), "value": numbered(100)})
    with karrow.Producer(broker.bootstrap, transactional_id="t-1") as producer:
        with pytest.raises(errors.StateError, match="transaction"):
            producer.send_arrow("orders", table)
        with producer.transaction():
            producer.send_arrow("orders", table)
    with karrow.Client(broker.bootstrap) as client:
        found = [
            record.value
            for number in range(PARTITIONS)
            for record in client.fetch_all("orders", number, isolation="read_committed").records
        ]
    assert sorted(value or b"" for value in found) == sorted(numbered(100))
