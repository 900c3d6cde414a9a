"""The first addresses of a cluster, in every form in which callers give them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from karrow.errors import ConfigError

__all__ = ["DEFAULT_PORT", "Address", "Servers", "is_address", "resolve"]

DEFAULT_PORT = 9092
MAX_HOST_CHARACTERS = 255
MAX_PORT = 65535

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]*://")


class Address(NamedTuple):
    """A host, by name or number, and a port.

    >>> str(Address("::1", 9092))
    '[::1]:9092'
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Entry = str | tuple[str, int]
Servers = str | Iterable[Entry] | Callable[[], str | Iterable[Entry]]


def resolve(servers: Servers) -> tuple[Address, ...]:
    """The addresses, in order and without repetition; a callable is called now.

    >>> resolve("b1:9093, b2")
    (Address(host='b1', port=9093), Address(host='b2', port=9092))
    """
    given = servers() if callable(servers) else servers
    addresses = tuple(dict.fromkeys(_address(entry) for entry in _entries(given)))
    if not addresses:
        raise ConfigError("bootstrap names no server", hint="give it as 'host:port,host:port'")
    return addresses


def _entries(given: object) -> list[object]:
    if isinstance(given, str):
        return [entry for part in given.split(",") if (entry := part.strip())]
    if _is_pair(given):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, bytes):
        return [entry for item in given for entry in (_entries(item) if _is_text(item) else [item])]
    raise ConfigError(f"bootstrap cannot be a {type(given).__name__}", hint=_FORMS)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and list(map(type, value)) == [str, int]


def _address(entry: object) -> Address:
    host, port = _split(entry) if isinstance(entry, str) else _unpack(entry)
    shown = Address(host, port)
    if not 0 < port <= MAX_PORT:
        raise ConfigError(f"bootstrap {shown}: the port is not within 1 to {MAX_PORT}")
    if not is_address(host, port):
        raise ConfigError(f"bootstrap {shown}: {host!r} is no host name or IP address")
    return shown


def _unpack(entry: object) -> tuple[str, int]:
    match entry:
        case (str(host), int(port)):
            return host, port
        case (str(host), str(port)):
            return host, _port(host, port)
        case _:
            raise ConfigError("bootstrap has an entry that is no (host, port)", hint=_FORMS)


def _split(text: str) -> tuple[str, int]:
    if "@" in text:  # may be user:password@host, which must not be shown
        raise ConfigError("bootstrap holds an '@'", hint="credentials go into sasl=, not here")
    if scheme := _SCHEME.match(text):
        raise ConfigError(
            f"bootstrap {text!r} is a URL",
            hint=f"leave out {scheme[0]!r}; tls= and sasl= say how to connect",
        )
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise ConfigError(f"bootstrap {text!r} has an odd bracket", hint="write [::1]:9092")
        return host, _port(text, port[1:])
    if text.count(":") > 1:
        return _bare_ipv6(text), DEFAULT_PORT
    host, _, port = text.partition(":")
    return host, _port(text, port)


def _bare_ipv6(text: str) -> str:
    if not _is_ip(text):
        raise ConfigError(f"bootstrap {text!r} has too many colons", hint="write [::1]:9092")
    return text


def _port(text: str, port: str) -> int:
    if not port:
        return DEFAULT_PORT
    if not (port.isascii() and port.isdecimal()) or len(port) > len(str(MAX_PORT)):
        raise ConfigError(f"bootstrap {text!r}: {port!r} is no port")
    return int(port)


def is_address(host: str, port: int) -> bool:
    """Whether it can be connected to at all; brokers advertise addresses, and may lie."""
    if not 0 < port <= MAX_PORT or not 0 < len(host) <= MAX_HOST_CHARACTERS:
        return False
    return bool(_NAME.fullmatch(host)) or _is_ip(host)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


_FORMS = "give 'host:port,host:port', a list of those, (host, port) pairs, or a callable"
