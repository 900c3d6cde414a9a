"""Fetch: record batches out of logs, now or when there are enough.

Versions: 4 isolation and aborted transactions, 5 log start, 7 sessions (KIP-227), 9 leader epoch,
11 rack, 12 last fetched epoch, 13 topic ids, 15 replica state in a tag, 16 leader hints (KIP-951).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.conversion import down_convert
from karrow.broker.topic import Partition, Signal
from karrow.wire.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from karrow.broker.fetching import Answered, FetchSession, Wanted

PartitionAnswer = FetchResponse.PartitionData
Leader = FetchResponse.LeaderIdAndEpoch
COMMITTED = 1
# Who leads instead, from this version on and with these errors.
HINTING = 16
HINTED = (errors.NotLeaderOrFollower, errors.FencedLeaderEpoch)
ABSENT = {errors.UnknownTopicOrPartition.code, errors.UnknownTopicId.code}


@handles("Fetch")
def fetch(call: Call, body: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    """Answer at once when there is enough or an error, else wait."""
    try:
        session = call.cluster.fetch_sessions.open(call.node_id, call.version, body)
    except errors.BrokerError as error:
        return FetchResponse(error_code=error.code)
    answered = _read_all(call, body, session.wanted.values())
    if body.max_wait_ms <= 0 or _is_enough(body, answered):
        return _answer(call, session, answered)
    return _wait(call, body, session)


async def _wait(call: Call, body: FetchRequest, session: FetchSession) -> FetchResponse:
    with Signal(_watched(call, session.wanted.values())) as signal:
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True
            signal.set()

        timer = call.cluster.clock.call_later(body.max_wait_ms / 1000, end)
        try:
            while True:  # looks first: something may have come before this began to watch
                answered = _read_all(call, body, session.wanted.values())
                if is_over or _is_enough(body, answered):
                    return _answer(call, session, answered)
                await signal.wait()
        finally:
            timer.cancel()


def _watched(call: Call, wanted: Iterable[Wanted]) -> list[Partition]:
    found = []
    for item in wanted:
        try:
            found.append(call.cluster.partition(_name(call, item), item.partition))
        except errors.BrokerError:
            continue
    return found


def _is_enough(body: FetchRequest, answered: Answered) -> bool:
    """What does not exist is not waited for, and does not end the wait for what does."""
    there = [answer for _, answer in answered if answer.error_code not in ABSENT]
    size = sum(len(answer.records or b"") for answer in there)
    failed = any(answer.error_code or answer.diverging_epoch.epoch >= 0 for answer in there)
    return failed or not there or size >= body.min_bytes


def _answer(call: Call, session: FetchSession, answered: Answered) -> FetchResponse:
    answer = session.answer(answered)
    if any(partition.current_leader.leader_id >= 0 for _, partition in answered):
        answer.node_endpoints = [
            FetchResponse.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port)
            for node in call.cluster.visible
        ]
    return answer


def _read_all(call: Call, body: FetchRequest, wanted: Iterable[Wanted]) -> Answered:
    """Read each partition in turn; the first batch of all comes whole, whatever the limits."""
    left = body.max_bytes if call.version >= 3 else 0x7FFFFFFF
    found: Answered = []
    nothing_yet = True
    for item in wanted:
        answer = _read(call, body, item, left, whole=nothing_yet)
        size = len(answer.records or b"")
        left -= size
        nothing_yet = nothing_yet and not size
        found.append((item, answer))
    return found


def _read(
    call: Call, body: FetchRequest, item: Wanted, left: int, *, whole: bool
) -> PartitionAnswer:
    try:
        partition = _partition(call, item)
        return _read_partition(call, body, item, partition, left, whole=whole)
    except errors.BrokerError as error:
        answer = PartitionAnswer(
            partition_index=item.partition,
            error_code=error.code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            records=b"",
        )
        if call.version >= HINTING and isinstance(error, HINTED):
            known = call.cluster.partition(_name(call, item), item.partition)
            answer.current_leader = Leader(leader_id=known.leader, leader_epoch=known.leader_epoch)
        return answer


def _read_partition(
    call: Call,
    body: FetchRequest,
    item: Wanted,
    partition: Partition,
    left: int,
    *,
    whole: bool,
) -> PartitionAnswer:
    log = partition.log
    answer = PartitionAnswer(
        partition_index=item.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=None,
        records=b"",
    )
    if item.last_fetched_epoch >= 0 and _diverges(item, partition, answer):
        return answer
    if not log.start_offset <= item.offset <= partition.high_watermark:
        raise errors.OffsetOutOfRange(
            f"the log reaches from {log.start_offset} to {log.end_offset}"
        )
    committed = body.isolation_level == COMMITTED
    before = partition.last_stable_offset if committed else partition.high_watermark
    data = log.read(item.offset, min(item.max_bytes, left), before, whole=whole)
    answer.records = down_convert(data, call.version)
    if committed:
        end = partition.last_stable_offset
        answer.aborted_transactions = (
            [
                FetchResponse.AbortedTransaction(
                    producer_id=gone.producer_id, first_offset=gone.first_offset
                )
                for gone in partition.producers.aborted_between(item.offset, end)
            ]
            if data
            else []
        )
    return answer


def _diverges(item: Wanted, partition: Partition, answer: PartitionAnswer) -> bool:
    """Whether the reader has read what the log does not have any more (KIP-595)."""
    epoch, end = partition.log.epoch_end(item.last_fetched_epoch, partition.leader_epoch)
    if epoch < 0:
        raise errors.OffsetOutOfRange("the reader knows an epoch that never was")
    if epoch == item.last_fetched_epoch and end >= item.offset:
        return False
    answer.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
    return True


def _partition(call: Call, item: Wanted) -> Partition:
    name = _name(call, item)
    call.check_fault(name, item.partition)
    partition = call.cluster.partition(name, item.partition)
    # A follower may answer consumers that say where they are (KIP-392).
    follower = call.version >= 11 and call.node_id in partition.isr
    node_id = partition.leader if follower else call.node_id
    return call.cluster.led_by(node_id, name, item.partition, item.leader_epoch)


def _name(call: Call, item: Wanted) -> str:
    if call.version >= 13:
        return call.cluster.topic_by_id(item.topic_id).name
    return item.topic
