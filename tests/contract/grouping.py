"""Requests of the group APIs, shortened to what tests look at."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

from karrow import errors, wire
from tests.fix_any import AnyKafka

PATIENCE = 20.0
RANGE = "range"


def new_id() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def name_of(code: int) -> str:
    """An error's name; none is nothing."""
    return errors.for_code(code).name if code else ""


def until(look: Callable[[], Any], condition: Callable[[Any], bool]) -> Any:
    """Look until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)
    return seen


class Joined(NamedTuple):
    """An answer to JoinGroup."""

    error: str
    generation: int
    protocol: str | None
    leader: str
    member: str
    skip: bool
    members: dict[str, bytes]


class Beaten(NamedTuple):
    """An answer to ConsumerGroupHeartbeat; partitions of all topics, if it tells some."""

    error: str
    epoch: int
    partitions: list[int] | None
    member: str | None


class Peer:
    """One connection to a broker, and the group APIs over it."""

    def __init__(self, kafka: AnyKafka, group: str) -> None:
        self.kafka = kafka
        self.group = group
        self._connection = kafka.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def newest(self, api: str) -> int:
        return self._connection.newest(api)

    def versions(self, api: str) -> list[int]:
        low, high = self._connection.api_versions()[api]
        return [version for version in wire.api(api).versions if low <= version <= high]

    def ask(self, api: str, body: Mapping[str, Any], version: int | None = None) -> Any:
        return self._connection.request(api, dict(body), version)

    def wait_until_coordinated(self) -> None:
        """A real broker makes the topic for groups when it is first asked, which takes a moment."""

        def look() -> str:
            key = (
                {"key": self.group}
                if self.newest("FindCoordinator") < 4
                else {"coordinator_keys": [self.group]}
            )
            self.ask("FindCoordinator", {"key_type": 0, **key})
            return self.heartbeat("nobody", 1)

        # While the group is being loaded, every heartbeat is accepted.
        until(look, lambda error: error == "UNKNOWN_MEMBER_ID")

    # The classic protocol.

    def send_join(self, member: str = "", version: int | None = None, **more: Any) -> None:
        version = self.newest("JoinGroup") if version is None else version
        body = {
            "group_id": self.group,
            "session_timeout_ms": 10_000,
            "member_id": member,
            "protocol_type": "consumer",
            "protocols": [(RANGE, subscription("nothing"))],
            **more,
        }
        if version >= 1:
            body.setdefault("rebalance_timeout_ms", 10_000)
        body["protocols"] = [{"name": name, "metadata": data} for name, data in body["protocols"]]
        self._connection.send("JoinGroup", version, body)

    def receive_join(self) -> Joined:
        answer = self._connection.receive()
        return Joined(
            name_of(answer.error_code),
            answer.generation_id,
            answer.protocol_name,
            answer.leader,
            answer.member_id,
            answer.skip_assignment,
            {member.member_id: bytes(member.metadata) for member in answer.members},
        )

    def join(self, member: str = "", version: int | None = None, **more: Any) -> Joined:
        self.send_join(member, version, **more)
        return self.receive_join()

    def enter(self, **more: Any) -> Joined:
        """Join as a new member, with the id that the broker gives."""
        joined = self.join(**more)
        return self.join(joined.member, **more) if joined.error == "MEMBER_ID_REQUIRED" else joined

    def send_sync(
        self,
        joined: Joined,
        assignments: Mapping[str, bytes] | None = None,
        version: int | None = None,
        **more: Any,
    ) -> None:
        version = self.newest("SyncGroup") if version is None else version
        body = {
            "group_id": self.group,
            "generation_id": joined.generation,
            "member_id": joined.member,
            "assignments": [
                {"member_id": member, "assignment": data}
                for member, data in (assignments or {}).items()
            ],
            **more,
        }
        if version >= 5:
            body = {"protocol_type": "consumer", "protocol_name": joined.protocol, **body}
        self._connection.send("SyncGroup", version, body)

    def receive_sync(self) -> tuple[str, bytes]:
        answer = self._connection.receive()
        return name_of(answer.error_code), bytes(answer.assignment)

    def sync(self, *args: Any, **more: Any) -> tuple[str, bytes]:
        self.send_sync(*args, **more)
        return self.receive_sync()

    def settle(self, **more: Any) -> Joined:
        """Be the only member of a stable group."""
        joined = self.enter(**more)
        assert self.sync(joined, {joined.member: b"mine"}) == ("", b"mine")
        return joined

    def heartbeat(
        self, member: str, generation: int, version: int | None = None, **more: Any
    ) -> str:
        body = {"group_id": self.group, "member_id": member, "generation_id": generation, **more}
        return name_of(self.ask("Heartbeat", body, version).error_code)

    def leave(self, *members: tuple[str, str | None]) -> list[str]:
        """Leave as one of several; an error for each, or the one of the request."""
        body = {
            "group_id": self.group,
            "members": [{"member_id": id_, "group_instance_id": i} for id_, i in members],
        }
        answer = self.ask("LeaveGroup", body)
        if answer.error_code:
            return [name_of(answer.error_code)]
        return [name_of(member.error_code) for member in answer.members]

    # The consumer protocol.

    def beat(self, member: str, epoch: int, version: int | None = None, **more: Any) -> Beaten:
        body = {"group_id": self.group, "member_id": member, "member_epoch": epoch, **more}
        answer = self.ask("ConsumerGroupHeartbeat", body, version)
        partitions = None
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            partitions = sorted(index for topic in topics for index in topic.partitions)
        return Beaten(name_of(answer.error_code), answer.member_epoch, partitions, answer.member_id)

    def subscribe(self, member: str, topics: Iterable[str], **more: Any) -> Beaten:
        """The first heartbeat of a member, or the first after it was fenced."""
        wish = {
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
        }
        return self.beat(member, 0, **{**wish, **more})

    # Administration.

    def describe(self, version: int | None = None) -> tuple[str, str, str, int]:
        """Error, state, protocol and number of members."""
        answer = self.ask("DescribeGroups", {"groups": [self.group]}, version).groups[0]
        error = name_of(answer.error_code)
        return error, answer.group_state, answer.protocol_data, len(answer.members)

    def listed(self, version: int | None = None, **filters: Any) -> Any:
        """The group as ListGroups has it, None if it is not there."""
        groups = self.ask("ListGroups", filters, version).groups
        return next((group for group in groups if group.group_id == self.group), None)

    def delete(self, *groups: str, version: int | None = None) -> list[str]:
        body = {"groups_names": list(groups or [self.group])}
        results = self.ask("DeleteGroups", body, version).results
        found = {result.group_id: name_of(result.error_code) for result in results}
        return [found[group] for group in groups or [self.group]]

    # Offsets.

    def commit(
        self,
        topic: str,
        offsets: Mapping[int, int],
        member: str = "",
        generation: int = -1,
        version: int | None = None,
        metadata: str | None = "",
        **more: Any,
    ) -> list[str]:
        """Store offsets by partition; an error for each."""
        version = min(self.newest("OffsetCommit"), 9) if version is None else version
        body: dict[str, Any] = {"group_id": self.group, **more}
        if version >= 1:
            body |= {"generation_id_or_member_epoch": generation, "member_id": member}
        named = {"topic_id": self.topic_id(topic)} if version >= 10 else {"name": topic}
        body["topics"] = [
            {
                **named,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": offset,
                        "committed_metadata": metadata,
                    }
                    for index, offset in offsets.items()
                ],
            }
        ]
        partitions = self.ask("OffsetCommit", body, version).topics[0].partitions
        found = {item.partition_index: name_of(item.error_code) for item in partitions}
        return [found[index] for index in offsets]

    def fetch(
        self,
        wanted: Mapping[str, Iterable[int]] | None,
        version: int | None = None,
        member: str | None = None,
        epoch: int = -1,
        stable: bool = False,
    ) -> dict[tuple[str, int], tuple[int, str | None, str]] | str:
        """Offset, metadata and error by topic and partition; or the error of all."""
        version = min(self.newest("OffsetFetch"), 9) if version is None else version
        ids: dict[Any, str] = {}
        if version >= 10:
            ids = {self.topic_id(topic): topic for topic in wanted or ()}
        topics = (
            None
            if wanted is None
            else [
                {
                    **({"topic_id": self.topic_id(name)} if version >= 10 else {"name": name}),
                    "partition_indexes": list(partitions),
                }
                for name, partitions in wanted.items()
            ]
        )
        body: dict[str, Any] = {"group_id": self.group, "topics": topics}
        if version >= 8:
            body = {"groups": [body]}
        if version >= 7:
            body["require_stable"] = stable
        if version >= 9:
            body["groups"][0] |= {"member_id": member, "member_epoch": epoch}
        answer = self.ask("OffsetFetch", body, version)
        answer = answer.groups[0] if version >= 8 else answer
        if version >= 2 and answer.error_code:
            return name_of(answer.error_code)
        return {
            (ids.get(topic.topic_id, "?") if version >= 10 else topic.name, item.partition_index): (
                item.committed_offset,
                item.metadata,
                name_of(item.error_code),
            )
            for topic in answer.topics
            for item in topic.partitions
        }

    def delete_offsets(self, topic: str, partition: int = 0) -> str:
        """The error of the request, or of the partition."""
        named = {"name": topic, "partitions": [{"partition_index": partition}]}
        answer = self.ask("OffsetDelete", {"group_id": self.group, "topics": [named]})
        if answer.error_code:
            return name_of(answer.error_code)
        return name_of(answer.topics[0].partitions[0].error_code)

    def topic_id(self, topic: str) -> uuid.UUID:
        found: uuid.UUID = self.ask("Metadata", {"topics": [{"name": topic}]}).topics[0].topic_id
        return found


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself."""
    return wire.encode_subscription({"topics": list(topics)}, 0)
