"""The broker in a thread of its own, for programs without a loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from karrow.broker.embedded import AsyncBroker, BrokerOptions
from karrow.errors import StateError

if TYPE_CHECKING:
    from types import TracebackType

    from karrow.broker.controls import AnyError, Scope
    from karrow.broker.dispatch import SeenRequest
    from karrow.broker.faults import Fault, Moment

T = TypeVar("T")
STOP_TIMEOUT = 10.0


class Broker:
    """A Kafka cluster in this process, on loopback: to test on, to try things, without Java.

    Args:
        brokers: how many nodes; their ids begin with 1.
        data_dir: where everything is kept, so that it survives the process; else in memory only.
        port: the first node's, the next one's is one higher; 0 for any free ones.
        sasl: who may log in: ``karrow.Plain``, ``karrow.Scram``, or users with their passwords.
        tls: the certificate to show: ``karrow.TLS(certificate=, key=)``, with ``ca`` to ask for
            the client's, or an SSLContext.
        version: the release to pass for: "2.8", "3.9" or "4.3".
        auto_create_topics: whether topics come into being when they are asked for.
        default_partitions: how many partitions such a topic has.
        session_lifetime: seconds after which a SASL login must be repeated (KIP-368).
        heartbeat_interval: seconds between the heartbeats of members in groups whose partitions
            the broker divides (KIP-848).
        clock: a ``karrow.ManualClock`` for tests of time-outs.
        seed: makes ids and injected damage the same in every run.

    Example::

        with karrow.Broker() as broker, karrow.Client(broker.bootstrap) as client:
            client.produce("orders", [b"1"], partition=0)
    """

    __module__ = "karrow"

    def __init__(self, brokers: int = 1, **options: Unpack[BrokerOptions]) -> None:
        self._inner = AsyncBroker(brokers, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """What clients are given: "127.0.0.1:PORT", one for each node."""
        return self._inner.bootstrap

    @property
    def cluster_id(self) -> str:
        """What metadata calls the cluster."""
        return self._inner.cluster_id

    def start(self) -> None:
        """Listen, in a thread of its own, with everything that the data directory has."""
        if self._thread is not None:
            raise StateError("the broker is running already")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="karrow-broker", daemon=True
        )
        self._thread.start()
        try:
            self._wait(self._inner.start())
        except BaseException:
            self.close()
            raise

    @overload
    def close(self) -> None: ...
    @overload
    def close(self, api: str, *, when: Moment = "before", **scope: Unpack[Scope]) -> Fault: ...
    def close(
        self, api: str | None = None, *, when: Moment = "before", **scope: Unpack[Scope]
    ) -> Fault | None:
        """End every connection and the thread; let go of ports and files.

        With an API's name it is a fault instead: the next such request ends its connection, before
        it is acted on or after.
        """
        if api is not None:
            arm: Callable[..., Fault] = self._inner.close
            return self._call(arm, api, when=when, **scope)
        self._close()
        return None

    def _close(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        with contextlib.suppress(StateError):
            self._wait(self._inner.close())
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_TIMEOUT)
        loop.close()

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic without a client."""
        self._call(self._inner.create_topic, name, partitions, replication_factor, config)

    # Trouble for the next requests.

    def fail(self, api: str, error: AnyError, **scope: Unpack[Scope]) -> Fault:
        """Refuse requests with an error, given by Kafka's name for it, its code, or our class.

        With a topic or partition only that part of a request fails. Nothing is acted on.

        Example::

            broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2, topic="orders")
        """
        return self._call(self._inner.fail, api, error, **scope)

    def drop(self, api: str, *, when: Moment = "before", **scope: Unpack[Scope]) -> Fault:
        """Never answer, and leave the connection open; before or after acting on the request."""
        return self._call(self._inner.drop, api, when=when, **scope)

    def delay(
        self, api: str, seconds: float, *, when: Moment = "before", **scope: Unpack[Scope]
    ) -> Fault:
        """Answer late; the request is acted on after the delay, or before it."""
        return self._call(self._inner.delay, api, seconds, when=when, **scope)

    def corrupt(self, api: str = "Fetch", **scope: Unpack[Scope]) -> Fault:
        """Answer with one bit wrong: of the record data where there is some, else anywhere."""
        return self._call(self._inner.corrupt, api, **scope)

    def raw(self, api: str, data: bytes, **scope: Unpack[Scope]) -> Fault:
        """Answer with these bytes, frame length and all."""
        return self._call(self._inner.raw, api, data, **scope)

    def throttle(self, seconds: float, api: str | None = None, **scope: Unpack[Scope]) -> Fault:
        """Answer with a throttle time, and read nothing from that connection for so long."""
        return self._call(self._inner.throttle, seconds, api, **scope)

    def reset(self) -> None:
        """Forget all topics, groups, transactions, faults and requests, as if just started."""
        self._call(self._inner.reset)

    def clear_faults(self) -> None:
        """Disarm everything."""
        self._call(self._inner.clear_faults)

    @property
    def requests(self) -> list[SeenRequest]:
        """The requests received so far, the newest 10,000 of them."""
        return self._call(lambda: self._inner.requests)

    def clear_requests(self) -> None:
        """Forget the requests received so far."""
        self._call(self._inner.clear_requests)

    # Partitions, nodes, and what clients believe.

    def move_leader(self, topic: str, partition: int, broker: int | None = None) -> int:
        """Let another broker lead, by default the next replica; gives its id."""
        return self._call(self._inner.move_leader, topic, partition, broker)

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Lose the records from ``offset`` on and begin a leader epoch: an unclean election."""
        self._call(self._inner.truncate, topic, partition, offset)

    def apply_retention(self) -> None:
        """Drop what is too old or too much now, not at the next check."""
        self._call(self._inner.apply_retention)

    def kill_node(self, broker: int) -> None:
        """End a broker at once; others lead what it led, where there are any."""
        self._wait(self._inner.kill_node(broker))

    def start_node(self, broker: int) -> None:
        """Bring a killed broker back, on the port it had."""
        self._wait(self._inner.start_node(broker))

    def close_connections(self, broker: int | None = None) -> None:
        """End all connections of a broker, or of all; they may connect again at once."""
        self._call(self._inner.close_connections, broker)

    def hide_from_metadata(self, broker: int, *, hidden: bool = True) -> None:
        """Leave a broker out of metadata though it answers, or show it again."""
        self._call(self._inner.hide_from_metadata, broker, hidden=hidden)

    def move_coordinator(self, key: str, broker: int, *, transactional: bool = False) -> None:
        """Let a broker coordinate a group, or with ``transactional`` a transactional id."""
        self._call(self._inner.move_coordinator, key, broker, transactional=transactional)

    def expire_session(
        self, *, group: str | None = None, member: str | None = None, broker: int | None = None
    ) -> int:
        """Expire members of a group, or without one the fetch sessions; gives how many."""
        return self._call(self._inner.expire_session, group=group, member=member, broker=broker)

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise StateError("the broker is not running", hint="start() it, or use it by `with`")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Run something on the broker's loop, where all its state lives."""
        return self._wait(_run(functools.partial(function, *arguments, **options)))


async def _run(function: Callable[[], T]) -> T:
    return function()
