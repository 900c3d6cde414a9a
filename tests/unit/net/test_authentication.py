from __future__ import annotations

import asyncio
from typing import Any

import pytest

from karrow import Plain, events, wire
from karrow.errors import AuthenticationError, Disconnected
from karrow.net.authentication import Authenticator
from karrow.net.versions import BrokerVersions
from tests.unit.net.virtual import Wire, run

PLAIN = Plain("alice", "canary-secret")
MODERN = {"SaslHandshake": (0, 1), "SaslAuthenticate": (0, 2), "Metadata": (0, 12)}


class Broker:
    """The broker's side of a conversation in memory, one answer for each request."""

    def __init__(self, end: Wire, versions: dict[str, tuple[int, int]] | None = None) -> None:
        self.end = end
        self.lifetime_ms = 0
        self.refusal: str | None = None
        self.mechanisms = ["PLAIN"]
        self.seen: list[str] = []
        end.connection.versions = BrokerVersions(versions or MODERN)

    async def serve(self) -> None:
        while True:
            for request in self.end.requests():
                self.seen.append(request.api.name)
                self.end.answer(request, self.answer(request))
            await asyncio.sleep(0.001)

    def answer(self, request: wire.Request) -> dict[str, Any]:
        if request.api.name == "SaslHandshake":
            known = request.body.mechanism in self.mechanisms
            return {"error_code": 0 if known else 33, "mechanisms": self.mechanisms}
        if request.api.name == "SaslAuthenticate":
            if self.refusal is not None:
                return {"error_code": 58, "error_message": self.refusal}
            return {"session_lifetime_ms": self.lifetime_ms}
        return {"controller_id": len(self.seen)}


async def started(broker: Broker) -> asyncio.Task[None]:
    task = asyncio.create_task(broker.serve())
    await asyncio.sleep(0)
    return task


def test_authentication_is_an_event_without_the_secret() -> None:
    async def main() -> None:
        end = Wire()
        broker = Broker(end)
        serving = await started(broker)
        seen: list[events.Event] = []
        with events.subscribe(seen.append, "auth", "request"):
            await Authenticator(PLAIN).authenticate(end.connection)
        assert broker.seen == ["SaslHandshake", "SaslAuthenticate"]
        assert [e.name for e in seen if e.family == "auth"] == ["auth.start", "auth.stop"]
        assert "canary" not in "".join(map(str, seen)) + repr(seen)
        serving.cancel()

    run(main())


def test_refusal_is_told_in_the_brokers_words() -> None:
    async def main() -> None:
        end = Wire()
        broker = Broker(end)
        broker.refusal = "wrong password"
        serving = await started(broker)
        with pytest.raises(AuthenticationError, match="PLAIN failed: wrong password"):
            await Authenticator(PLAIN).authenticate(end.connection)
        broker.mechanisms = ["SCRAM-SHA-512"]
        with pytest.raises(AuthenticationError, match=r"does not take PLAIN.*SCRAM-SHA-512"):
            await Authenticator(PLAIN).authenticate(end.connection)
        serving.cancel()

    run(main())


def test_session_is_renewed_between_requests() -> None:
    async def main() -> None:
        end = Wire()
        broker = Broker(end)
        broker.lifetime_ms = 10_000
        serving = await started(broker)
        await Authenticator(PLAIN).authenticate(end.connection)
        answers = []
        for _ in range(300):
            answers.append(await end.connection.request("Metadata", 12, {"topics": []}))
            await asyncio.sleep(0.1)
        renewals = broker.seen.count("SaslAuthenticate") - 1
        assert renewals == 3
        assert len(answers) == 300
        assert not end.connection.is_closed
        serving.cancel()
        end.connection.close()

    run(main())


def test_requests_under_way_survive_a_renewal() -> None:
    async def main() -> None:
        end = Wire()
        broker = Broker(end)
        broker.lifetime_ms = 10_000
        serving = await started(broker)
        await Authenticator(PLAIN).authenticate(end.connection)
        serving.cancel()
        slow = end.connection.send("Metadata", 12, {"topics": []})
        await asyncio.sleep(9.5)  # the renewal is due, the answer is not there yet
        held = end.connection.send("Metadata", 12, {"topics": []})
        sent = end.requests()
        assert [request.api.name for request in sent] == ["Metadata", "SaslHandshake"]
        for request in sent:
            end.answer(request, broker.answer(request))
        await slow
        assert not held.done()
        serving = await started(broker)
        await held
        serving.cancel()
        end.connection.close()

    run(main())


def test_renewal_that_is_refused_is_no_time_out() -> None:
    async def main() -> None:
        end = Wire()
        broker = Broker(end)
        broker.lifetime_ms = 10_000
        serving = await started(broker)
        await Authenticator(PLAIN).authenticate(end.connection)
        broker.refusal = "revoked"
        await asyncio.sleep(9.5)
        assert end.connection.is_closed
        with pytest.raises(AuthenticationError, match="revoked"):
            await end.connection.request("Metadata", 12, {"topics": []})
        serving.cancel()

    run(main())


def test_close_stops_the_renewals() -> None:
    async def main() -> None:
        end = Wire()
        broker = Broker(end)
        broker.lifetime_ms = 10_000
        serving = await started(broker)
        await Authenticator(PLAIN).authenticate(end.connection)
        end.connection.close()
        count = len(broker.seen)
        await asyncio.sleep(100)
        assert len(broker.seen) == count
        serving.cancel()

    run(main())


def test_old_broker_says_no_by_closing() -> None:
    async def main() -> None:
        end = Wire()
        Broker(end, {"SaslHandshake": (0, 0)})
        attempt = asyncio.create_task(Authenticator(PLAIN).authenticate(end.connection))
        await asyncio.sleep(0)
        (request,) = end.requests()
        end.answer(request, {"mechanisms": ["PLAIN"]})
        await asyncio.sleep(0)
        assert bytes(end.transport.written).endswith(b"\0alice\0canary-secret")
        end.connection.eof_received()
        with pytest.raises(AuthenticationError, match="closed the connection") as caught:
            await attempt
        assert isinstance(caught.value.__cause__, Disconnected)

    run(main())
