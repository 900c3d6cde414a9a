"""Admin on any broker: SCRAM users."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from karrow.types import Node, ScramInfo, ScramMechanism
from tests.fix_admin import OPTIONS, eventually, new_name
from tests.fix_any import note
from tests.fix_kafka import own_kafka

CANARY = "canary-4711"
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@dataclass(frozen=True)
class Secured:
    """A broker that users log in to; the embedded one lets in nobody else."""

    bootstrap: str
    login_bootstrap: str
    options: dict[str, Any]


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def secured(request: pytest.FixtureRequest) -> Iterator[Secured]:
    if request.param == "embedded":
        with Broker(sasl={"root": "root-secret"}) as broker:
            sasl = karrow.Scram("root", "root-secret", mechanism="SCRAM-SHA-256")
            yield Secured(broker.bootstrap, broker.bootstrap, OPTIONS | {"sasl": sasl})
            note(request, broker)
        return
    with own_kafka(request.config) as cluster:
        yield Secured(cluster.bootstrap(), cluster.bootstrap("SASL_PLAINTEXT"), OPTIONS)


@pytest.fixture
def admin(secured: Secured, face: Callable[..., karrow.Admin]) -> karrow.Admin:
    return face(secured.bootstrap, **secured.options)


def test_user_is_made_logs_in_and_is_deleted(admin: karrow.Admin, secured: Secured) -> None:
    user = new_name("user")
    admin.alter_scram_user(user, karrow.Secret(CANARY), SHA_256, iterations=4096)
    eventually(lambda: user in admin.describe_scram_users())
    assert admin.describe_scram_user(user).credentials == (ScramInfo(SHA_256, 4096),)
    sasl = karrow.Scram(user, CANARY, mechanism="SCRAM-SHA-256")
    with karrow.Client(secured.login_bootstrap, sasl=sasl) as client:
        assert client.brokers()
    admin.delete_scram_user(user, SHA_256)
    eventually(lambda: user not in admin.describe_scram_users())


def test_many_credentials_are_altered(admin: karrow.Admin, secured: Secured) -> None:
    one, other = new_name("user"), new_name("user")
    admin.alter_scram_users({(one, SHA_256): CANARY, (one, SHA_512): CANARY})
    eventually(lambda: one in admin.describe_scram_users())
    assert len(admin.describe_scram_users([one])[one].credentials) == 2
    admin.alter_scram_users({(one, SHA_256): None, (other, SHA_512): CANARY})
    eventually(lambda: other in admin.describe_scram_users())
    assert admin.describe_scram_user(one).credentials == (ScramInfo(SHA_512, 8192),)
    sasl = karrow.Scram(other, CANARY, mechanism="SCRAM-SHA-512")
    with karrow.Client(secured.login_bootstrap, sasl=sasl) as client:
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
    secured: Secured, face: Callable[..., karrow.Admin], caplog: pytest.LogCaptureFixture
) -> None:
    said: list[object] = []
    with karrow.events.subscribe(said.append), caplog.at_level(logging.DEBUG):
        admin = face(secured.bootstrap, **secured.options)
        admin.alter_scram_user(new_name("user"), CANARY)
        with pytest.raises(errors.UnacceptableCredential):
            admin.alter_scram_user(new_name("user"), CANARY, iterations=1)
    assert said
    assert CANARY not in f"{said!r} {caplog.text}"


def test_user_is_altered_once_in_a_request(admin: karrow.Admin) -> None:
    user = new_name("user")

    def alter(*mechanisms: int) -> str:
        changes = [
            {
                "name": user,
                "mechanism": mechanism,
                "iterations": 4096,
                "salt": b"salt",
                "salted_password": bytes(32),
            }
            for mechanism in mechanisms
        ]
        body = {"deletions": [], "upsertions": changes}
        answer = admin.client.request("AlterUserScramCredentials", body, to=Node.controller())
        (result,) = answer.results
        return errors.for_code(result.error_code).name if result.error_code else "NONE"

    assert alter(SHA_256, SHA_512) == alter(SHA_256, SHA_256) == "DUPLICATE_RESOURCE"
    assert alter(0) == alter(9) == "UNSUPPORTED_SASL_MECHANISM"
    assert alter(SHA_256) == alter(SHA_512) == "NONE"
    eventually(lambda: user in admin.describe_scram_users())
    assert len(admin.describe_scram_user(user).credentials) == 2
