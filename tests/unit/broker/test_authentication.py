from __future__ import annotations

import base64

import pytest

from karrow.broker.authentication import PlainServer, ScramServer
from karrow.broker.clock import ManualClock
from karrow.broker.session import Session
from karrow.broker.store import MemoryStore
from karrow.broker.users import Users
from karrow.config import Plain, Scram
from karrow.errors import (
    ConfigError,
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from karrow.wire.sasl.scram import ScramExchange


@pytest.fixture
def users() -> Users:
    found = Users(MemoryStore())
    found.allow({"alice": "secret", "b,o=b": "pässword"})
    return found


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("user", "password"), [("alice", "secret"), ("b,o=b", "pässword")])
def test_scram_proves_both_sides(users: Users, mechanism: str, user: str, password: str) -> None:
    server = ScramServer(users, mechanism)
    client = ScramExchange(Scram(user, password, mechanism))  # type: ignore[arg-type]
    first = server.step(client.start())
    proof = client.step(first)
    assert proof is not None
    assert client.step(server.step(proof)) is None
    assert client.done
    assert server.user == user


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret")])
def test_scram_refuses_strangers(users: Users, user: str, password: str) -> None:
    server = ScramServer(users, "SCRAM-SHA-256")
    client = ScramExchange(Scram(user, password, "SCRAM-SHA-256"))
    with pytest.raises(SaslAuthenticationFailed):
        server.step(client.step(server.step(client.start())) or b"")
    assert server.user is None


def test_scram_refuses_a_final_message_with_another_nonce(users: Users) -> None:
    server = ScramServer(users, "SCRAM-SHA-256")
    client = ScramExchange(Scram("alice", "secret", "SCRAM-SHA-256"))
    first = server.step(client.start())
    replayed = ScramServer(users, "SCRAM-SHA-256")
    replayed.step(client.start())
    with pytest.raises(SaslAuthenticationFailed, match="final message"):
        replayed.step(client.step(first) or b"")


@pytest.mark.parametrize(
    "token", [b"", b"\xff\xfe", b"n,,", b"n,,n=alice", b"y,,n=alice,r=abc", b"p=x,,n=alice,r=abc"]
)
def test_scram_refuses_nonsense(users: Users, token: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        ScramServer(users, "SCRAM-SHA-256").step(token)


@pytest.mark.parametrize("proof", [b"", b"!!!", base64.b64encode(b"short")])
def test_scram_refuses_broken_proofs(users: Users, proof: bytes) -> None:
    server = ScramServer(users, "SCRAM-SHA-256")
    client = ScramExchange(Scram("alice", "secret", "SCRAM-SHA-256"))
    final = client.step(server.step(client.start())) or b""
    with pytest.raises(SaslAuthenticationFailed):
        server.step(final[: final.rindex(b"p=") + 2] + proof)


def test_plain_compares_passwords(users: Users) -> None:
    server = PlainServer(users)
    assert server.step(b"\0alice\0secret") == b""
    assert server.user == "alice"


@pytest.mark.parametrize(
    "token", [b"", b"\0alice\0wrong", b"\0nobody\0", b"root\0alice\0secret", b"\0\0secret", b"\xff"]
)
def test_plain_refuses_anything_else(users: Users, token: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        PlainServer(users).step(token)


def test_a_credential_offers_its_own_mechanism_only() -> None:
    found = Users(MemoryStore())
    found.allow(Plain("alice", "secret"))
    assert found.mechanisms == ("PLAIN",)
    found.allow(Scram("alice", "secret"))
    assert found.mechanisms == ("SCRAM-SHA-512",)
    with pytest.raises(ConfigError, match="sasl=int"):
        found.allow(7)  # type: ignore[arg-type]


def test_nothing_but_a_login_is_allowed_before_one(users: Users) -> None:
    session = Session(users, ManualClock())
    assert session.allows("ApiVersions")
    assert not session.allows("Metadata")
    with pytest.raises(IllegalSaslState):
        session.authenticate(b"\0alice\0secret")
    session.begin("PLAIN", 1)
    session.authenticate(b"\0alice\0secret")
    assert session.allows("Metadata")
    assert session.principal == "User:alice"


def test_a_login_counts_for_its_lifetime(users: Users) -> None:
    clock = ManualClock()
    session = Session(users, clock, lifetime=60)
    session.begin("PLAIN", 1)
    session.authenticate(b"\0alice\0secret")
    assert session.lifetime_ms == 60_000
    clock.advance(59)
    assert session.allows("Fetch")
    clock.advance(1)
    assert not session.allows("Fetch")
    session.begin("PLAIN", 1)
    session.authenticate(b"\0alice\0secret")
    assert session.allows("Fetch")


def test_logging_in_again_keeps_user_and_mechanism(users: Users) -> None:
    session = Session(users, ManualClock(), lifetime=60)
    session.begin("PLAIN", 1)
    session.authenticate(b"\0alice\0secret")
    with pytest.raises(UnsupportedSaslMechanism):
        session.begin("SCRAM-SHA-256", 1)
    session.begin("PLAIN", 1)
    with pytest.raises(SaslAuthenticationFailed, match="change principals"):
        session.authenticate("\0b,o=b\0pässword".encode())
    assert not session.allows("Fetch")


def test_without_logins_everybody_is_in() -> None:
    session = Session(Users(MemoryStore()), ManualClock())
    assert session.allows("Fetch")
    with pytest.raises(IllegalSaslState):
        session.begin("PLAIN", 1)
