"""Options as Spark writes them, without Spark and without a broker."""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import karrow
from karrow.config import ClientConfig, ConsumerConfig, ProducerConfig
from karrow.errors import ConfigError
from karrow.spark import options
from karrow.spark.options import connection

SERVERS = {"kafka.bootstrap.servers": "b1:9092,b2:9093"}
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
}
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'


def refused(given: dict[str, str], into: type[ClientConfig] = ConsumerConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        connection({**SERVERS, **given}, into)
    return str(caught.value)


def test_names_of_javas_client_become_options() -> None:
    found = connection(
        {
            **SERVERS,
            "kafka.request.timeout.ms": "5000",
            "Kafka.Group.Id": "billing",
            "kafka.max.partition.fetch.bytes": "1000",
            "subscribe": "orders",
        },
        ConsumerConfig,
    )
    assert [address.port for address in found.addresses()] == [9092, 9093]
    assert found.request_timeout == 5.0
    assert found.group == "billing"
    assert found.partition_max_bytes == 1000
    assert found.isolation == "read_uncommitted"


def test_producers_have_theirs() -> None:
    found = connection({**SERVERS, "kafka.compression.type": "zstd"}, ProducerConfig)
    assert found.compression == "zstd"


def test_the_same_options_give_the_same_object() -> None:
    assert connection(SERVERS, ConsumerConfig) is connection({**SERVERS}, ConsumerConfig)
    other = {**SERVERS, "kafka.client.id": "x"}
    assert connection(SERVERS, ConsumerConfig) is not connection(other, ConsumerConfig)


@pytest.mark.parametrize("missing", [{}, {"kafka.bootstrap.servers": " "}])
def test_servers_are_needed(missing: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        connection(missing, ConsumerConfig)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka.bootstrap.server": "x"}, "did you mean 'kafka.bootstrap.servers'?"),
        ({"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms='soon' is no number"),
        ({"kafka.request.timeout.ms": "1"}, "kafka.fetch.max.wait.ms=500 is not below"),
        ({"kafka.bootstrap.servers": "b1:x"}, "kafka.bootstrap.servers 'b1:x': 'x' is no port"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer is not supported"),
        ({"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes is not supported"),
        ({"isolation": "serializable"}, "isolation='serializable' is none of"),
        ({"kafka.sasl.username": "u"}, "kafka.sasl.username and kafka.sasl.password belong"),
        ({"credentials": "x"}, "credentials='x' names no function"),
        ({"credentials": "no.such:thing"}, "No module named 'no'"),
        ({"kafka.bootstrap.servers": "u:p@h"}, "a login goes into credentials or kafka.sasl.user"),
        ({"kafka.bootstrap.servers": "ssl://h"}, "kafka.security.protocol and credentials say how"),
    ],
)
def test_errors_name_what_stands_in_the_program(given: dict[str, str], said: str) -> None:
    assert said in refused(given)


def test_sinks_have_no_isolation() -> None:
    assert "isolation is an option of sources" in refused(
        {"isolation": "read_committed"}, ProducerConfig
    )


def test_isolation_has_two_names() -> None:
    own = connection({**SERVERS, "isolation": "READ_COMMITTED"}, ConsumerConfig)
    assert own.isolation == "read_committed"
    theirs = {"kafka.isolation.level": "read_committed"}
    assert connection({**SERVERS, **theirs}, ConsumerConfig).isolation == "read_committed"
    both = connection({**SERVERS, **theirs, "isolation": "read_committed"}, ConsumerConfig)
    assert both.isolation == "read_committed"
    assert "contradict each other" in refused({**theirs, "isolation": "read_uncommitted"})


# ---- who we are


def test_jaas_is_understood() -> None:
    found = connection({**SERVERS, **LOGIN, "kafka.sasl.jaas.config": JAAS}, ConsumerConfig)
    assert isinstance(found.sasl, karrow.Scram)
    assert (found.sasl.user, found.sasl.name) == ("u", "SCRAM-SHA-256")
    assert isinstance(found.tls, karrow.TLS)


def test_logins_without_jaas() -> None:
    given = {**SERVERS, **LOGIN, "kafka.sasl.username": "u", "kafka.sasl.password": "hunter2"}
    found = connection(given, ConsumerConfig)
    assert isinstance(found.sasl, karrow.Scram)
    assert found.sasl.password.reveal() == "hunter2"
    assert "hunter2" not in repr(found)
    assert "two logins" in refused({**given, "kafka.sasl.jaas.config": JAAS})


USER = {"kafka.sasl.username": "u", "kafka.sasl.password": "hunter2"}


def test_passwords_in_clear_text_are_allowed_by_sparks_options() -> None:
    said = refused({**USER, "kafka.sasl.mechanism": "PLAIN"})
    assert "set kafka.security.protocol=SASL_SSL, use SCRAM" in said
    assert "allow it with kafka.security.protocol=SASL_PLAINTEXT" in said
    assert "tls=" not in said
    plain = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    found = connection({**SERVERS, **USER, **plain}, ConsumerConfig)
    assert isinstance(found.sasl, karrow.Plain)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "kafka.sasl.username is set, and kafka.sasl.mechanism is not"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism=GSSAPI has no kafka.sasl.user"),
        (
            {"kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.security.protocol": "SSL"},
            "kafka.security.protocol=SSL and the login of kafka.sasl.username contradict",
        ),
    ],
)
def test_logins_without_jaas_that_do_not_fit(given: dict[str, str], said: str) -> None:
    assert said in refused({**USER, **given})


def test_a_login_that_counts_is_not_told_to_have_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {**SERVERS, **USER, "kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.client.id": "told"}
    assert connection(given, ConsumerConfig).sasl is not None
    assert "no effect" not in caplog.text


MSK = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "AWS_MSK_IAM",
    "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "kafka.sasl.client.callback.handler.class": (
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    ),
}


def test_what_aws_documents_moves_by_one_word() -> None:
    assert isinstance(connection({**SERVERS, **MSK}, ConsumerConfig).sasl, karrow.MskIam)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (
            {"kafka.sasl.oauthbearer.token.endpoint.url": "https://x"},
            "kafka.sasl.oauthbearer.token.endpoint.url is not supported",
        ),
        (
            {"kafka.sasl.login.callback.handler.class": "a.OAuthBearerLoginCallbackHandler"},
            "kafka.sasl.login.callback.handler.class is not supported",
        ),
        ({}, "OAUTHBEARER needs a provider of tokens"),
    ],
)
def test_tokens_are_given_by_a_function_that_options_can_name(
    given: dict[str, str], name: str
) -> None:
    oauth = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": "a.OAuthBearerLoginModule required;",
    }
    said = refused({**oauth, **given})
    assert name in said
    assert "credentials=module:function names a function that returns OAuthBearer" in said
    assert "sasl=" not in said


def test_a_context_of_tls_is_given_by_a_function_that_options_can_name() -> None:
    said = refused({"kafka.ssl.cipher.suites": "x"})
    assert "credentials=module:function names a function that returns SSLContext" in said


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without a login of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(("KARROW_SASL_", "KARROW_TLS_")):
            monkeypatch.delenv(name)
    return monkeypatch


FULL = {
    "KARROW_SASL_MECHANISM": "SCRAM-SHA-512",
    "KARROW_SASL_USERNAME": "u",
    "KARROW_SASL_PASSWORD": "hunter2",
}
CA = {"KARROW_TLS_CA": "ca.pem"}
BY_ENVIRONMENT = {"credentials": "environment"}


def test_credentials_from_the_environment(environment: pytest.MonkeyPatch) -> None:
    for name, value in {**FULL, **CA}.items():
        environment.setenv(name, value)
    given = {**SERVERS, **BY_ENVIRONMENT}
    found = connection(given, ConsumerConfig)
    assert isinstance(found.sasl, karrow.Scram)
    assert isinstance(found.tls, karrow.TLS)
    assert connection(given, ConsumerConfig) is found
    environment.setenv("KARROW_SASL_PASSWORD", "other")
    assert connection(given, ConsumerConfig) != found
    assert "contradict each other" in refused({**BY_ENVIRONMENT, "kafka.sasl.jaas.config": JAAS})
    assert connection(SERVERS, ConsumerConfig).sasl is None


@pytest.mark.parametrize("given", [{}, LOGIN, {"kafka.security.protocol": "SSL"}])
def test_an_environment_without_a_login_is_no_login(
    environment: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    said = refused({**BY_ENVIRONMENT, **given})
    assert "credentials=environment finds no login" in said
    assert "neither KARROW_SASL_MECHANISM nor any KARROW_TLS_* is set" in said


def test_half_a_login_in_the_environment_is_none(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KARROW_SASL_PASSWORD", "hunter2")
    for more in ({}, CA):
        for name, value in more.items():
            environment.setenv(name, value)
        said = refused({**BY_ENVIRONMENT, **LOGIN})
        assert "finds KARROW_SASL_PASSWORD, and no KARROW_SASL_MECHANISM" in said
        assert "hunter2" not in said


@pytest.mark.parametrize(
    ("variables", "given", "said"),
    [
        (FULL, {"kafka.security.protocol": "plaintext"}, "protocol=PLAINTEXT and the login of"),
        (FULL, {"kafka.security.protocol": "SSL"}, "protocol=SSL and the login of credentials="),
        (FULL, LOGIN, "kafka.sasl.mechanism=SCRAM-SHA-256 and the SCRAM-SHA-512 of credentials="),
        (CA, {"kafka.security.protocol": "SASL_PLAINTEXT"}, "SASL_PLAINTEXT and the TLS of"),
        (CA, LOGIN, "kafka.security.protocol=SASL_SSL needs a login, and credentials=environment"),
        (
            CA,
            {"kafka.ssl.truststore.location": "x.pem", "kafka.ssl.truststore.type": "PEM"},
            "kafka.ssl.truststore.location and the TLS of credentials=environment contradict",
        ),
    ],
)
def test_what_contradicts_credentials_is_refused_by_name(
    environment: pytest.MonkeyPatch, variables: dict[str, str], given: dict[str, str], said: str
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert said in refused({**BY_ENVIRONMENT, **given})


def test_what_agrees_with_credentials_stands_beside_them(environment: pytest.MonkeyPatch) -> None:
    for name, value in FULL.items():
        environment.setenv(name, value)
    trusted = {"kafka.ssl.truststore.location": "x.pem", "kafka.ssl.truststore.type": "PEM"}
    same = {**LOGIN, "kafka.sasl.mechanism": "scram-sha-512"}
    found = connection({**SERVERS, **BY_ENVIRONMENT, **trusted, **same}, ConsumerConfig)
    assert isinstance(found.sasl, karrow.Scram)
    assert isinstance(found.tls, karrow.TLS)
    assert found.tls.ca == "x.pem"
    environment.setenv("KARROW_SASL_MECHANISM", "AWS_MSK_IAM")
    msk = {name: value for name, value in MSK.items() if "jaas" not in name}
    assert isinstance(
        connection({**SERVERS, **BY_ENVIRONMENT, **msk}, ConsumerConfig).sasl, karrow.MskIam
    )


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("secrets_of_a_test")
    monkeypatch.setitem(sys.modules, "secrets_of_a_test", module)
    options._connection.cache_clear()
    return module


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (karrow.OAuthBearer(lambda: "token"), {"sasl"}),
        (karrow.TLS(), {"tls"}),
        (ssl.create_default_context(), {"tls"}),
        ({"sasl": karrow.Scram("u", "p"), "tls": None}, {"sasl"}),
        ({"sasl": karrow.Scram("u", "p"), "tls": karrow.TLS()}, {"sasl", "tls"}),
    ],
)
def test_credentials_of_a_function(provider: ModuleType, made: Any, names: set[str]) -> None:
    vars(provider)["login"] = lambda: made
    found = connection({**SERVERS, "credentials": "secrets_of_a_test:login"}, ConsumerConfig)
    assert {name for name in ("sasl", "tls") if getattr(found, name) is not None} == names


def test_functions_that_are_not_there(provider: ModuleType) -> None:
    vars(provider)["thing"] = "hunter2"
    assert "secrets_of_a_test has no nothing" in refused(
        {"credentials": "secrets_of_a_test:nothing"}
    )
    assert "thing of secrets_of_a_test is no function" in refused(
        {"credentials": "secrets_of_a_test:thing"}
    )


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "credentials=secrets_of_a_test:login gave no login"),
        ({}, "credentials=secrets_of_a_test:login gave no login"),
        ({"sasl": None, "tls": False}, "credentials=secrets_of_a_test:login gave no login"),
        ({"user": "u", "password": "hunter2"}, "gave a dict with password, user"),
        ("hunter2", "sasl cannot be a str"),
    ],
)
def test_functions_that_give_no_login(provider: ModuleType, made: Any, said: str) -> None:
    vars(provider)["login"] = lambda: made
    text = refused({"credentials": "secrets_of_a_test:login", "kafka.sasl.mechanism": "PLAIN"})
    assert said in text
    assert "hunter2" not in text


@pytest.mark.parametrize("error", [AttributeError("x"), ImportError("x"), TimeoutError("x")])
def test_what_a_function_raises_stays_what_it_is(provider: ModuleType, error: Exception) -> None:
    def login() -> None:
        raise error

    vars(provider)["login"] = login
    with pytest.raises(type(error)) as caught:
        connection({**SERVERS, "credentials": "secrets_of_a_test:login"}, ConsumerConfig)
    assert caught.value is error
    assert error.__notes__ == ["raised by the function of credentials=secrets_of_a_test:login"]


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_of_java_are_refused_with_the_line_that_converts_them(kind: str) -> None:
    said = refused(
        {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": "/etc/trust.jks",
            "kafka.ssl.truststore.type": kind,
            "kafka.ssl.truststore.password": "hunter2",
        }
    )
    assert "keytool -list -rfc -keystore /etc/trust.jks > ca.pem" in said
    assert "kafka.ssl.truststore.type=PEM" in said
    assert "hunter2" not in said


def test_pem_stores_are_read(tmp_path: Path) -> None:
    given = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    found = connection({**SERVERS, **given}, ConsumerConfig).tls
    assert isinstance(found, karrow.TLS)
    assert found.ca == str(tmp_path / "ca.pem")


# ---- everything else


@pytest.mark.parametrize("name", ["path", "checkpointLocation", "CHECKPOINTLOCATION", "queryName"])
def test_options_that_spark_has_for_all_sources_are_known(name: str) -> None:
    options.check_known({name: "x"}, {"subscribe"})


def test_unknown_options_are_refused_with_the_nearest() -> None:
    known = {"startingOffsets", "subscribe"}
    options.check_known({"STARTINGOFFSETS": "x", "kafka.x": ""}, known)
    with pytest.raises(ConfigError, match="there is no option 'startingOffset'; did you mean"):
        options.check_known({"startingOffset": "earliest"}, known)
    with pytest.raises(ConfigError, match=r"docs/spark\.md"):
        options.check_known({"quux": ""}, known)


@pytest.mark.parametrize(
    ("read", "value", "said"),
    [
        (lambda o: options.flag(o, "x", default=True), "yes", "x='yes' is neither true nor false"),
        (lambda o: options.count(o, "x"), "1.5", "x='1.5' is no whole number"),
        (lambda o: options.count(o, "x"), "0", "x=0 is not above zero"),
        (lambda o: options.choice(o, "x", ("a", "b"), "a"), "c", "x='c' is none of 'a', 'b'"),
        (lambda o: options.text(o, "x"), "  ", "x is empty"),
    ],
)
def test_values_that_make_no_sense(read: Any, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read({"X": value})


def test_values() -> None:
    given = {"Flag": " TRUE ", "count": "7", "choice": "B", "text": " a "}
    assert options.flag(given, "flag", default=False) is True
    assert options.flag(given, "other", default=False) is False
    assert options.count(given, "count") == 7
    assert options.count(given, "other") is None
    assert options.choice(given, "choice", ("a", "b"), "a") == "b"
    assert options.choice(given, "other", ("a", "b"), "a") == "a"
    assert options.text(given, "text") == "a"
