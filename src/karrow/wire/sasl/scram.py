"""SCRAM-SHA-256 and SCRAM-SHA-512: a proof of the password in both directions (RFC 5802, 7677).

Rules:
- The broker's nonce begins with ours and goes on.
- At least 4096 iterations, or the hashes are cheap to attack; at most 1,000,000, or a hostile
  broker could burn our CPU.
- We are done only when the broker's signature, compared in constant time, has proved that it knows
  the password too.
- As in Kafka's own client, user and password are UTF-8 without SASLprep, and there is no channel
  binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Literal, NamedTuple

from karrow.errors import AuthenticationError

if TYPE_CHECKING:
    from karrow.config.sasl import Scram

__all__ = ["MAX_ITERATIONS", "MIN_ITERATIONS", "ScramExchange"]

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 1_000_000
NONCE_BYTES = 24

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_HEADER = "n,,"  # no channel binding, no other identity
_BINDING = base64.b64encode(_HEADER.encode()).decode()


class ServerFirst(NamedTuple):
    """The broker's first message."""

    nonce: str
    salt: bytes
    iterations: int


class ScramExchange:
    """The client's half of one exchange."""

    def __init__(self, scram: Scram, nonce: str | None = None) -> None:
        self.name = scram.name
        self.done = False
        self._scram = scram
        self._hash = _HASHES[scram.name]
        self._nonce = nonce or base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        self._expected: Literal["first", "final", "nothing"] = "first"
        self._signature = b""

    def start(self) -> bytes:
        """Who we are, and our nonce."""
        return (_HEADER + self._client_first).encode()

    @property
    def _client_first(self) -> str:
        token = ",tokenauth=true" if self._scram.delegation_token else ""
        return f"n={_escaped(self._scram.user)},r={self._nonce}{token}"

    def step(self, challenge: bytes) -> bytes | None:
        """Prove that we know the password, then check that the broker does."""
        if self._expected == "first":
            self._expected = "final"
            return self._prove(self._text(challenge))
        if self._expected == "final":
            self._expected = "nothing"
            self._verify(self._text(challenge))
            return None
        raise self._broken("sent more than two messages")

    def _text(self, challenge: bytes) -> str:
        try:
            return bytes(challenge).decode()
        except UnicodeDecodeError:
            raise self._broken("sent something that is not UTF-8") from None

    def _prove(self, text: str) -> bytes:
        server = self._read_first(text)
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._scram.password.reveal().encode(), server.salt, server.iterations
        )
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        final = f"c={_BINDING},r={server.nonce}"
        signed = f"{self._client_first},{text},{final}".encode()
        mask = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, mask, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _read_first(self, text: str) -> ServerFirst:
        fields = self._fields(text, "r", "s", "i")
        nonce, iterations = fields["r"], fields["i"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._broken("did not continue our nonce")
        salt = self._decoded("salt", fields["s"])
        if not salt:
            raise self._broken("sent no salt")
        if not (iterations.isascii() and iterations.isdecimal() and len(iterations) < 10):
            raise self._broken("sent an iteration count that is no number")
        if not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise self._broken(
                f"asked for {iterations} iterations, outside {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        return ServerFirst(nonce, salt, int(iterations))

    def _verify(self, text: str) -> None:
        signature = self._decoded("signature", self._fields(text, "v")["v"])
        if not hmac.compare_digest(signature, self._signature):
            raise self._broken("does not know the password: its signature is wrong")
        self.done = True

    def _fields(self, text: str, *names: str) -> dict[str, str]:
        """The attributes of a message, which come first and in this order; extensions follow."""
        parts = text.split(",")
        if parts[0].startswith("e="):
            raise AuthenticationError(f"{self.name} failed: {_printable(parts[0][2:])}")
        if parts[0].startswith("m="):
            raise self._broken("wants an extension that nobody knows")
        fields = dict(zip(names, parts, strict=False))
        for name in names:
            if not fields.get(name, "").startswith(f"{name}="):
                raise self._broken(f"sent a message without {name}=")
        return {name: part[2:] for name, part in fields.items()}

    def _decoded(self, what: str, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise self._broken(f"sent a {what} that is not base64") from None

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)

    def _broken(self, what: str) -> AuthenticationError:
        return AuthenticationError(f"{self.name}: the broker {what}")


def _escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _printable(text: str) -> str:
    """The broker's words, cut short and without anything that would disturb a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:200])
