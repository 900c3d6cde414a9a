"""SASL exchanges: published vectors, a peer library, honest and hostile brokers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrow.config.sasl import Mechanism, ScramName
from karrow.errors import AuthenticationError
from karrow.wire import sasl
from karrow.wire.sasl import (
    BearerExchange,
    MskIam,
    OAuthBearer,
    Plain,
    Scram,
    ScramExchange,
    Token,
)

CANARY = "canary-7f3a"
SALT = b"0123456789abcdef"
NAMES: list[ScramName] = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
USERS = st.text(st.characters(codec="utf-8"), min_size=1)


def open_session(mechanism: Mechanism) -> sasl.Exchange:
    return asyncio.run(sasl.session(mechanism, "b1.example"))


class ScramServer:
    """The broker's half, from stored keys only, as brokers have them."""

    def __init__(self, name: ScramName, password: str, iterations: int = 4096) -> None:
        self.hash = name.replace("SCRAM-SHA-", "sha")
        salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), SALT, iterations)
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        self.stored_key = hashlib.new(self.hash, client_key).digest()
        self.server_key = hmac.digest(salted, b"Server Key", self.hash)
        self.iterations = iterations
        self.said: list[bytes] = []

    def first(self, client_first: bytes) -> bytes:
        bare = client_first.removeprefix(b"n,,")
        nonce = bare.split(b",r=")[1].split(b",")[0] + b"server"
        salt = base64.b64encode(SALT)
        self.said = [bare, b"r=%b,s=%b,i=%d" % (nonce, salt, self.iterations)]
        return self.said[1]

    def final(self, client_final: bytes) -> bytes:
        without_proof, proof = client_final.split(b",p=")
        signed = b",".join([*self.said, without_proof])
        mask = hmac.digest(self.stored_key, signed, self.hash)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), mask, strict=True))
        if hashlib.new(self.hash, key).digest() != self.stored_key:
            return b"e=invalid-proof"
        return b"v=" + base64.b64encode(hmac.digest(self.server_key, signed, self.hash))


def run_scram(exchange: sasl.Exchange, server: ScramServer) -> bytes:
    """All the way; gives the client's first message."""
    start = exchange.start()
    proof = exchange.step(server.first(start))
    assert proof is not None
    assert exchange.step(server.final(proof)) is None
    sasl.finish(exchange)
    return start


class TestScram:
    def test_it_speaks_the_exchange_of_rfc_7677(self) -> None:
        exchange = ScramExchange(
            Scram("user", "pencil", "SCRAM-SHA-256"), nonce="rOprNGfwEbeRWgbNEkqO"
        )
        assert exchange.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
        nonce = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
        proof = exchange.step(nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
        assert proof == b"c=biws,%b,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=" % nonce
        assert not exchange.done
        assert exchange.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
        assert exchange.done

    @pytest.mark.parametrize("name", NAMES)
    def test_it_speaks_as_kafka_python_does(self, name: ScramName) -> None:
        peer = pytest.importorskip("kafka.net.sasl.scram").ScramClient("alice", "pässword", name)
        exchange = ScramExchange(Scram("alice", "pässword", name), nonce=peer.nonce.decode())
        assert exchange.start() == peer.first_message()
        challenge = ScramServer(name, "pässword", 5000).first(exchange.start())
        peer.process_server_first_message(challenge)
        assert exchange.step(challenge) == peer.final_message()

    @given(user=USERS, password=st.text(st.characters(codec="utf-8")))
    def test_any_user_and_password_authenticate(self, user: str, password: str) -> None:
        first = run_scram(
            open_session(Scram(user, password, "SCRAM-SHA-256")),
            ScramServer("SCRAM-SHA-256", password),
        )
        name = first.split(b"n,,n=")[1].split(b",r=")[0].decode()
        assert "," not in name
        assert name.replace("=2C", ",").replace("=3D", "=") == user

    def test_equals_signs_and_commas_in_names_are_escaped(self) -> None:
        start = ScramExchange(Scram("a=b,c", "p"), nonce="n").start()
        assert start == b"n,,n=a=3Db=2Cc,r=n"

    def test_a_delegation_token_is_announced(self) -> None:
        exchange = open_session(Scram("id", "hmac", delegation_token=True))
        start = run_scram(exchange, ScramServer("SCRAM-SHA-512", "hmac"))
        assert start.endswith(b",tokenauth=true")

    def test_each_session_has_its_own_nonce(self) -> None:
        mechanism = Scram("alice", "p")
        assert open_session(mechanism).start() != open_session(mechanism).start()

    def test_a_wrong_password_surfaces_the_brokers_reason(self) -> None:
        with pytest.raises(AuthenticationError, match="invalid-proof"):
            run_scram(open_session(Scram("a", CANARY)), ScramServer("SCRAM-SHA-512", "other"))

    def test_a_broker_that_does_not_know_the_password_is_not_believed(self) -> None:
        exchange = open_session(Scram("alice", CANARY))
        exchange.step(ScramServer("SCRAM-SHA-512", "other").first(exchange.start()))
        with pytest.raises(AuthenticationError, match="signature is wrong"):
            exchange.step(b"v=" + base64.b64encode(bytes(64)))
        with pytest.raises(AuthenticationError, match="before it had proved"):
            sasl.finish(exchange)

    def test_a_broker_that_skips_its_signature_is_not_believed(self) -> None:
        exchange = open_session(Scram("alice", CANARY))
        exchange.step(ScramServer("SCRAM-SHA-512", CANARY).first(exchange.start()))
        with pytest.raises(AuthenticationError, match="before it had proved"):
            sasl.finish(exchange)

    def test_a_third_message_is_refused(self) -> None:
        exchange = open_session(Scram("alice", "p"))
        run_scram(exchange, ScramServer("SCRAM-SHA-512", "p"))
        with pytest.raises(AuthenticationError, match="more than two"):
            exchange.step(b"")

    @pytest.mark.parametrize(
        ("challenge", "problem"),
        [
            (b"", "without r="),
            (b"r=nonce+,s=AAAA", "without i="),
            (b"s=AAAA,r=nonce+,i=4096", "without r="),
            (b"r=other,s=AAAA,i=4096", "continue our nonce"),
            (b"r=nonce,s=AAAA,i=4096", "continue our nonce"),
            (b"r=nonce+,s=,i=4096", "no salt"),
            (b"r=nonce+,s=A,i=4096", "salt that is not base64"),
            (b"r=nonce+,s=\xc3\xa4,i=4096", "salt that is not base64"),
            (b"r=nonce+,s=AAAA,i=4095", "4095 iterations"),
            (b"r=nonce+,s=AAAA,i=1000001", "1000001 iterations"),
            (b"r=nonce+,s=AAAA,i=99999999999999999999", "no number"),
            (b"r=nonce+,s=AAAA,i=-4096", "no number"),
            (b"r=nonce+,s=AAAA,i=", "no number"),
            (b"r=nonce+,s=AAAA,i=\xd9\xa4\xd9\xa0\xd9\xa9\xd9\xa6", "no number"),
            (b"m=x,r=nonce+,s=AAAA,i=4096", "extension"),
            (b"\xff\xfe", "not UTF-8"),
            (b"e=unknown-user", "SCRAM-SHA-512 failed: unknown-user"),
            (b"e=\x1b[2J" + b"x" * 10_000, r"failed: \?\[2Jx{196}$"),
        ],
    )
    def test_a_hostile_first_message_is_one_clear_error(
        self, challenge: bytes, problem: str
    ) -> None:
        exchange = ScramExchange(Scram("alice", CANARY), nonce="nonce")
        with pytest.raises(AuthenticationError, match=problem) as caught:
            exchange.step(challenge)
        assert CANARY not in str(caught.value)

    @pytest.mark.parametrize(
        ("challenge", "problem"),
        [
            (b"", "without v="),
            (b"v=A", "not base64"),
            (b"v=", "signature is wrong"),
            (b"e=other-error", "other-error"),
        ],
    )
    def test_a_hostile_final_message_is_one_clear_error(
        self, challenge: bytes, problem: str
    ) -> None:
        exchange = open_session(Scram("alice", CANARY))
        exchange.step(ScramServer("SCRAM-SHA-512", CANARY).first(exchange.start()))
        with pytest.raises(AuthenticationError, match=problem):
            exchange.step(challenge)

    @given(st.lists(st.binary(max_size=80), min_size=1, max_size=3))
    def test_any_bytes_are_an_authentication_error(self, challenges: list[bytes]) -> None:
        exchange = ScramExchange(Scram("alice", CANARY), nonce="nonce")
        with contextlib.suppress(AuthenticationError):
            for challenge in challenges:
                exchange.step(challenge)
        assert not exchange.done
        with pytest.raises(AuthenticationError):
            sasl.finish(exchange)


class TestPlain:
    @given(
        USERS.filter(lambda t: "\0" not in t),
        st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    )
    def test_it_says_user_and_password_at_once(self, user: str, password: str) -> None:
        exchange = open_session(Plain(user, password))
        assert exchange.start().decode().split("\0") == ["", user, password]
        assert exchange.step(b"") is None
        sasl.finish(exchange)


class TestBearer:
    def test_it_shows_the_token(self) -> None:
        exchange = open_session(OAuthBearer(lambda: "abc"))
        assert exchange.start() == b"n,,\x01auth=Bearer abc\x01\x01"
        assert exchange.step(b"") is None
        sasl.finish(exchange)

    def test_extensions_follow_and_the_tokens_own_win(self) -> None:
        token = Token("abc", extensions={"traceId": "2"})
        exchange = BearerExchange(token, {"traceId": "1", "tenant": "x y"})
        assert exchange.start() == b"n,,\x01auth=Bearer abc\x01traceId=2\x01tenant=x y\x01\x01"

    def test_its_expiry_is_known(self) -> None:
        assert sasl.expires_at(open_session(OAuthBearer(lambda: ("abc", 5.0)))) == 5.0
        assert sasl.expires_at(open_session(Plain("a", "b"))) is None

    def test_a_silent_end_is_not_success(self) -> None:
        with pytest.raises(AuthenticationError):
            sasl.finish(open_session(OAuthBearer(lambda: "abc")))

    @pytest.mark.parametrize(
        ("challenge", "shown"),
        [
            (
                json.dumps({"status": "invalid_token", "scope": "kafka"}).encode(),
                "status invalid_token, scope kafka",
            ),
            (b'{"status":"invalid_token"}', "status invalid_token"),
            (b'{"other": 1}', "no reason given"),
            (b"[1]", r"\[1\]"),
            (b"not json \x00\xff", r"not json \?"),
            (b"[" * 100_000, r"\["),
        ],
    )
    def test_a_refusal_shows_the_brokers_reason(self, challenge: bytes, shown: str) -> None:
        exchange = open_session(OAuthBearer(lambda: CANARY))
        with pytest.raises(AuthenticationError, match=shown) as caught:
            exchange.step(challenge)
        assert CANARY not in str(caught.value)
        assert len(str(caught.value)) < 300

    @given(st.binary(min_size=1))
    def test_any_bytes_are_an_authentication_error(self, challenge: bytes) -> None:
        exchange = BearerExchange(Token(CANARY))
        with pytest.raises(AuthenticationError):
            exchange.step(challenge)


class TestSessions:
    def test_an_own_mechanism_is_used_as_it_is(self) -> None:
        class Own:
            name = "OWN"

            def start(self) -> bytes:
                return b"hello"

            def step(self, challenge: bytes) -> None:
                return

        own = Own()
        exchange = open_session(own)
        assert exchange is own
        sasl.finish(exchange)

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_factory_makes_a_session_for_each_host(self, is_async: bool) -> None:
        class Own:
            name = "OWN"

            def __init__(self, host: str) -> None:
                self.host = host

            def start(self) -> bytes:
                return self.host.encode()

            def step(self, challenge: bytes) -> None:
                return

        class Factory:
            name = "OWN"

            def session(self, host: str) -> Any:
                async def later() -> Own:
                    return Own(host)

                return later() if is_async else Own(host)

        assert open_session(Factory()).start() == b"b1.example"

    def test_msk_shows_a_signed_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def signed(_self: MskIam, host: str) -> Token:
            return Token(f"for-{host}", 9.0)

        monkeypatch.setattr(MskIam, "token", signed)
        exchange = open_session(MskIam())
        assert b"Bearer for-b1.example" in exchange.start()
        refusal = sasl.refused(exchange, "Access denied", broker="b1")
        assert "clock" in str(refusal)

    def test_a_refusal_names_the_mechanism_and_the_brokers_words(self) -> None:
        exchange = open_session(Plain("alice", CANARY))
        error = sasl.refused(exchange, "Invalid username or password", broker="b1:9092")
        assert str(error) == "PLAIN failed: Invalid username or password (broker b1:9092)"
        assert "no reason" in str(sasl.refused(exchange, None))
