"""The blocking classes and their Async twins offer the same names, parameters and words."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import karrow

TWINS = [
    (karrow.Client, karrow.AsyncClient),
    (karrow.Admin, karrow.AsyncAdmin),
    (karrow.Consumer, karrow.AsyncConsumer),
]
# What only one side can have: the way to the other, what its clients share, what a blocking
# consumer asks of the one behind it, and how it is closed where nobody can wait.
OWN = {"twin", "cluster", "begin", "end", "is_at_work", "is_forked", "is_cut_off", "abandon"}
# Plain attributes on the side that awaits, properties on the other.
PLAIN = {"default_group", "config"}


def public(kind: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_") and name not in OWN
    }


def wording(value: Any) -> str:
    """But for the one word in which examples have to differ."""
    return (inspect.getdoc(value) or "").replace("await ", "")


@pytest.mark.parametrize(("blocking", "awaited"), TWINS)
def test_names_are_the_same(blocking: type, awaited: type) -> None:
    assert set(public(blocking)) - set(public(awaited)) <= PLAIN
    assert set(public(awaited)) - set(public(blocking)) == set()


@pytest.mark.parametrize(("blocking", "awaited"), TWINS)
def test_parameters_and_words_are_the_same(blocking: type, awaited: type) -> None:
    for name, value in public(awaited).items():
        other = public(blocking)[name]
        assert wording(other) == wording(value), name
        if not callable(value):
            continue
        mine, theirs = inspect.signature(other), inspect.signature(value)
        assert mine.parameters == theirs.parameters, name
        if inspect.iscoroutinefunction(value):
            assert not inspect.iscoroutinefunction(other)
            assert mine.return_annotation == theirs.return_annotation, name


@pytest.mark.parametrize("pair", TWINS)
def test_public_classes_call_karrow_home(pair: tuple[type, type]) -> None:
    for kind in pair:
        assert kind.__module__ == "karrow"
        assert getattr(karrow, kind.__name__) is kind


@pytest.mark.parametrize("pair", TWINS)
def test_everything_is_explained(pair: tuple[type, type]) -> None:
    for kind in pair:
        assert [name for name, value in public(kind).items() if not wording(value)] == []
