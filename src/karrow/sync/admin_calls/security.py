"""Blocking calls about access control and SCRAM users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from karrow.aio.admin_calls.users import ITERATIONS
from karrow.sync.admin_calls.base import AdminTwin
from karrow.types import AclFilter, ScramMechanism

if TYPE_CHECKING:
    from karrow.config import Secret
    from karrow.types import AclBinding, UserScramDescription


class SecurityCalls(AdminTwin):
    """Calls about rights and users."""

    def create_acls(
        self,
        acls: Iterable[AclBinding],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Add rules; one that exists already is no error."""
        return self._run(self._twin.create_acls(acls, api_version=api_version, retries=retries))

    def describe_acls(
        self,
        matching: AclFilter | AclBinding | None = None,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> list[AclBinding]:
        """The rules that a filter matches, or all of them."""
        return self._run(
            self._twin.describe_acls(matching, api_version=api_version, retries=retries)
        )

    def delete_acls(
        self,
        matching: Iterable[AclFilter | AclBinding],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[AclFilter | AclBinding, list[AclBinding]]:
        """Delete the rules that filters match, and return them by filter.

        A rule is a filter that matches only itself.
        """
        return self._run(self._twin.delete_acls(matching, api_version=api_version, retries=retries))

    def describe_scram_users(
        self,
        users: Iterable[str] | None = None,
        *,
        retries: int | None = None,
    ) -> dict[str, UserScramDescription]:
        """Which mechanisms users have credentials for, by user; None is all users."""
        return self._run(self._twin.describe_scram_users(users, retries=retries))

    def describe_scram_user(
        self,
        user: str,
        *,
        retries: int | None = None,
    ) -> UserScramDescription:
        """Which mechanisms a user has credentials for."""
        return self._run(self._twin.describe_scram_user(user, retries=retries))

    def alter_scram_users(
        self,
        changes: Mapping[tuple[str, ScramMechanism], str | Secret | None],
        *,
        iterations: int = ITERATIONS,
        retries: int | None = None,
    ) -> None:
        """Set or delete credentials: (user, mechanism) to a password, or to None to delete it."""
        return self._run(
            self._twin.alter_scram_users(changes, iterations=iterations, retries=retries)
        )

    def alter_scram_user(
        self,
        user: str,
        password: str | Secret,
        mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512,
        *,
        iterations: int = ITERATIONS,
        retries: int | None = None,
    ) -> None:
        """Set a user's password for a mechanism; the user need not exist before."""
        return self._run(
            self._twin.alter_scram_user(
                user, password, mechanism, iterations=iterations, retries=retries
            )
        )

    def delete_scram_user(
        self,
        user: str,
        mechanism: ScramMechanism | None = None,
        *,
        retries: int | None = None,
    ) -> None:
        """Delete a user's credential for a mechanism, or all that the user has."""
        return self._run(self._twin.delete_scram_user(user, mechanism, retries=retries))
