"""Configurations of topics, brokers and groups: read, and changed one by one.

Brokers before 2.3 lack IncrementalAlterConfigs (KIP-339). Their AlterConfigs replaces everything
that is set, so what is set is read first and sent back with the changes; two administrators at
once may then undo each other's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from karrow.aio.admin_calls.base import AdminCalls, nothing, read_each, settled
from karrow.aio.calls.base import Reply, Request, sorted_out
from karrow.config import Secret
from karrow.errors import ConfigError, KarrowError, UnsupportedVersion
from karrow.types import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigType,
    Node,
)

if TYPE_CHECKING:
    from karrow.net.connection import Connection

    Entries = dict[str, ConfigEntry]
    Changes = Mapping[str, str | Secret | ConfigChange | None]

# The DescribeConfigs versions with the source and synonyms of a value, and with documentation.
FIRST_WITH_SYNONYMS = 1
FIRST_WITH_DOCUMENTATION = 3
INCREMENTAL = "IncrementalAlterConfigs"
OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}


class ConfigAdminCalls(AdminCalls):
    """Calls about configurations."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The configurations of resources, all entries or those of some names.

        With ``synonyms`` an entry has what it would fall back to, with ``documentation`` its
        explanation.
        """
        keys = None if names is None else list(names)

        def body(version: int, connection: Connection) -> dict[str, Any]:
            require = connection.versions.require
            extras = {}
            if synonyms:
                require("DescribeConfigs", version, "synonyms", FIRST_WITH_SYNONYMS)
                extras["include_synonyms"] = True
            if documentation:
                require("DescribeConfigs", version, "documentation", FIRST_WITH_DOCUMENTATION)
                extras["include_documentation"] = True
            return extras

        async def one(
            place: Node, group: list[ConfigResource]
        ) -> Mapping[ConfigResource, Entries | KarrowError]:
            asked = [{**_resource(owner), "configuration_keys": keys} for owner in group]
            request = Request(
                "DescribeConfigs",
                place,
                lambda version, connection: {"resources": asked, **body(version, connection)},
                api_version,
            )
            return await self._outcomes(request, lambda reply: _read_entries(reply, group))

        return await self._call_many(
            dict.fromkeys(resources),
            lambda left: self._split(left, _home, one),
            "describe_configs",
            retries=retries,
        )

    async def describe_config(
        self,
        resource: ConfigResource,
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[str, ConfigEntry]:
        """The configuration of a topic, a broker or a group: all entries or those of some names."""
        found = await self.describe_configs(
            [resource],
            names,
            synonyms=synonyms,
            documentation=documentation,
            api_version=api_version,
            retries=retries,
        )
        return found[resource]

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Changes],
        *,
        validate_only: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Change configurations; what is not named stays as it is.

        Text or a Secret sets an entry, None takes it back to its default; ``ConfigChange.append``
        and ``ConfigChange.subtract`` change lists. ``validate_only`` checks without
        changing anything. ``api_version`` is IncrementalAlterConfigs'.
        """
        wanted = {
            owner: {name: _change(change) for name, change in entries.items()}
            for owner, entries in changes.items()
        }

        async def one(
            place: Node, group: list[ConfigResource]
        ) -> Mapping[ConfigResource, KarrowError | None]:
            if api_version is None and not await self._has(INCREMENTAL, place):
                calls = (self._replace(place, one, wanted[one], validate_only) for one in group)
                return dict(zip(group, await settled(calls), strict=True))
            entries = {owner: _increments(wanted[owner]) for owner in group}
            request = _alteration(INCREMENTAL, place, entries, validate_only, api_version)
            return await self._outcomes(request, lambda reply: _read_altered(reply, request, group))

        await self._call_many(
            wanted, lambda left: self._split(left, _home, one), "alter_configs", retries=retries
        )

    async def _replace(
        self,
        place: Node,
        owner: ConfigResource,
        changes: Mapping[str, ConfigChange],
        validate_only: bool,
    ) -> None:
        """One attempt to change a resource on a broker that only knows how to replace."""
        current = await self.describe_config(owner, retries=0)
        entries = {owner: replacement(owner, current, changes)}
        request = _alteration("AlterConfigs", place, entries, validate_only)
        found = await self._outcomes(request, lambda reply: _read_altered(reply, request, [owner]))
        sorted_out(found, [owner], "alter_configs")

    async def alter_config(
        self,
        resource: ConfigResource,
        changes: Changes,
        *,
        validate_only: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Change the configuration of a topic, a broker or a group; the rest stays as it is.

        Text or a Secret sets an entry, None takes it back to its default.
        """
        await self.alter_configs(
            {resource: changes},
            validate_only=validate_only,
            api_version=api_version,
            retries=retries,
        )


def _home(owner: ConfigResource) -> Node:
    """A broker alone knows its own configuration; any broker knows the others."""
    if not isinstance(owner, ConfigResource):
        raise ConfigError(
            f"{owner!r} does not say whose configuration is meant",
            hint=f"for a topic give ConfigResource.topic({owner!r})",
        )
    if owner.type not in (ConfigType.BROKER, ConfigType.BROKER_LOGGER) or not owner.name:
        return Node.any()
    if not owner.name.isdecimal():
        raise ConfigError(f"{owner.name!r} is no broker's id")
    return Node.id(int(owner.name))


def _resource(owner: ConfigResource) -> dict[str, Any]:
    return {"resource_type": int(owner.type), "resource_name": owner.name}


def _named(group: Iterable[ConfigResource]) -> dict[ConfigResource, dict[str, str]]:
    return {owner: {str(owner.type): owner.name} for owner in group}


def _change(value: str | Secret | ConfigChange | None) -> ConfigChange:
    return ConfigChange.of(value.reveal() if isinstance(value, Secret) else value)


def _increments(changes: Mapping[str, ConfigChange]) -> list[dict[str, Any]]:
    return [
        {"name": name, "config_operation": OPERATIONS[change.action], "value": change.value}
        for name, change in changes.items()
    ]


def replacement(
    owner: ConfigResource,
    current: Mapping[str, ConfigEntry],
    changes: Mapping[str, ConfigChange],
) -> list[dict[str, Any]]:
    """Everything that is to be set afterwards, for brokers that only know how to replace."""
    values: dict[str, str] = {}
    for name, entry in current.items():
        if entry.source != _own_source(owner) or name in changes:
            continue
        if entry.value is None:
            raise UnsupportedVersion(
                f"{name} is secret and would be lost: this broker replaces all entries at once",
                api="AlterConfigs",
                hint=f"name {name} among the changes, too",
            )
        values[name] = entry.value
    for name, change in changes.items():
        before = current[name].value if name in current else None
        after = change.applied_to(before)
        if after is not None:
            values[name] = after
    return [{"name": name, "value": value} for name, value in values.items()]


def _own_source(owner: ConfigResource) -> ConfigSource:
    """Where an entry is set that belongs to the resource itself."""
    if owner.type != ConfigType.BROKER:
        return ConfigSource.DYNAMIC_TOPIC_CONFIG
    if owner.name:
        return ConfigSource.DYNAMIC_BROKER_CONFIG
    return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def _alteration(
    name: str,
    place: Node,
    entries: Mapping[ConfigResource, list[dict[str, Any]]],
    validate_only: bool,
    api_version: int | None = None,
) -> Request:
    resources = [{**_resource(owner), "configs": configs} for owner, configs in entries.items()]
    question = {"resources": resources, "validate_only": validate_only}
    return Request(name, place, lambda _version, _connection: question, api_version)


def _read_altered(
    reply: Reply, request: Request, group: list[ConfigResource]
) -> dict[ConfigResource, KarrowError | None]:
    answers = {
        ConfigResource(ConfigType(one.resource_type), one.resource_name): one
        for one in reply.message.responses
    }
    return read_each(reply, request.name, answers, _named(group), nothing)


def _read_entries(
    reply: Reply, group: list[ConfigResource]
) -> dict[ConfigResource, Entries | KarrowError]:
    answers = {
        ConfigResource(ConfigType(one.resource_type), one.resource_name): one
        for one in reply.message.results
    }

    def entries(answer: Any) -> Entries:
        return {
            one.name: _entry(one, answer.resource_type, reply.version) for one in answer.configs
        }

    return read_each(reply, "DescribeConfigs", answers, _named(group), entries)


def _entry(answer: Any, owner: int, version: int) -> ConfigEntry:
    source = ConfigSource(answer.config_source)
    if version < FIRST_WITH_SYNONYMS:
        source = _old_source(owner, is_default=answer.is_default)
    return ConfigEntry(
        answer.name,
        answer.value,
        source,
        answer.read_only,
        answer.is_sensitive,
        tuple(
            ConfigEntry(one.name, one.value, ConfigSource(one.source)) for one in answer.synonyms
        ),
        answer.documentation,
    )


def _old_source(owner: int, *, is_default: bool) -> ConfigSource:
    """Version 0 only says whether somebody has set a value."""
    if is_default:
        return ConfigSource.DEFAULT_CONFIG
    is_topic = owner == ConfigType.TOPIC
    return ConfigSource.DYNAMIC_TOPIC_CONFIG if is_topic else ConfigSource.STATIC_BROKER_CONFIG
