"""What a broker says of batches: read from the answer to a Produce request. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from karrow.aio._produce import Written
from karrow.aio.calls.produce import FIRST_WITH_TOPIC_IDS
from karrow.errors import (
    DuplicateSequenceNumber,
    KarrowError,
    ProduceError,
    RemoteProtocolError,
    error_for,
)

if TYPE_CHECKING:
    from karrow.aio._batch import Batch
    from karrow.aio.producing.lane import Flight


class Outcome(NamedTuple):
    """What became of one batch; ``answer`` is what the broker said of it, if it did.

    Without an error it is written, and the answer says where, as far as the broker knows.
    """

    batch: Batch
    error: KarrowError | None
    answer: Any


class Place(NamedTuple):
    """Where a batch is, in the words of an answer: -1 is what the broker did not say."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


NOWHERE = Place(-1, -1, -1)


def outcomes(flight: Flight) -> list[Outcome]:
    """The outcome of every batch of a request."""
    if flight.answer is None:  # acks=0
        return [Outcome(batch, None, NOWHERE) for batch in flight.batches]
    is_all_written = isinstance(flight.answer, Written)
    said = flight.answer.partitions if is_all_written else _by_partition(flight)
    found = []
    for batch, name in zip(flight.batches, flight.names, strict=True):
        item = said.get((name, batch.partition.number))
        if item is None:
            found.append(Outcome(batch, _silence(_context(flight, batch)), None))
        elif is_all_written:
            found.append(Outcome(batch, None, Place(*item)))
        else:
            found.append(_outcome(batch, item, _context(flight, batch)))
    return found


def _by_partition(flight: Flight) -> dict[tuple[bytes, int], Any]:
    """What an answer says, by the name that the request has for a topic, and the partition."""
    by_id = flight.version >= FIRST_WITH_TOPIC_IDS
    return {
        (topic.topic_id.bytes if by_id else topic.name.encode(), item.index): item
        for topic in flight.answer.responses
        for item in topic.partition_responses
    }


def _outcome(batch: Batch, item: Any, context: dict[str, Any]) -> Outcome:
    error = error_for(item.error_code, item.error_message, **context)
    if isinstance(error, DuplicateSequenceNumber):
        # It was written before, and the broker does not know any more where.
        return Outcome(batch, None, Place(-1, item.log_append_time_ms, item.log_start_offset))
    return Outcome(batch, error, item)


def _silence(context: dict[str, Any]) -> KarrowError:
    error = RemoteProtocolError("the answer does not speak of the partition", **context)
    error.indefinite = True
    return error


def _context(flight: Flight, batch: Batch) -> dict[str, Any]:
    """What an error about a batch names."""
    return {
        "api": "Produce",
        "broker": flight.lane.broker_id,
        "topic": batch.partition.topic.name,
        "partition": batch.partition.number,
    }


def errors_of_records(
    batch: Batch, answer: Any
) -> tuple[KarrowError | None, dict[int, Any] | None]:
    """Which records were refused (KIP-467), and what that means for the others of their batch."""
    refused = {
        item.batch_index: error_for(
            answer.error_code,
            item.batch_index_error_message or answer.error_message,
            topic=batch.partition.topic.name,
            partition=batch.partition.number,
        )
        for item in getattr(answer, "record_errors", ())
    }
    if not refused:
        return None, None
    rest = ProduceError(
        f"the broker refused {len(refused)} other records of its batch, and so the whole batch",
        hint="send it again",
        topic=batch.partition.topic.name,
        partition=batch.partition.number,
    )
    rest.retriable = True
    return rest, refused
