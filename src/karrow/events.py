"""Telemetry: named spans and events, and who listens to them.

A span emits ``NAME.start`` and then either ``NAME.stop`` or ``NAME.exception``; its duration comes
from a monotonic clock, in seconds, its system time from the wall clock, in seconds since 1970. All
events of a span carry the same number, so that they can be matched.

    >>> from karrow import events
    >>> with events.subscribe(print, "connection.close"):
    ...     events.emit("connection.close", {"count": 1}, host="b1", port=9092, reason="shutdown")
    connection.close count=1 host='b1' port=9092 reason='shutdown'

Listeners run at once, in the thread in which the event happens, often the event loop's: they have
to be quick. One that raises is dropped and logged; it never harms the caller. No field holds a
secret. When nobody listens, a span costs one look-up.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self, get_args

from karrow.errors import ConfigError

__all__ = [
    "CloseReason",
    "Event",
    "EventName",
    "Span",
    "SpanName",
    "Subscription",
    "emit",
    "fields",
    "is_heard",
    "log_to",
    "names",
    "span",
    "subscribe",
]

SpanName = Literal[
    "request",
    "connection",
    "auth",
    "metadata.update",
    "produce",
    "fetch",
    "join",
    "sync",
    "heartbeat",
    "leave",
    "commit",
    "process",
]
EventName = Literal[
    "connection.close",
    "connection.throttle",
    "rebalance",
    "consumer.health",
    "consumer.reset",
    "worker.crash",
    "worker.stuck",
    "worker.end",
    "sink.retry",
    "stream.progress",
]
CloseReason = Literal[
    "remote_closed",
    "timeout",
    "send_error",
    "recv_error",
    "shutdown",
    "init_error",
    "metadata_update",
    "reconnecting",
]


@dataclass(frozen=True, slots=True)
class _SpanKind:
    """What a span tells: fields from the start, more at its end, and how its end is put."""

    name: SpanName
    start: tuple[str, ...]
    stop: tuple[str, ...] = ()
    ok: Mapping[str, object] = field(default_factory=dict)
    failed: Mapping[str, object] = field(default_factory=dict)


_OK: Mapping[str, object] = {"result": "ok"}
_FAILED: Mapping[str, object] = {"result": "error"}
_RECORDS = ("topic", "partition", "first_offset", "last_offset")
_SPANS: dict[SpanName, _SpanKind] = {
    kind.name: kind
    for kind in (
        _SpanKind(
            "request",
            ("operation", "api_version", "correlation_id", "client_id", "broker"),
            ("bytes_sent", "bytes_received", "broker"),
        ),
        _SpanKind(
            "connection",
            ("host", "port", "ssl"),
            ok={"success": True},
            failed={"success": False},
        ),
        _SpanKind("auth", ("host", "port", "mechanism"), ok=_OK, failed=_FAILED),
        _SpanKind(
            "metadata.update",
            ("client_id", "topics"),
            ("broker_count", "topic_count"),
            ok=_OK,
            failed=_FAILED,
        ),
        _SpanKind(
            "produce",
            ("client_id", "topic", "partition", "record_count"),
            ("offset",),
            ok=_OK,
            failed=_FAILED,
        ),
        _SpanKind(
            "fetch",
            ("client_id", "broker_id", "partition_count"),
            ("bytes",),
            ok=_OK,
            failed=_FAILED,
        ),
        _SpanKind(
            "join",
            ("client_id", "group", "member_id", "reason"),
            ("generation",),
            ok=_OK,
            failed=_FAILED,
        ),
        _SpanKind(
            "sync", ("client_id", "group", "member_id", "generation"), ok=_OK, failed=_FAILED
        ),
        _SpanKind(
            "heartbeat", ("client_id", "group", "member_id", "generation"), ok=_OK, failed=_FAILED
        ),
        _SpanKind("leave", ("client_id", "group", "member_id", "reason"), ok=_OK, failed=_FAILED),
        _SpanKind("commit", ("client_id", "group", "partition_count"), ok=_OK, failed=_FAILED),
        _SpanKind(
            "process",
            ("client_id", "group", *_RECORDS, "record_count", "handler"),
            ("commit",),
            ok=_OK,
            failed=_FAILED,
        ),
    )
}
_WHY = ("kind", "reason", "error")
_SINGLES: dict[EventName, tuple[str, ...]] = {
    "connection.close": ("host", "port", "reason"),
    "connection.throttle": ("host", "port", "node_id", "client_id", "operation", "muted"),
    "rebalance": ("client_id", "group", "member_id", "generation", "reason"),
    "consumer.health": ("client_id", "group", "state", "reason"),
    "consumer.reset": ("client_id", "group", "topic", "partition", "offset", "place", "reason"),
    "worker.crash": ("client_id", "group", *_RECORDS, "callback", *_WHY),
    "worker.stuck": ("client_id", "group", "topic", "partition", "callback"),
    "worker.end": ("client_id", "group", "reason", "detail", "error"),
    "sink.retry": ("sink_id", "batch", *_WHY),
    "stream.progress": ("query", "query_id", "batch", "source", "behind"),
}
_PHASES = ("start", "stop", "exception")
_NAMES: tuple[str, ...] = (
    *(f"{name}.{phase}" for name in get_args(SpanName) for phase in _PHASES),
    *get_args(EventName),
)

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: measurements are numbers, fields say to what it happened.

    ``span`` is the number that the events of one span share. An exception event has the fields
    ``kind`` (the error's class), ``reason`` (its text) and ``error`` (itself).
    """

    name: str
    measurements: Mapping[str, float]
    fields: Mapping[str, Any]
    span: int | None = None

    @property
    def family(self) -> str:
        """The first word of its name."""
        return self.name.partition(".")[0]

    def __str__(self) -> str:
        # The error itself repeats kind and reason.
        shown = {name: value for name, value in self.fields.items() if name != "error"}
        pairs = itertools.chain(self.measurements.items(), shown.items())
        return " ".join([self.name, *(f"{name}={value!r}" for name, value in pairs)])


Listener = Callable[[Event], object]


class Subscription:
    """A listener and the events it gets; a context manager that ends it."""

    def __init__(self, listener: Listener, wanted: Iterable[str]) -> None:
        self.listener = listener
        self.names = frozenset(wanted)
        self.error: Exception | None = None

    def close(self) -> None:
        """End it; more than once does no harm."""
        _hub.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _deliver(self, event: Event) -> None:
        try:
            self.listener(event)
        except Exception as error:  # noqa: BLE001 - somebody else's code, and we must go on
            self.error = error
            self.close()
            _log.warning(
                "%r raised on %s and gets no more events",
                self.listener,
                event.name,
                exc_info=True,
            )


class _Hub:
    """Who listens to what.

    Both attributes are replaced, never changed, so that readers need no lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self.routes: dict[str, tuple[Subscription, ...]] = {}
        self.live_spans: frozenset[str] = frozenset()

    def add(self, subscription: Subscription) -> None:
        with self._lock:
            self._route((*self._subscriptions, subscription))

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._route(tuple(kept for kept in self._subscriptions if kept is not subscription))

    def _route(self, subscriptions: tuple[Subscription, ...]) -> None:
        heard = {name for subscription in subscriptions for name in subscription.names}
        self._subscriptions = subscriptions
        self.routes = {
            name: tuple(one for one in subscriptions if name in one.names) for name in heard
        }
        self.live_spans = frozenset(name.rpartition(".")[0] for name in heard)

    def send(self, event: Event) -> None:
        for subscription in self.routes.get(event.name, ()):
            subscription._deliver(event)  # noqa: SLF001 - the other half of this class


_hub = _Hub()


def names(family: str | None = None) -> tuple[str, ...]:
    """The names of all events, or of a family's, which is the first word of its events.

    >>> names("auth")
    ('auth.start', 'auth.stop', 'auth.exception')
    """
    return _NAMES if family is None else tuple(_select(family))


def _select(selector: str) -> Iterator[str]:
    """An event's name stands for itself, a span's or a family's for all below it."""
    found = [name for name in _NAMES if name == selector or name.startswith(f"{selector}.")]
    if not found:
        near = get_close_matches(selector, [*_NAMES, *{name.split(".")[0] for name in _NAMES}], 1)
        raise ConfigError(
            f"no event or family is called {selector!r}",
            hint=f"did you mean {near[0]!r}?" if near else "karrow.events.names() lists them",
        )
    yield from found


def fields(name: str) -> tuple[str, ...]:
    """The names of the fields that an event carries.

    >>> fields("connection.close")
    ('host', 'port', 'reason')
    """
    for single, carried in _SINGLES.items():
        if single == name:
            return carried
    for kind in _SPANS.values():
        at_end = {"start": (), "stop": (*kind.stop, *kind.ok), "exception": (*kind.failed, *_WHY)}
        for phase, more in at_end.items():
            if name == f"{kind.name}.{phase}":
                return tuple(dict.fromkeys((*kind.start, *more)))
    raise ConfigError(f"no event is called {name!r}", hint="karrow.events.names() lists them")


def subscribe(listener: Listener, *selectors: str) -> Subscription:
    """Call ``listener`` with each event whose name or family is given; without any, with all."""
    wanted = [name for selector in selectors for name in _select(selector)]
    subscription = Subscription(listener, wanted if selectors else _NAMES)
    _hub.add(subscription)
    return subscription


def emit(name: EventName, measurements: Mapping[str, float], /, **details: Any) -> None:
    """Tell the listeners of a single event."""
    if name in _hub.routes:
        _hub.send(Event(name, MappingProxyType(dict(measurements)), MappingProxyType(details)))


class Span:
    """Something that takes time; made by ``span``.

    Either a ``with`` block around it, across awaits, or ``start`` and then ``stop`` or ``fail``.
    Only the first end counts.
    """

    __slots__ = ("_began", "_fields", "_kind", "_number")

    def __init__(self, kind: _SpanKind, fields: dict[str, Any]) -> None:
        self._kind = kind
        self._fields = fields
        self._number = next(_numbers)
        self._began: float | None = None

    def set(self, **fields: Any) -> None:
        """Add fields to the events still to come."""
        self._fields.update(fields)

    def start(self) -> Self:
        """Begin to measure."""
        self._began = time.monotonic()
        self._send("start", {"system_time": time.time()}, {})
        return self

    def stop(self, **fields: Any) -> None:
        """End it well."""
        self._end("stop", {**self._kind.ok, **fields})

    def fail(self, error: BaseException, **fields: Any) -> None:
        """End it with an error."""
        why = {"kind": type(error).__name__, "reason": str(error), "error": error}
        self._end("exception", {**self._kind.failed, **why, **fields})

    def _end(self, phase: str, fields: dict[str, Any]) -> None:
        if self._began is None:
            return
        duration = time.monotonic() - self._began
        self._began = None
        self._send(phase, {"duration": duration}, fields)

    def _send(self, phase: str, measurements: dict[str, float], more: dict[str, Any]) -> None:
        name = f"{self._kind.name}.{phase}"
        if name in _hub.routes:
            fields = MappingProxyType({**self._fields, **more})
            _hub.send(Event(name, MappingProxyType(measurements), fields, self._number))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.fail(error)


class _SilentSpan(Span):
    """The span that everybody shares while nobody listens."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_SPANS["request"], {})

    def set(self, **fields: Any) -> None:
        pass

    def start(self) -> Self:
        return self

    def stop(self, **fields: Any) -> None:
        pass

    def fail(self, error: BaseException, **fields: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_SILENT = _SilentSpan()


def is_heard(name: SpanName) -> bool:
    """Whether anybody listens to a span: asked first where gathering its fields costs something."""
    return name in _hub.live_spans


def span(name: SpanName, /, **fields: Any) -> Span:
    """A span to put around something that takes time; free of cost when nobody listens.

    >>> with span("auth", host="b1", port=9092, mechanism="PLAIN") as auth:
    ...     auth.set(session_lifetime=3600.0)
    """
    return Span(_SPANS[name], fields) if name in _hub.live_spans else _SILENT


def log_to(
    logger: logging.Logger,
    *selectors: str,
    level: int = logging.DEBUG,
    failure_level: int = logging.WARNING,
) -> Subscription:
    """Write events to a logger: those of failures at ``failure_level``, others at ``level``."""

    def write(event: Event) -> None:
        failed = event.name.endswith(".exception")
        logger.log(failure_level if failed else level, "%s", event, extra={"event": event})

    return subscribe(write, *selectors)
