"""Sessions that a real broker limits: renewed under way (KIP-368), and what a refusal is then."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

import karrow
from karrow import OAuthBearer, Plain, Scram, errors, events
from karrow.config.sasl import Mechanism
from karrow.events import Event
from karrow.types import ScramMechanism
from tests.brokers import KafkaCluster
from tests.brokers.users import PASSWORDS, unsecured_token
from tests.fix_kafka import own_kafka

# Brokers refuse to authenticate anybody twice within a second.
SESSION = 1.5
RENEWALS = 3
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
        clients = [
            karrow.AsyncClient(kafka.bootstrap("SASL_PLAINTEXT"), sasl=sasl, **OPTIONS)
            for sasl in mechanisms
        ]
        until = time.monotonic() + SESSION * RENEWALS
        counts = await asyncio.gather(
            *(keep_asking(client, until) for client in clients for _ in range(3))
        )
        assert min(counts) > 10
        assert not [event for event in seen if event.name.endswith(("close", "exception"))]
        for client in clients:
            await client.close()

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
