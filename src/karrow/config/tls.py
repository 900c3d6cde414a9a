"""TLS as a value: certificates and keys in PEM, and the SSLContext they make."""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Never

from karrow.config.secret import Secret
from karrow.errors import ConfigError

if TYPE_CHECKING:
    Pem = str | os.PathLike[str] | Secret

__all__ = ["TLS", "context_for"]

_log = logging.getLogger(__name__)

_PEM_MARK = "-----BEGIN "
_KEY_MARK = "PRIVATE KEY-----"
_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_DER_MAGIC = b"\x30"


@dataclass(frozen=True, slots=True, init=False)
class TLS:
    """How to prove who we are and whom to believe; files or text, in PEM.

    Without ``ca`` the system's certificates count. ``key`` may stand in the same file as
    ``certificate``. ``verify_hostname=False`` accepts any broker with a certificate that ``ca``
    signed, ``verify=False`` anybody at all, who can then read along; both are logged as warnings.

    >>> TLS(certificate="client.pem", key_password="hunter2").key_password
    ***
    """

    __module__ = "karrow"

    ca: str | os.PathLike[str] | Secret | None
    certificate: str | os.PathLike[str] | Secret | None
    key: str | os.PathLike[str] | Secret | None
    key_password: Secret | None
    verify: bool
    verify_hostname: bool

    def __init__(
        self,
        *,
        ca: Pem | None = None,
        certificate: Pem | None = None,
        key: Pem | None = None,
        key_password: str | Secret | None = None,
        verify: bool = True,
        verify_hostname: bool = True,
    ) -> None:
        if key is not None and certificate is None:
            raise ConfigError("tls.key is given without tls.certificate")
        set_field = object.__setattr__
        set_field(self, "ca", _hidden(ca))
        set_field(self, "certificate", _hidden(certificate))
        set_field(self, "key", _hidden(key))
        set_field(self, "key_password", None if key_password is None else Secret(key_password))
        set_field(self, "verify", verify)
        set_field(self, "verify_hostname", verify_hostname)

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, prefix: str = "KARROW_TLS_"
    ) -> TLS | None:
        """From KARROW_TLS_CA, _CERTIFICATE, _KEY, _KEY_PASSWORD and _VERIFY; None without any."""
        environ = os.environ if environ is None else environ
        verify = environ.get(f"{prefix}VERIFY", "true").strip().lower()
        if verify not in ("true", "false"):
            raise ConfigError(f"{prefix}VERIFY={verify!r} is neither true nor false")
        if not any(name.startswith(prefix) for name in environ):
            return None
        return cls(
            ca=environ.get(f"{prefix}CA"),
            certificate=environ.get(f"{prefix}CERTIFICATE"),
            key=environ.get(f"{prefix}KEY"),
            key_password=environ.get(f"{prefix}KEY_PASSWORD"),
            verify=verify == "true",
        )

    def context(self) -> ssl.SSLContext:
        """A context for clients, TLS 1.2 or newer; ConfigError names what does not load."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca is None:
            context.load_default_certs()
        else:
            _load_authorities(context, self.ca)
        if self.certificate is not None:
            self._load_certificate(context, self.certificate)
        if not (self.verify and self.verify_hostname):
            _log.warning("TLS without verification: the broker may be anybody")
            context.check_hostname = False
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        return context

    def server_context(self) -> ssl.SSLContext:
        """A context for servers, TLS 1.2 or newer; with ``ca``, clients must have a certificate."""
        if self.certificate is None:
            raise ConfigError("tls.certificate is missing: a server must show one")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_certificate(context, self.certificate)
        if self.ca is not None:
            _load_authorities(context, self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _load_certificate(self, context: ssl.SSLContext, certificate: Pem) -> None:
        key = certificate if self.key is None else self.key
        chain, secret = _text("certificate", certificate), _text("key", key)
        if _KEY_MARK not in secret:
            raise ConfigError(f"tls.key {_shown(key)} holds no private key")
        try:
            with _file(chain) as chain_file, _file(secret) as key_file:
                context.load_cert_chain(chain_file, key_file, self._password)
        except ssl.SSLError as error:
            raise ConfigError(
                f"tls.certificate {_shown(certificate)} with tls.key {_shown(key)}: {_why(error)}"
            ) from None

    def _password(self) -> str:
        # Without a function OpenSSL would ask on the terminal.
        if self.key_password is None:
            raise ConfigError("tls.key is encrypted", hint="give tls.key_password")
        return self.key_password.reveal()


def context_for(tls: bool | ssl.SSLContext | TLS | None) -> ssl.SSLContext | None:
    """The context that the option ``tls`` asks for, None for plaintext."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    if isinstance(tls, TLS):
        return tls.context()
    return TLS().context() if tls else None


def _hidden(pem: Pem | None) -> Pem | None:
    """Text with a private key in it becomes a secret; a path does not."""
    return Secret(pem) if isinstance(pem, str) and _KEY_MARK in pem else pem


def _is_text(pem: Pem) -> bool:
    return isinstance(pem, Secret) or (isinstance(pem, str) and _PEM_MARK in pem)


def _shown(pem: Pem) -> str:
    return "(given as text)" if _is_text(pem) else str(pem)


def _text(name: str, pem: Pem) -> str:
    if isinstance(pem, Secret):
        return pem.reveal()
    return str(pem) if _is_text(pem) else _read(name, Path(str(pem)))


def _read(name: str, path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"tls.{name} {path}: {error.strerror}") from None
    if _PEM_MARK.encode() not in data:
        _refuse_format(name, path, data)
    return data.decode("utf-8", "replace")


def _refuse_format(name: str, path: Path, data: bytes) -> Never:
    hint = "karrow reads PEM, text that begins with -----BEGIN"
    if data.startswith(_JKS_MAGIC):
        hint = (
            f"it is a Java key store: keytool -importkeystore -srckeystore {path} "
            "-destkeystore store.p12 -deststoretype PKCS12 && "
            "openssl pkcs12 -in store.p12 -out store.pem -nodes"
        )
    elif data.startswith(_DER_MAGIC):
        hint = (
            f"if it is DER: openssl x509 -inform der -in {path} -out {path.stem}.pem; if it is "
            f"PKCS12: openssl pkcs12 -in {path} -out {path.stem}.pem -nodes"
        )
    raise ConfigError(f"tls.{name} {path} is not PEM", hint=hint)


def _load_authorities(context: ssl.SSLContext, ca: Pem) -> None:
    try:
        context.load_verify_locations(cadata=_text("ca", ca))
    except ssl.SSLError as error:
        raise ConfigError(f"tls.ca {_shown(ca)}: {_why(error)}") from None


_REASONS = {
    "KEY_VALUES_MISMATCH": "the key does not belong to the certificate",
    "BAD_DECRYPT": "the key's password is wrong",
    "BAD_PASSWORD_READ": "the key's password is wrong",
    "NO_START_LINE": "there is no certificate in it",
    "PEM_LIB": "it is damaged, or the key's password is wrong",
}


def _why(error: Exception) -> str:
    said = getattr(error, "reason", None) or str(error)
    known = said.replace(" ", "_").upper()
    return next((why for reason, why in _REASONS.items() if reason in known), said)


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """The text as a file, which is all that OpenSSL reads keys from; in memory where that works."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("karrow-pem"), "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(text)
            file.flush()
            yield file.name
