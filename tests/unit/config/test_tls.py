"""TLS values: safe by default, and errors that name the file."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

import pytest

from karrow.config import TLS
from karrow.errors import ConfigError
from tests.unit.config.pems import CERTIFICATE, ENCRYPTED_KEY, KEY, OTHER_KEY, PASSWORD


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "client.pem"
    path.write_text(CERTIFICATE)
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_text(KEY)
    return path


def test_by_default_everything_is_checked() -> None:
    context = TLS().context()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_an_own_authority_replaces_the_systems(certificate: Path) -> None:
    context = TLS(ca=certificate).context()
    assert [dict(ca)["subject"] for ca in context.get_ca_certs()] == [
        ((("commonName", "karrow test"),),)
    ]


def test_without_verification_a_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        context = TLS(verify=False).context()
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname
    assert "without verification" in caplog.text


def test_names_alone_can_be_left_unchecked(caplog: pytest.LogCaptureFixture) -> None:
    context = TLS(verify_hostname=False).context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.check_hostname
    assert "without verification" in caplog.text


def test_certificate_and_key_load_from_files_and_text(certificate: Path, key: Path) -> None:
    TLS(certificate=certificate, key=key).context()
    TLS(certificate=str(certificate), key=str(key)).context()
    TLS(certificate=CERTIFICATE, key=KEY).context()
    TLS(certificate=CERTIFICATE + KEY).context()
    TLS(ca=CERTIFICATE).context()


def test_text_loads_on_systems_without_files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    TLS(certificate=CERTIFICATE, key=KEY).context()


def test_an_encrypted_key_loads_with_its_password() -> None:
    TLS(certificate=CERTIFICATE, key=ENCRYPTED_KEY, key_password=PASSWORD).context()


def test_an_encrypted_key_without_password_is_an_error_not_a_prompt() -> None:
    with pytest.raises(ConfigError, match=r"give tls\.key_password"):
        TLS(certificate=CERTIFICATE, key=ENCRYPTED_KEY).context()


def test_a_wrong_password_is_named_without_being_shown() -> None:
    tls = TLS(certificate=CERTIFICATE, key=ENCRYPTED_KEY, key_password="canary-1")
    with pytest.raises(ConfigError, match="password is wrong") as caught:
        tls.context()
    assert "canary-1" not in str(caught.value)


def test_a_key_of_another_certificate_is_named(certificate: Path) -> None:
    with pytest.raises(ConfigError, match=r"client\.pem.*does not belong"):
        TLS(certificate=certificate, key=OTHER_KEY).context()


def test_a_certificate_without_key_is_named(certificate: Path) -> None:
    with pytest.raises(ConfigError, match=r"client\.pem holds no private key"):
        TLS(certificate=certificate).context()


def test_a_key_without_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"without tls\.certificate"):
        TLS(key=KEY)


@pytest.mark.parametrize("name", ["ca", "certificate"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "gone.pem"
    with pytest.raises(ConfigError, match=rf"tls\.{name} .*gone\.pem: No such file"):
        (TLS(ca=path) if name == "ca" else TLS(certificate=path)).context()


def test_a_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        TLS(ca=tmp_path).context()


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (b"\xfe\xed\xfe\xed\x00\x00", "keytool -importkeystore"),
        (b"\x30\x82\x01\x00", "openssl x509 -inform der"),
        (b"hello", "reads PEM"),
        (b"", "reads PEM"),
    ],
)
def test_a_file_that_is_not_pem_says_how_to_convert_it(
    data: bytes, advice: str, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=advice):
        TLS(ca=path).context()


def test_a_damaged_certificate_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(CERTIFICATE[:80] + "!" + CERTIFICATE[81:])
    with pytest.raises(ConfigError, match=r"ca\.pem"):
        TLS(ca=path).context()


def test_keys_and_passwords_do_not_print() -> None:
    shown = repr(TLS(certificate=CERTIFICATE + KEY, key=KEY, key_password="canary-1"))
    assert "canary-1" not in shown
    assert "PRIVATE KEY" not in shown


def test_from_env_is_none_without_variables() -> None:
    assert TLS.from_env({}) is None
    assert TLS.from_env({"KARROW_TLS_VERIFY": "false"}) == TLS(verify=False)
    given = {"KARROW_TLS_CERTIFICATE": "c", "KARROW_TLS_KEY": "k", "KARROW_TLS_KEY_PASSWORD": "p"}
    assert TLS.from_env(given) == TLS(certificate="c", key="k", key_password="p")
