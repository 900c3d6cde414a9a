"""What a broker says of batches: read from the answer to a Produce request. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from karrow.errors import KarrowError, ProduceError, RemoteProtocolError, error_for

if TYPE_CHECKING:
    from karrow.aio._batch import Batch
    from karrow.aio.producing.lane import Flight


class Outcome(NamedTuple):
    """What became of one batch; ``answer`` is what the broker said of it, if it did."""

    batch: Batch
    error: KarrowError | None
    answer: Any


class Place(NamedTuple):
    """Where a batch is, in the words of an answer: -1 is what the broker did not say."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


def outcomes(flight: Flight, first_with_ids: int) -> list[Outcome]:
    """The outcome of every batch of a request."""
    by_id = flight.version >= first_with_ids
    said = {
        (topic.topic_id.bytes if by_id else topic.name.encode(), item.index): item
        for topic in flight.answer.responses
        for item in topic.partition_responses
    }
    found = []
    for batch, name in zip(flight.batches, flight.names, strict=True):
        topic, partition = batch.partition.topic.name, batch.partition.number
        context: dict[str, Any] = {
            "api": "Produce",
            "broker": flight.lane.broker_id,
            "topic": topic,
            "partition": partition,
        }
        item = said.get((name, partition))
        error: KarrowError | None
        if item is None:
            error = RemoteProtocolError("the answer does not speak of the partition", **context)
            error.indefinite = True
        else:
            error = error_for(item.error_code, item.error_message, **context)
        found.append(Outcome(batch, error, item))
    return found


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
