"""What Admin computes: salted passwords, places within partitions, lists and replacements."""

from __future__ import annotations

import base64

import pytest

from karrow import Secret, errors
from karrow.aio.admin_calls.configs import replacement
from karrow.aio.admin_calls.offsets import within
from karrow.aio.admin_calls.users import salted_password, turns
from karrow.types import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    OffsetResult,
    ScramMechanism,
)

TOPIC = ConfigResource.topic("t")
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def test_salted_password_is_that_of_the_standard() -> None:
    # From the example of RFC 7677.
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password("pencil", SHA_256, salt, 4096)
    assert base64.b64encode(salted) == b"xKSVEDI6tPlSysH6mUQZOeeOp01r6B3fcJbodRPcYV0="
    assert salted_password(Secret("pencil"), SHA_256, salt, 4096) == salted
    assert len(salted_password("pencil", SHA_512, salt, 4096)) == 64


def test_unknown_mechanism_has_no_hash() -> None:
    with pytest.raises(errors.ConfigError, match="UNKNOWN"):
        salted_password("pencil", ScramMechanism.UNKNOWN, b"salt", 4096)


def test_users_take_turns() -> None:
    keys = [("a", SHA_256), ("b", SHA_256), ("a", SHA_512)]
    assert turns(keys) == [[("a", SHA_256), ("b", SHA_256)], [("a", SHA_512)]]
    assert turns([]) == []


@pytest.mark.parametrize(
    ("offset", "expected"), [(None, 9), (0, 3), (3, 3), (5, 5), (9, 9), (10, 9)]
)
def test_offset_outside_becomes_the_nearest_end(offset: int | None, expected: int) -> None:
    assert within(OffsetResult(3), OffsetResult(9), offset) == expected


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (ConfigChange.of("x"), "y", "x"),
        (ConfigChange.of(None), "y", None),
        (ConfigChange.append("b,a"), "a", "a,b"),
        (ConfigChange.append("b"), None, "b"),
        (ConfigChange.append("b"), "", "b"),
        (ConfigChange.subtract("a"), "a, b", "b"),
        (ConfigChange.subtract("a"), None, ""),
    ],
)
def test_changes_apply(change: ConfigChange, before: str | None, after: str | None) -> None:
    assert change.applied_to(before) == after


def test_replacement_keeps_what_the_resource_has_set() -> None:
    current = {
        "kept": ConfigEntry("kept", "1", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        "inherited": ConfigEntry("inherited", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        "gone": ConfigEntry("gone", "3", ConfigSource.DYNAMIC_TOPIC_CONFIG),
    }
    changes = {"gone": ConfigChange.of(None), "new": ConfigChange.of("4")}
    assert replacement(TOPIC, current, changes) == [
        {"name": "kept", "value": "1"},
        {"name": "new", "value": "4"},
    ]
    everywhere = replacement(ConfigResource.broker(), current, {})
    assert everywhere == [{"name": "inherited", "value": "2"}]
    assert replacement(ConfigResource.broker(1), current, {}) == []


def test_replacement_does_not_lose_a_secret() -> None:
    source = ConfigSource.DYNAMIC_BROKER_CONFIG
    current = {"password": ConfigEntry("password", None, source, sensitive=True)}
    with pytest.raises(errors.UnsupportedVersion, match="password is secret"):
        replacement(ConfigResource.broker(1), current, {"other": ConfigChange.of("1")})
    given = {"password": ConfigChange.of("new")}
    assert replacement(ConfigResource.broker(1), current, given) == [
        {"name": "password", "value": "new"}
    ]
