"""The error tree: what every karrow error carries, and the branches callers catch.

Retry rules read attributes (``retriable``, the kind mixins), never lists of classes. Every error
pickles: Spark ships them between processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar, overload

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "BufferFull",
    "CallbackError",
    "CommitFailed",
    "ConfigError",
    "ConnectError",
    "CorruptRecordError",
    "Disconnected",
    "Fenced",
    "GroupEnded",
    "GroupJoinFailed",
    "KarrowError",
    "LocalProtocolError",
    "LogTruncated",
    "NetworkError",
    "NoOffset",
    "PartialError",
    "ProduceError",
    "ProtocolError",
    "RemoteProtocolError",
    "RequestTimeout",
    "SerializationError",
    "StaleCoordinator",
    "StaleMetadata",
    "StateError",
    "UnknownBrokerError",
]


class KarrowError(Exception):
    """Base of everything karrow raises.

    ``retriable`` says whether the same call may succeed later, ``indefinite`` whether what was
    asked for may have happened all the same, ``hint`` what to do about it, and ``context`` where it
    happened (any of api, broker, topic, partition, offset).
    """

    retriable: bool = False
    indefinite: bool = False

    def __init__(self, message: str = "", *, hint: str | None = None, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context: dict[str, Any] = {k: v for k, v in context.items() if v is not None}

    def __str__(self) -> str:
        where = ", ".join(f"{name} {value}" for name, value in self.context.items())
        text = f"{self.message} ({where})" if where else self.message
        return f"{text}; {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())

    def __copy__(self) -> Self:
        """The same error for another caller: with its cause, without a traceback."""
        make, arguments = self.__reduce__()
        found: Self = make(*arguments)
        found.__cause__ = self.__cause__
        return found


def _rebuild(
    kind: type[KarrowError], arguments: tuple[Any, ...], state: dict[str, Any]
) -> KarrowError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


class ConfigError(KarrowError, ValueError):
    """An unknown option or a value outside its range; the message names the option."""


class StateError(KarrowError, RuntimeError):
    """The call does not fit the object's state: closed, no transaction, wrong thread."""


class BufferFull(StateError):
    """No room for the record: raised by the ``*_nowait`` calls, and after ``max_block``."""

    retriable = True


class NetworkError(KarrowError, ConnectionError):
    """The connection could not be made or broke."""

    retriable = True


class ConnectError(NetworkError):
    """No connection to the broker."""


class Disconnected(NetworkError):
    """The broker closed the connection while a request was under way."""


class AuthenticationError(NetworkError):
    """The broker refused the credentials."""

    retriable = False


class RequestTimeout(KarrowError, TimeoutError):
    """No answer in time; whether the broker acted on the request is unknown."""

    retriable = True


class ProtocolError(KarrowError):
    """Bytes or messages that break Kafka's protocol."""


class LocalProtocolError(ProtocolError, ValueError):
    """The message we were asked to send cannot be expressed in the protocol."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that are not valid Kafka protocol."""


class CorruptRecordError(RemoteProtocolError):
    """Record data that cannot be decoded.

    ``offset`` is the base offset of the damaged batch (None when even that could not be read),
    ``next_offset`` the first offset after it, and ``position`` its byte position in the data.
    """

    def __init__(
        self,
        message: str = "",
        *,
        offset: int | None = None,
        next_offset: int | None = None,
        position: int | None = None,
        hint: str | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message, hint=hint, offset=offset, position=position, **context)
        self.offset = offset
        self.next_offset = next_offset
        self.position = position


class SerializationError(KarrowError, ValueError):
    """A key or value could not be turned into bytes or back."""


class CommitFailed(KarrowError):
    """The offsets were not stored."""


class GroupJoinFailed(KarrowError):
    """A member has given up joining its group; ``__cause__`` is the last refusal."""


class GroupEnded(KarrowError):
    """A group of workers has ended, and not because somebody wanted it.

    ``reason`` is a ``karrow.EndReason``, ``detail`` what a handler gave as its reason or
    which callback raised where, and ``__cause__`` what was raised.
    """

    def __init__(
        self, message: str = "", *, reason: str = "", detail: object = None, **details: Any
    ) -> None:
        super().__init__(message, **details)
        self.reason = reason
        self.detail = detail


class CallbackError(KarrowError):
    """A function of the application raised; ``__cause__`` is what it raised."""


class NoOffset(KarrowError):
    """A partition has no committed offset, and ``start="none"`` says that this is an error."""


class LogTruncated(KarrowError):
    """What was read of a partition from ``offset`` on does not exist any more (KIP-320).

    A broker without it has become the leader. ``position`` is where the consumer stood.
    """

    def __init__(self, message: str = "", *, offset: int, position: int, **details: Any) -> None:
        super().__init__(message, offset=offset, **details)
        self.offset = offset
        self.position = position


class ProduceError(KarrowError):
    """A record was not, or not surely, written; ``record`` is the one the caller sent."""

    def __init__(self, message: str = "", *, record: object = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.record = record


class StaleMetadata:
    """Mixin: the cluster's metadata changed; refresh it before trying again."""


class StaleCoordinator:
    """Mixin: the coordinator moved or is loading; find it again before trying again."""


class AuthorizationError:
    """Mixin: the principal may not do this."""


class Fenced:
    """Mixin: a newer instance has taken over; this one must stop."""


class BrokerError(KarrowError):
    """An error code in a broker's answer; ``karrow.errors.for_code`` finds the class of a code.

    ``name`` is Kafka's own constant and ``description`` the same in words.
    """

    code: int = -1
    name: str = ""
    description: str = ""

    def __init_subclass__(cls) -> None:
        cls.description = cls.name.replace("_", " ").lower()

    def __init__(self, message: str = "", *, hint: str | None = None, **context: Any) -> None:
        super().__init__(message or f"{self.name}: {self.description}", hint=hint, **context)


class UnknownBrokerError(BrokerError):
    """An error code this version of karrow does not know; ``code`` keeps the number."""

    name = "UNKNOWN"

    def __init__(self, message: str = "", *, code: int, **details: Any) -> None:
        super().__init__(message or f"unknown error code {code}", **details)
        self.code = code


_E = TypeVar("_E", bound=Exception)
_B = TypeVar("_B", bound=BaseException)


class PartialError(KarrowError, ExceptionGroup[Exception]):
    """Some targets of a many-target call failed.

    ``results`` and ``errors`` hold the outcomes by the caller's own keys.
    """

    results: Mapping[Any, Any]
    errors: Mapping[Any, Exception]

    def __new__(  # noqa: D102
        cls, message: str, results: Mapping[Any, Any], errors: Mapping[Any, Exception]
    ) -> Self:
        error = super().__new__(cls, message, list(errors.values()))
        error.results = results
        error.errors = errors
        return error

    def __init__(
        self,
        message: str,  # noqa: ARG002 - a group's message is read-only, __new__ has set it
        results: Mapping[Any, Any],
        errors: Mapping[Any, Exception],
    ) -> None:
        self.hint = None
        self.context = {}
        self.results = results
        self.errors = errors

    @overload
    def derive(self, excs: Sequence[_E], /) -> ExceptionGroup[_E]: ...
    @overload
    def derive(self, excs: Sequence[_B], /) -> BaseExceptionGroup[_B]: ...
    def derive(self, excs: Sequence[Any], /) -> Any:
        """Keep the outcomes that belong to the chosen exceptions (``except*`` splits groups)."""
        kept = {key: error for key, error in self.errors.items() if error in excs}
        return PartialError(self.message, self.results, kept)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, dict(self.results), dict(self.errors))
