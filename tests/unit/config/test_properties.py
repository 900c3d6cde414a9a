"""Property names of librdkafka and Java: each is supported, without effect, or refused."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrow.config import (
    TLS,
    ClientConfig,
    ConsumerConfig,
    MskIam,
    OAuthBearer,
    Plain,
    ProducerConfig,
    Scram,
    dialects,
    from_properties,
)
from karrow.config.client_properties import HANDLERS
from karrow.config.dialects import Dialect, properties
from karrow.config.jaas import parse_jaas
from karrow.errors import ConfigError
from tests.unit.config import peers
from tests.unit.config.pems import CERTIFICATE, KEY

CANARY = "canary-7f3a"
DIALECTS: list[Dialect] = ["librdkafka", "java"]
SETS = [ClientConfig, ProducerConfig, ConsumerConfig]
MODULES = "org.apache.kafka.common.security"


def librdkafka(**properties: Any) -> ClientConfig:
    return from_properties(
        {k.replace("__", "."): v for k, v in properties.items()}, dialect="librdkafka"
    )


def java(mapping: dict[str, Any], **options: Any) -> ClientConfig:
    return from_properties(mapping, dialect="java", into=ClientConfig, **options)


@pytest.mark.parametrize("options", SETS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_set_treats_a_property_in_two_ways(
    dialect: Dialect, options: type[ClientConfig]
) -> None:
    names = [row.name for row in dialects._own(dialect, options)]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert set(names) <= set(properties(dialect, options))


@pytest.mark.parametrize(
    ("dialect", "options", "documented"),
    [
        ("librdkafka", ClientConfig, peers.LIBRDKAFKA),
        ("librdkafka", ProducerConfig, peers.LIBRDKAFKA + peers.LIBRDKAFKA_PRODUCER),
        ("librdkafka", ConsumerConfig, peers.LIBRDKAFKA + peers.LIBRDKAFKA_CONSUMER),
        ("java", ClientConfig, peers.JAVA),
        ("java", ProducerConfig, peers.JAVA + peers.JAVA_PRODUCER),
        ("java", ConsumerConfig, peers.JAVA + peers.JAVA_CONSUMER),
    ],
)
def test_every_property_that_a_peer_documents_is_known(
    dialect: Dialect, options: type[ClientConfig], documented: list[str]
) -> None:
    assert set(documented) - set(properties(dialect, options)) == set()


@pytest.mark.parametrize("options", SETS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_property_without_effect_or_refused_says_why(
    dialect: Dialect, options: type[ClientConfig]
) -> None:
    rows = properties(dialect, options).values()
    assert [row.name for row in rows if row.treatment != "supported" and not row.reason] == []


@pytest.mark.parametrize("options", SETS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_refused_properties_raise_with_their_reason(
    dialect: Dialect, options: type[ClientConfig]
) -> None:
    for row in properties(dialect, options).values():
        if row.treatment == "refused":
            with pytest.raises(ConfigError) as caught:
                from_properties({row.name: CANARY}, dialect=dialect, into=options)
            assert row.name in str(caught.value)
            assert row.reason in str(caught.value)
            assert CANARY not in str(caught.value)


@pytest.mark.parametrize("options", SETS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_properties_without_effect_leave_the_defaults(
    dialect: Dialect, options: type[ClientConfig]
) -> None:
    rows = properties(dialect, options).values()
    ignored = {row.name: "1" for row in rows if row.treatment == "ignored"}
    made = from_properties(ignored, dialect=dialect, into=options)
    assert made == options()


def test_a_property_without_effect_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    dialects_told = "socket.nagle.disable"
    with caplog.at_level(logging.INFO, "karrow.config"):
        for _ in range(2):
            from_properties({dialects_told: "true"}, dialect="librdkafka")
    assert caplog.text.count(dialects_told) <= 1


@pytest.mark.parametrize(
    ("name", "near"),
    [("bootstrap.server", "bootstrap.servers"), ("sasl.user.name", "sasl.username")],
)
def test_an_unknown_property_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.*{near}"):
        from_properties({name: "x"}, dialect="librdkafka")


def test_units_are_converted() -> None:
    made = librdkafka(
        metadata__broker__list="b1,b2:1",
        client__id="x",
        socket__timeout__ms="1500",
        retry__backoff__ms=250,
        receive__message__max__bytes="2000000",
        socket__keepalive__enable="true",
        socket__send__buffer__bytes=0,
        connections__max__idle__ms=0,
    )
    assert made.addresses() == (("b1", 9092), ("b2", 1))
    assert (made.client_id, made.request_timeout, made.retry_backoff) == ("x", 1.5, 0.25)
    assert (made.max_frame_bytes, made.socket_keepalive) == (2_000_000, True)
    assert made.send_buffer_bytes is None
    assert made.idle_timeout > 86_400 * 365


def test_a_first_wait_above_karrows_limit_lifts_the_limit() -> None:
    assert librdkafka(reconnect__backoff__ms=5000).reconnect_backoff_max == 5.0
    with pytest.raises(ConfigError, match="reconnect_backoff"):
        librdkafka(reconnect__backoff__ms=5000, reconnect__backoff__max__ms=100)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("socket.timeout.ms", "soon"),
        ("receive.message.max.bytes", "nan"),
        ("socket.keepalive.enable", "perhaps"),
        ("max.in.flight", None),
    ],
)
def test_a_value_that_cannot_be_read_names_its_property(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        from_properties({name: value}, dialect="librdkafka")


def test_contradicting_aliases_are_refused() -> None:
    same = {"metadata.broker.list": "b1", "bootstrap.servers": "b1"}
    assert from_properties(same, dialect="librdkafka").addresses() == (("b1", 9092),)
    with pytest.raises(ConfigError, match="contradicts"):
        from_properties({**same, "bootstrap.servers": "b2"}, dialect="librdkafka")


def test_arguments_go_before_properties() -> None:
    assert java({"client.id": "a"}, client_id="b").client_id == "b"


def test_librdkafka_security_becomes_tls_and_sasl() -> None:
    made = librdkafka(
        security__protocol="sasl_ssl",
        sasl__mechanisms="PLAIN",
        sasl__username="alice",
        sasl__password=CANARY,
        ssl__ca__location="/ca.pem",
        ssl__certificate__location="/c.pem",
        ssl__key__pem=KEY,
        ssl__key__password=CANARY,
        enable__ssl__certificate__verification="false",
        ssl__endpoint__identification__algorithm="none",
    )
    assert made.sasl == Plain("alice", CANARY)
    assert made.tls == TLS(
        ca="/ca.pem",
        certificate="/c.pem",
        key=KEY,
        key_password=CANARY,
        verify=False,
        verify_hostname=False,
    )


def test_naming_sasl_plaintext_allows_a_password_in_clear_text() -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": CANARY}
    made = from_properties({"security.protocol": "SASL_PLAINTEXT", **login}, dialect="librdkafka")
    assert made.sasl == Plain("alice", CANARY)
    assert made.tls is None


def test_sasl_properties_without_a_sasl_protocol_are_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert librdkafka(sasl__username="alice", sasl__password=CANARY).sasl is None
    assert "have no effect" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is none of"),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.username is not set"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "OAuthBearer"),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "maybe"},
            "neither https nor none",
        ),
        (
            {"security.protocol": "SSL", "enable.ssl.certificate.verification": "maybe"},
            "neither true nor false",
        ),
    ],
)
def test_incomplete_security_is_refused_by_name(mapping: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        from_properties(mapping, dialect="librdkafka")


@pytest.mark.parametrize(
    ("mechanism", "jaas", "expected"),
    [
        (
            "PLAIN",
            f'{MODULES}.plain.PlainLoginModule required username="alice" password="{CANARY}";',
            Plain("alice", CANARY),
        ),
        (
            "SCRAM-SHA-256",
            f"{MODULES}.scram.ScramLoginModule required\n username='alice' password='a\\'b\"c=;';",
            Scram("alice", "a'b\"c=;", "SCRAM-SHA-256"),
        ),
        (
            "SCRAM-SHA-512",
            f'{MODULES}.scram.ScramLoginModule required username=id password=x tokenauth="true" ;',
            Scram("id", "x", delegation_token=True),
        ),
        ("AWS_MSK_IAM", "software.amazon.msk.auth.iam.IAMLoginModule required;", MskIam()),
    ],
)
def test_login_modules_become_mechanisms(mechanism: str, jaas: str, expected: object) -> None:
    mapping = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    assert java({**mapping, "sasl.jaas.config": jaas}).sasl == expected


def test_msk_needs_no_login_line() -> None:
    assert java({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}).sasl == MskIam()


IAM, OF_CLIENT, OF_LOGIN = "software.amazon.msk.auth.iam.IAM", *HANDLERS


@pytest.mark.parametrize(
    ("mechanism", "module", "handlers"),
    [
        ("AWS_MSK_IAM", f"{IAM}LoginModule", {OF_CLIENT: f"{IAM}ClientCallbackHandler"}),
        ("AWS_MSK_IAM", "shaded.IAMLoginModule", {OF_CLIENT: "shaded.IAMClientCallbackHandler"}),
        (
            "OAUTHBEARER",
            f"{MODULES}.oauthbearer.OAuthBearerLoginModule",
            dict.fromkeys(HANDLERS, f"{IAM}OAuthBearerLoginCallbackHandler"),
        ),
    ],
)
def test_handlers_of_aws_are_understood(
    mechanism: str, module: str, handlers: dict[str, str]
) -> None:
    mapping = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, **handlers}
    assert java(mapping).sasl == MskIam()
    assert java({**mapping, "sasl.jaas.config": f"{module} required;"}).sasl == MskIam()
    with pytest.raises(ConfigError, match=r"awsRoleArn of sasl\.jaas\.config: give sasl=MskIam"):
        java({**mapping, "sasl.jaas.config": f'{module} required awsRoleArn="x";'})


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize(
    ("mechanism", "handler", "value"),
    [
        ("AWS_MSK_IAM", OF_CLIENT, "com.example.Handler"),
        ("PLAIN", OF_CLIENT, f"{IAM}ClientCallbackHandler"),
        ("OAUTHBEARER", OF_LOGIN, f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"),
    ],
)
def test_other_handlers_are_refused(
    protocol: str, mechanism: str, handler: str, value: str
) -> None:
    mapping = {"security.protocol": protocol, "sasl.mechanism": mechanism, handler: value}
    with pytest.raises(ConfigError, match=rf"{handler} is not supported.*no classes.*OAuthBearer"):
        java(mapping)


@pytest.mark.parametrize(
    ("mechanism", "jaas", "problem"),
    [
        ("PLAIN", None, "sasl.jaas.config is not set"),
        ("PLAIN", f'X required password="{CANARY}";', "names X, but PLAIN needs PlainLoginModule"),
        (
            "PLAIN",
            f'PlainLoginModule required password="{CANARY}";',
            "username in sasl.jaas.config",
        ),
        ("PLAIN", f'PlainLoginModule required password="{CANARY}"', "end with ';'"),
        ("PLAIN", f'PlainLoginModule required password="{CANARY};', "quote is not closed"),
        ("PLAIN", f'PlainLoginModule password="{CANARY}";', "second word"),
        ("PLAIN", f"PlainLoginModule required password {CANARY};", "only name="),
        ("OAUTHBEARER", "OAuthBearerLoginModule required;", r"OAuthBearer\(provider\)"),
        ("GSSAPI", "com.sun.Krb5LoginModule required;", "GSSAPI is not supported"),
        ("AWS_MSK_IAM", 'IAMLoginModule required awsRoleArn="x";', "awsRoleArn"),
    ],
)
def test_bad_logins_are_refused_without_showing_them(
    mechanism: str, jaas: str | None, problem: str
) -> None:
    mapping = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    if jaas is not None:
        mapping["sasl.jaas.config"] = jaas
    with pytest.raises(ConfigError, match=problem) as caught:
        java(mapping)
    assert CANARY not in str(caught.value)


def test_a_provider_beside_the_properties_makes_oauthbearer() -> None:
    mechanism = OAuthBearer(lambda: "abc")
    mapping = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    assert java(mapping, sasl=mechanism).sasl is mechanism


def test_pem_stores_of_java_are_read() -> None:
    made = java(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": CERTIFICATE,
            "ssl.keystore.key": KEY,
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert made.tls == TLS(ca="/ca.pem", certificate=CERTIFICATE, key=KEY, verify_hostname=False)


@pytest.mark.parametrize(
    ("name", "command"),
    [("ssl.truststore", "keytool -list -rfc"), ("ssl.keystore", "keytool -importkeystore")],
)
@pytest.mark.parametrize("kind", [{}, {"type": "JKS"}, {"type": "PKCS12"}])
def test_java_key_stores_are_refused_with_the_line_that_converts_them(
    name: str, command: str, kind: dict[str, str]
) -> None:
    mapping = {"security.protocol": "SSL", f"{name}.location": "/x.jks"}
    mapping |= {f"{name}.{key}": value for key, value in kind.items()}
    with pytest.raises(ConfigError, match=f"{command}.*/x.jks"):
        java(mapping)


@given(st.text(max_size=60))
def test_any_login_line_is_read_or_refused_without_showing_it(text: str) -> None:
    refusal = ""
    try:
        parse_jaas(f"M required a='{CANARY}' {text}")
    except ConfigError as error:
        refusal = str(error)
    assert CANARY not in refusal


@given(st.text())
def test_quoted_values_read_back(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'M required password="{quoted}";').options == {"password": text}
