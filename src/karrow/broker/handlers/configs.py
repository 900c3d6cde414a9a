"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

DescribeConfigs: 1 synonyms and where values come from, 3 types and documentation (which is null
here). Resources are topics and brokers; a broker is asked by its own id, or by no name for what is
set for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.cluster import check_name
from karrow.broker.defaults import ALL, OF_ALL_BROKERS, OF_KAFKA, OF_TOPIC, Source
from karrow.broker.settings import LIST, Setting
from karrow.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

Described = DescribeConfigsResponse.DescribeConfigsResult
Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym
Listed = ListConfigResourcesResponse.ConfigResource
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
UNKNOWN_TYPE = 0


# Telling.


@handles("DescribeConfigs")
def describe_configs(call: Call, body: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Each resource by itself; a list of names asks for those only."""
    return DescribeConfigsResponse(
        results=[_describe(call, item, synonyms=body.include_synonyms) for item in body.resources]
    )


def _describe(
    call: Call, item: DescribeConfigsRequest.DescribeConfigsResource, *, synonyms: bool
) -> Described:
    answer = Described(
        resource_type=item.resource_type, resource_name=item.resource_name, error_message=None
    )
    try:
        entries = _entries(call, item.resource_type, item.resource_name)
    except errors.BrokerError as error:
        answer.error_code, answer.error_message = error.code, error.message or None
        return answer
    wanted = item.configuration_keys
    answer.configs = [entry for entry in entries if not wanted or entry.name in wanted]
    for entry in answer.configs:
        if not synonyms:
            entry.synonyms = []
        if call.version == 0:
            entry.is_default = entry.config_source == OF_KAFKA
    return answer


def _entries(call: Call, kind: int, name: str) -> list[Entry]:
    if kind == TOPIC:
        return _topic_entries(call, name)
    if kind != BROKER:
        raise errors.InvalidRequest(f"Unsupported resource type: {kind}")
    settings = call.cluster.settings
    if name == ALL:
        return [_all_brokers_entry(call, key) for key in sorted(settings.given(ALL))]
    _check_broker(call, name)
    return [
        _entry(
            key,
            settings.setting(key),
            settings.sources(key, name),
            read_only=bool(settings.setting(key)) and settings.is_fixed(key),
        )
        for key in sorted({*settings.names(), *settings.given(ALL), *settings.given(name)})
    ]


def _all_brokers_entry(call: Call, name: str) -> Entry:
    settings = call.cluster.settings
    sources = [found for found in settings.sources(name, ALL) if found.level == OF_ALL_BROKERS]
    return _entry(name, settings.setting(name), sources, read_only=False)


def _topic_entries(call: Call, name: str) -> list[Entry]:
    check_name(name)
    call.check_fault(name)
    topic = call.cluster.topic(name)
    given = topic.settings.given
    entries = []
    for key, setting in topic.settings.table.items():
        sources = [Source(key, given[key], OF_TOPIC)] if key in given else []
        sources += call.cluster.settings.topic_sources(key, str(call.node_id))
        entry = _entry(key, setting, sources, read_only=False)
        entry.value = topic.settings.text(key)
        entries.append(entry)
    return entries


def _entry(name: str, setting: Setting | None, sources: list[Source], *, read_only: bool) -> Entry:
    level = sources[0].level if sources else OF_KAFKA
    return Entry(
        name=name,
        value=sources[0].value if sources else None,
        read_only=read_only,
        config_source=level,
        config_type=UNKNOWN_TYPE if setting is None else setting.kind,
        synonyms=[Synonym(name=s.name, value=s.value, source=s.level) for s in sources],
        documentation=None,
    )


def _check_broker(call: Call, name: str) -> None:
    if not name.isdecimal():
        raise errors.InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if name != str(call.node_id):
        raise errors.InvalidRequest(
            f"Unexpected broker id, expected {call.node_id} or empty string, but received {name}"
        )


@handles("ListConfigResources")
def list_config_resources(
    call: Call, body: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Version 0 asks for client metrics only, of which there are none here."""
    known = [CLIENT_METRICS]
    if call.version > 0:
        known = [GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC]
    wanted = body.resource_types or known
    if not set(wanted) <= set(known):
        return ListConfigResourcesResponse(error_code=errors.UnsupportedVersion.code)
    brokers = [str(node.node_id) for node in call.cluster.visible]
    names = {BROKER_LOGGER: brokers, BROKER: brokers, TOPIC: list(call.cluster.topics)}
    return ListConfigResourcesResponse(
        config_resources=[
            Listed(resource_name=name, resource_type=kind)
            for kind in known
            if kind in wanted
            for name in names.get(kind, ())
        ]
    )


# Changing.


class Resource(Protocol):
    """What both requests name in the same way."""

    resource_type: int
    resource_name: str


@handles("AlterConfigs")
def alter_configs(call: Call, body: AlterConfigsRequest) -> AlterConfigsResponse:
    """What is not named goes back to its default."""
    repeated = _repeated(body.resources)
    answers = []
    for item in body.resources:
        answer = AlterConfigsResponse.AlterConfigsResourceResponse(
            resource_type=item.resource_type, resource_name=item.resource_name, error_message=None
        )
        try:
            _check_resource(item, repeated, [config.name for config in item.configs])
            _check_values({config.name: config.value for config in item.configs})
            given = {config.name: config.value or "" for config in item.configs}
            _alter(call, item, given, validate_only=body.validate_only)
        except errors.BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        answers.append(answer)
    return AlterConfigsResponse(responses=answers)


@handles("IncrementalAlterConfigs")
def incremental_alter_configs(
    call: Call, body: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Single settings are set, deleted, or have items added and taken away."""
    repeated = _repeated(body.resources)
    answers = []
    for item in body.resources:
        answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            resource_type=item.resource_type, resource_name=item.resource_name, error_message=None
        )
        try:
            _check_resource(item, repeated, [config.name for config in item.configs])
            changes = [config for config in item.configs if config.config_operation != DELETE]
            _check_values({config.name: config.value for config in changes})
            given = _changed(call, item)
            _alter(call, item, given, validate_only=body.validate_only)
        except errors.BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        answers.append(answer)
    return IncrementalAlterConfigsResponse(responses=answers)


def _repeated(resources: Iterable[Resource]) -> set[tuple[int, str]]:
    counted = Counter((item.resource_type, item.resource_name) for item in resources)
    return {resource for resource, count in counted.items() if count > 1}


def _check_resource(item: Resource, repeated: set[tuple[int, str]], names: list[str]) -> None:
    if (item.resource_type, item.resource_name) in repeated:
        raise errors.InvalidRequest("Each resource must appear at most once.")
    if len(set(names)) != len(names):
        raise errors.InvalidRequest("Error due to duplicate config keys")
    if item.resource_type not in (TOPIC, BROKER):
        raise errors.InvalidRequest(f"Unknown resource type {item.resource_type}")


def _check_values(values: Mapping[str, str | None]) -> None:
    absent = [name for name, value in values.items() if value is None]
    if absent:
        raise errors.InvalidRequest(f"Null value not supported for : {', '.join(absent)}")


def _changed(
    call: Call, item: IncrementalAlterConfigsRequest.AlterConfigsResource
) -> dict[str, str]:
    """What the resource would have after the changes."""
    given = dict(_given(call, item))
    for config in item.configs:
        operation, value = config.config_operation, config.value or ""
        if operation == SET:
            given[config.name] = value
        elif operation == DELETE:
            given.pop(config.name, None)
        elif operation in (APPEND, SUBTRACT):
            setting = _setting(call, item, config.name)
            if setting is None or setting.kind != LIST:
                raise errors.InvalidConfig(
                    f"Can't change items of key {config.name} because its type is not LIST."
                )
            before = given.get(config.name, setting.default)
            given[config.name] = _with_items(before, value, add=operation == APPEND)
        else:
            raise errors.InvalidRequest(f"Unknown operations type {operation}")
    return given


def _with_items(before: str, change: str, *, add: bool) -> str:
    items = [item for item in before.split(",") if item]
    for item in change.split(","):
        if add and item not in items:
            items.append(item)
        elif not add and item in items:
            items.remove(item)
    return ",".join(items)


def _given(call: Call, item: Resource) -> Mapping[str, str]:
    if item.resource_type == BROKER:
        return call.cluster.settings.given(item.resource_name)
    topic = call.cluster.topics.get(item.resource_name)
    return {} if topic is None else topic.settings.given


def _setting(call: Call, item: Resource, name: str) -> Setting | None:
    if item.resource_type == BROKER:
        return call.cluster.settings.setting(name)
    return call.cluster.settings.topic_table.get(name)


def _alter(call: Call, item: Resource, given: dict[str, str], *, validate_only: bool) -> None:
    if item.resource_type == BROKER:
        if item.resource_name != ALL:
            _check_broker(call, item.resource_name)
        call.cluster.settings.check(given)
        if not validate_only:
            call.cluster.settings.change(item.resource_name, given)
        return
    if not item.resource_name:
        raise errors.InvalidRequest("Default topic resources are not allowed.")
    check_name(item.resource_name)
    call.check_fault(item.resource_name)
    settings = call.cluster.settings.for_topic(call.cluster.settings.for_topic().changed(given))
    topic = call.cluster.topic(item.resource_name)
    if not validate_only:
        topic.configure(settings)
        call.cluster.keep_topic(topic)
