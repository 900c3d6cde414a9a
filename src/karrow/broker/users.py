"""Who may log in, and how: passwords for PLAIN, and what SCRAM keeps instead of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from karrow import errors
from karrow.config import Plain, Scram, Secret
from karrow.errors import ConfigError

if TYPE_CHECKING:
    from karrow.broker.store import Store

PLAIN = "PLAIN"
# By the numbers that the admin requests have for them.
SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS = 4096
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
TABLE = "users"

Logins = Mapping[str, str | Secret] | Plain | Scram


class ScramCredential(NamedTuple):
    """What the broker keeps of a password: enough to check it, not enough to log in."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of_salted(
        cls, mechanism: str, salted: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """From a password that was salted already."""
        name = HASHES[mechanism]
        client_key = hmac.digest(salted, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        return cls(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", name))

    @classmethod
    def of_password(cls, mechanism: str, password: str) -> ScramCredential:
        """From a password."""
        salt = secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, ITERATIONS)
        return cls.of_salted(mechanism, salted, salt, ITERATIONS)


class Users:
    """All users of the cluster."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._passwords: dict[str, Secret] = {}
        self._scram: dict[tuple[str, str], ScramCredential] = {}
        self.mechanisms: tuple[str, ...] = ()
        for key, row in store.load(TABLE).items():
            mechanism, _, user = key.partition("/")
            self._scram[user, mechanism] = ScramCredential(
                base64.b64decode(row["salt"]),
                row["iterations"],
                base64.b64decode(row["stored"]),
                base64.b64decode(row["server"]),
            )

    def allow(self, logins: Logins) -> None:
        """Let users in: by the mechanism of a credential, or with all of them by name."""
        check_logins(logins)
        if isinstance(logins, Plain):
            self.mechanisms = (PLAIN,)
            self._passwords[logins.user] = logins.password
        elif isinstance(logins, Scram):
            self.mechanisms = (logins.name,)
            self._add_scram(logins.user, logins.name, logins.password.reveal())
        else:
            self.mechanisms = (PLAIN, *HASHES)
            for user, password in logins.items():
                self._passwords[user] = Secret(password)
                for mechanism in HASHES:
                    self._add_scram(user, mechanism, self._passwords[user].reveal())

    def has_password(self, user: str, password: str) -> bool:
        """Whether PLAIN lets them in."""
        known = self._passwords.get(user)
        expected = known.reveal() if known is not None else ""
        is_same = hmac.compare_digest(password.encode(), expected.encode())
        return is_same and known is not None

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        """What is kept of a user's password."""
        return self._scram.get((user, mechanism))

    def scram_users(self) -> dict[str, dict[str, ScramCredential]]:
        """All SCRAM users, with their mechanisms."""
        found: dict[str, dict[str, ScramCredential]] = {}
        for (user, mechanism), credential in sorted(self._scram.items()):
            found.setdefault(user, {})[mechanism] = credential
        return found

    def put(self, user: str, mechanism: str, credential: ScramCredential | None) -> None:
        """Set or, with None, delete what is kept of a user's password."""
        key = f"{mechanism}/{user}"
        if credential is None:
            if self._scram.pop((user, mechanism), None) is None:
                raise errors.ResourceNotFound("the user has no such credential")
            self._store.put(TABLE, key, None)
            return
        self._scram[user, mechanism] = credential
        row = {
            "salt": base64.b64encode(credential.salt).decode(),
            "iterations": credential.iterations,
            "stored": base64.b64encode(credential.stored_key).decode(),
            "server": base64.b64encode(credential.server_key).decode(),
        }
        self._store.put(TABLE, key, row)

    def _add_scram(self, user: str, mechanism: str, password: str) -> None:
        if (user, mechanism) not in self._scram:
            self.put(user, mechanism, ScramCredential.of_password(mechanism, password))


def check_logins(logins: Logins) -> None:
    """Refuse what does not say who may log in."""
    if not isinstance(logins, (Plain, Scram, Mapping)):
        raise ConfigError(
            f"sasl={type(logins).__name__}: give karrow.Plain, karrow.Scram, or users with their "
            "passwords"
        )
    if isinstance(logins, Mapping) and not logins:
        raise ConfigError("sasl={}: nobody could log in")
