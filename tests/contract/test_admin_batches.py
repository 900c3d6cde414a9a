"""Many groups in few requests: one to each coordinator, where its release can carry them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import karrow
from karrow import errors, wire
from karrow.types import TopicPartition
from tests.contract.scripted import Answer, ScriptedBroker

GROUPS = [f"group-{number}" for number in range(6)]
EVERYTHING = {
    name: (item.versions[0], item.newest_stable or 0) for name, item in wire.apis().items()
}
ONE_BY_ONE = {**EVERYTHING, "FindCoordinator": (0, 3), "OffsetFetch": (0, 7)}
# DescribeGroups v6 has an error for groups that are not there; before, they were dead.
DEAD_MEANS_ABSENT = {**EVERYTHING, "DescribeGroups": (0, 5)}


class Coordinators:
    """Two brokers that coordinate the even and the odd groups."""

    def __init__(self, supported: dict[str, tuple[int, int]]) -> None:
        self.brokers = [ScriptedBroker(supported=supported, node_id=number) for number in (0, 1)]
        self.asked: list[tuple[str, int, list[str]]] = []
        self.homeless: set[str] = set()
        self.new: set[str] = set()
        self.new_refusal = errors.GroupIdNotFound.code
        for broker in self.brokers:
            broker.handlers["FindCoordinator"] = self.find
            for name in ("DescribeGroups", "ConsumerGroupDescribe", "OffsetFetch"):
                broker.handlers[name] = self.handler(name, broker)

    def handler(self, name: str, broker: ScriptedBroker) -> Any:
        def handle(request: wire.Request) -> Answer:
            groups = self.named(request)
            self.asked.append((name, broker.node_id, groups))
            return self.answer(name, request.version, groups)

        return handle

    def named(self, request: wire.Request) -> list[str]:
        body = request.body
        if request.api.name == "DescribeGroups":
            return list(body.groups)
        if request.api.name == "ConsumerGroupDescribe":
            return list(body.group_ids)
        return [one.group_id for one in body.groups] or [body.group_id]

    def answer(self, name: str, version: int, groups: list[str]) -> Answer:
        if name == "OffsetFetch":
            part = {"partition_index": 0, "committed_offset": 7, "metadata": ""}
            topics = [{"name": "t", "partitions": [part]}]
            if version < 8:
                return {"topics": topics}
            return {"groups": [{"group_id": group, "topics": topics} for group in groups]}
        if name == "DescribeGroups":
            absent = {"error_code": 69} if version >= 6 else {"group_state": "Dead"}
            return {
                "groups": [
                    {
                        "group_id": group,
                        **(absent if group in self.new else {"group_state": "Empty"}),
                    }
                    for group in groups
                ]
            }
        found = {"group_state": "Stable", "group_epoch": 3}
        refused = {"error_code": self.new_refusal}
        known = self.new if self.new_refusal == errors.GroupIdNotFound.code else set()
        return {
            "groups": [
                {"group_id": group, **(found if group in known - {"group-5"} else refused)}
                for group in groups
            ]
            # 3.9 answers more than once, and means only one of them.
            + [{"group_id": group, "error_code": self.new_refusal} for group in groups]
        }

    def find(self, request: wire.Request) -> Answer:
        if request.version < 4:
            return self.place(request.body.key)
        return {
            "coordinators": [
                {"key": key, **self.place(key)} for key in request.body.coordinator_keys
            ]
        }

    def place(self, group: str) -> dict[str, Any]:
        if group in self.homeless:
            return {"error_code": errors.CoordinatorNotAvailable.code}
        return self.brokers[int(group[-1]) % 2].me

    def count(self, name: str) -> int:
        return sum(broker.seen.count(name) for broker in self.brokers)


@asynccontextmanager
async def served(
    supported: dict[str, tuple[int, int]] = EVERYTHING,
) -> AsyncIterator[tuple[Coordinators, karrow.AsyncAdmin]]:
    both = Coordinators(supported)
    async with both.brokers[0] as first, both.brokers[1] as second:
        first.brokers = second.brokers = [first.me, second.me]
        async with karrow.AsyncAdmin(first.bootstrap, api_timeout=5.0) as admin:
            yield both, admin


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 30))


def test_groups_are_described_in_one_request_to_each_coordinator() -> None:
    async def main() -> None:
        async with served() as (both, admin):
            found = await admin.describe_groups(GROUPS)
            assert list(found) == GROUPS
            assert [one.coordinator_id for one in found.values()] == [0, 1, 0, 1, 0, 1]
            assert both.count("FindCoordinator") == 1
            assert sorted(both.asked) == [
                ("DescribeGroups", 0, GROUPS[::2]),
                ("DescribeGroups", 1, GROUPS[1::2]),
            ]

    run(main())


def test_offsets_are_listed_in_one_request_to_each_coordinator() -> None:
    async def main() -> None:
        async with served() as (both, admin):
            found = await admin.list_groups_offsets(GROUPS, {"t": [0]})
            assert {group: one[TopicPartition("t", 0)].offset for group, one in found.items()} == (
                dict.fromkeys(GROUPS, 7)
            )
            assert both.count("FindCoordinator") == 1
            assert sorted(both.asked) == [
                ("OffsetFetch", 0, GROUPS[::2]),
                ("OffsetFetch", 1, GROUPS[1::2]),
            ]

    run(main())


def test_older_brokers_are_asked_group_by_group() -> None:
    async def main() -> None:
        async with served(ONE_BY_ONE) as (both, admin):
            assert list(await admin.list_groups_offsets(GROUPS)) == GROUPS
            assert both.count("FindCoordinator") == len(GROUPS)
            assert sorted(groups for _, _, groups in both.asked) == [[group] for group in GROUPS]
            both.asked.clear()
            assert list(await admin.describe_groups(GROUPS)) == GROUPS
            assert len(both.asked) == 2  # what this request can carry in every version

    run(main())


def test_group_without_a_coordinator_fails_alone() -> None:
    async def main() -> None:
        async with served() as (both, admin):
            both.homeless = {"group-3"}
            for call in (admin.describe_groups, admin.list_groups_offsets):
                with pytest.raises(errors.PartialError) as caught:
                    await call(GROUPS, retries=0)
                assert len(caught.value.results) == 5
                assert isinstance(caught.value.errors["group-3"], errors.CoordinatorNotAvailable)
            # It may get one while the call lasts.
            waiting = asyncio.create_task(admin.describe_groups(GROUPS))
            await asyncio.sleep(0.15)
            both.homeless.clear()
            assert list(await waiting) == GROUPS

    run(main())


@pytest.mark.parametrize("supported", [EVERYTHING, DEAD_MEANS_ABSENT], ids=["4.0", "3.9"])
def test_groups_of_the_new_protocol_are_asked_for_together(
    supported: dict[str, tuple[int, int]],
) -> None:
    async def main() -> None:
        async with served(supported) as (both, admin):
            both.new = {"group-1", "group-3"}
            found = await admin.describe_groups(GROUPS)
            assert [one.type for one in found.values()].count("consumer") == 2
            assert (found["group-3"].state, found["group-3"].epoch) == ("Stable", 3)
            assert ("ConsumerGroupDescribe", 1, ["group-1", "group-3"]) in both.asked
            assert both.count("ConsumerGroupDescribe") == 1

    run(main())


@pytest.mark.parametrize("supported", [EVERYTHING, DEAD_MEANS_ABSENT], ids=["4.0", "3.9"])
@pytest.mark.parametrize("switched_off", [True, False])
def test_group_that_neither_protocol_knows(
    supported: dict[str, tuple[int, int]], switched_off: bool
) -> None:
    async def main() -> None:
        async with served(supported) as (both, admin):
            both.new = {"group-5"}
            if switched_off:
                both.new_refusal = errors.UnsupportedVersion.code
            if supported is DEAD_MEANS_ABSENT:
                assert (await admin.describe_group("group-5")).state == "Dead"
            else:
                with pytest.raises(errors.GroupIdNotFound):
                    await admin.describe_group("group-5")

    run(main())
