"""The names of workers: where they stand, and that both kinds of groups have the same."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest

import karrow
from karrow.workers import handler

NAMES = [
    "AsyncWorkerGroup",
    "CallbackGroup",
    "Commit",
    "CommitId",
    "EndReason",
    "Ending",
    "GroupState",
    "Handler",
    "Stop",
    "Worker",
    "WorkerConfig",
    "WorkerGroup",
    "WorkerState",
]
# What the blocking one has beside, about its process.
OWN = {"abandon", "is_here"}


def public(kind: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")
    }


@pytest.mark.parametrize("name", NAMES)
def test_names_stand_in_karrow(name: str) -> None:
    value = getattr(karrow, name)
    assert value.__module__ == "karrow"
    assert value.__doc__


def test_both_groups_have_the_same_names() -> None:
    blocking, awaited = public(karrow.WorkerGroup), public(karrow.AsyncWorkerGroup)
    attributes = {"config", "ending", "state"}  # plain ones there
    assert set(blocking) - OWN - attributes == set(awaited)
    for name, value in awaited.items():
        assert inspect.getdoc(blocking[name]) == inspect.getdoc(value), name
        if inspect.iscoroutinefunction(value):
            mine, theirs = inspect.signature(blocking[name]), inspect.signature(value)
            assert mine == theirs, name


def test_run_group_takes_what_a_group_takes() -> None:
    ours = dict(inspect.signature(karrow.run_group).parameters)
    group = dict(inspect.signature(karrow.WorkerGroup).parameters)
    assert ours == group


def test_start_consumer_takes_what_kafe_takes() -> None:
    found = inspect.signature(karrow.start_consumer).parameters
    assert list(found) == [
        "bootstrap",
        "group",
        "callback",
        "topics",
        "member_id",
        "session_timeout",
        "fetch_interval",
        "fetch_size",
        "max_bytes",
        "min_bytes",
        "max_wait",
        "autocommit",
        "allow_unordered_commit",
        "start",
        "config",
    ]
    defaults = {name: one.default for name, one in found.items()}
    assert (defaults["fetch_interval"], defaults["fetch_size"]) == (1.0, 1)
    assert (defaults["autocommit"], defaults["allow_unordered_commit"]) == (True, False)


def test_examples_of_handlers_run() -> None:
    result = doctest.testmod(handler, raise_on_error=True)
    assert (result.failed, result.attempted > 0) == (0, True)
