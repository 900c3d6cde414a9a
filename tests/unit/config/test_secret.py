"""Secrets stay secret wherever a value may be printed, stored or compared."""

from __future__ import annotations

import copy
import json
import logging
import pickle

import pytest

from karrow.config import Plain, Secret
from karrow.errors import StateError

CANARY = "canary-7f3a"


@pytest.fixture
def secret() -> Secret:
    return Secret(CANARY)


@pytest.mark.parametrize(
    "shown",
    [
        str,
        repr,
        "{}".format,
        "{:>10}".format,
        "{!r}".format,
        lambda value: f"{value}",
        lambda value: "%s %r" % (value, value),  # noqa: UP031 - one more way to print
        lambda value: repr([value]),
        lambda value: repr(Plain("alice", value)),
        lambda value: json.dumps({"password": value}, default=str),
    ],
)
def test_printing_shows_a_mask(shown: object, secret: Secret) -> None:
    assert callable(shown)
    text = shown(secret)
    assert CANARY not in text
    assert "***" in text


def test_logging_shows_a_mask(secret: Secret, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").debug("password %s", secret)
    assert "password ***" in caplog.text


def test_json_refuses_it(secret: Secret) -> None:
    with pytest.raises(TypeError):
        json.dumps(secret)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_refuses_it_and_says_what_to_do(secret: Secret, protocol: int) -> None:
    with pytest.raises(StateError, match=r"reveal\(\)"):
        pickle.dumps(secret, protocol)
    with pytest.raises(StateError):
        pickle.dumps(Plain("alice", secret), protocol)


def test_copies_are_itself(secret: Secret) -> None:
    assert copy.copy(secret) is secret
    assert copy.deepcopy(secret) is secret
    assert copy.deepcopy(Plain("alice", secret)) == Plain("alice", CANARY)


def test_it_compares_and_hashes_by_content_but_never_equals_text(secret: Secret) -> None:
    assert secret == Secret(CANARY)
    assert secret != Secret("other")
    assert secret != Secret("päßword")
    assert secret != CANARY
    assert len({secret, Secret(CANARY)}) == 1


def test_it_cannot_be_changed(secret: Secret) -> None:
    with pytest.raises(AttributeError):
        secret._text = "other"


def test_reveal_gives_the_text_and_truth_its_presence(secret: Secret) -> None:
    assert secret.reveal() == CANARY
    assert Secret(secret).reveal() == CANARY
    assert secret
    assert not Secret("")
