"""Admin on a real broker: access control."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import karrow
from karrow import errors
from karrow.types import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tests.brokers import KafkaCluster
from tests.fix_admin import OPTIONS, eventually, new_name
from tests.fix_kafka import own_kafka


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with own_kafka(request.config) as cluster:
        yield cluster


@pytest.fixture
def admin(kafka: KafkaCluster, face: Callable[..., karrow.Admin]) -> karrow.Admin:
    return face(kafka.bootstrap(), **OPTIONS)


def rule(name: str, pattern: PatternType = PatternType.LITERAL) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, "User:zoe", AclOperation.READ, pattern_type=pattern)


def test_rules_are_made_read_and_deleted(admin: karrow.Admin) -> None:
    name = new_name("topic")
    literal, prefixed = rule(name), rule(name, PatternType.PREFIXED)
    denied = AclBinding(
        ResourceType.GROUP, name, "User:zoe", AclOperation.ALL, AclPermission.DENY, "10.0.0.1"
    )
    admin.create_acls([literal, prefixed, denied])
    everything = AclFilter(resource_name=name)
    eventually(lambda: len(admin.describe_acls(everything)) == 3)
    assert set(admin.describe_acls(everything)) == {literal, prefixed, denied}
    assert admin.describe_acls(denied) == [denied]
    assert set(admin.describe_acls()) >= {literal, prefixed, denied}
    assert admin.delete_acls([literal, denied]) == {literal: [literal], denied: [denied]}
    eventually(lambda: admin.describe_acls(everything) == [prefixed])
    assert admin.delete_acls([everything]) == {everything: [prefixed]}


def test_bad_rules_are_refused(admin: karrow.Admin) -> None:
    good = rule(new_name("topic"))
    bad = AclBinding(ResourceType.CLUSTER, "not-the-cluster", "User:zoe", AclOperation.ALTER)
    with pytest.raises(errors.PartialError) as caught:
        admin.create_acls([good, bad])
    assert list(caught.value.results) == [good]
    admin.delete_acls([good])


def test_unknown_filters_are_refused(admin: karrow.Admin) -> None:
    bad = AclFilter(operation=AclOperation.UNKNOWN)
    with pytest.raises(errors.ConfigError, match=r"cannot have <AclOperation\.UNKNOWN: 0>"):
        admin.describe_acls(bad)
    with pytest.raises(errors.ConfigError, match=r"cannot have <AclOperation\.UNKNOWN: 0>"):
        admin.delete_acls([bad])
    with pytest.raises(errors.UnsupportedVersion):
        admin.describe_acls(api_version=0)
