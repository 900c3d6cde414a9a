"""The broker's half of SASL: mechanisms as steps from bytes to bytes.

An exchange raises SaslAuthenticationFailed with a text that may be shown, or ends with ``user``
set. SCRAM checks that the client's last message has the nonce that was agreed on, or a message
recorded elsewhere would do (CVE-2024-56128).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Protocol

from karrow.broker.users import HASHES, PLAIN
from karrow.errors import SaslAuthenticationFailed

if TYPE_CHECKING:
    from karrow.broker.users import ScramCredential, Users


class ServerExchange(Protocol):
    """One attempt to log in."""

    user: str | None

    def step(self, token: bytes) -> bytes:
        """The answer to a client's message; ``user`` is set once they are in."""


class PlainServer:
    """PLAIN: one message with everything in it."""

    def __init__(self, users: Users) -> None:
        self.user: str | None = None
        self._users = users

    def step(self, token: bytes) -> bytes:
        parts = _text(token).split("\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise SaslAuthenticationFailed(
                "Authentication failed: SASL/PLAIN wants a user and a password"
            )
        acting_as, user, password = parts
        if acting_as not in ("", user):
            raise SaslAuthenticationFailed("Authentication failed: nobody may act as somebody else")
        if not self._users.has_password(user, password):
            raise SaslAuthenticationFailed("Authentication failed: Invalid username or password")
        self.user = user
        return b""


class ScramServer:
    """SCRAM: who they are, then the proof that they know the password, and ours."""

    def __init__(self, users: Users, mechanism: str) -> None:
        self.user: str | None = None
        self._users = users
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._claimed = ""
        self._nonce = ""
        self._signed = ""
        self._credential: ScramCredential | None = None

    def step(self, token: bytes) -> bytes:
        text = _text(token)
        if self._credential is None:
            return self._first(text)
        return self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        header, _, rest = text.partition(",,")
        fields = _fields(rest)
        if header != "n" or "n" not in fields or not fields.get("r"):
            raise SaslAuthenticationFailed("Authentication failed: the first message is invalid")
        self._claimed = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._credential = self._users.scram(self._claimed, self._mechanism)
        if self._credential is None:
            raise _refused(self._mechanism)
        self._nonce = fields["r"] + base64.b64encode(secrets.token_bytes(18)).decode()
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{rest},{answer}"
        return answer.encode()

    def _final(self, text: str, credential: ScramCredential) -> bytes:
        without_proof, _, proof_text = text.rpartition(",p=")
        fields = _fields(without_proof)
        if fields.get("r") != self._nonce or fields.get("c") != base64.b64encode(b"n,,").decode():
            raise SaslAuthenticationFailed("Authentication failed: the final message is invalid")
        signed = f"{self._signed},{without_proof}".encode()
        mask = hmac.digest(credential.stored_key, signed, self._hash)
        proof = _decoded(proof_text)
        if len(proof) != len(mask):
            raise _refused(self._mechanism)
        client_key = bytes(a ^ b for a, b in zip(proof, mask, strict=True))
        stored = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(stored, credential.stored_key):
            raise _refused(self._mechanism)
        self.user = self._claimed
        signature = hmac.digest(credential.server_key, signed, self._hash)
        return b"v=" + base64.b64encode(signature)


def new_exchange(users: Users, mechanism: str) -> ServerExchange:
    """The broker's half of a mechanism that it offers."""
    return PlainServer(users) if mechanism == PLAIN else ScramServer(users, mechanism)


def _refused(mechanism: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise SaslAuthenticationFailed("Authentication failed: not UTF-8") from None


def _fields(text: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslAuthenticationFailed("Authentication failed: not base64") from None
