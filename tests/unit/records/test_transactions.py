"""Control batches and aborted transactions."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from karrow import records
from tests.unit.records.crafting import Batch, batch_of, control_batch

ABORT, COMMIT = 0, 1
TRANSACTIONAL = 0x10


def transactional(base_offset: int, producer_id: int, *values: bytes) -> Batch:
    return batch_of(
        *values, base_offset=base_offset, attributes=TRANSACTIONAL, producer_id=producer_id
    )


def read(data: bytes, aborted: list[tuple[int, int]] | None) -> list[bytes]:
    decoded = records.decode(data, aborted=aborted)
    columns: list[bytes] = pa.record_batch(decoded)["value"].to_pylist()
    reader = records.RecordReader(data, aborted=aborted)
    assert [record.value for record in reader] == columns
    assert reader.next_offset == decoded.next_offset
    return columns


def test_control_batches_never_come_out_and_move_the_position() -> None:
    data = bytes(batch_of(b"a")) + bytes(control_batch(1, 5, COMMIT))
    assert read(data, None) == [b"a"]
    assert records.decode(data).next_offset == 2


def test_aborted_records_come_out_only_uncommitted() -> None:
    data = bytes(transactional(0, 5, b"a", b"b")) + bytes(control_batch(2, 5, ABORT))
    assert read(data, None) == [b"a", b"b"]
    assert read(data, []) == [b"a", b"b"]
    assert read(data, [(5, 0)]) == []
    assert records.decode(data, aborted=[(5, 0)]).next_offset == 3


def test_only_the_aborted_producer_is_hidden_and_only_until_its_marker() -> None:
    data = b"".join(
        map(
            bytes,
            (
                transactional(0, 5, b"aborted"),
                transactional(1, 6, b"other"),
                batch_of(b"plain", base_offset=2),
                control_batch(3, 5, ABORT),
                transactional(4, 5, b"later"),
                control_batch(5, 5, COMMIT),
                control_batch(6, 6, COMMIT),
            ),
        )
    )
    assert read(data, [(5, 0)]) == [b"other", b"plain", b"later"]


def test_a_batch_before_the_transactions_first_offset_is_not_hidden() -> None:
    data = bytes(transactional(0, 5, b"kept")) + bytes(control_batch(1, 5, COMMIT))
    data += bytes(transactional(2, 5, b"dropped")) + bytes(control_batch(3, 5, ABORT))
    assert read(data, [(5, 2)]) == [b"kept"]


def test_a_second_abort_marker_changes_nothing() -> None:
    data = bytes(transactional(0, 5, b"x")) + bytes(control_batch(1, 5, ABORT)) * 1
    data += bytes(control_batch(2, 5, ABORT)) + bytes(transactional(3, 5, b"y"))
    assert read(data, [(5, 0)]) == [b"y"]


def test_an_unknown_control_type_is_passed_over() -> None:
    data = bytes(transactional(0, 5, b"x")) + bytes(control_batch(1, 5, 9))
    data += bytes(transactional(2, 5, b"still hidden"))
    assert read(data, [(5, 0)]) == []


@pytest.mark.parametrize("payload", [b"", b"\x01", bytes(30)])
def test_a_control_batch_without_a_readable_key_is_passed_over(payload: bytes) -> None:
    marker = control_batch(1, 5, ABORT).but(payload=payload)
    data = bytes(transactional(0, 5, b"x")) + bytes(marker) + bytes(batch_of(b"y", base_offset=2))
    assert read(data, [(5, 0)]) == [b"y"]


def test_random_histories_match_a_model() -> None:
    """The list of aborted transactions comes in any order, as brokers may send it."""
    rng = random.Random(20261116)
    for _ in range(300):
        log, expected, aborted = history(rng)
        rng.shuffle(aborted)
        assert read(log, aborted) == expected


def history(rng: random.Random) -> tuple[bytes, list[bytes], list[tuple[int, int]]]:
    """A log of interleaved transactions, what read_committed sees of it, and the aborted list."""
    log = b""
    offset = 0
    visible: dict[int, bytes] = {}
    aborted: list[tuple[int, int]] = []
    open_since: dict[int, list[tuple[int, bytes]]] = {}
    for _ in range(rng.randint(1, 30)):
        producer = rng.randint(1, 3)
        value = b"%d" % offset
        if rng.random() < 0.3:
            log += bytes(batch_of(value, base_offset=offset))
            visible[offset] = value
        elif rng.random() < 0.6 or producer not in open_since:
            log += bytes(transactional(offset, producer, value))
            open_since.setdefault(producer, []).append((offset, value))
        else:
            kind = rng.choice((ABORT, COMMIT))
            written = open_since.pop(producer)
            log += bytes(control_batch(offset, producer, kind))
            if kind == COMMIT:
                visible.update(written)
            else:
                aborted.append((producer, written[0][0]))
        offset += 1
    for producer, written in open_since.items():
        log += bytes(control_batch(offset, producer, COMMIT))
        visible.update(written)
        offset += 1
    return log, [visible[at] for at in sorted(visible)], aborted
