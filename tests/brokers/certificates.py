"""Certificates for the tests: good ones, and each kind of bad one a client must refuse."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
KEY_PASSWORD = "key-secret"
LOOPBACK = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key; ``combined`` has the key, the certificate and its issuer."""

    certificate: Path
    key: Path
    combined: Path


@dataclass(frozen=True)
class Certificates:
    """Everything as PEM files. ``stranger`` is an authority that signed none of the others.

    The client's key is there a second time, under ``KEY_PASSWORD``.
    """

    ca: Path
    stranger: Path
    server: Identity
    client: Identity
    encrypted_client_key: Path
    expired: Identity
    wrong_name: Identity

    def context(self, ca: Path | None = None, client: Identity | None = None) -> ssl.SSLContext:
        """What a careful client uses."""
        context = ssl.create_default_context(cafile=ca or self.ca)
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        return context


class Authority:
    """A certificate authority with a file of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.path = folder / f"{name}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"karrow test {name}")
        start = datetime.now(UTC) - 60 * DAY
        builder = _builder(self._name, self._name, self._key, start, start + 120 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(signs_certificates=True), True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.path.write_bytes(_pem(self._certificate))

    def issue(
        self,
        name: str,
        alternatives: tuple[x509.GeneralName, ...] = LOOPBACK,
        ends: timedelta = 30 * DAY,
    ) -> Identity:
        """A certificate that ends that long after now."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = _builder(_name(name), self._name, key, now - 30 * DAY, now + ends)
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(signs_certificates=False), True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = builder.add_extension(issuer, False).sign(self._key, hashes.SHA256())
        paths = [self.folder / f"{name}{end}.pem" for end in ("", ".key", ".combined")]
        secret, public = _key_pem(key, None), _pem(certificate)
        contents = (public, secret, secret + public + _pem(self._certificate))
        for path, data in zip(paths, contents, strict=True):
            path.write_bytes(data)
        return Identity(*paths)


def make_certificates(folder: Path) -> Certificates:
    """Make them all in a folder; it takes milliseconds."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(folder, "ca")
    client = authority.issue("client", (x509.DNSName("client"),))
    encrypted = folder / "client.encrypted.pem"
    key = serialization.load_pem_private_key(client.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    encrypted.write_bytes(_key_pem(key, KEY_PASSWORD))
    return Certificates(
        ca=authority.path,
        stranger=Authority(folder, "stranger").path,
        server=authority.issue("server"),
        client=client,
        encrypted_client_key=encrypted,
        expired=authority.issue("expired", ends=-DAY),
        wrong_name=authority.issue("wrong-name", (x509.DNSName("elsewhere.example"),)),
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, password: str | None) -> bytes:
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        protection = serialization.BestAvailableEncryption(password.encode())
    # PKCS#8 is the only form Kafka reads.
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, protection)
