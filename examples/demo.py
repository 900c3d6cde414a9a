"""The main job: orders through a pipeline whose driver is killed on the way.

An embedded broker is fed with orders, some of them malformed. ``karrow pipeline run orders.toml``
adds up totals per customer and five minutes, exactly once, files every order as Parquet, and puts
bad rows aside. Its driver is killed (SIGKILL) while a transaction is open, and started again. Then
confluent-kafka and pyarrow, which know nothing of karrow, read back what is committed and filed,
and it is compared with what was sent, order by order. The exit code tells whether all of it agrees.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Self

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import karrow

PIPELINE = Path(__file__).parent / "orders.toml"
TOPICS = {"orders": 4, "totals": 2, "orders.bad": 1}
QUERIES = ("totals", "raw", "orders.dead-letter")
TRANSACTION = "karrow.sink.orders.totals"
CUSTOMERS = 50
BEGIN = 1_788_220_800  # the first of September 2026
HOUR = 3600
WINDOW = 300
CLOSING = "closing time"
FULL_BATCH = 20_000
PATIENCE = 600.0
# A minute of Spark is over before Java's better compiler has paid for itself.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

console = Console(highlight=False)

Key = tuple[str, int]


@dataclass
class Sent:
    """What was sent, and so what has to come out."""

    rows: list[bytes] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    bad: Counter[bytes] = field(default_factory=Counter)
    ids: set[int] = field(default_factory=set)
    totals: dict[Key, tuple[int, int]] = field(default_factory=dict)


def main() -> int:
    """Feed, run, kill, run on, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--orders", type=int, default=240_000)
    count = parser.parse_args().orders
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="karrow-demo-")))
        broker = stack.enter_context(karrow.Broker())
        for name, partitions in TOPICS.items():
            broker.create_topic(name, partitions)
        console.rule("[bold]orders through a pipeline that is killed on the way")
        sent = make_orders(count)
        feed(broker.bootstrap, sent)
        first = stack.enter_context(Driver(broker.bootstrap, folder, "first run"))
        kill_inside_transaction(first, broker.bootstrap, folder, count)
        again = stack.enter_context(Driver(broker.bootstrap, folder, "second run"))
        finish(again, broker.bootstrap, folder, count)
        is_right = proof(sent, broker.bootstrap, folder)
        show(broker.bootstrap)
        speed(count, [first, again])
    console.print(f"\n{time.monotonic() - began:.0f} s in all", style="dim")
    return 0 if is_right else 1


# ---- what goes in


def make_orders(count: int) -> Sent:
    """An hour of orders; one in a thousand is none, in one of four ways."""
    rng = random.Random(1)
    sent = Sent()
    for number in range(count):
        customer = f"customer-{rng.randrange(CUSTOMERS)}"
        at = BEGIN + number * HOUR // count
        order = {"id": number, "customer": customer, "cents": rng.randrange(100, 10_000), "at": at}
        row = as_json(order)
        if number % 1000 == 500:
            row = spoilt(order, number // 1000 % 4)
            sent.bad[row] += 1
        else:
            note(sent, order)
        sent.rows.append(row)
        sent.keys.append(customer)
    return sent


def note(sent: Sent, order: dict[str, object]) -> None:
    """Add an order to what has to come out."""
    number, customer, cents, at = order.values()
    key = str(customer), int(str(at)) // WINDOW * WINDOW
    orders, total = sent.totals.get(key, (0, 0))
    sent.totals[key] = orders + 1, total + int(str(cents))
    sent.ids.add(int(str(number)))


def as_json(order: dict[str, object]) -> bytes:
    """An order as it travels."""
    at = datetime.fromtimestamp(int(str(order["at"])), UTC).isoformat()
    return json.dumps({**order, "at": at}).encode()


def spoilt(order: dict[str, object], how: int) -> bytes:
    """No order: cut off, with a text for a number, without a customer, or not UTF-8."""
    if how == 0:
        return as_json(order)[:-10]
    if how == 1:
        return as_json({**order, "cents": "a lot"})
    if how == 2:
        return as_json({name: value for name, value in order.items() if name != "customer"})
    return as_json(order).replace(b"customer-", b"customer-\xff")


def feed(bootstrap: str, sent: Sent) -> None:
    """Send all of them; the orders of a customer go into one partition."""
    start = time.perf_counter()
    with karrow.Producer(bootstrap, compression="lz4") as producer:
        producer.send_arrow("orders", pa.table({"key": sent.keys, "value": sent.rows})).result()
    took = time.perf_counter() - start
    console.print(
        f"sent {len(sent.rows):,} orders, {sum(sent.bad.values()):,} of them malformed, "
        f"in {took:.2f} s ([green]{len(sent.rows) / took:,.0f}/s[/])"
    )


# ---- the pipeline, in a process of its own


class Driver:
    """A run of the pipeline; what it says is shown, and remembered."""

    def __init__(self, bootstrap: str, folder: Path, name: str) -> None:
        command = [sys.executable, "-m", "karrow", "pipeline", "run", str(PIPELINE)]
        command += ["--bootstrap", bootstrap, "--folder", str(folder), "--master", "local[2]"]
        console.print(f"\n[bold]{name}[/]: karrow pipeline run {PIPELINE.name}")
        self.lines: list[str] = []
        self.seconds = 0.0
        self._start = time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "JAVA_TOOL_OPTIONS": SHORT_LIVED},
        )
        out = self._process.stdout
        if out is None:
            raise SystemExit("the pipeline has no output")
        self._reader = threading.Thread(target=self._read, args=(out,), daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()

    def _read(self, out: IO[str]) -> None:
        for line in out:
            self.lines.append(line.rstrip())
            console.print(f"  {line.rstrip()}", style="dim", markup=False, soft_wrap=True)

    def kill(self) -> None:
        """SIGKILL for the driver: its Python and its JVM."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._ended()

    def _ended(self) -> None:
        self._reader.join()
        self.seconds = time.monotonic() - self._start

    def stop(self) -> None:
        """SIGTERM, as a supervisor would."""
        self._process.terminate()
        code = self._process.wait(PATIENCE)
        self._ended()
        if code != 0:
            raise SystemExit(f"the pipeline ended with exit code {code}")

    def said(self, pattern: str, since: int = 0) -> bool:
        """Whether it has said something like that, from a line on."""
        return any(re.search(pattern, line) for line in self.lines[since:])

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that it does."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self._process.poll() is not None:
                raise SystemExit("the pipeline ended too early")
            if time.monotonic() > deadline:
                raise SystemExit("the pipeline does not come to an end")
            time.sleep(0.02)


def read_up_to(folder: Path, query: str) -> int:
    """How many orders a query is through with, by Spark's own checkpoint."""
    place = folder / "checkpoint" / query
    batches = [int(file.name) for file in (place / "commits").glob("[0-9]*")]
    if not batches:
        return 0
    offsets = json.loads((place / "offsets" / str(max(batches))).read_text().splitlines()[-1])
    return sum(offsets["orders"].values())


def kill_inside_transaction(driver: Driver, bootstrap: str, folder: Path, count: int) -> None:
    """Let it get somewhere; then kill it while it has a transaction open, the worst moment."""
    driver.until(lambda: driver.said("totals batch [1-9]"))
    with karrow.Admin(bootstrap) as admin:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and read_up_to(folder, "totals") < count:
            going = admin.list_transactions(states=["Ongoing"])
            if TRANSACTION in {one.transactional_id for one in going}:
                driver.kill()
                console.print(f"[red bold]SIGKILL[/], with the transaction of {TRANSACTION} open")
                return
    raise SystemExit("the pipeline was done before it could be killed; send more orders")


def finish(driver: Driver, bootstrap: str, folder: Path, count: int) -> None:
    """Wait until it has everything, close the last windows, and end it."""
    driver.until(lambda: read_up_to(folder, "totals") == count)
    # A window is written when an order has come that is later than its end and a minute. One that
    # came before all others are read would make those too late.
    closing = {"id": -1, "customer": CLOSING, "cents": 0, "at": BEGIN + 2 * HOUR}
    since = len(driver.lines)
    with karrow.Producer(bootstrap) as producer:
        producer.send("orders", as_json(closing), key=CLOSING).result()
    for query in QUERIES:
        driver.until(lambda: read_up_to(folder, query) == count + 1)  # noqa: B023 - waits here
    driver.until(lambda: driver.said(r"totals batch .*: 0 rows in, [1-9]", since))
    driver.stop()


# ---- what came out, as others see it


def committed(
    bootstrap: str, topic: str, isolation: str = "read_committed"
) -> Iterator[confluent_kafka.Message]:
    """Every record of a topic, read by confluent-kafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "proof",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    left = set(range(TOPICS[topic]))
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in left])
    while left:
        message = consumer.poll(10.0)
        if message is None:
            raise SystemExit(f"{topic} cannot be read to its end")
        error = message.error()
        if error is None:
            yield message
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001
            left.discard(message.partition())
        else:
            raise SystemExit(str(error))
    consumer.close()


def totals(bootstrap: str) -> list[tuple[Key, tuple[int, int]]]:
    """The windows that are committed."""
    found = []
    for message in committed(bootstrap, "totals"):
        row = json.loads(message.value() or b"")
        start = int(datetime.fromisoformat(row["start"]).timestamp())
        found.append(((row["customer"], start), (row["orders"], row["cents"])))
    return found


def filed(folder: Path) -> tuple[list[int], int]:
    """The ids of the orders in files that count, and how many files do not."""
    raw = folder / "raw"
    named: set[str] = set()
    for log in (raw / "_spark_metadata").glob("[0-9]*"):
        entries = log.read_text("utf-8").splitlines()[1:]
        named |= {Path(json.loads(entry)["path"]).name for entry in entries}
    files = list(raw.rglob("*.parquet"))
    counted = [file for file in files if file.name in named]
    ids = [
        value for file in counted for value in pq.read_table(file, columns=["id"])["id"].to_pylist()
    ]
    return ids, len(files) - len(counted)


def proof(sent: Sent, bootstrap: str, folder: Path) -> bool:
    """Compare what is there with what was sent."""
    windows, (ids, stray) = totals(bootstrap), filed(folder)
    bad = [message.value() for message in committed(bootstrap, "orders.bad")]
    everything = sum(1 for _ in committed(bootstrap, "totals", "read_uncommitted"))
    good = sum(orders for orders, _ in sent.totals.values())
    counted = sum(orders for _, (orders, _) in windows)
    title = "\ntopics read back by confluent-kafka (read_committed), Parquet by pyarrow"
    table = Table(title=title, title_justify="left")
    for column in ("", "sent", "found", "twice", "right"):
        table.add_column(column, justify="left" if column in ("", "right") else "right")
    rows = [
        ("windows", len(sent.totals), len(windows), len(windows) - len(dict(windows))),
        ("orders in windows", good, counted, max(0, counted - good)),
        ("orders in Parquet", good + 1, len(ids), len(ids) - len(set(ids))),
        ("bad rows set aside", sum(sent.bad.values()), len(bad), len(bad) - len(set(bad))),
    ]
    agrees = [
        dict(windows) == sent.totals and len(windows) == len(sent.totals),
        counted == good,
        sorted(ids) == sorted(sent.ids | {-1}),
        Counter(bad) == sent.bad,
    ]
    for (name, *numbers), is_right in zip(rows, agrees, strict=True):
        mark = "[green]yes[/]" if is_right else "[red bold]NO[/]"
        table.add_row(name, *(f"{number:,}" for number in numbers), mark)
    console.print(table)
    console.print(
        f"left by the killed run, and seen by nobody: {everything - len(windows):,} records of "
        f"aborted transactions, {stray:,} Parquet files",
        style="dim",
    )
    return all(agrees)


def show(bootstrap: str) -> None:
    """The customers who spent most, out of the topic."""
    spent: Counter[str] = Counter()
    orders: Counter[str] = Counter()
    for (customer, _), (count, cents) in totals(bootstrap):
        spent[customer] += cents
        orders[customer] += count
    table = Table(title="\nthe totals", title_justify="left")
    for column in ("customer", "orders", "spent"):
        table.add_column(column, justify="left" if column == "customer" else "right")
    for customer, cents in spent.most_common(5):
        table.add_row(customer, f"{orders[customer]:,}", f"{cents / 100:,.2f}")
    table.add_row(f"all {len(spent)}", f"{orders.total():,}", f"{spent.total() / 100:,.2f}")
    console.print(table)


def speed(count: int, runs: list[Driver]) -> None:
    """How long it took as a whole, and how fast batches were once they ran."""
    seconds = sum(run.seconds for run in runs)
    console.print(
        f"\n{count:,} orders, each read by {len(QUERIES)} queries, in {seconds:.0f} s with two "
        f"starts of Spark and a crash ([green]{count / seconds:,.0f}/s[/])"
    )
    rates = []
    for line in (line for run in runs for line in run.lines):
        found = re.search(r"batch \d+: ([\d,]+) rows in, .* out, ([\d.]+) s,", line)
        if found and (rows := int(found[1].replace(",", ""))) > FULL_BATCH:
            rates.append(rows / float(found[2]))
    if rates:
        console.print(
            f"full batches, of {len(QUERIES)} queries side by side: median "
            f"[green]{statistics.median(rates):,.0f}/s[/] each, best {max(rates):,.0f}/s"
        )


if __name__ == "__main__":
    sys.exit(main())
