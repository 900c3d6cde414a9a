"""Records into batches: where they go, what is refused, when the sender is woken."""

from __future__ import annotations

import collections
import gc
import threading

import pytest

from karrow.aio._accumulator import Accumulator, Obstacle
from karrow.errors import ConfigError, LocalProtocolError, MessageTooLarge, StateError
from karrow.records import RecordReader, partition_for
from tests.unit.aio.accumulating import Sending, Stopped, Waker, filled_batch, new_accumulator


def sending(partitions: int = 4, **options: object) -> tuple[Accumulator, Sending]:
    accumulator = new_accumulator({"t": partitions}, **options)  # type: ignore[arg-type]
    return accumulator, Sending(accumulator)


def times_woken(accumulator: Accumulator) -> int:
    assert isinstance(accumulator.waker, Waker)
    return accumulator.waker.times


def fill(sender: Sending, size: int) -> None:
    """Send until there is no room."""
    while True:
        sender.send("t", b"x" * size)


def values_of(accumulator: Accumulator, partition: int) -> list[bytes]:
    """Everything in a partition's line, in order."""
    where = accumulator.add_topic("t", 1).partitions[partition]
    accumulator.close_batch(where)
    found = []
    for batch in where.queue:
        batch.stamp(False)
        found += [record.value or b"" for record in RecordReader(bytes(memoryview(batch)))]
    return found


def test_record_comes_out_as_it_went_in() -> None:
    accumulator, sender = sending(1)
    headers = [("h", b"x"), ("n", None), ("s", "text")]
    sender.send("t", b"value", key=b"key", headers=headers, timestamp_ms=1234)
    sender.send("t", "téxt", key=memoryview(b"view"))
    sender.send("t", None, headers={"one": b"1"})
    sender.send("t", b"", key=b"")
    where = accumulator.add_topic("t", 1).partitions[0]
    accumulator.close_batch(where)
    (batch,) = where.queue
    batch.stamp(False)

    first, second, third, fourth = RecordReader(bytes(memoryview(batch)))

    assert (first.key, first.value, first.timestamp_ms) == (b"key", b"value", 1234)
    assert first.headers == (("h", b"x"), ("n", None), ("s", b"text"))
    assert (second.key, second.value) == (b"view", "téxt".encode())
    assert (third.key, third.value, third.headers) == (None, None, (("one", b"1"),))
    assert (fourth.key, fourth.value) == (b"", b"")


def test_key_decides_the_partition() -> None:
    accumulator, sender = sending(7)
    for number in range(200):
        key = f"key-{number}".encode()
        sender.send("t", key, key=key)
    for partition in range(7):
        assert {partition_for(key, 7) for key in values_of(accumulator, partition)} == {partition}


@pytest.mark.parametrize("name", ["murmur2_legacy", "consistent", "fnv1a"])
def test_other_partitioners(name: str) -> None:
    accumulator, sender = sending(5, partitioner=name)
    for number in range(100):
        sender.send("t", b"%d" % number, key=b"%d" % number)
    for partition in range(5):
        found = {partition_for(key, 5, name) for key in values_of(accumulator, partition)}
        assert found == {partition}


def test_random_partitioner_looks_at_no_key() -> None:
    accumulator, sender = sending(4, partitioner="random")
    for _ in range(400):
        sender.send("t", b"v", key=b"same")
    counts = [len(values_of(accumulator, partition)) for partition in range(4)]
    assert all(50 < count < 160 for count in counts)


def test_function_as_partitioner_of_producer_and_of_call() -> None:
    seen = []

    def choose(topic: str, key: bytes | None, partitions: int) -> int:
        seen.append((topic, key, partitions))
        return 2

    accumulator, sender = sending(4, partitioner=choose)
    sender.send("t", b"a", key="k")
    sender.send("t", b"b", partitioner=lambda *_: 3)
    assert seen == [("t", b"k", 4)]
    assert values_of(accumulator, 2) == [b"a"]
    assert values_of(accumulator, 3) == [b"b"]


@pytest.mark.parametrize("choice", [4, -1, "x", None, True])
def test_partitioner_that_chooses_nothing_is_refused(choice: object) -> None:
    accumulator, sender = sending(4)
    with pytest.raises(ConfigError, match="of 4 partitions"):
        sender.send("t", b"b", partitioner=lambda *_: choice)  # type: ignore[arg-type]
    assert accumulator.records == 0
    with pytest.raises(ConfigError, match="no function"):
        sender.send("t", b"b", partitioner="murmur2")  # type: ignore[arg-type]


def test_keyless_records_stay_together_and_then_move_on() -> None:
    accumulator, sender = sending(4, batch_bytes=2000, buffer_bytes=10_000_000)
    for _ in range(2000):
        sender.send("t", b"x" * 100)
    batches = [len(p.queue) + bool(p.open_batch) for p in accumulator.add_topic("t", 4).partitions]
    assert sum(batches) == accumulator.batches
    assert 2000 / accumulator.batches > 10  # records share batches
    assert all(count > 15 for count in batches)


def test_partition_with_a_long_line_is_drawn_less_often() -> None:
    accumulator, sender = sending(2, batch_bytes=200, buffer_bytes=10_000_000)
    crowded, free = accumulator.add_topic("t", 2).partitions
    crowded.backlog = 40
    for _ in range(300):
        sender.send("t", b"x" * 150)
        free.backlog = 0
        crowded.backlog = 40
    assert len(free.queue) > 5 * len(crowded.queue)


def test_partition_without_a_leader_is_not_drawn() -> None:
    accumulator, sender = sending(3, batch_bytes=200)
    accumulator.add_topic("t", 3).partitions[1].is_available = False
    for _ in range(100):
        sender.send("t", b"x" * 150)
    assert values_of(accumulator, 1) == []
    for partition in accumulator.add_topic("t", 3).partitions:
        partition.is_available = False
    sender.send("t", b"anyway")
    assert accumulator.records == 101


def test_partition_can_be_named_and_must_exist() -> None:
    accumulator, sender = sending(4)
    sender.send("t", b"v", partition=3)
    assert values_of(accumulator, 3) == [b"v"]
    for partition in (4, -1, 2**40):
        with pytest.raises(Stopped) as stopped:
            sender.send("t", b"v", partition=partition)
        assert stopped.value.obstacle == Obstacle.NO_PARTITION
    with pytest.raises(LocalProtocolError, match="partition='1'"):
        sender.send("t", b"v", partition="1")  # type: ignore[arg-type]


def test_unknown_topic_is_an_obstacle() -> None:
    _, sender = sending()
    with pytest.raises(Stopped) as stopped:
        sender.send("other", b"v")
    assert stopped.value.obstacle == Obstacle.NO_TOPIC


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"value": 5}, "value"),
        ({"value": b"v", "key": 1.5}, "key"),
        ({"value": b"v", "headers": 5}, "headers"),
        ({"value": b"v", "headers": [(b"name", b"x")]}, "header name"),
        ({"value": b"v", "headers": [("only",)]}, "pair"),
        ({"value": b"v", "headers": [("h", 5)]}, "header value"),
        ({"value": b"v", "timestamp_ms": -1}, "timestamp_ms=-1"),
        ({"value": b"v", "timestamp_ms": 1.5}, "timestamp_ms=1.5"),
        ({"value": b"v", "timestamp_ms": 2**63}, "timestamp_ms"),
    ],
)
def test_bad_argument_concerns_nobody_else(arguments: dict[str, object], word: str) -> None:
    accumulator, sender = sending(1)
    sender.send("t", b"before")
    with pytest.raises(LocalProtocolError, match=word):
        sender.send("t", **arguments)  # type: ignore[arg-type]
    sender.send("t", b"after")
    assert values_of(accumulator, 0) == [b"before", b"after"]


def test_record_larger_than_a_request_is_refused() -> None:
    accumulator, sender = sending(1, record_bytes=1000)
    with pytest.raises(MessageTooLarge, match="max_request_bytes"):
        sender.send("t", b"x" * 2000)
    assert accumulator.bytes == 0


def test_room_is_counted_and_comes_back() -> None:
    accumulator, sender = sending(1, buffer_bytes=1000, batch_bytes=300)
    with pytest.raises(Stopped) as stopped:
        fill(sender, 100)
    assert stopped.value.obstacle == Obstacle.NO_ROOM
    assert 700 < accumulator.bytes <= 1000
    for batch in list(accumulator.incomplete):
        batch.succeed(0)
    assert accumulator.bytes == 0
    sender.send("t", b"x" * 100)


def test_record_larger_than_the_buffer_is_taken_when_it_is_empty() -> None:
    accumulator, sender = sending(1, buffer_bytes=1000)
    sender.send("t", b"x" * 5000)
    assert accumulator.bytes > 1000
    with pytest.raises(Stopped):
        sender.send("t", b"y")


def test_who_waits_for_room_is_woken_when_a_quarter_is_free() -> None:
    accumulator, sender = sending(1, buffer_bytes=1000, batch_bytes=200)
    with pytest.raises(Stopped):
        fill(sender, 60)
    woken = []
    assert accumulator.add_room_waiter(lambda: woken.append(1))
    assert accumulator.is_blocked
    batches = sorted(accumulator.incomplete, key=lambda batch: batch.born)
    while accumulator.bytes > 750:
        assert not woken
        batches.pop(0).succeed(0)
    assert woken == [1]
    assert not accumulator.is_blocked


def test_wait_for_room_blocks_a_thread_until_there_is_some() -> None:
    accumulator, sender = sending(1, buffer_bytes=1000, batch_bytes=200)
    with pytest.raises(Stopped):
        fill(sender, 60)
    assert not accumulator.wait_for_room(0.01)
    results = []
    thread = threading.Thread(target=lambda: results.append(accumulator.wait_for_room(10)))
    thread.start()
    while not accumulator.is_blocked:
        pass
    for batch in list(accumulator.incomplete):
        batch.succeed(0)
    thread.join(10)
    assert results == [True]


def test_sender_is_woken_by_the_first_record_only() -> None:
    accumulator, sender = sending(1, batch_bytes=1000)
    for _ in range(5):
        sender.send("t", b"v")
    assert times_woken(accumulator) == 1
    accumulator.look()
    assert accumulator.rest(lingering=True)
    sender.send("t", b"v")
    assert times_woken(accumulator) == 1  # the timer will see to it
    for _ in range(12):
        sender.send("t", b"x" * 100)
    assert times_woken(accumulator) == 2  # a batch is full


def test_sender_does_not_go_to_sleep_over_news() -> None:
    accumulator, sender = sending(2)
    sender.send("t", b"v", partition=0)
    accumulator.look()
    sender.send("t", b"v", partition=1)
    assert not accumulator.rest(lingering=False)
    accumulator.look()
    assert accumulator.rest(lingering=False)


def test_waiting_for_a_batch_wakes_the_sender() -> None:
    accumulator, sender = sending(1)
    delivery = sender.send("t", b"v")
    accumulator.look()
    assert accumulator.rest(lingering=True)
    assert not delivery.done()
    with pytest.raises(TimeoutError):
        delivery.result(timeout=0.01)
    assert times_woken(accumulator) == 2
    (batch,) = accumulator.incomplete
    assert batch.is_urgent


def test_refusal_is_raised_anew_each_time() -> None:
    accumulator, sender = sending(1)
    accumulator.refusal = StateError("closed", hint="open it")
    caught = []
    for _ in range(2):
        with pytest.raises(StateError, match="closed") as error:
            sender.send("t", b"v")
        caught.append(error.value)
    assert caught[0] is not caught[1]
    accumulator.refusal = None
    sender.send("t", b"v")


def test_send_nowait_raises_what_is_in_the_way() -> None:
    accumulator, sender = sending(1, buffer_bytes=200)
    sender.send_nowait("t", b"x" * 150)
    with pytest.raises(Stopped) as stopped:
        sender.send_nowait("t", b"x" * 150)
    assert stopped.value.obstacle == Obstacle.NO_ROOM
    assert accumulator.records == 1


def test_threads_share_an_accumulator() -> None:
    accumulator, sender = sending(3, batch_bytes=5000, buffer_bytes=100_000_000)

    def work(name: int) -> None:
        for number in range(3000):
            sender.send("t", b"%d-%d" % (name, number), partition=name % 3)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = collections.defaultdict(list)
    for partition in range(3):
        for value in values_of(accumulator, partition):
            name, number = value.split(b"-")
            found[int(name)].append(int(number))
    assert found == {name: list(range(3000)) for name in range(6)}


def test_batches_die_with_their_accumulator() -> None:
    accumulator, sender = sending(2)
    delivery = sender.send("t", b"v")
    delivery.add_done_callback(lambda _: None)
    filled_batch(accumulator, "t", 1)
    del accumulator, sender, delivery
    gc.collect()


def test_topic_grows_and_is_made_anew() -> None:
    accumulator, sender = sending(1)
    accumulator.add_topic("t", 3)
    sender.send("t", b"v", partition=2)
    gone = accumulator.shrink_topic("t", 2)
    assert [partition.number for partition in gone] == [2]
    with pytest.raises(Stopped):
        sender.send("t", b"v", partition=2)
    sender.send("t", b"v")
