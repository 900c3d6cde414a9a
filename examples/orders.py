"""Orders go through Kafka and come back as Arrow columns; demo.py is the main job.

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
        report(orders, read(bootstrap, topic))
        count(bootstrap, topic)
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


def read(bootstrap: str, topic: str) -> pa.Table:
    """Have everything as one table, without an object per record."""
    start = time.perf_counter()
    found = karrow.read_arrow(bootstrap, topic, columns=["key", "value"])
    say("read", start)
    return found


def count(bootstrap: str, topic: str) -> None:
    """Share the topic in a group, and look at its batches as they come."""
    start = time.perf_counter()
    group = f"{topic}-counters"
    with karrow.Consumer(bootstrap, topic, group=group, start="earliest") as consumer:
        rows = 0
        for batch in consumer.batches(columns=["offset"]):
            rows += batch.num_rows
            if rows == ORDERS:
                break
        consumer.commit()
        print(f"the group has committed, and lags by {sum(consumer.lag().values())}")
    say("counted", start)


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


def say(what: str, start: float) -> None:
    """How long a step took."""
    took = time.perf_counter() - start
    print(f"{what} {ORDERS:,} orders in {took:.2f} s ({ORDERS / took / 1e6:.1f} M/s)")


if __name__ == "__main__":
    main(*sys.argv[1:])
