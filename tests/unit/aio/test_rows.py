"""Arrow rows into batches, without a broker."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from karrow import errors
from karrow.aio._rows import ArrowRows, error_in
from karrow.records import encode, partition_for
from tests.unit.aio.taking import (
    accumulator,
    batches_of,
    contents,
    prepared,
    read,
    take,
    values,
)

INTEGERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
]
STRINGS = [pa.string(), pa.large_string(), pa.string_view()]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"%d" % number + b"." * size for number in range(count)]


def in_order(parts: list[list[bytes]]) -> bool:
    """Whether each part holds its values in the order of their numbers."""
    numbers = [[int(value.rstrip(b".")) for value in part] for part in parts]
    return all(part == sorted(part) for part in numbers)


# ---- where rows go


def test_rows_without_a_key_go_together() -> None:
    target = accumulator()
    take(target, pa.table({"value": numbered(100)}))
    [(_, found)] = values(contents(target)).items()
    assert found == numbered(100)


def test_rows_without_a_key_go_elsewhere_when_a_batch_is_full() -> None:
    target = accumulator({"t": 8}, batch_bytes=1000)
    rows = take(target, pa.table({"value": numbered(1000, 20)}))
    found = values(contents(target))
    assert sorted(itertools.chain(*found.values())) == sorted(numbered(1000, 20))
    assert in_order(list(found.values()))
    assert len(found) == 8, "50 batches are drawn for 8 partitions"
    assert all(len(read(batch)) > 10 for batch, _, _ in rows.parts[:-1])


@pytest.mark.parametrize("partitioner", ["murmur2", "murmur2_legacy", "consistent", "fnv1a"])
def test_keys_decide(partitioner: str) -> None:
    target = accumulator({"t": 7}, partitioner=partitioner)
    keys = [b"key-%d" % (number % 50) for number in range(500)]
    take(target, pa.table({"key": keys, "value": numbered(500)}))
    found = contents(target)
    assert sum(map(len, found.values())) == 500
    for (_, partition), records in found.items():
        for record in records:
            assert record.key is not None
            assert partition == partition_for(record.key, 7, partitioner)
    assert in_order(list(values(found).values()))


def test_rows_with_and_without_a_key_keep_their_order() -> None:
    target = accumulator({"t": 1}, batch_bytes=500)
    keys = [None if number % 3 else b"k" for number in range(200)]
    take(target, pa.table({"key": keys, "value": numbered(200)}))
    assert values(contents(target)) == {("t", 0): numbered(200)}


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_a_partition_column_decides_before_the_key(kind: pa.DataType) -> None:
    target = accumulator()
    partitions = pa.array([3, None, 0], kind)
    take(target, pa.table({"key": [b"k"] * 3, "value": numbered(3), "partition": partitions}))
    expected: dict[int, list[bytes]] = {}
    for partition, value in zip([3, partition_for(b"k", 4), 0], numbered(3), strict=True):
        expected.setdefault(partition, []).append(value)
    assert {number: v for (_, number), v in values(contents(target)).items()} == expected


def test_random_looks_at_no_key() -> None:
    target = accumulator(partitioner="random")
    take(target, pa.table({"key": [b"k"] * 400, "value": numbered(400)}))
    counts = [len(records) for records in contents(target).values()]
    assert len(counts) == 4
    assert min(counts) > 50


def test_a_function_is_asked_for_each_row() -> None:
    asked: list[tuple[str, bytes | None, int]] = []

    def choose(topic: str, key: bytes | None, count: int) -> int:
        asked.append((topic, key, count))
        return len(asked) % count

    target = accumulator(partitioner=choose)
    columns = {
        "key": [b"k", None, b"k"],
        "value": numbered(3),
        "partition": pa.array([None, None, 3], pa.int32()),
    }
    take(target, pa.table(columns))
    assert asked == [("t", b"k", 4), ("t", None, 4)]
    assert values(contents(target)) == {("t", 1): [b"0"], ("t", 2): [b"1"], ("t", 3): [b"2"]}


@pytest.mark.parametrize("chosen", [-1, 4, "0", None])
def test_a_function_that_chooses_wrong_sends_nothing(chosen: Any) -> None:
    answers = iter([0, chosen])
    target = accumulator(partitioner=lambda *_: next(answers))
    with pytest.raises(errors.ConfigError, match=r"chose .* \(row 1\)"):
        prepared(target, pa.table({"value": numbered(2)}))
    assert target.batches == 0


# ---- topics


@pytest.mark.parametrize("kind", STRINGS, ids=str)
def test_a_topic_column_decides(kind: pa.DataType) -> None:
    target = accumulator({"t": 1, "a-topic-with-a-long-name": 1})
    names = ["a-topic-with-a-long-name", None, "t", "a-topic-with-a-long-name"]
    take(target, pa.table({"value": numbered(4), "topic": pa.array(names, kind)}))
    assert values(contents(target, "t", "a-topic-with-a-long-name")) == {
        ("t", 0): [b"1", b"2"],
        ("a-topic-with-a-long-name", 0): [b"0", b"3"],
    }


def test_a_chunk_without_any_topic_goes_to_the_one_that_is_given() -> None:
    target = accumulator({"t": 1, "u": 1})
    first = pa.table({"value": [b"0"], "topic": ["u"]})
    rest = pa.table({"value": numbered(4)[1:], "topic": pa.nulls(3, pa.string())})
    take(target, pa.concat_tables([first, rest]))
    assert values(contents(target, "t", "u")) == {("t", 0): numbered(4)[1:], ("u", 0): [b"0"]}


@pytest.mark.parametrize("kind", STRINGS[:2], ids=str)
@pytest.mark.parametrize("index", INTEGERS, ids=str)
def test_topics_in_a_dictionary(index: pa.DataType, kind: pa.DataType) -> None:
    target = accumulator({"t": 1, "u": 1})
    names = pa.array(["u", None, "t", "u"], pa.dictionary(index, kind))
    table = pa.table({"value": numbered(4), "topic": names}).slice(1)
    take(target, table)
    assert values(contents(target, "t", "u")) == {("t", 0): [b"1", b"2"], ("u", 0): [b"3"]}


def test_many_topics() -> None:
    names = [f"topic-{number}" for number in range(1000)]
    target = accumulator(dict.fromkeys(names, 2))
    take(target, pa.table({"value": numbered(3000), "topic": names * 3}), None)
    found = values(contents(target, *names))
    together = {
        name: [v for (t, _), part in found.items() if t == name for v in part] for name in names
    }
    assert together == {
        name: [b"%d" % (start + number) for start in (0, 1000, 2000)]
        for number, name in enumerate(names)
    }


def test_topics_that_only_a_dictionary_names_do_not_count() -> None:
    names = pa.array(["t", "no topic"], pa.dictionary(pa.int8(), pa.string()))
    rows = ArrowRows(
        accumulator(), None, pa.table({"value": numbered(2), "topic": names}).slice(0, 1)
    )
    rows.check()
    assert rows.unknown() == []


def test_unknown_topics_are_told_once() -> None:
    names = ["new", "t", "newer", "new"]
    rows = ArrowRows(accumulator(), None, pa.table({"value": numbered(4), "topic": names}))
    rows.check()
    assert rows.unknown() == ["new", "newer"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.int32(), pa.dictionary(pa.int8(), pa.int32())])
def test_topics_that_are_no_text_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(errors.LocalProtocolError, match="column 'topic'"):
        ArrowRows(accumulator(), "t", pa.table({"value": [b""], "topic": pa.nulls(1, kind)}))


# ---- what is wrong is found before anything is sent


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"timestamp": [0, 1, -1]}, errors.LocalProtocolError, r"'timestamp' .*\(row 2\)"),
        (
            {"headers": pa.array([[], None, [{"key": None, "value": b""}]], HEADERS)},
            errors.LocalProtocolError,
            r"'headers' .*\(row 2\)",
        ),
        ({"topic": ["t", "t", "x y"]}, errors.InvalidTopicException, r"'topic' .*\(row 2\)"),
        ({"value": [b"", b"", b"." * 2000]}, errors.MessageTooLarge, r"'value' .*\(row 2\)"),
    ],
)
@pytest.mark.parametrize("chunked", [True, False])
def test_a_wrong_row_is_named(
    columns: dict[str, Any], error: type[Exception], message: str, chunked: bool
) -> None:
    target = accumulator(record_bytes=1000)
    table = pa.table({"value": numbered(3)} | columns)
    if chunked:
        table = pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)])
    with pytest.raises(error, match=message):
        prepared(target, table)
    assert target.batches == 0


def test_a_row_without_any_topic_is_named() -> None:
    table = pa.table({"value": numbered(2), "topic": ["t", None]})
    with pytest.raises(errors.LocalProtocolError, match=r"column 'topic' .*\(row 1\)"):
        prepared(accumulator(), table, None)
    with pytest.raises(errors.LocalProtocolError, match="no topic is given"):
        prepared(accumulator(), pa.table({"value": numbered(2)}), None)


@pytest.mark.parametrize("partition", [-1, 4, 2**31])
def test_an_absent_partition_is_told(partition: int) -> None:
    table = pa.table({"value": numbered(2), "partition": pa.array([3, partition], pa.int64())})
    chunks = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    rows = ArrowRows(accumulator(), "t", chunks)
    rows.check()
    assert rows.absent() == ("t", partition, 1)


def test_a_topic_may_grow_before_rows_are_placed() -> None:
    target = accumulator()
    rows = ArrowRows(target, "t", pa.table({"value": [b"v"], "partition": [5]}))
    rows.check()
    assert rows.absent() == ("t", 5, 0)
    target.add_topic("t", 6)
    assert rows.absent() is None
    rows.place()
    assert rows.step()
    assert values(contents(target)) == {("t", 5): [b"v"]}


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.dictionary(pa.int8(), pa.int32())])
def test_partitions_that_are_no_numbers_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(errors.LocalProtocolError, match="column 'partition'"):
        ArrowRows(accumulator(), "t", pa.table({"value": [b""], "partition": pa.nulls(1, kind)}))


def test_unknown_columns_are_refused_and_those_of_a_consumer_not() -> None:
    with pytest.raises(errors.LocalProtocolError, match="column 'color' is none of"):
        ArrowRows(accumulator(), "t", pa.table({"value": [b""], "color": [1]}))
    target = accumulator()
    columns = {"value": numbered(2), "offset": [9, 3], "timestamp_type": ["x", "y"]}
    take(target, pa.table(columns))
    assert list(values(contents(target)).values()) == [numbered(2)]


def test_a_producer_that_takes_nothing_takes_no_rows() -> None:
    target = accumulator()
    rows = prepared(target, pa.table({"value": numbered(2)}))
    target.refusal = errors.StateError("the producer is closed")
    with pytest.raises(errors.StateError, match="closed"):
        rows.step()
    with pytest.raises(errors.StateError, match="closed"):
        ArrowRows(target, "t", pa.table({"value": numbered(2)}))
    assert target.batches == 0


# ---- batches


def test_no_rows_give_no_batch() -> None:
    target = accumulator()
    rows = take(target, pa.table({"value": pa.array([], pa.binary())}), None)
    assert (rows.count, rows.parts, target.batches) == (0, [], 0)


def test_bytes_are_those_of_encode() -> None:
    target = accumulator({"t": 1})
    table = pa.table(
        {
            "key": ["k", None, ""],
            "value": pa.array([b"v" * 300, None, b""], pa.large_binary()),
            "timestamp": pa.array([5, 4, 6], pa.timestamp("us", "UTC")),
            "headers": pa.array([[{"key": "a", "value": b"1"}], [], None], HEADERS),
        }
    )
    [(batch, first, count)] = take(target, table).parts
    batch.close()
    batch.stamp(False)
    assert (first, count) == (0, 3)
    assert bytes(memoryview(batch)) == encode(table)


def test_no_batch_is_larger_than_allowed_but_for_one_row() -> None:
    target = accumulator({"t": 1}, batch_bytes=5000)
    sizes = [10, 3000, 3000, 20_000, 10, 10, 4900]
    rows = take(target, pa.table({"value": [b"." * size for size in sizes]}))
    assert [len(record.value or b"") for b, _, _ in rows.parts for record in read(b)] == sizes
    assert all(batch.size <= 5000 or batch.count == 1 for batch, _, _ in rows.parts)


def test_the_last_batch_stays_open_and_small_data_joins_it() -> None:
    target = accumulator({"t": 1})
    first = take(target, pa.table({"value": [b"a", b"b"]})).parts
    second = take(target, pa.table({"key": [None, b"k"], "value": [b"c", b"d"]})).parts
    [[batch]] = batches_of(target).values()
    assert first == [(batch, 0, 2)]
    assert second == [(batch, 2, 2)]
    assert (target.batches, target.records, target.bytes) == (1, 4, batch.charged)
    assert [record.value for record in read(batch)] == [b"a", b"b", b"c", b"d"]


def test_small_data_without_keys_shares_one_batch() -> None:
    target = accumulator({"t": 50})
    for _ in range(20):
        take(target, pa.table({"value": numbered(3)}))
    assert [len(line) for line in batches_of(target).values()] == [1]


def test_an_open_batch_is_closed_before_a_large_one_joins_the_line() -> None:
    target = accumulator({"t": 1}, batch_bytes=1000)
    take(target, pa.table({"value": [b"0"]}))
    take(target, pa.table({"value": numbered(200)[1:]}))
    assert values(contents(target)) == {("t", 0): numbered(200)}


def test_what_is_counted_is_what_waits() -> None:
    target = accumulator(batch_bytes=2000)
    table = pa.table({"key": numbered(500), "value": numbered(500, 30)})
    rows = take(target, table)
    assert target.incomplete == {batch for batch, _, _ in rows.parts}
    assert target.bytes == sum(batch.charged for batch in target.incomplete)
    assert sum(batch.count for batch in target.incomplete) == target.records == 500
    for batch in list(target.incomplete):
        batch.close()
        batch.succeed(0)
    assert target.bytes == 0
    topic = target.topic("t")
    assert topic is not None
    assert [partition.backlog for partition in topic.partitions] == [0] * 4


def test_a_full_batch_wakes_the_sender_and_so_does_the_first() -> None:
    wakes: list[int] = []
    target = accumulator({"t": 1}, batch_bytes=1000)
    target.waker = lambda: wakes.append(target.batches)
    take(target, pa.table({"value": [b"first"]}))
    assert wakes == [1]
    target.look()
    assert target.rest(True), "lingering"
    take(target, pa.table({"value": [b"second"]}))
    assert wakes == [1]
    take(target, pa.table({"value": numbered(100)}))
    assert len(wakes) == 2


# ---- room


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("buffer_bytes", [1, 5000, 20_000, 300_000])
def test_data_larger_than_the_buffer_goes_piece_by_piece(buffer_bytes: int, keyed: bool) -> None:
    target = accumulator(buffer_bytes=buffer_bytes, batch_bytes=10_000)
    columns = {"value": numbered(5000, 100)} | ({"key": numbered(5000)} if keyed else {})
    rows = prepared(target, pa.table(columns))
    found: dict[int, list[Any]] = {}
    most = 0
    while not (is_done := rows.step()) or target.incomplete:
        assert is_done or rows.is_stuck
        most = max(most, target.bytes)
        for number, line in batches_of(target).items():
            part = target.listed[0].topic.partitions[number]
            target.close_batch(part)
            part.queue.clear()
            for batch in line:
                found.setdefault(number, []).extend(record.value for record in read(batch))
                batch.succeed(0)
        if is_done:
            break
    assert sorted(itertools.chain(*found.values())) == sorted(numbered(5000, 100))
    assert in_order(list(found.values()))
    assert most <= buffer_bytes + 10_000
    assert buffer_bytes < 300_000 or most > 100_000, "room is used"


def test_others_records_are_waited_for_with_full_batches_at_hand() -> None:
    target = accumulator({"t": 1}, buffer_bytes=40_000, batch_bytes=10_000)
    first = prepared(target, pa.table({"value": numbered(2000, 100)}))
    assert not first.step()
    taken = first.taken
    assert not first.step(), "nothing was settled meanwhile"
    assert first.taken == taken
    first.give_up()
    assert sum(count for _, _, count in first.parts) == taken
    assert values(contents(target)) == {("t", 0): numbered(2000, 100)[:taken]}


def test_a_turn_ends_after_some_batches() -> None:
    target = accumulator({"t": 1}, batch_bytes=1000)
    rows = prepared(target, pa.table({"value": numbered(200)}))
    assert not rows.step(2)
    assert not rows.is_stuck
    assert len(rows.parts) == 2
    assert rows.step()


# ---- outcomes


def test_the_error_of_a_record_comes_before_that_of_its_batch() -> None:
    [(batch, _, _)] = take(accumulator({"t": 1}), pa.table({"value": numbered(5)})).parts
    batch.close()
    rest, refused = errors.InvalidRecord("rest"), errors.InvalidRecord("refused")
    batch.fail(rest, {3: refused})
    assert error_in(batch, 0, 3) is rest
    assert error_in(batch, 2, 3) is refused
