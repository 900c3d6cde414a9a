"""What a consumer makes of a log with transactions in it, against a model of that log.

The log is drawn at random: batches of several producers, in transactions and outside, markers that
commit or abort, transactions that stay open, and what compaction leaves behind. The model knows of
every record whether it may be seen; the kernel and the positions have to agree with it, whichever
way is used to read and wherever the broker cuts its answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.aio.handing import Desk
from tests.unit.records.crafting import Batch, control_batch, gzipped, record

TRANSACTIONAL = 0x10
GZIP = 1
ABORT, COMMIT = 0, 1

Seen = tuple[int, bytes | None]


class Entry(NamedTuple):
    """A batch of the log: where it is, and what is in it for readers."""

    base: int
    end: int
    data: bytes
    records: tuple[Seen, ...]
    transaction: Transaction | None


@dataclass(eq=False)
class Transaction:
    """A transaction and how it ended, if it did."""

    producer: int
    first: int
    last: int | None = None
    outcome: int | None = None


@dataclass
class Log:
    """One partition as its broker has it."""

    entries: list[Entry] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    end: int = 0

    @property
    def stable(self) -> int:
        """The last stable offset: where the oldest open transaction begins."""
        return min(
            (one.first for one in self.transactions if one.outcome is None), default=self.end
        )

    def readable(self, *, committed: bool) -> list[Entry]:
        return [one for one in self.entries if not committed or one.end <= self.stable]

    def visible(self, *, committed: bool) -> list[Seen]:
        """What an application is to see."""
        return [
            seen
            for one in self.readable(committed=committed)
            if not (committed and one.transaction and one.transaction.outcome == ABORT)
            for seen in one.records
        ]

    def answer(self, offset: int, most: int, *, committed: bool) -> tuple[bytes, list[Aborted]]:
        """What a broker gives from an offset on: batches, cut somewhere, and what was aborted."""
        found = [one for one in self.readable(committed=committed) if one.end > offset]
        data = b"".join(one.data for one in found)
        first = len(found[0].data) if found else 0
        upper = max((one.end for one in found), default=offset)
        aborted = [
            (one.producer, one.first)
            for one in self.transactions
            if one.outcome == ABORT
            and one.last is not None
            and one.last >= offset
            and one.first < upper
        ]
        return data[: max(first, most)], aborted


Aborted = tuple[int, int]


@st.composite
def batches(
    draw: st.DrawFn, base: int, producer: int | None
) -> tuple[Batch, tuple[Seen, ...], int]:
    """A batch of up to five offsets, some of which compaction may have emptied."""
    span = draw(st.integers(1, 5))
    some = st.lists(st.integers(0, span - 1), unique=True, max_size=span).map(sorted)
    kept = draw(st.just(list(range(span))) | some)
    seen = tuple((base + delta, b"%d" % (base + delta)) for delta in kept)
    payload = b"".join(record(delta, b"%d" % (base + delta)) for delta in kept)
    attributes = 0 if producer is None else TRANSACTIONAL
    is_packed = draw(st.booleans())
    if kept and is_packed:
        attributes, payload = attributes | GZIP, gzipped(payload)
    batch = Batch(
        payload,
        base,
        last_delta=span - 1,
        count=len(kept),
        attributes=attributes,
        producer_id=-1 if producer is None else producer,
        producer_epoch=-1 if producer is None else 0,
    )
    return batch, seen, base + span


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log()
    running: dict[int, Transaction] = {}
    for _ in range(draw(st.integers(0, 14))):
        # Whole batches go, too, when compaction finds nothing in them that is still needed.
        log.end += draw(st.sampled_from([0, 0, 0, 2]))
        producer = draw(st.sampled_from([None, 1, 2, 3]))
        if producer in running and draw(st.booleans()):
            assert producer is not None
            ended = running.pop(producer)
            ended.outcome = draw(st.sampled_from([ABORT, COMMIT]))
            ended.last = log.end
            marker = bytes(control_batch(log.end, producer, ended.outcome))
            log.entries.append(Entry(log.end, log.end + 1, marker, (), None))
            log.end += 1
            continue
        if producer is not None and producer not in running:
            running[producer] = Transaction(producer, log.end)
            log.transactions.append(running[producer])
        batch, seen, end = draw(batches(log.end, producer))
        transaction = None if producer is None else running[producer]
        log.entries.append(Entry(log.end, end, bytes(batch), seen, transaction))
        log.end = end
    return log


# ---- ways to read


def one_by_one(desk: Desk, _: int) -> list[Seen]:
    found = next(desk, None)
    return [] if found is None else [(found.offset, found.value)]


def as_list(desk: Desk, most: int) -> list[Seen]:
    return [(found.offset, found.value) for found in desk.taker.records(most)]


def as_columns(desk: Desk, most: int) -> list[Seen]:
    rows = desk.taker.columns(["offset", "value"], most, None)
    if rows is None:
        return []
    batch = pa.record_batch(rows)
    return list(zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True))


WAYS: list[Callable[[Desk, int], list[Seen]]] = [one_by_one, as_list, as_columns]
steps = st.lists(st.tuples(st.sampled_from(WAYS), st.integers(1, 4)), min_size=1, max_size=8)
cuts = st.lists(st.integers(1, 1000), min_size=1, max_size=8)


class Reader:
    """Reads a log through a consumer's engine, with answers cut as drawn."""

    def __init__(self, log: Log, at: int, sizes: list[int], *, committed: bool) -> None:
        isolation = "read_committed" if committed else "read_uncommitted"
        self.desk = Desk(at=at, isolation=isolation)
        self._log = log
        self._sizes = itertools.cycle(sizes)
        self._committed = committed

    def fetch(self) -> bool:
        """Have more data; False where the broker has none."""
        asked = self.desk.asked()
        data, aborted = self._log.answer(asked.offset, next(self._sizes), committed=self._committed)
        if data:
            end, stable = self._log.end, self._log.stable
            self.desk.feed(data, end=end, stable=stable, aborted=aborted)
        return bool(data)

    def read(self, how: Iterator[tuple[Callable[[Desk, int], list[Seen]], int]]) -> list[Seen]:
        """What comes next; empty at the end."""
        way, most = next(how)
        while not (found := way(self.desk, most)):
            if not self.fetch():
                return []
        return found

    def rest(self, how: Iterator[tuple[Callable[[Desk, int], list[Seen]], int]]) -> list[Seen]:
        found = []
        while some := self.read(how):
            found += some
        return found


@pytest.mark.parametrize("committed", [True, False])
@given(log=logs(), how=steps, sizes=cuts, stop=st.integers(0, 30))
def test_exactly_what_may_be_seen_comes_out_and_positions_know_how_far(
    log: Log,
    how: list[tuple[Callable[[Desk, int], list[Seen]], int]],
    sizes: list[int],
    stop: int,
    *,
    committed: bool,
) -> None:
    expected = log.visible(committed=committed)
    ways = itertools.cycle(how)
    reader = Reader(log, 0, sizes, committed=committed)
    handed: list[Seen] = []
    last: list[Seen] = []
    for _ in range(stop):
        last = reader.read(ways)
        handed += last
    assert handed == expected[: len(handed)]

    # Whoever goes on at the position has the rest; at what is done with, what was handed out last.
    position, consumed = reader.desk.position(), reader.desk.consumed()
    assert position is not None
    assert consumed is not None
    assert Reader(log, position, sizes, committed=committed).rest(ways) == expected[len(handed) :]
    again = Reader(log, consumed, sizes, committed=committed).rest(ways)
    assert again == expected[len(handed) - len(last) :]

    assert reader.rest(ways) == expected[len(handed) :]
    readable = log.readable(committed=committed)
    assert reader.desk.position() == (readable[-1].end if readable else 0)
    assert reader.desk.consumed() == reader.desk.position()
    assert reader.desk.positions.buffered_bytes == 0
