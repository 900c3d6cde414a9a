"""Clients kept for Spark's tasks: one per process and configuration, and never across a fork."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import karrow
from karrow import errors
from karrow.config import ConsumerConfig
from karrow.spark import pool

# Row 39 of the failures: a process forks after it has begun to talk to Kafka.
FORKED = """
import os, sys
from karrow.config import ConsumerConfig
from karrow.spark import pool

config = ConsumerConfig(bootstrap=sys.argv[1], group="g")

def look(where):
    found = pool.inline(config)
    offset = found.run(found.client.latest_offset("orders", 0))
    print(where, "inline", offset, pool.client(config).latest_offset("orders", 0), flush=True)
    return found, pool.client(config)

inline, client = look("parent")
child = os.fork()
if not child:
    mine = look("child")
    print("child has its own", mine[0] is not inline, mine[1] is not client, flush=True)
    try:
        client.latest_offset("orders", 0)
    except Exception as error:
        print("child", error, flush=True)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
look("parent again")
"""


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(auto_create_topics=False) as broker:
        broker.create_topic("orders")
        with karrow.Client(broker.bootstrap) as client:
            client.produce("orders", [b"1", b"2", b"3"], partition=0)
        yield broker
        pool.close()


def config(broker: karrow.Broker, **options: object) -> ConsumerConfig:
    return ConsumerConfig.make(None, {"bootstrap": broker.bootstrap, **options})


def test_forks(broker: karrow.Broker) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "parent inline 3 3",
        "child inline 3 3",
        "child has its own True True",
        (
            "child the client was opened in another process; make a new one after the fork; "
            "connections cannot be shared"
        ),
        "parent again inline 3 3",
    ]


def test_equal_configurations_share_a_client(broker: karrow.Broker) -> None:
    one = pool.inline(config(broker))
    assert pool.inline(config(broker)) is one
    assert pool.inline(config(broker, group="other")) is not one
    login = {"sasl": karrow.Scram("u", "1")}
    assert pool.inline(config(broker, **login)) is pool.inline(config(broker, **login))
    other = {"sasl": karrow.Scram("u", "2")}
    assert pool.inline(config(broker, **login)) is not pool.inline(config(broker, **other))
    assert pool.client(config(broker)) is pool.client(config(broker))


def test_connections_that_were_closed_meanwhile_are_made_anew(broker: karrow.Broker) -> None:
    found = pool.inline(config(broker))
    assert found.run(found.client.latest_offset("orders", 0)) == 3
    broker.close_connections()
    time.sleep(0.05)
    again = pool.inline(config(broker))
    assert again is found
    assert not again.cluster.has_connections
    assert again.run(again.client.latest_offset("orders", 0)) == 3


def test_of_several_errors_the_first_is_raised(broker: karrow.Broker) -> None:
    found = pool.inline(config(broker))
    asked = {("orders", 0): "latest", ("orders", 7): "latest"}
    with pytest.raises(errors.UnknownTopicOrPartition, match="partitions 0 to 0"):
        found.run(found.client.list_offsets(asked))


def test_an_interrupt_leaves_nothing_running(broker: karrow.Broker) -> None:
    found = pool.inline(config(broker))
    ended = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def interrupt() -> None:
        await asyncio.sleep(0.05)
        raise KeyboardInterrupt

    interruption = found.start(interrupt())
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        found.run(wait())
    assert ended == [True]
    assert time.monotonic() - began < 1
    found.end(interruption)
    assert found.run(found.client.latest_offset("orders", 0)) == 3
