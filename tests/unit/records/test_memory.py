"""Threads, leaks, and the absence of pyarrow."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from karrow import records
from karrow.errors import CorruptRecordError, LocalProtocolError, StateError
from tests.unit.records.crafting import Batch, batch_of, record

LARGE = bytes(batch_of(*[b"x" * 100] * 9000))


def test_threads_decode_at_once() -> None:
    expected = pa.record_batch(records.decode(LARGE))
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: pa.record_batch(records.decode(LARGE)), range(40)))
    assert all(batch.equals(expected) for batch in taken)


def test_decoding_leaves_other_threads_running() -> None:
    """A thread that only counts gets on while another one decodes: the loops hold no GIL."""
    big = bytes(batch_of(*[b"y" * 1000] * 100_000))
    steps = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal steps
        while not stop.is_set():
            steps += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        taken = []
        for _ in range(10):
            before = steps
            records.decode(big)
            taken.append(steps - before)
        # One or two between the calls would be there with the GIL held as well.
        assert max(taken) > 20
    finally:
        stop.set()
        thread.join()


def test_a_second_thread_is_refused_not_crashed() -> None:
    """Whatever two threads do to one object, they get records or a StateError."""
    big = bytes(batch_of(*[b"y" * 1000] * 20_000))
    table = pa.table({"value": [b"z" * 1000] * 20_000})
    outcomes: list[str] = []

    def misuse(reader: records.RecordReader, builder: records.BatchBuilder) -> None:
        for call in (
            lambda: len(reader.read_arrow(max_records=5000)),
            lambda: next(reader, None),
            lambda: builder.append_arrow(table),
            lambda: builder.append(None, b"x"),
            builder.build,
        ):
            try:
                call()
                outcomes.append("done")
            except (StateError, LocalProtocolError):
                outcomes.append("refused")

    for _ in range(10):
        reader = records.RecordReader(big)
        builder = records.BatchBuilder(max_bytes=100_000_000)
        threads = [threading.Thread(target=misuse, args=(reader, builder)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(outcomes) == 10 * 4 * 5
    assert "done" in outcomes


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.skipif(
    "AddressSanitizer" in records.build_info(), reason="the sanitizer keeps freed memory"
)
def test_memory_stays_flat() -> None:
    damaged = bytes(Batch(record(5)))
    table = pa.table({"value": [b"z" * 1000] * 1000})

    def work() -> None:
        pa.record_batch(records.decode(LARGE, topic="t", partition=0))
        sum(1 for _ in records.RecordReader(LARGE))
        records.decode(records.encode(table, compression="lz4"))
        records.partition_column(table["value"], 5)
        with pytest.raises(CorruptRecordError):
            records.decode(LARGE + damaged)

    for _ in range(10):
        work()
    before = peak_kib()
    for _ in range(60):
        work()
    assert peak_kib() - before < 16 * 1024  # 60 rounds handle some 200 MiB


@pytest.mark.no_pyarrow
def test_the_kernel_works_without_pyarrow() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
from karrow import records
builder = records.BatchBuilder(compression="zstd")
builder.append(b"k", b"v", headers=[("h", b"1")])
data = builder.build()
decoded = records.decode(data, topic="t", partition=0)
again = records.encode(decoded)
assert [r.value for r in records.RecordReader(again)] == [b"v"]
import polars
frame = polars.DataFrame(decoded)
assert frame["value"].to_list() == [b"v"], frame
"""
    subprocess.run([sys.executable, "-c", program], check=True)
