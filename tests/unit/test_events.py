"""Events: who gets what, what it measures, and that listeners cannot do harm."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import timeit
from collections.abc import Iterator
from typing import get_args

import pytest

from karrow import events
from karrow.config import Secret
from karrow.errors import ConfigError, RequestTimeout
from karrow.events import CloseReason, Event, EventName, SpanName

SPANS: tuple[SpanName, ...] = get_args(SpanName)


@pytest.fixture
def heard() -> Iterator[list[Event]]:
    """What this thread emits; clients of other tests may still be at work in theirs."""
    found: list[Event] = []
    here = threading.current_thread()

    def listen(event: Event) -> None:
        if threading.current_thread() is here:
            found.append(event)

    with events.subscribe(listen):
        yield found


def close(reason: CloseReason = "shutdown") -> None:
    events.emit("connection.close", {"count": 1}, host="b1", port=9092, reason=reason)


def test_names_are_listed_by_family() -> None:
    assert events.names("auth") == ("auth.start", "auth.stop", "auth.exception")
    assert events.names("connection") == (
        "connection.start",
        "connection.stop",
        "connection.exception",
        "connection.close",
        "connection.throttle",
    )
    assert events.names("metadata") == (
        "metadata.update.start",
        "metadata.update.stop",
        "metadata.update.exception",
    )
    families = {name.partition(".")[0] for name in events.names()}
    assert families >= {"request", "produce", "join", "sync", "heartbeat", "leave", "rebalance"}
    assert sorted(n for family in families for n in events.names(family)) == sorted(events.names())


def test_every_name_says_which_fields_it_carries() -> None:
    assert all(events.fields(name) for name in events.names())
    with pytest.raises(ConfigError, match="no event is called 'request'"):
        events.fields("request")


def test_every_reason_to_close_has_a_name() -> None:
    assert set(get_args(CloseReason)) == {
        "remote_closed", "timeout", "send_error", "recv_error", "shutdown", "init_error",
        "metadata_update", "reconnecting",
    }  # fmt: skip


@pytest.mark.parametrize("name", SPANS)
def test_a_span_that_ends_well_starts_and_stops(name: SpanName, heard: list[Event]) -> None:
    before = time.time()
    with events.span(name, host="b1") as span:
        time.sleep(0.002)
        span.set(broker_count=3)
    start, stop = heard
    assert (start.name, stop.name) == (f"{name}.start", f"{name}.stop")
    assert before <= start.measurements["system_time"] <= time.time()
    assert 0.002 <= stop.measurements["duration"] < 5
    assert start.fields == {"host": "b1"}
    assert stop.fields.items() >= {"host": "b1", "broker_count": 3}.items()
    assert start.span == stop.span is not None


def test_a_span_that_fails_says_how(heard: list[Event]) -> None:
    error = RequestTimeout("no answer")
    with pytest.raises(RequestTimeout), events.span("auth", host="b1"):
        raise error
    last = heard[-1]
    assert last.name == "auth.exception"
    assert last.fields == {
        "host": "b1", "result": "error", "kind": "RequestTimeout", "reason": "no answer",
        "error": error,
    }  # fmt: skip
    assert "duration" in last.measurements


def test_outcomes_are_told_in_the_words_of_the_span(heard: list[Event]) -> None:
    with events.span("connection"):
        pass
    with events.span("metadata.update"):
        pass
    with pytest.raises(OSError, match="x"), events.span("connection"):
        raise OSError("x")
    ends = [event.fields for event in heard if not event.name.endswith("start")]
    assert ends[0] == {"success": True}
    assert ends[1] == {"result": "ok"}
    assert ends[2]["success"] is False


def test_cancellation_is_a_failure_of_the_span(heard: list[Event]) -> None:
    async def work() -> None:
        with events.span("request", operation="Metadata"):
            await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert [(event.name, event.fields.get("kind")) for event in heard] == [
        ("request.start", None),
        ("request.exception", "CancelledError"),
    ]


def test_spans_across_awaits_keep_apart(heard: list[Event]) -> None:
    async def work(number: int) -> None:
        with events.span("request", correlation_id=number):
            await asyncio.sleep(0.001 * (3 - number))

    async def main() -> None:
        await asyncio.gather(*map(work, range(3)))

    asyncio.run(main())
    pairs: dict[int | None, list[int]] = {}
    for event in heard:
        pairs.setdefault(event.span, []).append(event.fields["correlation_id"])
    assert sorted(pairs.values()) == [[0, 0], [1, 1], [2, 2]]


def test_only_the_first_end_of_a_span_counts(heard: list[Event]) -> None:
    span = events.span("request").start()
    span.stop(bytes_received=5)
    span.stop()
    span.fail(OSError("late"))
    assert [event.name for event in heard] == ["request.start", "request.stop"]
    assert heard[1].fields["bytes_received"] == 5


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        (("request",), ["request.start", "request.stop"]),
        (("request.stop",), ["request.stop"]),
        (("metadata.update",), []),
        (("connection.close", "request.start"), ["request.start", "connection.close"]),
        ((), ["request.start", "request.stop", "connection.close"]),
    ],
)
def test_a_listener_gets_what_it_asked_for(selectors: tuple[str, ...], expected: list[str]) -> None:
    found: list[str] = []
    with events.subscribe(lambda event: found.append(event.name), *selectors):
        with events.span("request"):
            pass
        close()
    assert found == expected


def test_an_unknown_selector_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'request\.stop'"):
        events.subscribe(print, "request.stopp")
    with pytest.raises(ConfigError, match="no event or family"):
        events.names("zzz")


def test_a_closed_subscription_hears_no_more() -> None:
    found: list[Event] = []
    subscription = events.subscribe(found.append)
    close()
    subscription.close()
    subscription.close()
    close()
    assert len(found) == 1


def test_a_listener_that_comes_late_does_not_see_half_a_span() -> None:
    found: list[Event] = []
    with events.span("request"), events.subscribe(found.append):
        pass
    assert found == []


def test_a_listener_that_raises_is_dropped_logged_once_and_harms_nobody(
    heard: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_event: Event) -> None:
        raise LookupError("my own fault")

    with events.subscribe(broken) as subscription:
        for _ in range(3):
            close()
    assert len(heard) == 3
    assert isinstance(subscription.error, LookupError)
    assert caplog.text.count("gets no more events") == 1
    assert "my own fault" in caplog.text


def test_what_a_listener_gets_cannot_be_changed(heard: list[Event]) -> None:
    close()
    with pytest.raises(TypeError):
        heard[0].fields["host"] = "b2"  # type: ignore[index]


def test_listeners_come_and_go_while_other_threads_emit() -> None:
    stop = threading.Event()
    counts: list[int] = []

    def emit() -> None:
        count = 0
        while not stop.is_set():
            close()
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=emit) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        found: list[Event] = []
        with events.subscribe(found.append, "connection"):
            close()
        assert found
    stop.set()
    for thread in threads:
        thread.join()
    assert all(counts)


def test_the_logging_bridge_writes_failures_louder(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test.events")
    with caplog.at_level(logging.DEBUG, "test.events"), events.log_to(logger, "auth", "connection"):
        with pytest.raises(OSError, match="x"), events.span("auth", token=Secret("canary-1")):
            raise OSError("x")
        close()
    assert [(record.levelname, record.message.split()[0]) for record in caplog.records] == [
        ("DEBUG", "auth.start"),
        ("WARNING", "auth.exception"),
        ("DEBUG", "connection.close"),
    ]
    assert "reason='shutdown'" in caplog.text
    assert "canary-1" not in caplog.text


def test_a_span_that_nobody_hears_can_be_used_like_any_other() -> None:
    span = events.span("request").start()
    span.set(broker="b1")
    span.stop(bytes_received=1)
    span.fail(OSError("x"))


def test_an_event_knows_its_family(heard: list[Event]) -> None:
    with events.span("metadata.update"):
        pass
    assert heard[0].family == "metadata"


def test_single_events_are_not_spans() -> None:
    assert not {f"{name}.{phase}" for name in SPANS for phase in ("start", "stop")} & set(
        get_args(EventName)
    )


def test_it_costs_next_to_nothing_when_nobody_listens() -> None:
    def traced() -> None:
        with events.span("request", operation="Fetch", api_version=4, correlation_id=7):
            pass

    # A few hundred nanoseconds here; the bound is for machines that are slow and busy.
    assert min(timeit.repeat(traced, number=10_000, repeat=5)) / 10_000 < 5e-6
    assert events.span("request") is events.span("auth")
