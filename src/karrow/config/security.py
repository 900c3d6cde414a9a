"""The options tls and sasl from the properties that belong together to make them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from karrow.config.client_properties import HANDLERS, NO_CLASSES, PROVIDER
from karrow.config.jaas import parse_jaas
from karrow.config.sasl import MSK_NAME, SCRAM_NAMES, MskIam, Plain, Scram
from karrow.config.tls import TLS
from karrow.errors import ConfigError

if TYPE_CHECKING:
    from karrow.config.dialects import Dialect

__all__ = ["read"]

_log = logging.getLogger(__name__)

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PROVIDER = "give sasl=OAuthBearer(provider) beside the properties"
_KEYTOOL_TRUST = "keytool -list -rfc -keystore {0} > ca.pem"
_KEYTOOL_KEY = (
    "keytool -importkeystore -srckeystore {0} -destkeystore store.p12 -deststoretype PKCS12 && "
    "openssl pkcs12 -in store.p12 -out client.pem -nodes"
)


def read(dialect: Dialect, mapping: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options tls and sasl as the properties say; what is ``given`` is not made again.

    SASL_PLAINTEXT, written out, is consent enough to send a password in clear text.
    """
    protocol = str(mapping.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"security.protocol={protocol} is none of {', '.join(_PROTOCOLS)}")
    _check_handlers(mapping)
    options: dict[str, Any] = {}
    if protocol.endswith("SSL") and "tls" not in given:
        options["tls"] = (_librdkafka_tls if dialect == "librdkafka" else _java_tls)(mapping)
    if protocol.startswith("SASL"):
        if "sasl" not in given:
            make = _librdkafka_sasl if dialect == "librdkafka" else _java_sasl
            options["sasl"] = make(mapping)
        options["allow_plaintext_password"] = protocol == "SASL_PLAINTEXT"
    elif "sasl" not in given and any(name.startswith("sasl.") for name in mapping):
        _log.warning("sasl properties have no effect with security.protocol=%s", protocol)
    return options


def _librdkafka_tls(mapping: Mapping[str, Any]) -> TLS:
    verify = str(mapping.get("enable.ssl.certificate.verification", True)).lower()
    if verify not in ("true", "false"):
        raise ConfigError("enable.ssl.certificate.verification is neither true nor false")
    ca = mapping.get("ssl.ca.location")
    return TLS(
        ca=mapping.get("ssl.ca.pem") or (None if ca == "probe" else ca),
        certificate=mapping.get("ssl.certificate.pem") or mapping.get("ssl.certificate.location"),
        key=mapping.get("ssl.key.pem") or mapping.get("ssl.key.location"),
        key_password=mapping.get("ssl.key.password"),
        verify=verify == "true",
        verify_hostname=_names_checked(mapping),
    )


def _java_tls(mapping: Mapping[str, Any]) -> TLS:
    _refuse_store(mapping, "ssl.truststore", _KEYTOOL_TRUST)
    _refuse_store(mapping, "ssl.keystore", _KEYTOOL_KEY)
    chain = mapping.get("ssl.keystore.certificate.chain")
    return TLS(
        ca=mapping.get("ssl.truststore.certificates") or mapping.get("ssl.truststore.location"),
        certificate=chain or mapping.get("ssl.keystore.location"),
        key=mapping.get("ssl.keystore.key"),
        key_password=mapping.get("ssl.key.password"),
        verify_hostname=_names_checked(mapping),
    )


def _names_checked(mapping: Mapping[str, Any]) -> bool:
    algorithm = mapping.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm not in ("https", "none", "", None):
        raise ConfigError("ssl.endpoint.identification.algorithm is neither https nor none")
    return bool(algorithm == "https")


def _refuse_store(mapping: Mapping[str, Any], name: str, command: str) -> None:
    """Java's stores are PEM only if their type says so."""
    location = mapping.get(f"{name}.location")
    kind = str(mapping.get(f"{name}.type", "JKS")).upper()
    if location is None or kind == "PEM":
        return
    text = f"{name}.location {location} is of type {kind}, and karrow reads PEM"
    raise ConfigError(text, hint=f"convert it: {command.format(location)}; then {name}.type=PEM")


def _librdkafka_sasl(mapping: Mapping[str, Any]) -> Plain | Scram | MskIam:
    name = mapping.get("sasl.mechanism") or mapping.get("sasl.mechanisms") or "GSSAPI"
    login = {"username": mapping.get("sasl.username"), "password": mapping.get("sasl.password")}
    return _mechanism(str(name).upper(), login, ("sasl.username", "sasl.password"))


# Handlers that do what MskIam does: AWS documents each with its mechanism.
_OF_AWS = {
    MSK_NAME: "IAMClientCallbackHandler",
    "OAUTHBEARER": "IAMOAuthBearerLoginCallbackHandler",
}


def _check_handlers(mapping: Mapping[str, Any]) -> None:
    """Refuse Java's classes, but for those whose work is done here as well."""
    known = _OF_AWS.get(_java_name(mapping))
    for name in HANDLERS:
        if name in mapping and _class(str(mapping[name])) != known:
            raise ConfigError(f"{name} is not supported", hint=f"{NO_CLASSES}; {PROVIDER}")


def _java_name(mapping: Mapping[str, Any]) -> str:
    return str(mapping.get("sasl.mechanism") or "GSSAPI").upper()


def _class(name: str) -> str:
    """A class without its package: jars with several things inside rename those."""
    return name.strip().rpartition(".")[2]


def _java_sasl(mapping: Mapping[str, Any]) -> Plain | Scram | MskIam:
    name = _java_name(mapping)
    is_msk = name == MSK_NAME or any(one in mapping for one in HANDLERS)
    if "sasl.jaas.config" not in mapping:
        if is_msk:
            return MskIam()
        raise ConfigError(f"sasl.jaas.config is not set, and {name} needs it")
    entry = parse_jaas(str(mapping["sasl.jaas.config"]))
    wanted = _MODULES.get(name)
    module = _class(entry.module)
    if wanted is not None and module != wanted:
        raise ConfigError(f"sasl.jaas.config names {module}, but {name} needs {wanted}")
    places = ("username in sasl.jaas.config", "password in sasl.jaas.config")
    return _mechanism(MSK_NAME if is_msk else name, dict(entry.options), places)


_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    MSK_NAME: "IAMLoginModule",
}


def _mechanism(
    name: str, login: Mapping[str, str | None], places: tuple[str, str]
) -> Plain | Scram | MskIam:
    if name == "OAUTHBEARER":
        raise ConfigError("OAUTHBEARER needs a provider of tokens", hint=_PROVIDER)
    if name == MSK_NAME:
        if extra := set(login) - {"username", "password"}:
            raise ConfigError(f"{', '.join(sorted(extra))} of sasl.jaas.config: give sasl=MskIam()")
        return MskIam()
    if name not in ("PLAIN", *SCRAM_NAMES):
        raise ConfigError(
            f"sasl.mechanism={name} is not supported",
            hint="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER and AWS_MSK_IAM are",
        )
    user, password = login.get("username"), login.get("password")
    for value, place in zip((user, password), places, strict=True):
        if not value:
            raise ConfigError(f"{place} is not set, and {name} needs it")
    if name == "PLAIN":
        return Plain(str(user), str(password))
    by_token = str(login.get("tokenauth", "")).lower() == "true"
    mechanism = SCRAM_NAMES[name == "SCRAM-SHA-512"]
    return Scram(str(user), str(password), mechanism, delegation_token=by_token)
