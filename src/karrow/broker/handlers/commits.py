"""OffsetCommit, OffsetFetch, OffsetDelete: what groups have stored.

OffsetCommit: version 1 has a time for each partition, 2 to 4 a retention, 6 leader epochs, 7 static
members, 9 member epochs (KIP-848), 10 topic ids. OffsetFetch: 2 everything with null, 7 stable
offsets only (KIP-447), 8 several groups in another layout, 9 member epochs, 10 topic ids.
Version 0 of both meant ZooKeeper; here it means the same as version 1.
"""

from __future__ import annotations

from collections import defaultdict

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.groups import Commit, Place
from karrow.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from karrow.wire.structs import NO_UUID

Item = OffsetCommitRequest.OffsetCommitRequestPartition
Committed = OffsetCommitResponse.OffsetCommitResponsePartition
CommittedTopic = OffsetCommitResponse.OffsetCommitResponseTopic
Fetched = OffsetFetchResponse.OffsetFetchResponsePartitions
FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopics
FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup
WantedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
WantedTopic = OffsetFetchRequest.OffsetFetchRequestTopics
MAX_METADATA = 4096
BY_ID = 10
DEFAULT_RETENTION = -1
NOTHING = Commit(-1)


@handles("OffsetCommit")
def offset_commit(call: Call, body: OffsetCommitRequest) -> OffsetCommitResponse:
    """Every partition succeeds or fails by itself, once the member may store anything."""
    answer = OffsetCommitResponse()
    wanted: list[tuple[Place, Item, Committed]] = []
    for topic in body.topics:
        told = CommittedTopic(name=topic.name, topic_id=topic.topic_id)
        answer.topics.append(told)
        for item in topic.partitions:
            outcome = Committed(partition_index=item.partition_index)
            told.partitions.append(outcome)
            try:
                wanted.append((_place(call, topic, item), item, outcome))
            except errors.BrokerError as error:
                outcome.error_code = error.code
    # As on a real broker, the group is not asked about what is not there.
    if wanted:
        _store(call, body, wanted)
    return answer


def _place(call: Call, topic: OffsetCommitRequest.OffsetCommitRequestTopic, item: Item) -> Place:
    name = call.cluster.topic_by_id(topic.topic_id).name if by_id(call) else topic.name
    call.check_fault(name, item.partition_index)
    call.cluster.partition(name, item.partition_index)
    return name, item.partition_index


def _store(
    call: Call, body: OffsetCommitRequest, wanted: list[tuple[Place, Item, Committed]]
) -> None:
    try:
        call.cluster.check_coordinator(call.node_id, body.group_id)
        call.cluster.groups.check_commit(
            body.group_id,
            body.member_id,
            body.group_instance_id,
            body.generation_id_or_member_epoch,
            places=[place for place, _, _ in wanted],
            knows_epochs=call.version >= 9,
        )
    except errors.BrokerError as error:
        for _, _, outcome in wanted:
            outcome.error_code = error.code
        return
    accepted: dict[Place, Commit] = {}
    for place, item, outcome in wanted:
        try:
            accepted[place] = _commit(call, body, item)
        except errors.BrokerError as error:
            outcome.error_code = error.code
    call.cluster.groups.commit(body.group_id, accepted)


def _commit(call: Call, body: OffsetCommitRequest, item: Item) -> Commit:
    metadata = item.committed_metadata or ""
    if len(metadata) > MAX_METADATA:
        raise errors.OffsetMetadataTooLarge(f"at most {MAX_METADATA} characters are kept")
    now = call.cluster.clock.time_ms()
    keeps = 2 <= call.version <= 4 and body.retention_time_ms != DEFAULT_RETENTION
    expires = now + body.retention_time_ms if keeps else None
    return Commit(item.committed_offset, item.committed_leader_epoch, metadata, now, expires)


def by_id(call: Call) -> bool:
    """Whether topics go by their ids in this version."""
    return call.version >= BY_ID


@handles("OffsetFetch")
def offset_fetch(call: Call, body: OffsetFetchRequest) -> OffsetFetchResponse:
    """One group before version 8, several from then on."""
    if call.version >= 8:
        return OffsetFetchResponse(groups=[_fetch(call, body, group) for group in body.groups])
    topics = body.topics
    wanted = (
        None
        if topics is None
        else [
            WantedTopic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ]
    )
    found = _fetch(call, body, WantedGroup(group_id=body.group_id, topics=wanted))
    return _old_answer(call, body, found)


def _old_answer(call: Call, body: OffsetFetchRequest, found: FetchedGroup) -> OffsetFetchResponse:
    """Versions 0 and 1 have an error for each partition only."""
    topics = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=item.partition_index,
                    committed_offset=item.committed_offset,
                    committed_leader_epoch=item.committed_leader_epoch,
                    metadata=item.metadata,
                    error_code=item.error_code,
                )
                for item in topic.partitions
            ],
        )
        for topic in found.topics
    ]
    if call.version >= 2:
        return OffsetFetchResponse(error_code=found.error_code, topics=topics)
    if found.error_code:
        topics = [
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=found.error_code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in body.topics or ()
        ]
    return OffsetFetchResponse(topics=topics)


def _fetch(call: Call, body: OffsetFetchRequest, wanted: WantedGroup) -> FetchedGroup:
    answer = FetchedGroup(group_id=wanted.group_id)
    try:
        call.cluster.check_coordinator(call.node_id, wanted.group_id)
        call.cluster.groups.check_fetch(wanted.group_id, wanted.member_id, wanted.member_epoch)
    except errors.BrokerError as error:
        answer.error_code = error.code
        return answer
    topics = _everything(call, wanted.group_id) if wanted.topics is None else wanted.topics
    answer.topics = [_fetch_topic(call, body, wanted.group_id, topic) for topic in topics]
    return answer


def _everything(call: Call, group_id: str) -> list[WantedTopic]:
    partitions: dict[str, list[int]] = defaultdict(list)
    for name, index in call.cluster.groups.offsets.of(group_id):
        partitions[name].append(index)
    topics = call.cluster.topics
    return [
        WantedTopic(name=name, topic_id=topics[name].id, partition_indexes=indexes)
        for name, indexes in partitions.items()
        if name in topics
    ]


def _fetch_topic(
    call: Call, body: OffsetFetchRequest, group_id: str, topic: WantedTopic
) -> FetchedTopic:
    name, error_code = topic.name, 0
    if by_id(call):
        try:
            name = call.cluster.topic_by_id(topic.topic_id).name
        except errors.UnknownTopicId as error:
            error_code = error.code
    answer = FetchedTopic(
        name=name, topic_id=topic.topic_id if by_id(call) else NO_UUID, partitions=[]
    )
    for index in topic.partition_indexes:
        partition = Fetched(partition_index=index, error_code=error_code)
        offsets = call.cluster.groups.offsets
        commit = NOTHING if error_code else offsets.of(group_id).get((name, index), NOTHING)
        if body.require_stable and offsets.is_pending(group_id, (name, index)):
            partition.error_code = errors.UnstableOffsetCommit.code
            commit = NOTHING
        partition.committed_offset = commit.offset
        partition.committed_leader_epoch = commit.leader_epoch
        partition.metadata = commit.metadata
        answer.partitions.append(partition)
    return answer


@handles("OffsetDelete")
def offset_delete(call: Call, body: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Forget offsets of topics that no member wants."""
    try:
        call.cluster.check_coordinator(call.node_id, body.group_id)
        if not body.group_id:
            raise errors.InvalidGroupId("a group's id must not be empty")
        call.cluster.groups.find(body.group_id).check_offset_delete()
    except errors.BrokerError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    _delete(call, body.group_id, (topic.name, item.partition_index))
                    for item in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _delete(
    call: Call, group_id: str, place: Place
) -> OffsetDeleteResponse.OffsetDeleteResponsePartition:
    answer = OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=place[1])
    try:
        call.cluster.partition(*place)
        call.cluster.groups.delete_offset(group_id, place)
    except errors.BrokerError as error:
        answer.error_code = error.code
    return answer
