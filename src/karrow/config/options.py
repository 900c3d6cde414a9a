"""Keyword arguments of the clients, for type checkers and editors.

Made by tools/make_options.py; edit the option sets.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from karrow.config.client import AddressMap, MetadataRecovery
    from karrow.config.consumer import (
        Assignors,
        GroupProtocol,
        OutOfRange,
        Rebalanced,
        Start,
    )
    from karrow.config.fetch import Isolation
    from karrow.config.producer import Acks, AfterFork, Callbacks, Compression, Partitioner
    from karrow.config.sasl import Mechanism
    from karrow.config.tls import TLS
    from karrow.config.workers import Columns

__all__ = ["ClientOptions", "ConsumerOptions", "FetchOptions", "ProducerOptions", "WorkerOptions"]


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

    api_versions: Mapping[str, int] | None
    """The newest versions to speak by API name; what a call asks for itself comes first."""

    socket_keepalive: bool
    """TCP keepalive on every connection."""

    send_buffer_bytes: int | None
    """The socket's send buffer; None leaves it to the system."""

    receive_buffer_bytes: int | None
    """The socket's receive buffer; None leaves it to the system."""


class ProducerOptions(ClientOptions, total=False):
    """The options of ProducerConfig."""

    acks: Acks
    """Who has to have a batch before it counts: 'all' in-sync replicas, 1 leader, 0 nobody."""

    linger: float | timedelta
    """How long a batch waits for more records while there is room in it."""

    batch_bytes: int
    """How large a batch grows before compression; a larger record is a batch of its own."""

    buffer_bytes: int
    """How much may wait to be delivered; send waits for room beyond that."""

    compression: Compression | None
    """How batches are compressed; None and 'none' leave them as they are."""

    compression_level: int | None
    """The codec's own level; None is its default."""

    delivery_timeout: float | timedelta
    """How long a record may take from send to its delivery, with all retries."""

    max_request_bytes: int
    """The largest request that is sent; a record that does not fit is refused."""

    max_block: float | timedelta | None
    """How long send may wait for room, or for a topic; None is as long as it takes."""

    partitioner: str | Partitioner
    """Where a key goes: a hash by name, 'random', or f(topic, key, partitions)."""

    adaptive_partitioning: bool
    """Send fewer records without a key to partitions whose brokers are slow (KIP-794)."""

    idempotent: bool
    """Let the broker drop what is sent twice and keep the order across retries."""

    gapless: bool
    """A batch that fails ends the producer, so that nothing after it is written."""

    allow_duplicates: bool
    """Without idempotence, send a batch again whose answer never came."""

    transactional_id: str | None
    """The name under which the producer's transactions go on after a restart."""

    transaction_timeout: float | timedelta
    """The broker aborts a transaction that is open for longer."""

    callbacks: Callbacks
    """Where done callbacks of a blocking Producer run: in calls of it, or in a thread."""

    after_fork: AfterFork
    """What a forked child finds: an error, or an empty producer of its own."""

    connections_per_broker: int
    """Over how many connections the batches for one broker may go."""

    topic_propagation: float | timedelta
    """How long a known topic may be missing from the metadata before its records fail."""

    exit_timeout: float | timedelta
    """How long the end of the interpreter waits for records that were not flushed."""


class FetchOptions(ClientOptions, total=False):
    """The options of FetchConfig."""

    isolation: Isolation
    """Whether to hand out records of transactions that are open or were aborted."""

    min_bytes: int
    """A broker that has less than this waits for more, up to max_wait."""

    max_bytes: int
    """How much a broker may answer at once; a single batch may be larger."""

    partition_max_bytes: int
    """How much of that may come from one partition; a single batch may be larger."""

    max_wait: float | timedelta
    """How long a broker may wait for min_bytes before it answers."""

    buffer_bytes: int
    """How much fetched data may wait to be handed out; fetching rests beyond that."""

    max_decompressed_bytes: int
    """How large a batch may be without its compression; a larger one is an error."""

    check_crcs: bool
    """Compare the checksum of every batch with its bytes."""

    fetch_sessions: bool
    """Let brokers remember what is fetched, so that requests name only changes (KIP-227)."""


class ConsumerOptions(FetchOptions, total=False):
    """The options of ConsumerConfig."""

    group: str | None
    """The group that shares the topics' partitions; None reads all and commits nothing."""

    start: Start
    """Where to begin without a committed offset: a place, or 'none' for an error."""

    out_of_range: OutOfRange | None
    """Where to go on when an offset is gone; None is start if that is an end, else 'none'."""

    protocol: GroupProtocol
    """How the group shares partitions: among its members, or by the broker (KIP-848)."""

    assignors: Assignors
    """Who may divide partitions in a classic group, the best first: names or objects."""

    remote_assignor: str | None
    """The broker's assignor with protocol='consumer'; None leaves it to the broker."""

    auto_commit: bool
    """With a group, commit in the background what was handed out and done with."""

    auto_commit_interval: float | timedelta
    """How often auto_commit does that."""

    instance_id: str | None
    """The member's own name: it keeps its partitions over a restart (KIP-345)."""

    session_timeout: float | timedelta
    """A classic group goes on without a member that was silent for this long."""

    heartbeat_interval: float | timedelta
    """How often a classic group hears of its member."""

    rebalance_timeout: float | timedelta | None
    """How long members may take to join again; None is max_poll_interval."""

    max_poll_interval: float | timedelta
    """A member that does not ask for records for this long leaves the group."""

    max_poll_records: int
    """How many records one poll returns at most."""

    on_assigned: Rebalanced | None
    """Called with the partitions that the consumer has been given."""

    on_revoked: Rebalanced | None
    """Called with the partitions that it gives back, before others have them."""

    on_lost: Rebalanced | None
    """Called with the partitions that others may have already; None is on_revoked."""


class WorkerOptions(ConsumerOptions, total=False):
    """The options of WorkerConfig."""

    threads: int
    """How many callbacks without async may run at once."""

    commit_interval: float | timedelta
    """How long a commit that nobody waits for may wait for others."""

    commit_threshold: int
    """How many records may wait for such a commit."""

    shutdown: float | timedelta
    """How long a callback may go on when its partition is given back, or the group stops."""

    max_restarts: int
    """How many workers may be restarted within max_seconds; one more ends the group."""

    max_seconds: float | timedelta
    """The time in which restarts are counted."""

    join_attempts: int
    """How many attempts to join the group may fail in a row; then the workers end."""

    batch_records: int | None
    """How many records a callback is given; None is max_poll_records, in Arrow only batch_bytes."""

    batch_bytes: int | None
    """How many bytes of keys and values end an Arrow batch; None is 4 MiB."""

    columns: Columns | None
    """The columns of Arrow batches; None is all of them."""

    fetch_interval: float | timedelta
    """How long a partition rests after its records were handled."""
