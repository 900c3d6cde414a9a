"""Who may do what: rules of access control made, read and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from karrow.aio.admin_calls.base import AdminCalls, named, nothing, raise_for, read_each
from karrow.aio.calls.base import Reply, Request
from karrow.errors import ConfigError, KarrowError, error_for
from karrow.types import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    Node,
    PatternType,
    ResourceType,
)

if TYPE_CHECKING:
    from karrow.net.connection import Connection

# The version of the three APIs with patterns of names (KIP-290); before it names are literal.
FIRST_WITH_PATTERNS = 1
Rule = TypeVar("Rule", AclBinding, AclFilter, AclBinding | AclFilter)
LITERALS = (PatternType.LITERAL, PatternType.ANY)


class AclAdminCalls(AdminCalls):
    """Calls about access control."""

    async def create_acls(
        self,
        acls: Iterable[AclBinding],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Add rules; one that exists already is no error."""

        async def ask(left: list[AclBinding]) -> Mapping[AclBinding, KarrowError | None]:
            def body(version: int, connection: Connection) -> dict[str, Any]:
                return {"creations": [_creation(one, version, connection) for one in left]}

            return await self._outcomes(
                Request("CreateAcls", Node.any(), body, api_version),
                lambda reply: read_each(
                    reply,
                    "CreateAcls",
                    dict(zip(left, reply.message.results, strict=False)),
                    named("acl", left),
                    nothing,
                ),
            )

        wanted = dict.fromkeys(map(_known, acls))
        await self._call_many(wanted, ask, "create_acls", retries=retries)

    async def describe_acls(
        self,
        matching: AclFilter | AclBinding | None = None,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> list[AclBinding]:
        """The rules that a filter matches, or all of them."""
        chosen = AclFilter() if matching is None else _known(matching)

        def body(version: int, connection: Connection) -> dict[str, Any]:
            return _filter("DescribeAcls", chosen, version, connection)

        request = Request("DescribeAcls", Node.any(), body, api_version)
        return await self._call(request, _read_rules, retries=retries)

    async def delete_acls(
        self,
        matching: Iterable[AclFilter | AclBinding],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[AclFilter | AclBinding, list[AclBinding]]:
        """Delete the rules that filters match, and return them by filter.

        A rule is a filter that matches only itself.
        """

        async def ask(
            left: list[AclFilter | AclBinding],
        ) -> Mapping[AclFilter | AclBinding, list[AclBinding] | KarrowError]:
            def body(version: int, connection: Connection) -> dict[str, Any]:
                filters = [_filter("DeleteAcls", one, version, connection) for one in left]
                return {"filters": filters}

            return await self._outcomes(
                Request("DeleteAcls", Node.any(), body, api_version),
                lambda reply: _read_deleted(reply, left),
            )

        wanted = dict.fromkeys(map(_known, matching))
        return await self._call_many(wanted, ask, "delete_acls", retries=retries)


def _known(rule: Rule) -> Rule:
    """Refuse what has no name: a broker closes the connection over it, without a word."""
    for part in (rule.resource_type, rule.pattern_type, rule.operation, rule.permission):
        if not part:
            raise ConfigError(f"a rule or filter cannot have {part!r}", rule=rule)
    return rule


def _creation(acl: AclBinding, version: int, connection: Connection) -> dict[str, Any]:
    entry = {
        "resource_type": int(acl.resource_type),
        "resource_name": acl.resource_name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }
    if acl.pattern_type == PatternType.LITERAL:
        return entry
    connection.versions.require("CreateAcls", version, "a pattern", FIRST_WITH_PATTERNS)
    return {**entry, "resource_pattern_type": int(acl.pattern_type)}


def _filter(
    name: str, chosen: AclFilter | AclBinding, version: int, connection: Connection
) -> dict[str, Any]:
    entry = {
        "resource_type_filter": int(chosen.resource_type),
        "resource_name_filter": chosen.resource_name,
        "principal_filter": chosen.principal,
        "host_filter": chosen.host,
        "operation": int(chosen.operation),
        "permission_type": int(chosen.permission),
    }
    if version >= FIRST_WITH_PATTERNS:
        return {**entry, "pattern_type_filter": int(chosen.pattern_type)}
    if chosen.pattern_type not in LITERALS:
        connection.versions.require(name, version, "a pattern", FIRST_WITH_PATTERNS)
    return entry


def _rule(owner: Any, entry: Any) -> AclBinding:
    return AclBinding(
        ResourceType(owner.resource_type),
        owner.resource_name,
        entry.principal,
        AclOperation(entry.operation),
        AclPermission(entry.permission_type),
        entry.host,
        PatternType(owner.pattern_type),
    )


def _read_rules(reply: Reply) -> list[AclBinding]:
    raise_for(reply, "DescribeAcls")
    return [_rule(owner, entry) for owner in reply.message.resources for entry in owner.acls]


def _read_deleted(
    reply: Reply, left: list[AclFilter | AclBinding]
) -> dict[AclFilter | AclBinding, list[AclBinding] | KarrowError]:
    def deleted(answer: Any) -> list[AclBinding]:
        return [_rule(one, one) for one in answer.matching_acls]

    answers = dict(zip(left, reply.message.filter_results, strict=False))
    outcomes = read_each(reply, "DeleteAcls", answers, named("filter", left), deleted)
    for key, answer in answers.items():
        for rule in answer.matching_acls:
            context = reply.context("DeleteAcls", acl=_rule(rule, rule))
            error = error_for(rule.error_code, rule.error_message or None, **context)
            if error is not None:
                outcomes[key] = error
    return outcomes
