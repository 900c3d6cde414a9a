"""From a request to its outcome: who may ask, what trouble it meets, and its handler."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from karrow import errors
from karrow.broker.call import HANDLERS, Call, Damaged, Ending, Raw, Throttled
from karrow.broker.naming import named
from karrow.broker.refusal import refusal
from karrow.records import batches

if TYPE_CHECKING:
    from karrow.broker.cluster import Cluster
    from karrow.broker.faults import Fault

_log = logging.getLogger(__name__)

# A real broker refuses these as a whole, any other error of a fetch by partition.
FETCH_SESSION_ERRORS = (
    errors.FetchSessionIdNotFound,
    errors.InvalidFetchSessionEpoch,
    errors.FetchSessionTopicIdError,
)
REMEMBERED = 10_000
# From here on a batch's checksum tells of damage, whatever its magic. Nothing tells of damage to
# the offset and the length in front of it, which look like another log.
CHECKSUMMED = 21


class SeenRequest(NamedTuple):
    """A request that the broker received."""

    timestamp_ms: int
    broker: int
    api: str
    version: int
    client_id: str | None
    partitions: tuple[tuple[str, int | None], ...]


class Dispatcher:
    """Hands requests to their handlers, or to the trouble that is armed for them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.seen: deque[SeenRequest] = deque(maxlen=REMEMBERED)

    def __call__(self, call: Call, body: Any) -> Any:
        """What to answer: see call.Handler."""
        about = named(self._cluster, body)
        self.seen.append(
            SeenRequest(
                self._cluster.clock.time_ms(),
                call.node_id,
                call.api,
                call.version,
                call.client_id,
                tuple(about),
            )
        )
        if not call.session.allows(call.api):
            return Ending.HANGUP
        try:
            call.session.check_order(call.api)
        except errors.IllegalSaslState as error:
            if body is None:
                return Ending.HANGUP
            return refusal(call.api, call.version, body, error.code)
        fault = self._cluster.faults.take(call, about) if self._cluster.faults else None
        if fault is None:
            return self._handle(call, body)
        return self._meet(fault, call, body)

    def _handle(self, call: Call, body: Any) -> Any:
        try:
            outcome = HANDLERS[call.api](call, body)
        except Exception:  # noqa: BLE001 - one bad request must not end the broker
            return self._crashed(call, body)
        return self._guarded(call, body, outcome) if inspect.isawaitable(outcome) else outcome

    async def _guarded(self, call: Call, body: Any, outcome: Any) -> Any:
        try:
            return await outcome
        except Exception:  # noqa: BLE001 - as above
            return self._crashed(call, body)

    def _crashed(self, call: Call, body: Any) -> Any:
        _log.exception("the handler of %s version %d failed", call.api, call.version)
        if body is None:
            return Ending.HANGUP
        return refusal(call.api, call.version, body, errors.UnknownServerError.code)

    def _meet(self, fault: Fault, call: Call, body: Any) -> Any:
        match fault.kind:
            case "fail":
                outcome = self._fail(fault, call, body)
            case "raw":
                outcome = Raw(fault.data)
            case "delay":
                outcome = self._late(fault, call, body)
            case "drop":
                outcome = self._unanswered(fault, call, body, Ending.SILENCE)
            case "close":
                outcome = self._unanswered(fault, call, body, Ending.HANGUP)
            case "throttle":
                outcome = _then(self._handle(call, body), lambda a: _throttled(a, fault.seconds))
            case _:
                bit = self._cluster.random.getrandbits(31)
                outcome = _then(self._handle(call, body), lambda a: _damaged(a, bit))
        return outcome

    def _unanswered(self, fault: Fault, call: Call, body: Any, ending: Ending) -> Any:
        if fault.moment == "before":
            return ending
        return _then(self._handle(call, body), lambda _: ending)

    def _fail(self, fault: Fault, call: Call, body: Any) -> Any:
        error = fault.error or errors.UnknownServerError("injected")
        by_part = call.api == "Metadata" or (
            call.api == "Fetch" and not isinstance(error, FETCH_SESSION_ERRORS)
        )
        if by_part:
            call.failing = error
            return self._handle(call, body)
        if body is None or (call.api == "Produce" and body.acks == 0):
            return Ending.HANGUP
        return refusal(call.api, call.version, body, error.code)

    async def _late(self, fault: Fault, call: Call, body: Any) -> Any:
        if fault.moment == "before":
            await self._sleep(fault.seconds)
        outcome = self._handle(call, body)
        outcome = await outcome if inspect.isawaitable(outcome) else outcome
        if fault.moment == "after":
            await self._sleep(fault.seconds)
        return outcome

    async def _sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self._cluster.clock.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()


def _then(outcome: Any, change: Callable[[Any], Any]) -> Any:
    """What becomes of an outcome, now or when it is there."""
    if not inspect.isawaitable(outcome):
        return change(outcome)

    async def changed() -> Any:
        return change(await outcome)

    return changed()


def _throttled(answer: Any, seconds: float) -> Any:
    if answer is None or isinstance(answer, Ending):
        return answer
    if hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = round(seconds * 1000)
    return Throttled(answer, seconds)


def _damaged(answer: Any, bit: int) -> Any:
    """One bit wrong: of the record data if there is some, else of the answer itself."""
    if answer is None or isinstance(answer, Ending):
        return answer
    filled = [
        partition
        for topic in getattr(answer, "responses", ())
        for partition in getattr(topic, "partitions", ())
        if getattr(partition, "records", None)
    ]
    for partition in filled:
        found = batches(partition.records)
        hurt = found[bit % len(found)]
        end = hurt.position + hurt.size_bytes
        partition.records = flip(partition.records, bit, hurt.position + CHECKSUMMED, end)
    return answer if filled else Damaged(answer, bit)


def flip(data: bytes, bit: int, start: int, end: int | None = None) -> bytes:
    """The same bytes with one bit wrong, from ``start`` on."""
    changed = bytearray(data)
    place = start + (bit >> 3) % max(1, (end or len(changed)) - start)
    changed[place] ^= 1 << (bit & 7)
    return bytes(changed)
