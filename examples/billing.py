"""Two members of a group bill orders: a handler for each partition, totals kept by customer.

It runs on the embedded broker, or on the one whose address is given: ``billing.py HOST:PORT``. A
service would be one member per process, and call ``karrow.run_group``.
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
PARTITIONS = 6
ORDERS = 200_000


class Billing(karrow.Handler):
    """Adds up what the customers of one partition owe."""

    def setup(self, topic: str, partition: int, *, member: str) -> None:
        """Begin with what the partition holds; a real one would load what it had."""
        self.owed: Counter[str] = Counter()
        print(f"{member} bills {topic}-{partition}")

    def handle_batch(self, batch: pa.RecordBatch) -> karrow.Commit:
        """Add up a batch."""
        orders = zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
        for customer, cents in orders:
            self.owed[customer.decode()] += int(cents)
        return karrow.Commit.ASYNC

    def handle_call(self, message: str) -> Counter[str]:
        """What is owed so far."""
        if message != "owed":
            raise ValueError(f"nobody knows {message!r} here")
        return Counter(self.owed)


def main(bootstrap: str | None = None) -> None:
    """Send orders, have them billed, and compare."""
    with ExitStack() as stack:
        if bootstrap is None:
            broker = stack.enter_context(karrow.Broker())
            bootstrap = broker.bootstrap
        client = stack.enter_context(karrow.Client(bootstrap))
        topic = f"{TOPIC}-{time.time_ns()}"
        client.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
        members = [
            stack.enter_context(
                karrow.WorkerGroup(
                    Billing,
                    client,
                    group=f"billing-{topic}",
                    topics=[topic],
                    start="earliest",
                    columns=["key", "value"],
                    arguments={"member": name},
                )
            )
            for name in ("ann", "bob")
        ]
        while any(len(member.assignments) != PARTITIONS // 2 for member in members):
            time.sleep(0.05)
        sent = send(client, topic)
        report(members, sent)


def send(client: karrow.Client, topic: str) -> Counter[str]:
    """Orders of fifty customers, each of whom always goes to the same partition."""
    rng = random.Random(1)
    customers = [f"customer-{rng.randrange(50)}" for _ in range(ORDERS)]
    cents = [rng.randrange(10_000) for _ in range(ORDERS)]
    with karrow.Producer(client, compression="lz4") as producer:
        orders = pa.table({"key": customers, "value": list(map(str, cents))})
        producer.send_arrow(topic, orders).result()
    sent: Counter[str] = Counter()
    for customer, amount in zip(customers, cents, strict=True):
        sent[customer] += amount
    return sent


def report(members: list[karrow.WorkerGroup], sent: Counter[str]) -> None:
    """Ask every worker until all of it is billed."""
    billed: Counter[str] = Counter()
    while billed != sent:
        time.sleep(0.05)
        billed = Counter()
        for member in members:
            for worker in member.workers:
                billed.update(member.call(worker, "owed"))
    for customer, owed in billed.most_common(3):
        print(f"{customer} owes {owed / 100:,.2f}")
    print(f"{ORDERS:,} orders are billed, and the totals agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
