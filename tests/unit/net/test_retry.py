from __future__ import annotations

import pytest

import karrow
from karrow import errors, retry
from tests.unit.net.virtual import run


def test_delay_doubles_up_to_its_cap() -> None:
    assert [retry.backoff_delay(n, 0.1) for n in range(4)] == [0.1, 0.2, 0.4, 0.8]
    assert retry.backoff_delay(10, 0.1, 5.0) == 5.0
    assert retry.backoff_delay(10_000, 0.1, 5.0) == 5.0


def test_jitter_strays_by_its_share() -> None:
    delays = [retry.backoff_delay(0, 1.0, jitter=0.2) for _ in range(500)]
    assert 0.8 <= min(delays) < 0.9 < 1.1 < max(delays) <= 1.2


CLASSIFIED = {
    # error: transient, coordinator, leadership, commit, consumer group, produce-safe
    errors.NotLeaderOrFollower: (1, 0, 1, 1, 1, 1),
    errors.UnknownTopicOrPartition: (1, 0, 1, 1, 1, 1),
    errors.FencedLeaderEpoch: (1, 0, 1, 1, 1, 1),
    errors.BrokerNotAvailable: (0, 0, 1, 1, 1, 1),
    errors.NotCoordinator: (1, 1, 0, 1, 1, 0),
    errors.CoordinatorLoadInProgress: (1, 1, 0, 1, 1, 0),
    errors.NotEnoughReplicasAfterAppend: (1, 0, 0, 1, 1, 0),
    errors.KafkaStorageError: (1, 0, 0, 1, 1, 0),
    errors.NetworkException: (1, 0, 0, 1, 1, 0),
    errors.RequestTimedOut: (1, 0, 0, 1, 1, 0),
    errors.IllegalGeneration: (0, 0, 0, 0, 0, 0),
    errors.TopicAuthorizationFailed: (0, 0, 0, 0, 0, 0),
    errors.RequestTimeout: (1, 0, 0, 1, 1, 0),
    errors.Disconnected: (1, 0, 0, 1, 1, 0),
    errors.ConnectError: (1, 0, 0, 1, 1, 1),
    errors.AuthenticationError: (0, 0, 0, 0, 0, 0),
    errors.RemoteProtocolError: (0, 0, 0, 0, 0, 0),
    ValueError: (0, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("kind", CLASSIFIED, ids=lambda kind: kind.__name__)
def test_classifiers(kind: type[Exception]) -> None:
    classifiers = (
        retry.is_transient,
        retry.is_coordinator,
        retry.is_leadership,
        retry.is_commit_retriable,
        retry.is_consumer_group_retriable,
        retry.is_produce_safe,
    )
    found = tuple(int(classify(kind())) for classify in classifiers)
    assert found == CLASSIFIED[kind]


def test_an_error_may_speak_for_itself() -> None:
    error = errors.UnknownTopicOrPartition()
    error.retriable = False
    assert not retry.is_transient(error)


class Flaky:
    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def test_call_is_repeated_until_it_succeeds() -> None:
    flaky = Flaky(errors.NotCoordinator(), errors.Disconnected())
    told: list[tuple[str, int]] = []

    async def main() -> str:
        return await karrow.retry.with_retry(
            flaky, on_retry=lambda error, attempt, _: told.append((type(error).__name__, attempt))
        )

    assert run(main()) == "done"
    assert flaky.calls == 3
    assert told == [("NotCoordinator", 0), ("Disconnected", 1)]


def test_last_error_is_raised_after_the_retries() -> None:
    flaky = Flaky(*(errors.Disconnected(str(n)) for n in range(9)))

    async def main() -> None:
        await retry.with_retry(flaky, max_retries=2)

    with pytest.raises(errors.Disconnected, match="2"):
        run(main())
    assert flaky.calls == 3


def test_other_errors_are_not_repeated() -> None:
    flaky = Flaky(errors.IllegalGeneration())

    async def main() -> None:
        await retry.with_retry(flaky)

    with pytest.raises(errors.IllegalGeneration):
        run(main())
    assert flaky.calls == 1
