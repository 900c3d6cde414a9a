"""Sessions that a real broker limits: renewed under way (KIP-368), and what a refusal is then."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pytest

import karrow
from karrow import OAuthBearer, Plain, Scram, errors, events
from karrow.broker.threaded import Broker
from karrow.config.sasl import Mechanism
from karrow.events import Event
from karrow.types import HealthState, ScramMechanism
from tests.brokers import KafkaCluster
from tests.brokers.users import PASSWORDS, unsecured_token
from tests.fix_kafka import own_kafka

# Brokers refuse to authenticate anybody twice within a second, and close the connection of who is
# late, as everybody is at times on a busy machine: the last part of a session is for that.
SESSION = 3.0
RENEWALS = 3
PARTITIONS = 2
ALICE = PASSWORDS["alice"]
OPTIONS: Any = {"allow_plaintext_password": True, "request_timeout": 5.0, "api_timeout": 8.0}


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    limit = {"connections.max.reauth.ms": str(int(SESSION * 1000))}
    with own_kafka(request.config, limit) as cluster:
        yield cluster


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


async def keep_asking(client: karrow.AsyncClient, until: float) -> int:
    """Requests in a row, so that one is always under way; any error is raised."""
    count = 0
    while time.monotonic() < until:
        await client.request("DescribeCluster", {})
        count += 1
    return count


def test_sessions_are_renewed_while_requests_go_on(kafka: KafkaCluster) -> None:
    tokens: list[str] = []

    def token() -> str:
        tokens.append(unsecured_token("alice"))
        return tokens[-1]

    mechanisms: list[Mechanism] = [Plain("alice", ALICE), Scram("alice", ALICE), OAuthBearer(token)]
    seen: list[Event] = []

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    karrow.AsyncClient(kafka.bootstrap("SASL_PLAINTEXT"), sasl=sasl, **OPTIONS)
                )
                for sasl in mechanisms
            ]
            until = time.monotonic() + SESSION * RENEWALS
            counts = await asyncio.gather(
                *(keep_asking(client, until) for client in clients for _ in range(3))
            )
            assert min(counts) > 10
            assert not [event for event in seen if event.name.endswith(("close", "exception"))]

    with events.subscribe(seen.append, "connection", "auth", "request.exception"):
        run(main())
    opened = Counter(event.name for event in seen if event.name == "connection.start")
    assert opened == {"connection.start": len(mechanisms)}
    begun, renewed = (
        Counter(event.fields["mechanism"] for event in seen if event.name == name)
        for name in ("auth.start", "auth.stop")
    )
    assert set(renewed) == {sasl.name for sasl in mechanisms}
    assert min(renewed.values()) >= RENEWALS  # the first time included
    # A token of its own for each; one may have been under way at the end.
    assert renewed["OAUTHBEARER"] <= len(tokens) <= begun["OAUTHBEARER"]


def test_rotated_credential_is_refused_at_the_next_renewal(kafka: KafkaCluster) -> None:
    """Not a time-out, for those under way as for those that come after; until it is there again."""

    async def main() -> None:
        sha = ScramMechanism.SCRAM_SHA_512
        async with (
            karrow.AsyncAdmin(kafka.bootstrap()) as admin,
            karrow.AsyncClient(
                kafka.bootstrap("SASL_PLAINTEXT"), sasl=Scram("rotated", "first"), **OPTIONS
            ) as client,
        ):
            await admin.alter_scram_user("rotated", "first", sha)
            await until_it_works(client)
            await admin.alter_scram_user("rotated", "second", sha)
            begin = time.monotonic()
            with pytest.raises(errors.AuthenticationError, match="SCRAM-SHA-512"):
                await keep_asking(client, begin + 10 * SESSION)
            assert time.monotonic() - begin < SESSION + 1
            with pytest.raises(errors.AuthenticationError):
                await client.brokers()
            await admin.alter_scram_user("rotated", "first", sha)
            await until_it_works(client)

    async def until_it_works(client: karrow.AsyncClient) -> None:
        while True:
            try:
                await client.brokers()
            except errors.AuthenticationError:
                await asyncio.sleep(0.05)
            else:
                return

    run(main())


def test_expired_token_is_refused_at_the_next_renewal(kafka: KafkaCluster) -> None:
    async def main() -> None:
        lifetimes = iter([60.0])

        def token() -> str:
            return unsecured_token("alice", next(lifetimes, -60.0))

        async with karrow.AsyncClient(
            kafka.bootstrap("SASL_PLAINTEXT"), sasl=OAuthBearer(token), **OPTIONS
        ) as client:
            begin = time.monotonic()
            with pytest.raises(errors.AuthenticationError, match="OAUTHBEARER"):
                await keep_asking(client, begin + 10 * SESSION)
            assert time.monotonic() - begin < SESSION + 1

    run(main())


# What waits at the broker for longer than a session lasts.


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.slow)])
def limited(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where to log in for a short time."""
    if request.param == "embedded":
        with Broker(sasl=PASSWORDS, session_lifetime=SESSION) as broker:
            yield broker.bootstrap
    else:
        cluster: KafkaCluster = request.getfixturevalue("kafka")
        yield cluster.bootstrap("SASL_PLAINTEXT")


class Renewals:
    """What happens to a consumer, which nobody else has the mechanism of."""

    mechanism = Scram("alice", ALICE)

    def __init__(self) -> None:
        self.done = 0
        self.long_fetches = 0
        """Those that were away for longer than a session."""
        self.bad: list[Event] = []
        self.wanted_at = ""
        self.wakes = threading.Semaphore(0)

    def see(self, event: Event) -> None:
        """On the loop's thread."""
        if event.name == "fetch.stop":
            self.long_fetches += event.measurements["duration"] > SESSION
        elif event.name == "consumer.health":
            if event.fields["state"] not in (HealthState.OK, HealthState.WAITING):
                self.bad.append(event)
        elif self._is_ours(event) and event.name.endswith("exception"):
            self.bad.append(event)
        elif self._is_ours(event):
            self.done += event.name == "auth.stop"
            if event.name == self.wanted_at:
                self.wakes.release()

    def _is_ours(self, event: Event) -> bool:
        named = event.fields.get("mechanism") or event.fields.get("client_id")
        return named in (self.mechanism.name, "reader")


class Writing:
    """Numbers, each in both partitions, whenever they are wanted."""

    def __init__(self, producer: karrow.Producer, topic: str, wakes: threading.Semaphore) -> None:
        self.count = 0
        self._producer = producer
        self._topic = topic
        self._wakes = wakes
        self._is_over = False
        self._thread = threading.Thread(target=self._main)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._wakes.release()
        self._thread.join()

    def _main(self) -> None:
        while self._wakes.acquire() and not self._is_over:
            for partition in range(PARTITIONS):
                self._producer.send(self._topic, b"%d" % self.count, partition=partition)
            self.count += 1


def test_sessions_are_renewed_while_fetches_wait(limited: str) -> None:
    """Nothing is lost, doubled or raised, whether records come before, in or after a renewal."""
    topic, group = f"topic-{uuid.uuid4().hex[:12]}", f"group-{uuid.uuid4().hex[:12]}"
    plain: Any = {"sasl": Plain("admin", PASSWORDS["admin"]), "allow_plaintext_password": True}
    options: Any = {"sasl": Renewals.mechanism, "client_id": "reader", "group": group}
    options |= {"start": "earliest", "max_wait": 1.5 * SESSION, "heartbeat_interval": 1.0}
    renewals = Renewals()
    found: list[karrow.Record] = []
    with karrow.Admin(limited, **plain) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    with (
        events.subscribe(renewals.see, "auth", "fetch", "request.exception", "consumer.health"),
        karrow.Consumer(limited, topic, **options) as consumer,
        karrow.Producer(limited, linger=0.0, **plain) as producer,
    ):

        def poll_until(look: Callable[[], bool]) -> None:
            deadline = time.monotonic() + 60
            while not look():
                assert time.monotonic() < deadline, (renewals.done, renewals.long_fetches, found)
                found.extend(consumer.poll(0.05))
                consumer.health()  # which is an event

        def write_at(moment: str) -> None:
            enough = writing.count + RENEWALS
            renewals.wanted_at = moment
            poll_until(lambda: writing.count >= enough)
            renewals.wanted_at = ""

        poll_until(lambda: consumer.health().is_ok)
        renewals.bad.clear()  # a new broker makes its topic of offsets first
        poll_until(lambda: renewals.long_fetches >= 2)
        assert renewals.done > RENEWALS
        with Writing(producer, topic, renewals.wakes) as writing:
            write_at("auth.start")
            write_at("auth.stop")
        poll_until(lambda: len(found) >= PARTITIONS * writing.count)
        assert renewals.bad == []
    for partition in range(PARTITIONS):
        offsets = [one.offset for one in found if one.partition == partition]
        assert offsets == list(range(writing.count))


def test_session_is_renewed_behind_a_join_that_is_held(limited: str) -> None:
    """A group may take longer than ``request_timeout``: the same join goes on."""
    group = f"group-{uuid.uuid4().hex[:12]}"
    options: Any = {"sasl": Renewals.mechanism, "request_timeout": 1.0, "api_timeout": 30.0}
    with (
        karrow.Client(limited, **options) as first,
        karrow.Client(limited, client_id="reader", **options) as second,
    ):
        protocol = first.default_protocol(topics=["topic"])
        patient: Any = {"session_timeout": 30.0, "rebalance_timeout": 60.0}
        joined = first.join_group(group, [protocol], **patient)
        seen: list[Event] = []
        with events.subscribe(seen.append, "request"), ThreadPoolExecutor() as threads:
            waiting = threads.submit(second.join_group, group, [protocol], **patient)
            time.sleep(2 * SESSION)
            again = first.join_group(group, [protocol], member_id=joined.member_id, **patient)
            assert waiting.result(30.0).generation == again.generation
    theirs = [event for event in seen if event.fields["client_id"] == "reader"]
    joins = {event.name for event in theirs if event.fields["operation"] == "JoinGroup"}
    assert joins == {"request.start", "request.stop"}
