"""Admin on a real broker: access control and SCRAM users."""

from __future__ import annotations

import logging
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
    ScramInfo,
    ScramMechanism,
)
from tests.brokers import KafkaCluster
from tests.fix_admin import OPTIONS, eventually, new_name
from tests.fix_kafka import own_kafka

CANARY = "canary-4711"
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


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


def test_user_is_made_logs_in_and_is_deleted(admin: karrow.Admin, kafka: KafkaCluster) -> None:
    user = new_name("user")
    admin.alter_scram_user(user, karrow.Secret(CANARY), SHA_256, iterations=4096)
    eventually(lambda: user in admin.describe_scram_users())
    assert admin.describe_scram_user(user).credentials == (ScramInfo(SHA_256, 4096),)
    sasl = karrow.Scram(user, CANARY, mechanism="SCRAM-SHA-256")
    with karrow.Client(kafka.bootstrap("SASL_PLAINTEXT"), sasl=sasl) as client:
        assert client.brokers()
    admin.delete_scram_user(user, SHA_256)
    eventually(lambda: user not in admin.describe_scram_users())


def test_many_credentials_are_altered(admin: karrow.Admin, kafka: KafkaCluster) -> None:
    one, other = new_name("user"), new_name("user")
    admin.alter_scram_users({(one, SHA_256): CANARY, (one, SHA_512): CANARY})
    eventually(lambda: one in admin.describe_scram_users())
    assert len(admin.describe_scram_users([one])[one].credentials) == 2
    admin.alter_scram_users({(one, SHA_256): None, (other, SHA_512): CANARY})
    eventually(lambda: other in admin.describe_scram_users())
    assert admin.describe_scram_user(one).credentials == (ScramInfo(SHA_512, 8192),)
    sasl = karrow.Scram(other, CANARY, mechanism="SCRAM-SHA-512")
    with karrow.Client(kafka.bootstrap("SASL_PLAINTEXT"), sasl=sasl) as client:
        assert client.brokers()
    for user in (one, other):
        admin.delete_scram_user(user)


def test_absent_users_are_told(admin: karrow.Admin) -> None:
    user, absent = new_name("user"), new_name("absent")
    admin.alter_scram_user(user, CANARY)
    eventually(lambda: user in admin.describe_scram_users())
    with pytest.raises(errors.ResourceNotFound, match=absent):
        admin.describe_scram_user(absent)
    with pytest.raises(errors.PartialError) as caught:
        admin.describe_scram_users([user, absent])
    assert list(caught.value.results) == [user]
    with pytest.raises(errors.ResourceNotFound):
        admin.delete_scram_user(absent)
    with pytest.raises(errors.ResourceNotFound):
        admin.delete_scram_user(absent, SHA_256)


def test_weak_credentials_are_refused(admin: karrow.Admin) -> None:
    user, other = new_name("user"), new_name("user")
    with pytest.raises(errors.UnacceptableCredential, match=user) as caught:
        admin.alter_scram_user(user, CANARY, iterations=100)
    assert CANARY not in f"{caught.value!r} {caught.value}"
    with pytest.raises(errors.PartialError):
        admin.alter_scram_users({(user, SHA_256): None, (other, SHA_256): CANARY})
    with pytest.raises(errors.ConfigError, match="no mechanism"):
        admin.alter_scram_user(user, CANARY, ScramMechanism.UNKNOWN)


def test_no_password_is_seen(
    kafka: KafkaCluster, face: Callable[..., karrow.Admin], caplog: pytest.LogCaptureFixture
) -> None:
    said: list[object] = []
    with karrow.events.subscribe(said.append), caplog.at_level(logging.DEBUG):
        admin = face(kafka.bootstrap(), **OPTIONS)
        admin.alter_scram_user(new_name("user"), CANARY)
        with pytest.raises(errors.UnacceptableCredential):
            admin.alter_scram_user(new_name("user"), CANARY, iterations=1)
    assert said
    assert CANARY not in f"{said!r} {caplog.text}"
