"""The main job in small: orders go through Kafka and come back as Arrow columns.

It runs on the embedded broker, or on the one whose address is given: ``orders.py HOST:PORT``.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from contextlib import ExitStack

import pyarrow as pa

import karrow

TOPIC = "orders"
PARTITIONS = 3
ORDERS = 300_000
FETCH_BYTES = 8 << 20


def main(bootstrap: str | None = None) -> None:
    """Write, read, and compare."""
    with ExitStack() as stack:
        if bootstrap is None:
            broker = stack.enter_context(karrow.Broker())
            bootstrap = broker.bootstrap
            print(f"embedded broker on {bootstrap}")
        client = stack.enter_context(karrow.Client(bootstrap))
        topic = f"{TOPIC}-{time.time_ns()}"
        client.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
        orders = make_orders()
        producer = stack.enter_context(karrow.Producer(client, compression="lz4"))
        write(producer, topic, orders)
        found = pa.concat_tables([read(client, topic, index) for index in range(PARTITIONS)])
        report(orders, found)
        client.delete_topic(topic)


def make_orders() -> pa.Table:
    """Customers as keys, cents as values."""
    rng = random.Random(1)
    customers = [b"customer-%d" % rng.randrange(50) for _ in range(ORDERS)]
    cents = [b"%d" % rng.randrange(10_000) for _ in range(ORDERS)]
    return pa.table({"key": customers, "value": cents})


def write(producer: karrow.Producer, topic: str, orders: pa.Table) -> None:
    """Send the table, straight from its columns; a customer's orders go to one partition."""
    start = time.perf_counter()
    summary = producer.send_arrow(topic, orders).result()
    for where, (count, first) in sorted(summary.partitions.items()):
        print(f"{where}: {count:,} orders from offset {first} on")
    say("wrote", start)


def read(client: karrow.Client, topic: str, partition: int) -> pa.Table:
    """Fetch a partition and decode it into Arrow columns, without an object per record."""
    start = time.perf_counter()
    offset, end = 0, client.latest_offset(topic, partition)
    batches = []
    while offset < end:
        wanted = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": FETCH_BYTES,
        }
        answer = client.request(
            "Fetch",
            {
                "replica_id": -1,
                "max_bytes": FETCH_BYTES,
                "topics": [{"topic": topic, "partitions": [wanted]}],
            },
            to=karrow.Node.leader(topic, partition),
            api_version=11,
        )
        data = answer.responses[0].partitions[0].records
        columns = pa.record_batch(
            karrow.records.decode(data, columns=["offset", "key", "value"], from_offset=offset)
        )
        batches.append(columns)
        offset = columns["offset"][-1].as_py() + 1
    say(f"read partition {partition}:", start, offset)
    return pa.Table.from_batches(batches)


def report(orders: pa.Table, found: pa.Table) -> None:
    """The customers who spent most, and whether everything came back."""
    if totals(found) != totals(orders):
        raise SystemExit("what came back is not what was sent")
    for customer, spent in totals(found).most_common(3):
        print(f"{customer}: {spent / 100:,.2f}")
    print(f"{found.num_rows:,} orders came back, and the totals agree")


def totals(orders: pa.Table) -> Counter[str]:
    """Cents by customer."""
    found: Counter[str] = Counter()
    pairs = zip(orders["key"].to_pylist(), orders["value"].to_pylist(), strict=True)
    for customer, cents in pairs:
        found[customer.decode()] += int(cents)
    return found


def say(what: str, start: float, count: int = ORDERS) -> None:
    """How long a step took."""
    took = time.perf_counter() - start
    print(f"{what} {count:,} orders in {took:.2f} s ({count / took / 1e6:.1f} M/s)")


if __name__ == "__main__":
    main(*sys.argv[1:])
