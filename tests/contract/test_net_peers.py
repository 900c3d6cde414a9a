"""Peers that lie, stall and break off: one clear error in time, and the client stays usable."""

from __future__ import annotations

import asyncio
import resource
import time
import uuid
from collections.abc import Coroutine
from typing import Any

import pytest

import karrow
from karrow import errors, events
from karrow.types import Node
from tests.contract.scripted import CLOSE, SILENCE, Answer, ScriptedBroker


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


def client_of(broker: ScriptedBroker | str, **options: Any) -> karrow.AsyncClient:
    bootstrap = broker if isinstance(broker, str) else broker.bootstrap
    defaults: dict[str, Any] = {"api_timeout": 1.0, "request_timeout": 0.4, "connect_timeout": 0.4}
    return karrow.AsyncClient(bootstrap, **{**defaults, **options})


LIES: dict[str, tuple[bytes, type[Exception]]] = {
    "garbage": (b"\x00\x00\x00\x08" + b"\xfe" * 8, errors.RemoteProtocolError),
    "wrong correlation id": (b"\x00\x00\x00\x04\x00\x00\x99\x99", errors.RemoteProtocolError),
    "negative length": (b"\x80\x00\x00\x00", errors.RemoteProtocolError),
    "huge length": (b"\x7f\xff\xff\xff", errors.RemoteProtocolError),
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n\r\n", errors.RemoteProtocolError),
    "nothing": (SILENCE, errors.ConnectError),
    "close": (CLOSE, errors.Disconnected),
}


@pytest.mark.parametrize("lie", LIES)
def test_liar_at_the_first_word(lie: str) -> None:
    data, kind = LIES[lie]

    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            truth = broker.handlers["ApiVersions"]
            broker.always("ApiVersions", data)
            broker.always("ListGroups", data)
            start = time.monotonic()
            with pytest.raises(kind) as caught:
                await client.brokers()
            assert time.monotonic() - start < 3
            assert f"127.0.0.1:{broker.port}" in str(caught.value)
            broker.handlers["ApiVersions"] = truth
            assert len(await client.brokers()) == 1  # still usable

    run(main())


@pytest.mark.parametrize("lie", LIES)
def test_liar_in_mid_conversation(lie: str) -> None:
    data, kind = LIES[lie]

    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            await client.brokers()
            broker.always("DescribeGroups", data)
            request = {"groups": ["g"]}
            with pytest.raises(kind if data != SILENCE else errors.RequestTimeout) as caught:
                await client.request("DescribeGroups", request)
            assert isinstance(caught.value, errors.KarrowError)
            assert caught.value.context["api"] == "DescribeGroups"
            assert len(await client.brokers()) == 1

    run(main())


def test_answer_to_nothing_costs_only_the_connection() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            await client.brokers()
            truth = broker.handlers["Metadata"]

            def twice(request: Any) -> Answer:
                broker.handlers["Metadata"] = truth
                return truth(request)

            broker.handlers["Metadata"] = twice
            (writer,) = broker._writers
            writer.write(b"\x00\x00\x00\x04\x00\x00\x00\x63")
            await asyncio.sleep(0.05)
            assert len(await client.brokers()) == 1
            assert broker.connections == 2

    run(main())


def test_silence_before_it_is_ready_names_the_limit_that_was_passed() -> None:
    async def main() -> None:
        async with (
            ScriptedBroker() as broker,
            client_of(broker, request_timeout=0.2, connect_timeout=5.0, api_timeout=0.3) as client,
        ):
            broker.always("ApiVersions", SILENCE)
            with pytest.raises(
                errors.ConnectError, match=r"no answer after 0\.2 s .api ApiVersions"
            ):
                await client.brokers()

    run(main())


def test_close_in_mid_frame() -> None:
    async def main() -> None:
        async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(b"\x00\x00\x10\x00only a part")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(half, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, client_of(f"127.0.0.1:{port}", api_timeout=0.3) as client:
            with pytest.raises(errors.Disconnected, match="in the middle of an answer"):
                await client.brokers()

    run(main())


def test_refused_port_and_unknown_name() -> None:
    async def main() -> None:
        async with client_of("127.0.0.1:1", api_timeout=0.3) as client:
            with pytest.raises(errors.ConnectError, match=r"refused.*127\.0\.0\.1:1"):
                await client.brokers()
        async with client_of("no-such-host.invalid:9092", api_timeout=0.3) as client:
            with pytest.raises(errors.ConnectError, match=r"no-such-host\.invalid"):
                await client.brokers()

    run(main())


def test_metadata_full_of_lies() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            broker.brokers = [
                broker.me,
                {"node_id": 1, "host": "elsewhere", "port": 1},
                {"node_id": 2, "host": "169.254.169.254/latest", "port": 80},
                {"node_id": 3, "host": "", "port": 9092},
                {"node_id": 4, "host": "b4", "port": 99999},
                {"node_id": -7, "host": "b7", "port": 9092},
            ]
            parts = [
                {"partition_index": 0, "leader_id": 99},
                {"partition_index": 0, "leader_id": 1},
                {"partition_index": -4, "leader_id": 1},
            ]
            broker.topics = [{"name": "t", "partitions": parts}]
            seen: list[events.Event] = []
            with events.subscribe(seen.append, "metadata.update.stop"):
                found = await client.metadata(["t"])
            assert list(found.brokers) == [1]
            assert len(seen[0].fields["refused"]) == 7
            assert list(found.topics["t"].partitions) == [0]
            with pytest.raises(errors.BrokerNotAvailable, match="no broker 99"):
                await client.fetch("t", 0, 0)

    run(main())


def test_frames_above_the_limit_are_refused_before_memory_is_taken() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker:
            broker.always("DescribeGroups", b"\x40\x00\x00\x00")  # 1 GiB announced
            async with client_of(broker) as client:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                with pytest.raises(errors.RemoteProtocolError, match="1073741824"):
                    await client.request("DescribeGroups", {"groups": ["g"]})
                after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            assert after - before < 100_000

    run(main())


def test_idle_while_every_broker_is_down() -> None:
    async def main() -> None:
        async with client_of("127.0.0.1:1,127.0.0.1:2", api_timeout=3.0) as client:
            usage = time.process_time()
            with pytest.raises(errors.ConnectError):
                await client.brokers()
            assert time.process_time() - usage < 0.3

    run(main())


def test_call_that_only_waits_to_reconnect_says_why() -> None:
    async def main() -> None:
        async with client_of("127.0.0.1:1", api_timeout=0.2, reconnect_backoff=1.0) as client:
            for _ in range(3):
                with pytest.raises(errors.ConnectError, match="refused"):
                    await client.brokers()

    run(main())


def test_reconnects_are_few_while_a_broker_hangs_up() -> None:
    """A broker that accepts, negotiates and closes is not stormed."""

    async def main() -> None:
        async with ScriptedBroker() as broker:
            broker.always("Metadata", CLOSE)
            async with client_of(broker, api_timeout=3.0, reconnect_backoff=0.1) as client:
                with pytest.raises(errors.Disconnected, match="SASL"):
                    await client.brokers()
            assert broker.connections < 15

    run(main())


# ---- versions


def test_broker_of_0_10_is_asked_again_in_version_0() -> None:
    async def main() -> None:
        old = {"ApiVersions": (0, 0), "Metadata": (0, 2), "Fetch": (0, 2)}
        async with ScriptedBroker(supported=old) as broker, client_of(broker) as client:
            assert (await client.api_versions())["Fetch"] == (0, 2)
            assert broker.versions[:2] == [("ApiVersions", 4), ("ApiVersions", 0)]

    run(main())


def test_broker_before_0_10_closes_and_is_taken_for_0_9() -> None:
    async def main() -> None:
        old = {"Metadata": (0, 0), "ListGroups": (0, 0), "FindCoordinator": (0, 0)}
        async with ScriptedBroker(supported=old) as broker, client_of(broker) as client:
            versions = await client.api_versions()
            assert versions["Fetch"] == (0, 1)
            assert "ApiVersions" not in versions
            assert len((await client.metadata()).brokers) == 1
            with pytest.raises(errors.UnsupportedVersion, match="the broker does not have it"):
                await client.request("DescribeCluster")

    run(main())


def test_broker_that_goes_down_is_not_taken_for_an_old_one() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            truth = broker.handlers["ApiVersions"]
            answers = [CLOSE]

            def once(request: Any) -> Answer:
                return answers.pop() if answers else truth(request)

            broker.handlers["ApiVersions"] = once
            assert "DescribeCluster" in await client.api_versions()

    run(main())


def test_one_good_address_among_bad_ones_is_enough() -> None:
    async def main() -> None:
        async with ScriptedBroker() as bad, ScriptedBroker() as good:
            bad.always("ApiVersions", b"HTTP/1.1 400 Bad Request\r\n\r\n")
            for _ in range(5):
                places = f"{bad.bootstrap},127.0.0.1:1,{good.bootstrap}"
                async with client_of(places) as client:
                    assert [broker.port for broker in await client.brokers()] == [good.port]

    run(main())


def test_ranges_are_read_again_at_each_reconnect() -> None:
    async def main() -> None:
        wide = {"ApiVersions": (0, 4), "Metadata": (0, 12), "DescribeGroups": (0, 5)}
        async with ScriptedBroker(supported=wide) as broker, client_of(broker) as client:
            await client.request("DescribeGroups", {})
            broker._supported["DescribeGroups"] = (0, 2)  # downgraded, and restarted
            broker.drop_connections()
            await asyncio.sleep(0.05)
            await client.request("DescribeGroups", {})
            sent = [version for name, version in broker.versions if name == "DescribeGroups"]
            assert sent == [5, 2]

    run(main())


def test_broker_that_never_agrees_on_apiversions() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            # Error 35 in version 0 is what a broker says to versions it lacks.
            refusal = b"\x00\x23" + bytes(4)
            broker.handlers["ApiVersions"] = lambda request: (
                b"\x00\x00\x00\x0a" + request.head.correlation_id.to_bytes(4, "big") + refusal
            )
            with pytest.raises(errors.UnsupportedVersion):
                await client.brokers()
            assert broker.seen == ["ApiVersions", "ApiVersions"]

    run(main())


@pytest.mark.parametrize("lie", [CLOSE, b"35"], ids=["closes", "says so"])
def test_broker_that_lacks_a_version_it_advertises(lie: bytes) -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            broker.handlers["FindCoordinator"] = lambda _: coordinator(broker)
            refusal: Answer = {"groups": [{"group_id": "g", "error_code": 35}]}
            broker.always("DescribeGroups", lie if lie == CLOSE else refusal)
            kind = errors.Disconnected if lie == CLOSE else errors.UnsupportedVersion
            with pytest.raises(kind):
                await client.describe_group("g", retries=1)
            assert broker.seen.count("DescribeGroups") <= 2

    run(main())


# ---- the end


def test_close_tells_those_who_wait() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker:
            broker.always("Metadata", SILENCE)
            client = client_of(broker, request_timeout=5.0, api_timeout=5.0)
            waiting = [asyncio.create_task(client.metadata()) for _ in range(3)]
            await asyncio.sleep(0.1)
            await client.close()
            for call in waiting:
                with pytest.raises(errors.StateError, match="closed"):
                    await call

    run(main())


# ---- leaders and coordinators


def fetched(value: int = 0) -> Answer:
    part = {"partition_index": 0, "error_code": value, "high_watermark": 3, "records": b""}
    return {"responses": [{"topic": "t", "partitions": [part]}]}


def test_stale_leader_is_looked_up_again() -> None:
    async def main() -> None:
        async with ScriptedBroker() as one, ScriptedBroker(node_id=2) as two:
            both = [one.me, two.me]
            one.brokers = two.brokers = both
            one.add_topic("t", leader=1)
            two.add_topic("t", leader=2)
            one.handlers["Fetch"] = lambda _: _moved(one, two)
            two.handlers["Fetch"] = lambda _: fetched()
            async with client_of(one, api_timeout=5.0) as client:
                assert (await client.fetch("t", 0, 0)).high_watermark == 3
                assert one.seen.count("Fetch") == 1

    def _moved(one: ScriptedBroker, two: ScriptedBroker) -> Answer:
        one.add_topic("t", leader=2, epoch=1)
        two.add_topic("t", leader=2, epoch=1)
        return fetched(6)

    run(main())


@pytest.mark.parametrize(("code", "asked"), [(74, 2), (75, 1)], ids=["fenced", "unknown"])
def test_leader_epoch_that_broker_and_client_disagree_on(code: int, asked: int) -> None:
    """Who is behind learns: we ask for metadata, a broker is given the time to hear of it."""

    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker, api_timeout=5.0) as client:
            broker.add_topic("t", epoch=3)
            broker.sequence("Fetch", fetched(code), fetched())
            assert (await client.fetch("t", 0, 0)).high_watermark == 3
            assert (broker.seen.count("Fetch"), broker.seen.count("Metadata")) == (2, asked)

    run(main())


def test_leader_hint_saves_the_look_up() -> None:
    async def main() -> None:
        async with ScriptedBroker() as one, ScriptedBroker(node_id=2) as two:
            one.brokers = two.brokers = [one.me]  # the metadata does not know broker 2 yet
            one.add_topic("t", leader=1)
            part = {
                "partition_index": 0,
                "error_code": 6,
                "current_leader": {"leader_id": 2, "leader_epoch": 7},
            }
            one.always(
                "Fetch",
                {"responses": [{"topic": "t", "partitions": [part]}], "node_endpoints": [two.me]},
            )
            # Version 16 has the endpoints; ids keep fetches of unknown topics below 13.
            one.topics[0]["topic_id"] = uuid.UUID(int=5)
            two.always("Fetch", fetched())
            async with client_of(one, api_timeout=5.0) as client:
                assert (await client.fetch("t", 0, 0)).high_watermark == 3
            assert one.seen.count("Metadata") == 1

    run(main())


def test_older_metadata_does_not_undo_a_newer_leader() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            broker.add_topic("t", leader=1, epoch=9)
            await client.metadata(["t"])
            broker.add_topic("t", leader=5, epoch=8)
            await client.metadata(["t"])
            found = (await client.cluster_metadata()).topics["t"].partitions[0]
            assert (found.leader, found.leader_epoch) == (1, 9)

    run(main())


def test_partition_without_a_leader_is_waited_for() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker, api_timeout=5.0) as client:
            broker.add_topic("t", leader=-1)
            broker.always("Fetch", fetched())
            fetch = asyncio.create_task(client.fetch("t", 0, 0))
            await asyncio.sleep(0.25)
            assert not fetch.done()
            broker.add_topic("t", leader=1)
            assert (await fetch).high_watermark == 3

    run(main())


def coordinator(broker: ScriptedBroker, code: int = 0) -> Answer:
    found = {"key": "g", "error_code": code, **broker.me}
    return {"coordinators": [found]}


def test_coordinator_that_moves_or_loads_is_found_again() -> None:
    async def main() -> None:
        async with ScriptedBroker() as one, ScriptedBroker(node_id=2) as two:
            one.brokers = two.brokers = [one.me, two.me]
            answers = [coordinator(one, 15), coordinator(one), coordinator(two)]
            for broker in (one, two):
                broker.handlers["FindCoordinator"] = lambda _: answers.pop(0)
            one.sequence("Heartbeat", {"error_code": 14}, {"error_code": 16})
            two.always("Heartbeat", {"error_code": 0})
            async with client_of(one, api_timeout=5.0) as client:
                # Loading keeps the coordinator, in truth; asking again is what Kafka's clients do.
                answers.insert(2, coordinator(one))
                await client.heartbeat("g", generation=1, member_id="m")
                assert two.seen.count("Heartbeat") == 1
                assert one.seen.count("Heartbeat") == 2

    run(main())


def test_coordinator_that_loads_holds_up_its_own_groups_only() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker, api_timeout=5.0) as client:
            broker.handlers["FindCoordinator"] = lambda request: {
                "coordinators": [{"key": request.body.coordinator_keys[0], **broker.me}]
            }
            loading = {"group-1"}
            broker.handlers["Heartbeat"] = lambda request: {
                "error_code": 14 if request.body.group_id in loading else 0
            }
            held = asyncio.create_task(client.heartbeat("group-1", generation=1, member_id="m"))
            start = time.monotonic()
            for _ in range(10):
                await client.heartbeat("group-2", generation=1, member_id="m")
                await client.metadata()
            assert time.monotonic() - start < 0.5
            assert not held.done()
            loading.clear()
            await held

    run(main())


def test_coordinator_at_an_impossible_address() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            found = {"key": "g", "node_id": 3, "host": "a b", "port": 1}
            broker.always("FindCoordinator", {"coordinators": [found]})
            with pytest.raises(errors.RemoteProtocolError, match="impossible"):
                await client.heartbeat("g", generation=1, member_id="m")

    run(main())


def test_equal_questions_are_asked_once() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            broker.add_topic("t")
            await client.brokers()
            before = broker.seen.count("Metadata")
            await asyncio.gather(*(client.metadata(["t"]) for _ in range(50)))
            assert broker.seen.count("Metadata") == before + 1
            broker.handlers["FindCoordinator"] = lambda _: coordinator(broker)
            await asyncio.gather(*(client.find_coordinator("g") for _ in range(50)))
            assert broker.seen.count("FindCoordinator") == 1

    run(main())


def test_metadata_grows_old() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker:
            broker.add_topic("t")
            broker.always("Fetch", fetched())
            async with client_of(broker, metadata_max_age=0.2) as client:
                await client.fetch("t", 0, 0)
                await client.fetch("t", 0, 0)
                assert broker.seen.count("Metadata") == 1
                await asyncio.sleep(0.25)
                await client.fetch("t", 0, 0)
                assert broker.seen.count("Metadata") == 2

    run(main())


# ---- retries


def test_retries_0_sends_once() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker) as client:
            broker.handlers["FindCoordinator"] = lambda _: coordinator(broker)
            broker.always("Heartbeat", {"error_code": 14})
            with pytest.raises(errors.CoordinatorLoadInProgress):
                await client.heartbeat("g", generation=1, member_id="m", retries=0)
            assert broker.seen.count("Heartbeat") == 1
            with pytest.raises(errors.CoordinatorLoadInProgress):
                await client.heartbeat("g", generation=1, member_id="m", retries=2)
            assert broker.seen.count("Heartbeat") == 4

    run(main())


@pytest.mark.parametrize(
    ("code", "sent"), [(6, 2), (3, 2), (19, 2), (20, 1), (7, 1), (56, 1)], ids=str
)
def test_produce_is_repeated_only_when_it_surely_failed(code: int, sent: int) -> None:
    async def main() -> None:
        def produced(error: int) -> Answer:
            part = {"index": 0, "error_code": error, "base_offset": -1 if error else 5}
            return {"responses": [{"name": "t", "partition_responses": [part]}]}

        async with ScriptedBroker() as broker, client_of(broker, api_timeout=5.0) as client:
            broker.add_topic("t")
            broker.sequence("Produce", produced(code), produced(0))
            if sent == 2:
                assert (await client.produce_one("t", b"v", partition=0)).offset == 5
            else:
                with pytest.raises(errors.for_code(code)):
                    await client.produce_one("t", b"v", partition=0)
            assert broker.seen.count("Produce") == sent

    run(main())


def test_produce_that_failed_after_the_append_is_not_repeated() -> None:
    async def main() -> None:
        part = {"index": 0, "error_code": errors.NotLeaderOrFollower.code, "base_offset": 5}
        answer: Answer = {"responses": [{"name": "t", "partition_responses": [part]}]}
        async with ScriptedBroker() as broker, client_of(broker, api_timeout=5.0) as client:
            broker.add_topic("t")
            broker.always("Produce", answer)
            with pytest.raises(errors.NotLeaderOrFollower) as caught:
                await client.produce_one("t", b"v", partition=0)
            assert caught.value.indefinite
            assert broker.seen.count("Produce") == 1

    run(main())


@pytest.mark.parametrize("fault", [CLOSE, SILENCE], ids=["lost", "late"])
def test_produce_without_an_answer_is_indefinite(fault: bytes) -> None:
    async def main() -> None:
        async with (
            ScriptedBroker() as broker,
            client_of(broker, api_timeout=5.0, request_timeout=0.3) as client,
        ):
            broker.add_topic("t")
            broker.always("Produce", fault)
            with pytest.raises((errors.Disconnected, errors.RequestTimeout)):
                await client.produce_one("t", b"v", partition=0, timeout=0.1)
            assert broker.seen.count("Produce") == 1

    run(main())


def test_any_broker_is_one_that_has_not_muted_us() -> None:
    async def main() -> None:
        async with ScriptedBroker() as one, ScriptedBroker(node_id=2) as two:
            one.brokers = two.brokers = [one.me, two.me]
            one.always("DescribeGroups", {"throttle_time_ms": 5000})
            for _ in range(5):
                async with client_of(one) as client:
                    await client.brokers()
                    await client.request("DescribeGroups", {}, to=Node.id(1))
                    await asyncio.wait_for(client.metadata(), 1.0)

    run(main())


def test_throttled_client_waits() -> None:
    async def main() -> None:
        async with ScriptedBroker() as broker, client_of(broker, request_timeout=0.2) as client:
            await client.brokers()
            broker.sequence("DescribeGroups", {"throttle_time_ms": 500}, {})
            start = time.monotonic()
            await client.request("DescribeGroups", {}, to=Node.id(1))
            assert time.monotonic() - start < 0.2
            await client.request("DescribeGroups", {}, to=Node.id(1))
            assert 0.5 <= time.monotonic() - start < 1.5

    run(main())
