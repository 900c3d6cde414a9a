"""Users that log in by SCRAM (KIP-554): their mechanisms, passwords set and credentials deleted.

The broker is never told a password, only what it needs to check one: the password hashed with a
random salt. Nothing here is kept or shown.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from karrow.aio.admin_calls.base import AdminCalls, named, nothing, raise_for, read_each
from karrow.aio.calls.base import Reply, Request, sorted_out
from karrow.config import Secret
from karrow.errors import ConfigError, KarrowError
from karrow.types import Node, ScramInfo, ScramMechanism, UserScramDescription

if TYPE_CHECKING:
    Key = tuple[str, ScramMechanism]

HASHES = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}
SALT_BYTES = 32
# Brokers take 4096 to 16384; the more, the dearer it is to guess a password from a stolen hash.
ITERATIONS = 8192


class UserAdminCalls(AdminCalls):
    """Calls about SCRAM users."""

    async def describe_scram_users(
        self, users: Iterable[str] | None = None, *, retries: int | None = None
    ) -> dict[str, UserScramDescription]:
        """Which mechanisms users have credentials for, by user; None is all users."""
        wanted = None if users is None else list(dict.fromkeys(users))
        names = None if wanted is None else [{"name": name} for name in wanted]
        request = Request(
            "DescribeUserScramCredentials",
            Node.any(),
            lambda _version, _connection: {"users": names},
        )
        found = await self._call(request, lambda reply: _read_users(reply, wanted), retries=retries)
        return sorted_out(found, list(found), "describe_scram_users")

    async def describe_scram_user(
        self, user: str, *, retries: int | None = None
    ) -> UserScramDescription:
        """Which mechanisms a user has credentials for."""
        return (await self.describe_scram_users([user], retries=retries))[user]

    async def alter_scram_users(
        self,
        changes: Mapping[tuple[str, ScramMechanism], str | Secret | None],
        *,
        iterations: int = ITERATIONS,
        retries: int | None = None,
    ) -> None:
        """Set or delete credentials: (user, mechanism) to a password, or to None to delete it."""
        upsertions = await asyncio.to_thread(_upsertions, changes, iterations)

        async def send(left: list[Key]) -> Mapping[Key, KarrowError | None]:
            deletions = [key for key in left if key not in upsertions]
            question = {
                "deletions": [{"name": user, "mechanism": int(one)} for user, one in deletions],
                "upsertions": [upsertions[key] for key in left if key in upsertions],
            }
            name, to = "AlterUserScramCredentials", Node.controller()
            return await self._outcomes(
                Request(name, to, lambda _version, _connection: question),
                lambda reply: _read_altered(reply, left),
            )

        async def ask(left: list[Key]) -> Mapping[Key, KarrowError | None]:
            outcomes: dict[Key, KarrowError | None] = {}
            for turn in turns(left):
                outcomes.update(await send(turn))
            return outcomes

        await self._call_many(changes, ask, "alter_scram_users", retries=retries)

    async def alter_scram_user(
        self,
        user: str,
        password: str | Secret,
        mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512,
        *,
        iterations: int = ITERATIONS,
        retries: int | None = None,
    ) -> None:
        """Set a user's password for a mechanism; the user need not exist before."""
        await self.alter_scram_users(
            {(user, mechanism): password}, iterations=iterations, retries=retries
        )

    async def delete_scram_user(
        self,
        user: str,
        mechanism: ScramMechanism | None = None,
        *,
        retries: int | None = None,
    ) -> None:
        """Delete a user's credential for a mechanism, or all that the user has."""
        chosen = [mechanism] if mechanism is not None else None
        if chosen is None:
            described = await self.describe_scram_user(user, retries=retries)
            chosen = [info.mechanism for info in described.credentials]
        await self.alter_scram_users({(user, one): None for one in chosen}, retries=retries)


def salted_password(
    password: str | Secret, mechanism: ScramMechanism, salt: bytes, iterations: int
) -> bytes:
    """What a broker stores the keys of (RFC 5802); UTF-8 without SASLprep, as in Kafka itself."""
    if mechanism not in HASHES:
        raise ConfigError(f"{mechanism} is no mechanism that stores credentials")
    text = Secret(password).reveal().encode()
    return hashlib.pbkdf2_hmac(HASHES[mechanism], text, salt, iterations)


def turns(keys: Iterable[Key]) -> list[list[Key]]:
    """Changes for one request after the other: each may change a user once."""
    waiting: dict[str, list[Key]] = {}
    for key in keys:
        waiting.setdefault(key[0], []).append(key)
    rows = zip_longest(*waiting.values())
    return [[key for key in row if key is not None] for row in rows]


def _upsertions(
    changes: Mapping[tuple[str, ScramMechanism], str | Secret | None], iterations: int
) -> dict[Key, dict[str, Any]]:
    """The credentials to store; hashing takes milliseconds each, so it has a thread of its own."""
    if iterations < 1:
        raise ConfigError(f"iterations={iterations} is less than 1")
    entries: dict[Key, dict[str, Any]] = {}
    for (user, mechanism), password in changes.items():
        if password is None:
            continue
        salt = secrets.token_bytes(SALT_BYTES)
        entries[user, mechanism] = {
            "name": user,
            "mechanism": int(mechanism),
            "iterations": iterations,
            "salt": salt,
            "salted_password": salted_password(password, mechanism, salt, iterations),
        }
    return entries


def _read_users(
    reply: Reply, wanted: list[str] | None
) -> dict[str, UserScramDescription | KarrowError]:
    name = "DescribeUserScramCredentials"
    raise_for(reply, name)
    answers = {one.user: one for one in reply.message.results}
    where = named("user", answers if wanted is None else wanted)
    return read_each(reply, name, answers, where, _user)


def _user(answer: Any) -> UserScramDescription:
    credentials = tuple(
        ScramInfo(ScramMechanism(one.mechanism), one.iterations) for one in answer.credential_infos
    )
    return UserScramDescription(answer.user, credentials)


def _read_altered(reply: Reply, left: list[Key]) -> dict[Key, KarrowError | None]:
    """The answer goes by user; each of the user's changes shares it."""
    answers = {one.user: one for one in reply.message.results}
    by_key = {key: answers[key[0]] for key in left if key[0] in answers}
    where = {key: {"user": key[0], "mechanism": key[1]} for key in left}
    return read_each(reply, "AlterUserScramCredentials", by_key, where, nothing)
