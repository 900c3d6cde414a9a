from __future__ import annotations

import copy
import pickle

import pytest

from karrow import errors

EVERY = [
    errors.KarrowError("text", hint="do this", api="Fetch"),
    errors.ConfigError("text"),
    errors.BufferFull("text"),
    errors.ConnectError("text", broker="b:9092"),
    errors.Disconnected("text"),
    errors.AuthenticationError("text"),
    errors.RequestTimeout("text"),
    errors.LocalProtocolError("text"),
    errors.RemoteProtocolError("text"),
    errors.CorruptRecordError("text", offset=5, next_offset=9, position=70, topic="t"),
    errors.SerializationError("text"),
    errors.CommitFailed("text"),
    errors.ProduceError("text", record=("t", b"v"), topic="t"),
    errors.NotController(),
    errors.UnknownBrokerError(code=777),
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_every_error_pickles_with_what_it_carries(error: errors.KarrowError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_every_copy_keeps_the_cause_and_its_own_attributes(error: errors.KarrowError) -> None:
    error.__cause__ = OSError("the cause")
    again = copy.copy(error)
    again.hint = "of the copy"
    assert (type(again), again.__cause__) == (type(error), error.__cause__)
    assert again.message == error.message
    assert error.hint != again.hint


def test_text_shows_context_and_hint() -> None:
    assert str(EVERY[0]) == "text (api Fetch); do this"


def test_errors_are_also_the_builtins_people_catch() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.StateError, RuntimeError)
    assert issubclass(errors.NetworkError, ConnectionError)
    assert issubclass(errors.RequestTimeout, TimeoutError)


def test_authentication_is_not_retried_though_other_network_errors_are() -> None:
    assert errors.Disconnected.retriable
    assert not errors.AuthenticationError.retriable


class TestPartialError:
    bad = errors.NotController()
    worse = errors.InvalidConfig()

    def partial(self) -> errors.PartialError:
        return errors.PartialError("some", {"a": 1}, {"b": self.bad, "c": self.worse})

    def test_pickles_with_results_and_errors(self) -> None:
        again = pickle.loads(pickle.dumps(self.partial()))
        assert again.results == {"a": 1}
        assert {key: type(error) for key, error in again.errors.items()} == {
            "b": errors.NotController,
            "c": errors.InvalidConfig,
        }

    def test_copies_with_results_errors_and_cause(self) -> None:
        partial = self.partial()
        partial.__cause__ = self.bad
        again = copy.copy(partial)
        assert (again.results, again.errors) == (partial.results, partial.errors)
        assert again.__cause__ is self.bad

    def test_splits_by_kind(self) -> None:
        matched, rest = self.partial().split(errors.NotController)
        assert isinstance(matched, errors.PartialError)
        assert isinstance(rest, errors.PartialError)
        assert (matched.errors, rest.errors) == ({"b": self.bad}, {"c": self.worse})
        assert matched.results == rest.results == {"a": 1}

    def test_is_an_error_of_karrow_and_a_group(self) -> None:
        error = self.partial()
        assert isinstance(error, errors.KarrowError)
        assert error.exceptions == (self.bad, self.worse)
        assert str(error) == "some"
