from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrow import events
from karrow.errors import (
    AuthenticationError,
    ConnectError,
    Disconnected,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
)
from karrow.net.connection import Peer
from tests.unit.net.virtual import Wire, run

METADATA: dict[str, Any] = {"topics": []}


def send(end: Wire, **options: Any) -> asyncio.Future[Any]:
    return end.connection.send("Metadata", 12, METADATA, **options)


def test_answer_reaches_its_request() -> None:
    async def main() -> None:
        end = Wire(client_id="me")
        future = send(end)
        (request,) = end.requests()
        assert request.head.client_id == "me"
        end.answer(request, {"controller_id": 7})
        assert (await future).controller_id == 7
        assert end.connection.in_flight == 0

    run(main())


@pytest.mark.parametrize("portion", [1, 2, 3, 7, 1000])
def test_answers_may_arrive_in_any_portions(portion: int) -> None:
    async def main() -> None:
        end = Wire()
        futures = [send(end) for _ in range(3)]
        requests = end.requests()
        data = b"".join(
            end.bytes(request, {"controller_id": place}) for place, request in enumerate(requests)
        )
        end.transport.feed(data, portion)
        assert [(await future).controller_id for future in futures] == [0, 1, 2]

    run(main())


def test_requests_beyond_the_limit_wait_in_order() -> None:
    async def main() -> None:
        end = Wire(max_in_flight=2)
        futures = [end.connection.send("Metadata", 12, METADATA) for _ in range(5)]
        assert (end.connection.in_flight, end.connection.waiting) == (2, 3)
        seen = []
        while requests := end.requests():
            for request in requests:
                seen.append(request.head.correlation_id)
                end.answer(request, {"controller_id": request.head.correlation_id})
        assert seen == [0, 1, 2, 3, 4]
        assert [(await future).controller_id for future in futures] == seen

    run(main())


def test_produce_without_acks_is_not_waited_for() -> None:
    async def main() -> None:
        end = Wire()
        assert await end.connection.request("Produce", 9, {"acks": 0}) is None
        assert end.connection.in_flight == 0
        assert len(end.requests()) == 1

    run(main())


def test_body_that_cannot_be_encoded_harms_nobody() -> None:
    async def main() -> None:
        end = Wire()
        with pytest.raises(LocalProtocolError):
            await end.connection.request("Metadata", 12, {"no_such_field": 1})
        future = send(end)
        end.answer(end.requests()[0], {})
        await future
        assert not end.connection.is_closed

    run(main())


def test_time_out_closes_the_connection() -> None:
    async def main() -> None:
        end = Wire(request_timeout=5.0)
        late, other = send(end), send(end)
        queued = [send(end) for _ in range(4)]
        with pytest.raises(RequestTimeout, match=r"no answer after 5\.0 s .api Metadata, broker 1"):
            await late
        with pytest.raises(Disconnected):
            await other
        with pytest.raises(ConnectError, match="not sent"):
            await queued[-1]
        assert end.transport.is_aborted
        assert end.connection.closed.result() == "timeout"
        assert end.closed == [end.connection]
        with pytest.raises(ConnectError):
            await send(end)

    run(main())


def test_each_request_may_have_its_own_time() -> None:
    async def main() -> None:
        end = Wire(request_timeout=5.0)
        clock = asyncio.get_running_loop().time
        start = clock()
        long, short = send(end, limit=60.0), send(end, limit=1.0)
        with pytest.raises(RequestTimeout):
            await short
        assert clock() - start == pytest.approx(1.0, abs=0.1)
        with pytest.raises(Disconnected):
            await long

    run(main())


def test_cancelled_request_keeps_its_place() -> None:
    async def main() -> None:
        end = Wire()
        first, second = asyncio.create_task(request(end)), asyncio.create_task(request(end))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        for number, asked in enumerate(end.requests()):
            end.answer(asked, {"controller_id": number})
        assert (await second).controller_id == 1
        assert not end.connection.is_closed

    async def request(end: Wire) -> Any:
        return await end.connection.request("Metadata", 12, METADATA)

    run(main())


def test_request_cancelled_in_line_is_never_sent() -> None:
    async def main() -> None:
        end = Wire(max_in_flight=1)
        first, second, third = send(end), send(end), send(end)
        second.cancel()
        end.answer(end.requests()[0], {})
        await first
        (asked,) = end.requests()
        end.answer(asked, {"controller_id": 3})
        assert (await third).controller_id == 3

    run(main())


BROKEN = {
    "garbage": (b"\x00\x00\x00\x08" + b"\xff" * 8, "came where"),
    "another correlation id": (b"\x00\x00\x00\x05\x00\x00\x00\x07\x00", "answer 7 came where 0"),
    "negative length": (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
    "huge length": (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
    "no correlation id": (b"\x00\x00\x00\x01\x00", "no correlation id"),
    "cut body": (b"\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00", "Metadata"),
    "TLS alert": (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n", "not a Kafka port"),
}


@pytest.mark.parametrize(("data", "text"), BROKEN.values(), ids=BROKEN)
def test_broken_answer_closes_the_connection(data: bytes, text: str) -> None:
    async def main() -> None:
        end = Wire()
        first, second = send(end), send(end)
        end.transport.feed(data)
        with pytest.raises(RemoteProtocolError, match=text) as caught:
            await first
        assert caught.value.context["api"] == "Metadata"
        assert caught.value.context["broker"] == Peer("b1", 9092, 1)
        assert pickle.loads(pickle.dumps(caught.value)).context == caught.value.context
        with pytest.raises(Disconnected):
            await second
        assert end.connection.closed.result() == "recv_error"
        assert end.transport.is_aborted

    run(main())


def test_broken_length_behind_a_good_answer_is_noticed() -> None:
    async def main() -> None:
        end = Wire()
        first, second = send(end), send(end)
        asked = end.requests()
        end.transport.feed(end.bytes(asked[0], {"controller_id": 1}) + b"\xff\xff\xff\xff")
        assert (await first).controller_id == 1
        with pytest.raises(RemoteProtocolError):
            await second

    run(main())


def test_answer_to_nothing_closes_the_connection() -> None:
    async def main() -> None:
        end = Wire()
        end.transport.feed(b"\x00\x00\x00\x04\x00\x00\x00\x00")
        assert end.connection.closed.result() == "recv_error"
        assert "nothing asked for" in str(end.connection.error)

    run(main())


def test_close_in_the_middle_of_an_answer_says_so() -> None:
    async def main() -> None:
        end = Wire()
        future = send(end)
        end.transport.feed(b"\x00\x00\x10\x00abc")
        end.connection.eof_received()
        with pytest.raises(Disconnected, match="in the middle of an answer"):
            await future
        assert end.connection.closed.result() == "remote_closed"

    run(main())


def test_close_before_any_answer_suggests_tls() -> None:
    async def main() -> None:
        end = Wire()
        future = send(end)
        end.connection.connection_lost(None)
        with pytest.raises(Disconnected, match="TLS port spoken to in plaintext"):
            await future

    run(main())


def test_throttled_answer_mutes_the_connection_and_extends_time_outs() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        end = Wire(request_timeout=5.0)
        start = clock()
        first, second = send(end), send(end)
        asked = end.requests()
        end.answer(asked[0], {"throttle_time_ms": 8000})
        await first
        assert end.connection.is_muted
        third = send(end)
        assert end.requests() == []
        await asyncio.sleep(7.0)  # past the time-out of the second
        end.answer(asked[1], {})
        await second
        await asyncio.sleep(1.5)
        (late,) = end.requests()
        end.answer(late, {"controller_id": 3})
        assert (await third).controller_id == 3
        assert clock() - start == pytest.approx(8.5, abs=0.1)

    run(main())


@pytest.mark.parametrize(("version", "muted"), [(5, False), (6, True)])  # KIP-219 begins with 6
def test_throttling_is_an_event_and_mutes_unless_the_answer_was_held_back(
    version: int, muted: bool
) -> None:
    async def main() -> None:
        end = Wire(client_id="me")
        seen: list[events.Event] = []
        with events.subscribe(seen.append, "connection"):
            for throttle in (0, 8000):
                future = end.connection.send("Metadata", version, METADATA)
                end.answer(end.requests()[0], {"throttle_time_ms": throttle})
                await future
        (event,) = seen
        assert event.name == "connection.throttle"
        assert event.measurements == {"count": 1, "throttle_time": 8.0}
        assert event.fields == {
            "host": "b1",
            "port": 9092,
            "node_id": 1,
            "client_id": "me",
            "operation": "Metadata",
            "muted": muted,
        }
        assert end.connection.is_muted is muted

    run(main())


def test_idle_connection_closes_itself() -> None:
    async def main() -> None:
        end = Wire(idle_timeout=60.0)
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(50.0)
        future = send(end)
        end.answer(end.requests()[0], {})
        await future
        used = clock()
        assert await end.connection.closed == "shutdown"
        assert clock() - used == pytest.approx(60.0, abs=0.1)

    run(main())


def test_full_socket_holds_requests_back() -> None:
    async def main() -> None:
        end = Wire()
        end.connection.pause_writing()
        future = send(end)
        assert end.requests() == []
        end.connection.resume_writing()
        end.answer(end.requests()[0], {})
        await future

    run(main())


def test_request_in_line_too_long_fails_without_closing() -> None:
    async def main() -> None:
        end = Wire(request_timeout=2.0, idle_timeout=100.0)
        end.connection.pause_writing()
        with pytest.raises(RequestTimeout, match="could not be sent in time"):
            await send(end)
        assert not end.connection.is_closed

    run(main())


def test_retired_connection_closes_after_the_last_answer() -> None:
    async def main() -> None:
        end = Wire()
        future = send(end)
        end.connection.retire("metadata_update")
        assert not end.connection.is_closed
        end.answer(end.requests()[0], {"controller_id": 5})
        assert (await future).controller_id == 5
        assert end.connection.closed.result() == "metadata_update"

    run(main())


def test_refused_credentials_are_everybodys_error() -> None:
    async def main() -> None:
        end = Wire(max_in_flight=1)
        sent, queued = send(end), send(end)
        end.connection.close("init_error", AuthenticationError("no"))
        for future in (sent, queued, send(end)):
            with pytest.raises(AuthenticationError):
                await future

    run(main())


def test_requests_and_closing_are_events() -> None:
    async def main() -> None:
        seen: list[events.Event] = []
        with events.subscribe(seen.append, "request", "connection"):
            end = Wire(client_id="me")
            future = send(end)
            end.answer(end.requests()[0], {})
            await future
            lost = send(end)
            end.connection.close()
            with pytest.raises(Disconnected, match="this client closed it"):
                await lost
        assert [event.name for event in seen] == [
            "request.start",
            "request.stop",
            "request.start",
            "request.exception",
            "connection.close",
        ]
        stop = seen[1].fields
        assert (stop["operation"], stop["api_version"], stop["client_id"]) == ("Metadata", 12, "me")
        assert stop["broker"] == {"node_id": 1, "host": "b1", "port": 9092}
        assert stop["bytes_sent"] > 0 < stop["bytes_received"]
        assert dict(seen[-1].fields) == {"host": "b1", "port": 9092, "reason": "shutdown"}

    run(main())


@given(st.data())
def test_any_bytes_close_the_connection_or_wait_for_more(data: st.DataObject) -> None:
    async def main() -> None:
        end = Wire(max_frame_bytes=10_000)
        pending = [send(end) for _ in range(3)]
        honest = b"".join(end.bytes(request, {}) for request in end.requests())
        noise = data.draw(st.binary(max_size=60) | st.just(honest))
        place = data.draw(st.integers(0, len(honest)))
        portion = data.draw(st.integers(1, 40))
        end.transport.feed(honest[:place] + noise + honest[place:], portion)
        end.connection.close()
        for future in pending:
            error = future.exception()
            assert error is None or isinstance(error, (RemoteProtocolError, Disconnected))

    run(main())


def test_large_requests_are_written_whole() -> None:
    async def main() -> None:
        end = Wire()
        records = bytes(range(256)) * 4096
        part = {"index": 0, "records": records}
        body = {"acks": 1, "topic_data": [{"name": "t", "partition_data": [part]}]}
        future = end.connection.send("Produce", 9, body)
        (request,) = end.requests()
        assert request.body.topic_data[0].partition_data[0].records == records
        end.answer(request, {})
        await future

    run(main())


def test_held_line_waits_while_authentication_passes() -> None:
    async def main() -> None:
        end = Wire()
        running = send(end)
        end.connection.hold()
        waiting = send(end)
        passing = end.connection.send_past("SaslHandshake", 1, {"mechanism": "PLAIN"})
        asked = end.requests()
        assert [request.api.name for request in asked] == ["Metadata", "SaslHandshake"]
        end.answer(asked[0], {"controller_id": 1})
        end.answer(asked[1], {"mechanisms": ["PLAIN"]})
        assert (await running).controller_id == 1
        assert (await passing).mechanisms == ["PLAIN"]
        assert not waiting.done()
        end.connection.release()
        end.answer(end.requests()[0], {"controller_id": 2})
        assert (await waiting).controller_id == 2

    run(main())


def test_authentication_has_as_long_as_what_it_waits_behind() -> None:
    """Brokers answer in order, and hold a join for as long as the group needs."""

    async def main() -> None:
        end = Wire(request_timeout=5.0)
        join = send(end, limit=60.0)
        passing = end.connection.send_past("SaslHandshake", 1, {"mechanism": "PLAIN"})
        await asyncio.sleep(40.0)
        asked = end.requests()
        end.answer(asked[0], {"controller_id": 1})
        end.answer(asked[1], {"mechanisms": ["PLAIN"]})
        assert (await join).controller_id == 1
        assert (await passing).mechanisms == ["PLAIN"]
        passing = end.connection.send_past("SaslAuthenticate", 1, {"auth_bytes": b""})
        await asyncio.sleep(6.0)
        with pytest.raises(RequestTimeout):
            await passing

    run(main())
