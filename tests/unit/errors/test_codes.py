from __future__ import annotations

import pickle

import pytest

from karrow import errors
from karrow.errors.codes import BY_CODE


def test_class_of_a_code_has_kafkas_facts() -> None:
    kind = errors.for_code(6)
    assert kind is errors.NotLeaderOrFollower
    assert (kind.code, kind.name, kind.retriable) == (6, "NOT_LEADER_OR_FOLLOWER", True)
    assert kind.description == "not leader or follower"


def test_every_code_up_to_the_newest_is_there() -> None:
    assert set(BY_CODE) == {-1, *range(1, 137)}


@pytest.mark.parametrize(
    ("code", "retriable"),
    [(3, True), (10, False), (19, True), (47, False), (51, True), (90, False)],
)
def test_retriable_is_kafkas_own_judgement(code: int, retriable: bool) -> None:
    assert errors.for_code(code).retriable is retriable


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (errors.StaleMetadata, {3, 5, 6, 8, 9, 13, 41, 56, 72, 74, 80, 83, 84, 100, 103}),
        (errors.StaleCoordinator, {14, 15, 16}),
        (errors.AuthorizationError, {29, 30, 31, 53, 65}),
        (errors.Fenced, {47, 82, 90}),
    ],
)
def test_kinds_are_mixins(kind: type, codes: set[int]) -> None:
    assert {code for code, found in BY_CODE.items() if issubclass(found, kind)} == codes


def test_success_is_no_error() -> None:
    assert errors.error_for(0) is None
    with pytest.raises(ValueError, match="success"):
        errors.for_code(0)


def test_error_carries_the_brokers_text_and_the_context() -> None:
    error = errors.error_for(29, "no", topic="orders", partition=None)
    assert isinstance(error, errors.TopicAuthorizationFailed)
    assert str(error) == "no (topic orders)"
    assert error.context == {"topic": "orders"}


def test_error_without_text_says_its_name() -> None:
    assert str(errors.error_for(3)) == "UNKNOWN_TOPIC_OR_PARTITION: unknown topic or partition"


def test_unknown_code_keeps_its_number() -> None:
    assert errors.for_code(9999) is errors.UnknownBrokerError
    error = errors.error_for(9999, topic="orders")
    assert isinstance(error, errors.UnknownBrokerError)
    assert error.code == 9999
    assert "9999" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.context, str(again)) == (9999, {"topic": "orders"}, str(error))


def test_names_are_found() -> None:
    assert errors.for_name("NOT_ENOUGH_REPLICAS") is errors.NotEnoughReplicas
    with pytest.raises(ValueError, match="NOT_ENOUGH"):
        errors.for_name("NOT_ENOUGH")


def test_every_code_pickles() -> None:
    for code in BY_CODE:
        error = errors.error_for(code, "text", api="Fetch")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))


def test_exports_are_exactly_all() -> None:
    assert {kind.__name__ for kind in BY_CODE.values()} <= set(errors.__all__)
    assert all(hasattr(errors, name) for name in errors.__all__)
    assert len(set(errors.__all__)) == len(errors.__all__)
