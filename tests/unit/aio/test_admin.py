"""Admin without a broker: which requests a call becomes, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import karrow
from karrow import errors, wire
from karrow.aio.calls.base import Reply, Request
from karrow.net.connection import Peer
from karrow.net.versions import BrokerVersions
from karrow.types import (
    AclFilter,
    BrokerInfo,
    ClusterMetadata,
    ConfigResource,
    Node,
    ProducerState,
    TopicPartition,
)
from tests.unit.net.virtual import run

BROKERS = {number: BrokerInfo(number, f"b{number}", 9092) for number in (1, 2)}
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Versions(BrokerVersions):
    """Has everything that we have, unless told otherwise."""

    def __init__(self, lacks: Iterable[str] = ()) -> None:
        known = {name: (one.versions[0], one.versions[-1]) for name, one in wire.apis().items()}
        super().__init__({name: span for name, span in known.items() if name not in set(lacks)})


class Link:
    """A connection that leads nowhere."""

    def __init__(self, broker_id: int, versions: BrokerVersions) -> None:
        self.peer = Peer(f"b{broker_id}", 9092, broker_id)
        self.versions = versions


class Cache:
    def forget(self, topic: str) -> None:
        pass


class Map:
    """A cluster in which tests say who is where: brokers by selector, anything else is at 1."""

    def __init__(self, places: dict[Node, int], versions: BrokerVersions) -> None:
        self.places = places
        self.moves: dict[Node, int] = {}
        self.cache = Cache()
        self.versions = versions

    async def broker(self, to: Node) -> BrokerInfo:
        await asyncio.sleep(0)
        return BROKERS[self.places.get(to, to.broker_id if to.kind == "id" else 1)]

    async def connection(self, to: Node, **_: object) -> Link:
        return Link((await self.broker(to)).id, self.versions)

    async def find_coordinators(self, _: Iterable[Node]) -> dict[Node, errors.KarrowError]:
        return {}

    async def refresh(self, _: object, **__: object) -> ClusterMetadata:
        return ClusterMetadata(BROKERS)

    def learn(self, error: BaseException, to: Node, *_: object) -> None:
        if isinstance(error, errors.StaleCoordinator | errors.StaleMetadata) and to in self.moves:
            self.places[to] = self.moves[to]


class Scripted(karrow.AsyncAdmin):
    """Keeps what it would send, and gets its answers from the test."""

    def __init__(
        self,
        answer: Callable[[str, int, dict[str, Any]], dict[str, Any]],
        places: dict[Node, int] | None = None,
        lacks: Iterable[str] = (),
    ) -> None:
        super().__init__("b1:9092")
        self.map = Map(places or {}, Versions(lacks))
        self._cluster: Any = self.map
        self.answer = answer
        self.sent: list[tuple[str, int, dict[str, Any]]] = []

    async def _send(self, request: Request) -> Reply:
        link: Any = await self.map.connection(request.to)
        version = link.versions.choose(request.name, request.api_version, most=request.most)
        body: Any = request.body(version, link)
        wire.encode(request.name, version, body)
        self.sent.append((request.name, link.peer.broker_id, body))
        answer = self.answer(request.name, link.peer.broker_id, body)
        data = wire.encode(request.name, version, answer, kind="response")
        return Reply(wire.decode(request.name, version, data), version, link)


def group_answer(codes: dict[str, int]) -> Callable[[str, int, dict[str, Any]], dict[str, Any]]:
    def answer(_: str, __: int, body: dict[str, Any]) -> dict[str, Any]:
        names = body["groups_names"]
        return {"results": [{"group_id": name, "error_code": codes.pop(name, 0)} for name in names]}

    return answer


def test_groups_are_split_by_coordinator() -> None:
    places = {Node.coordinator(name): place for name, place in (("a", 1), ("b", 2), ("c", 1))}
    admin = Scripted(group_answer({}), places)
    run(admin.delete_groups(["a", "b", "c"]))
    assert sorted((broker, body["groups_names"]) for _, broker, body in admin.sent) == [
        (1, ["a", "c"]),
        (2, ["b"]),
    ]


def test_only_the_group_that_moved_is_asked_for_again() -> None:
    places = {Node.coordinator("a"): 1, Node.coordinator("b"): 1}
    admin = Scripted(group_answer({"b": errors.NotCoordinator.code}), places)
    admin.map.moves[Node.coordinator("b")] = 2
    run(admin.delete_groups(["a", "b"]))
    asked = [(broker, body["groups_names"]) for _, broker, body in admin.sent]
    assert asked == [(1, ["a", "b"]), (2, ["b"])]


def test_failures_are_named_and_the_rest_is_done() -> None:
    admin = Scripted(group_answer({"a": errors.NonEmptyGroup.code}))
    with pytest.raises(errors.PartialError) as caught:
        run(admin.delete_groups(["a", "b"]))
    assert list(caught.value.results) == ["b"]
    assert caught.value.errors["a"].context["group"] == "a"  # type: ignore[attr-defined]
    assert len(admin.sent) == 1


def test_answer_without_the_group_breaks_the_protocol() -> None:
    admin = Scripted(lambda *_: {"results": []})
    with pytest.raises(errors.RemoteProtocolError, match="the answer lacks a"):
        run(admin.delete_group("a"))


def test_wrong_controller_is_left_and_an_absent_topic_is_final() -> None:
    codes = [errors.NotController.code, errors.UnknownTopicOrPartition.code]

    def answer(_: str, __: int, body: dict[str, Any]) -> dict[str, Any]:
        assert body["validate_only"] is False
        return {"results": [{"name": "orders", "error_code": codes.pop(0)}]}

    admin = Scripted(answer)
    admin.map.moves[Node.controller()] = 2
    with pytest.raises(errors.UnknownTopicOrPartition):
        run(admin.create_partitions({"orders": 3}))
    assert [broker for _, broker, _ in admin.sent] == [1, 2]


def test_brokers_are_asked_for_their_own_configurations() -> None:
    def answer(_: str, __: int, body: dict[str, Any]) -> dict[str, Any]:
        return {
            "results": [
                {"resource_type": one["resource_type"], "resource_name": one["resource_name"]}
                for one in body["resources"]
            ]
        }

    admin = Scripted(answer)
    owners = [ConfigResource.broker(2), ConfigResource.topic("t"), ConfigResource.broker()]
    assert run(admin.describe_configs(owners)) == {owner: {} for owner in owners}
    asked = {broker: len(body["resources"]) for _, broker, body in admin.sent}
    assert asked == {1: 2, 2: 1}


def test_old_brokers_get_everything_that_is_set() -> None:
    owner = ConfigResource.topic("t")
    where = {"resource_type": owner.type, "resource_name": owner.name}
    entries = [
        {"name": "retention.ms", "value": "1", "config_source": 1},
        {"name": "cleanup.policy", "value": "delete", "config_source": 5},
        {"name": "segment.ms", "value": "2", "config_source": 1},
    ]

    def answer(name: str, _: int, __: dict[str, Any]) -> dict[str, Any]:
        if name == "DescribeConfigs":
            return {"results": [{**where, "configs": entries}]}
        return {"responses": [where]}

    admin = Scripted(answer, lacks=["IncrementalAlterConfigs"])
    change = {"cleanup.policy": karrow.ConfigChange.append("compact"), "segment.ms": None}
    run(admin.alter_config(owner, change))
    name, _, body = admin.sent[-1]
    assert name == "AlterConfigs"
    assert body["resources"][0]["configs"] == [
        {"name": "retention.ms", "value": "1"},
        {"name": "cleanup.policy", "value": "delete,compact"},
    ]


def test_transactions_of_all_brokers_are_listed() -> None:
    def answer(_: str, broker: int, __: dict[str, Any]) -> dict[str, Any]:
        state = {"transactional_id": f"t{broker}", "producer_id": 5, "transaction_state": "Ongoing"}
        return {"transaction_states": [state]}

    found = run(Scripted(answer).list_transactions())
    assert [(one.transactional_id, one.broker_id) for one in found] == [("t1", 1), ("t2", 2)]


def test_rule_that_matched_but_stayed_fails_its_filter() -> None:
    rule = {
        "resource_type": 2,
        "resource_name": "t",
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    broken = {**rule, "error_code": errors.UnknownServerError.code}
    admin = Scripted(lambda *_: {"filter_results": [{"matching_acls": [rule, broken]}]})
    with pytest.raises(errors.UnknownServerError, match="User:a"):
        run(admin.delete_acls([AclFilter()]))


def test_election_errors_are_not_repeated() -> None:
    def answer(*_: object) -> dict[str, Any]:
        results = [
            {"partition_id": 0},
            {"partition_id": 1, "error_code": errors.ElectionNotNeeded.code},
            {"partition_id": 2, "error_code": errors.PreferredLeaderNotAvailable.code},
        ]
        return {"replica_election_results": [{"topic": "t", "partition_result": results}]}

    admin = Scripted(answer)
    with pytest.raises(errors.PartialError) as caught:
        run(admin.elect_leaders([("t", 0), ("t", 1), ("t", 2)]))
    assert list(caught.value.errors) == [TopicPartition("t", 2)]
    assert len(admin.sent) == 1


def test_changes_of_one_user_go_one_after_the_other() -> None:
    def answer(_: str, __: int, body: dict[str, Any]) -> dict[str, Any]:
        names = [one["name"] for one in body["deletions"] + body["upsertions"]]
        assert len(set(names)) == len(names)
        return {"results": [{"user": name} for name in names]}

    admin = Scripted(answer)
    first, second = karrow.ScramMechanism.SCRAM_SHA_256, karrow.ScramMechanism.SCRAM_SHA_512
    run(
        admin.alter_scram_users(
            {("a", first): "secret", ("a", second): None, ("b", first): None}, iterations=4096
        )
    )
    assert [
        ([one["name"] for one in body["upsertions"]], [one["name"] for one in body["deletions"]])
        for _, _, body in admin.sent
    ] == [(["a"], ["b"]), ([], ["a"])]


def test_aborting_nothing_is_refused() -> None:
    idle = ProducerState(1, 0, 0, 0)
    with pytest.raises(errors.ConfigError, match="no transaction"):
        run(Scripted(lambda *_: {}).abort_transaction("t", 0, idle))


def test_open_client_is_shared() -> None:
    client = karrow.AsyncClient("b1:9092")
    admin = karrow.AsyncAdmin(client)
    assert admin.client is client
    with pytest.raises(errors.ConfigError, match="options already"):
        karrow.AsyncAdmin(client, client_id="other")
    with pytest.raises(errors.ConfigError, match="did you mean"):
        karrow.AsyncAdmin("b1:9092", clientid="x")  # type: ignore[call-arg]


def test_unused_admin_needs_no_close() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        repr(karrow.Admin("b1:9092"))


@pytest.mark.parametrize("call", ["alter", "describe"])
def test_an_owner_that_is_only_a_name_is_refused_with_advice(call: str) -> None:
    async def main() -> None:
        async with karrow.AsyncAdmin("127.0.0.1:1") as admin:
            owner: Any = "orders"
            if call == "alter":
                await admin.alter_config(owner, {"retention.ms": "1"})
            else:
                await admin.describe_config(owner)

    with pytest.raises(errors.ConfigError, match=r"ConfigResource\.topic\('orders'\)"):
        asyncio.run(main())
