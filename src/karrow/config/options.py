"""Keyword arguments of the clients, for type checkers and editors.

Made by tools/make_options.py; edit the option sets.
"""

from __future__ import annotations

import ssl
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from karrow.config.client import AddressMap, MetadataRecovery
    from karrow.config.sasl import Mechanism
    from karrow.config.tls import TLS

__all__ = ["ClientOptions"]


class ClientOptions(TypedDict, total=False):
    """The options of ClientConfig."""

    client_id: str
    """The name brokers write into their logs and quotas."""

    request_timeout: float | timedelta
    """How long one request may take; its connection is closed after that."""

    api_timeout: float | timedelta | None
    """How long a call with all its retries may take; None is 4 x request_timeout."""

    connect_timeout: float | timedelta
    """How long a connection may take until it is ready, the first time (KIP-601)."""

    connect_timeout_max: float | timedelta
    """What connect_timeout grows to while a broker keeps failing."""

    idle_timeout: float | timedelta
    """A connection without traffic is closed after this."""

    metadata_max_age: float | timedelta
    """Metadata is refreshed after this even if nothing seems wrong."""

    reconnect_backoff: float | timedelta
    """The first wait before a broker is connected to again."""

    reconnect_backoff_max: float | timedelta
    """What reconnect_backoff grows to."""

    retry_backoff: float | timedelta
    """The first wait before a failed request is sent again (KIP-580)."""

    retry_backoff_max: float | timedelta
    """What retry_backoff grows to."""

    max_in_flight: int
    """How many requests a connection may have under way."""

    max_frame_bytes: int
    """The largest answer that is read; a larger one breaks the connection."""

    rebootstrap_after: float | timedelta
    """Without metadata from known brokers for this long, bootstrap again (KIP-1102)."""

    metadata_recovery: MetadataRecovery
    """Whether to bootstrap again when known brokers are gone, silent, or ask for it."""

    tls: bool | ssl.SSLContext | TLS | None
    """True for TLS with the system's certificates, or a TLS or SSLContext."""

    sasl: Mechanism | None
    """Plain, Scram, OAuthBearer, MskIam, or an object with name, start and step."""

    allow_plaintext_password: bool
    """Let PLAIN send its password over a connection without TLS."""

    allow_auto_topic_creation: bool
    """Let the broker create a topic that is asked for, if it is set up to."""

    default_group: str | None
    """The group of calls that name none."""

    rack: str | None
    """Where this client runs, to be served by brokers near by."""

    address_map: AddressMap | None
    """Called with each advertised (host, port), gives the one to connect to, or raises."""

    socket_keepalive: bool
    """TCP keepalive on every connection."""

    send_buffer_bytes: int | None
    """The socket's send buffer; None leaves it to the system."""

    receive_buffer_bytes: int | None
    """The socket's receive buffer; None leaves it to the system."""
