"""The options that every client has."""
# ruff: noqa: RUF009 - option() makes a dataclass field

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from karrow.config import bootstrap as servers
from karrow.config import sasl as mechanisms
from karrow.config import tls as transport
from karrow.config.option import Options, option
from karrow.errors import ConfigError

if TYPE_CHECKING:
    from karrow.config.bootstrap import Address, Servers
    from karrow.config.sasl import Mechanism
    from karrow.config.tls import TLS

__all__ = ["ClientConfig", "MetadataRecovery"]

MetadataRecovery = Literal["rebootstrap", "none"]
AddressMap = Callable[[str, int], tuple[str, int]]

MEBIBYTE = 1024 * 1024
# Options that grow up to the one called NAME_max.
PAIRED = ("connect_timeout", "reconnect_backoff", "retry_backoff")
MAX_BUFFER_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(Options):
    """What every client can be told; durations in seconds, sizes in bytes.

    >>> ClientConfig(bootstrap="b1,b2:9093", request_timeout=5).call_timeout
    20.0
    """

    __module__ = "karrow"

    bootstrap: Servers | None = option(
        None,
        doc="Servers to find the cluster by: 'h:p,h:p', a list, (host, port) pairs or a callable.",
        librdkafka="bootstrap.servers",
        java="bootstrap.servers",
        positional=True,
    )
    client_id: str = option(
        "karrow",
        doc="The name brokers write into their logs and quotas.",
        librdkafka="client.id",
        java="client.id",
    )
    request_timeout: float = option(
        30.0,
        doc="How long one request may take; its connection is closed after that.",
        unit="seconds",
        above=0,
        librdkafka="socket.timeout.ms",
        java="request.timeout.ms",
    )
    api_timeout: float | None = option(
        None,
        doc="How long a call with all its retries may take; None is 4 x request_timeout.",
        unit="seconds",
        above=0,
        java="default.api.timeout.ms",
    )
    connect_timeout: float = option(
        10.0,
        doc="How long a connection may take until it is ready, the first time (KIP-601).",
        unit="seconds",
        above=0,
        librdkafka="socket.connection.setup.timeout.ms",
        java="socket.connection.setup.timeout.ms",
    )
    connect_timeout_max: float = option(
        30.0,
        doc="What connect_timeout grows to while a broker keeps failing.",
        unit="seconds",
        above=0,
        java="socket.connection.setup.timeout.max.ms",
    )
    idle_timeout: float = option(
        540.0,
        doc="A connection without traffic is closed after this.",
        unit="seconds",
        above=0,
        librdkafka="connections.max.idle.ms",
        java="connections.max.idle.ms",
    )
    metadata_max_age: float = option(
        300.0,
        doc="Metadata is refreshed after this even if nothing seems wrong.",
        unit="seconds",
        above=0,
        librdkafka="topic.metadata.refresh.interval.ms",
        java="metadata.max.age.ms",
    )
    reconnect_backoff: float = option(
        0.05,
        doc="The first wait before a broker is connected to again.",
        unit="seconds",
        minimum=0,
        librdkafka="reconnect.backoff.ms",
        java="reconnect.backoff.ms",
    )
    reconnect_backoff_max: float = option(
        1.0,
        doc="What reconnect_backoff grows to.",
        unit="seconds",
        minimum=0,
        librdkafka="reconnect.backoff.max.ms",
        java="reconnect.backoff.max.ms",
    )
    retry_backoff: float = option(
        0.1,
        doc="The first wait before a failed request is sent again (KIP-580).",
        unit="seconds",
        minimum=0,
        librdkafka="retry.backoff.ms",
        java="retry.backoff.ms",
    )
    retry_backoff_max: float = option(
        1.0,
        doc="What retry_backoff grows to.",
        unit="seconds",
        minimum=0,
        librdkafka="retry.backoff.max.ms",
        java="retry.backoff.max.ms",
    )
    max_in_flight: int = option(
        5,
        doc="How many requests a connection may have under way.",
        unit="count",
        minimum=1,
        maximum=1_000_000,
        librdkafka="max.in.flight.requests.per.connection",
        java="max.in.flight.requests.per.connection",
    )
    max_frame_bytes: int = option(
        100 * MEBIBYTE,
        doc="The largest answer that is read; a larger one breaks the connection.",
        unit="bytes",
        minimum=1000,
        maximum=MAX_BUFFER_BYTES,
        librdkafka="receive.message.max.bytes",
    )
    rebootstrap_after: float = option(
        300.0,
        doc="Without metadata from known brokers for this long, bootstrap again (KIP-1102).",
        unit="seconds",
        minimum=0,
        librdkafka="metadata.recovery.rebootstrap.trigger.ms",
        java="metadata.recovery.rebootstrap.trigger.ms",
    )
    metadata_recovery: MetadataRecovery = option(
        "rebootstrap",
        doc="Whether to bootstrap again when known brokers are gone, silent, or ask for it.",
        choices=("rebootstrap", "none"),
        librdkafka="metadata.recovery.strategy",
        java="metadata.recovery.strategy",
    )
    tls: bool | ssl.SSLContext | TLS | None = option(
        None, doc="True for TLS with the system's certificates, or a TLS or SSLContext."
    )
    sasl: Mechanism | None = option(
        None, doc="Plain, Scram, OAuthBearer, MskIam, or an object with name, start and step."
    )
    allow_plaintext_password: bool = option(
        False, doc="Let PLAIN send its password over a connection without TLS."
    )
    allow_auto_topic_creation: bool = option(
        True,
        doc="Let the broker create a topic that is asked for, if it is set up to.",
        librdkafka="allow.auto.create.topics",
        java="allow.auto.create.topics",
    )
    default_group: str | None = option(
        None,
        doc="The group of calls that name none.",
        librdkafka="group.id",
        java="group.id",
    )
    rack: str | None = option(
        None,
        doc="Where this client runs, to be served by brokers near by.",
        librdkafka="client.rack",
        java="client.rack",
    )
    address_map: AddressMap | None = option(
        None,
        doc="Called with each advertised (host, port), gives the one to connect to, or raises.",
    )
    api_versions: Mapping[str, int] | None = option(
        None,
        doc="The newest versions to speak by API name; what a call asks for itself comes first.",
    )
    socket_keepalive: bool = option(
        True, doc="TCP keepalive on every connection.", librdkafka="socket.keepalive.enable"
    )
    send_buffer_bytes: int | None = option(
        None,
        doc="The socket's send buffer; None leaves it to the system.",
        unit="bytes",
        minimum=1024,
        maximum=MAX_BUFFER_BYTES,
        librdkafka="socket.send.buffer.bytes",
        java="send.buffer.bytes",
    )
    receive_buffer_bytes: int | None = option(
        None,
        doc="The socket's receive buffer; None leaves it to the system.",
        unit="bytes",
        minimum=1024,
        maximum=MAX_BUFFER_BYTES,
        librdkafka="socket.receive.buffer.bytes",
        java="receive.buffer.bytes",
    )

    def __post_init__(self) -> None:
        Options.__post_init__(self)  # super() does not know a class that slots has remade
        if self.bootstrap is not None and not callable(self.bootstrap):
            object.__setattr__(self, "bootstrap", servers.resolve(self.bootstrap))
        self._check_pairs()
        self._check_security()
        self._check_versions()

    def _check_pairs(self) -> None:
        for name in PAIRED:
            if getattr(self, name) > getattr(self, f"{name}_max"):
                raise ConfigError(f"{name} is above {name}_max")

    def _check_security(self) -> None:
        if not isinstance(self.tls, bool | ssl.SSLContext | transport.TLS | None):
            raise ConfigError(f"tls cannot be a {type(self.tls).__name__}")
        if self.sasl is None:
            return
        mechanisms.check_mechanism(self.sasl)
        if self.sasl.name == "PLAIN" and not self.tls and not self.allow_plaintext_password:
            raise ConfigError(
                "sasl PLAIN without tls would send the password in clear text",
                hint="set tls=, use Scram, or allow it with allow_plaintext_password=True",
            )

    def _check_versions(self) -> None:
        given: Mapping[str, Any] = self.api_versions or {}
        for name, version in given.items():
            if not isinstance(version, int) or version < 0:
                raise ConfigError(f"api_versions: {version!r} is no version of {name}")

    @property
    def call_timeout(self) -> float:
        """How long a whole call may take."""
        return 4 * self.request_timeout if self.api_timeout is None else self.api_timeout

    @classmethod
    def for_servers(
        cls, bootstrap: Servers | None, config: Self | None, options: Mapping[str, Any]
    ) -> Self:
        """The options of what connects to servers: they have to be among them."""
        given = options if bootstrap is None else {**options, "bootstrap": bootstrap}
        found = cls.make(config, given)
        if found.bootstrap is None:
            raise _no_servers()
        return found

    @classmethod
    def for_open_client(
        cls, shared: ClientConfig, config: Self | None, options: Mapping[str, Any]
    ) -> Self:
        """The options of what shares an open client: it has that one's, and its own beside."""
        inherited = {name: getattr(shared, name) for name in ClientConfig.describe()}
        twice = sorted(inherited.keys() & options.keys())
        if twice or config is not None:
            names = ", ".join(twice) or "config"
            raise ConfigError(f"an open client has its options already: {names}")
        return cls.make(None, {**inherited, **options})

    def addresses(self) -> tuple[Address, ...]:
        """The bootstrap servers; a callable among the options is called now, and may block."""
        if self.bootstrap is None:
            raise _no_servers()
        return servers.resolve(self.bootstrap)

    def ssl_context(self) -> ssl.SSLContext | None:
        """The context of the option tls, None for plaintext; reads certificates each time."""
        return transport.context_for(self.tls)


def _no_servers() -> ConfigError:
    return ConfigError("no bootstrap servers", hint="give them as 'host:port,host:port'")
