"""The protocol of batches against a Kafka of a few variables: which are written, and which not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from karrow import errors, events
from karrow.aio.producing.coordinator_calls import Identity
from karrow.spark.exactly.batches import Batches, OnMissing
from karrow.spark.exactly.ledger import Entry

Q = "query"


class Crash(BaseException):
    """The driver dies."""


@dataclass
class Cluster:
    """What Kafka knows: the epoch, what is open, what is committed."""

    epoch: int = 0
    entry: Entry | None = None
    rows: list[int] = field(default_factory=list)
    open_rows: list[int] = field(default_factory=list)
    open_entry: Entry | None = None

    def bump(self) -> int:
        self.open_rows, self.open_entry = [], None
        self.epoch += 1
        return self.epoch

    def check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise errors.ProducerFenced("fenced")

    def write(self, epoch: int, *rows: int) -> None:
        self.check(epoch)
        self.open_rows += rows


Trouble = Callable[[str], None]


class FakeSteps:
    """A driver's view of the cluster; ``trouble`` is called before and after every step."""

    version = 2

    def __init__(self, cluster: Cluster, trouble: Trouble = lambda _: None) -> None:
        self.cluster, self.trouble = cluster, trouble
        self.who = Identity(-1, -1)

    def open(self) -> Entry | None:
        self.trouble("before open")
        self.who = Identity(1, self.cluster.bump())
        self.trouble("after open")
        return self.cluster.entry

    def store(self, entry: Entry) -> None:
        self.trouble("before store")
        self.cluster.check(self.who.epoch)
        self.cluster.open_entry = entry
        self.trouble("after store")

    def end(self) -> None:
        self.trouble("before end")
        self.cluster.check(self.who.epoch)
        assert self.cluster.open_entry is not None
        self.cluster.rows += self.cluster.open_rows
        self.cluster.entry = self.cluster.open_entry
        epoch = self.cluster.bump()
        self.trouble("after end")
        self.who = Identity(1, epoch)

    def fence(self) -> Entry | None:
        self.trouble("before fence")
        # A broker knows the one epoch before as well (KIP-360).
        if self.cluster.epoch - self.who.epoch > 1:
            raise errors.ProducerFenced("fenced")
        self.who = Identity(1, self.cluster.bump())
        self.trouble("after fence")
        return self.cluster.entry


def batches(steps: FakeSteps, on_missing: OnMissing = "stop", retries: int = 3) -> Batches:
    return Batches(steps, sink_id="s", on_missing=on_missing, retries=retries)


def writing(steps: FakeSteps, *rows: int) -> Callable[[Identity, int], int]:
    def write(who: Identity, version: int) -> int:
        assert version == 2
        steps.trouble("before write")
        steps.cluster.write(who.epoch, *rows)
        steps.trouble("after write")
        return len(rows)

    return write


def never(who: Identity, version: int) -> int:
    raise AssertionError("nothing was to be written")


def failing(*places: str) -> Trouble:
    """Fails once at each place, in this order."""
    left = list(places)

    def trouble(place: str) -> None:
        if left and left[0] == place:
            left.pop(0)
            raise errors.Disconnected(place)

    return trouble


def test_batches_follow_each_other_and_empty_ones_are_noted() -> None:
    steps = FakeSteps(Cluster())
    sink = batches(steps)
    assert sink.run(Q, "r", 0, writing(steps, 1, 2))
    assert sink.run(Q, "r", 1, writing(steps))
    assert sink.run(Q, "r", 2, writing(steps, 3))
    assert steps.cluster.rows == [1, 2, 3]
    assert steps.cluster.entry == Entry(Q, 2, 1)


def test_batch_of_the_ledger_is_passed_over_after_a_restart() -> None:
    cluster = Cluster(entry=Entry(Q, 4, 1))
    sink = batches(FakeSteps(cluster))
    assert not sink.run(Q, "r", 4, never)
    steps = FakeSteps(cluster)
    assert batches(steps).run(Q, "r2", 5, writing(steps, 1))


@pytest.mark.parametrize("batch", [0, 3, 6, 99])
def test_batch_that_does_not_follow_stops(batch: int) -> None:
    sink = batches(FakeSteps(Cluster(entry=Entry(Q, 4, 1))))
    with pytest.raises(errors.StateError, match=f"last batch is 4, and this is {batch}"):
        sink.run(Q, "r", batch, never)


def test_checkpoint_of_another_query_stops() -> None:
    sink = batches(FakeSteps(Cluster(entry=Entry("other", 4, 1))))
    with pytest.raises(errors.StateError, match="belongs to the query other"):
        sink.run(Q, "r", 5, never)


def test_second_call_for_a_batch_is_refused_instead_of_lost() -> None:
    steps = FakeSteps(Cluster())
    sink = batches(steps)
    sink.run(Q, "r", 0, writing(steps, 1))
    with pytest.raises(errors.StateError, match="in one call"):
        sink.run(Q, "r", 0, never)


def test_missing_ledger_stops_redoes_or_skips() -> None:
    with pytest.raises(errors.StateError, match="on_missing_ledger='redo' or 'skip'"):
        batches(FakeSteps(Cluster())).run(Q, "r", 7, never)
    steps = FakeSteps(Cluster())
    assert batches(steps, "redo").run(Q, "r", 7, writing(steps, 1))
    assert steps.cluster.entry == Entry(Q, 7, 1)
    steps = FakeSteps(Cluster())
    sink = batches(steps, "skip")
    assert not sink.run(Q, "r", 7, never)
    assert steps.cluster.entry == Entry(Q, 7, 0)  # or a restart would skip the next one as well
    assert sink.run(Q, "r", 8, writing(steps, 1))


@pytest.mark.parametrize(
    "place", ["before write", "after write", "before store", "after store", "before end"]
)
def test_failed_attempt_is_fenced_and_tried_again(place: str) -> None:
    steps = FakeSteps(Cluster(), failing(place))
    told: list[events.Event] = []
    with events.subscribe(told.append, "sink.retry"):
        assert batches(steps).run(Q, "r", 0, writing(steps, 1))
    assert steps.cluster.rows == [1]
    assert [event.fields["batch"] for event in told] == [0]


def test_lost_answer_to_the_commit_is_resolved_by_the_ledger() -> None:
    steps = FakeSteps(Cluster(), failing("after end"))
    sink = batches(steps)
    assert sink.run(Q, "r", 0, writing(steps, 1))
    assert steps.cluster.rows == [1]
    assert sink.run(Q, "r", 1, writing(steps, 2))


def test_retries_are_bounded_and_nothing_stays_open() -> None:
    steps = FakeSteps(Cluster(), failing(*["after write"] * 3))
    with pytest.raises(errors.Disconnected):
        batches(steps, retries=2).run(Q, "r", 0, writing(steps, 1))
    assert (steps.cluster.rows, steps.cluster.open_rows) == ([], [])


def test_wrong_rows_are_not_tried_again() -> None:
    steps = FakeSteps(Cluster())
    tries: list[int] = []

    def write(who: Identity, version: int) -> int:
        tries.append(who.epoch)
        raise errors.ConfigError("no such column")

    with pytest.raises(errors.ConfigError):
        batches(steps).run(Q, "r", 0, write)
    assert len(tries) == 1


def test_replaced_driver_stops_and_its_run_stays_stopped() -> None:
    cluster = Cluster()
    old, new = FakeSteps(cluster), FakeSteps(cluster)
    first = batches(old)
    first.run(Q, "r1", 0, writing(old, 1))
    second = batches(new)
    assert not second.run(Q, "r2", 0, never)
    assert second.run(Q, "r2", 1, writing(new, 2))
    for _ in range(2):
        with pytest.raises((errors.ProducerFenced, errors.StateError)):
            first.run(Q, "r1", 1, writing(old, 2))
    assert second.run(Q, "r2", 2, writing(new, 3))
    assert cluster.rows == [1, 2, 3]


def test_same_function_serves_the_next_run_and_not_the_one_before() -> None:
    steps = FakeSteps(Cluster())
    sink = batches(steps)
    sink.run(Q, "r1", 0, writing(steps, 1))
    assert not sink.run(Q, "r2", 0, never)
    with pytest.raises(errors.StateError, match="another run"):
        sink.run(Q, "r1", 1, never)
    assert sink.run(Q, "r2", 1, writing(steps, 2))


def test_interrupted_attempt_is_fenced_before_the_next_batch() -> None:
    cluster = Cluster()
    steps = FakeSteps(cluster)
    sink = batches(steps)

    def interrupted(who: Identity, version: int) -> int:
        cluster.write(who.epoch, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sink.run(Q, "r", 0, interrupted)
    assert sink.run(Q, "r", 0, writing(steps, 2))
    assert cluster.rows == [2]


def test_entry_is_renewed_when_it_is_old() -> None:
    steps, now = FakeSteps(Cluster()), [0.0]
    sink = Batches(steps, sink_id="s", clock=lambda: now[0])
    assert not sink.renew(10.0)
    sink.run(Q, "r", 0, writing(steps, 1))
    now[0] = 9.0
    assert not sink.renew(10.0)
    now[0] = 10.0
    assert sink.renew(10.0)
    assert not sink.renew(10.0)
    assert steps.cluster.entry == Entry(Q, 0, 1)
    assert sink.run(Q, "r", 1, writing(steps, 2))
    assert steps.cluster.rows == [1, 2]


@pytest.mark.parametrize("place", ["before store", "before end"])
def test_renewal_that_fails_is_due_again(place: str) -> None:
    failing = [False]

    def trouble(where: str) -> None:
        if failing[0] and where == place:
            raise errors.Disconnected(where)

    steps, now = FakeSteps(Cluster(), trouble), [0.0]
    sink = Batches(steps, sink_id="s", clock=lambda: now[0])
    sink.run(Q, "r", 0, writing(steps, 1))
    now[0], failing[0] = 20.0, True
    with pytest.raises(errors.Disconnected):
        sink.renew(10.0)
    failing[0] = False
    assert sink.renew(10.0)
    assert sink.run(Q, "r", 1, writing(steps, 2))
    assert steps.cluster.rows == [1, 2]


def test_renewal_commits_nothing_of_an_interrupted_batch() -> None:
    steps, now = FakeSteps(Cluster()), [0.0]
    sink = Batches(steps, sink_id="s", clock=lambda: now[0])
    sink.run(Q, "r", 0, writing(steps, 1))

    def interrupted(who: Identity, _: int) -> int:
        steps.cluster.write(who.epoch, 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sink.run(Q, "r", 1, interrupted)
    now[0] = 20.0
    assert sink.renew(10.0)
    assert steps.cluster.rows == [1]
    assert steps.cluster.entry == Entry(Q, 0, 1)


def test_a_sink_that_is_opened_before_its_first_batch_is_renewed() -> None:
    """How old the entry is nobody knows then: a run that ends every night has to renew it too."""
    steps = FakeSteps(Cluster(entry=Entry(Q, 4, 1)))
    sink = batches(steps)
    sink.open("r")
    assert steps.cluster.epoch == 1
    assert sink.renew(10.0)
    assert not sink.renew(10.0)
    assert steps.cluster.entry == Entry(Q, 4, 1)
    epoch = steps.cluster.epoch
    assert not sink.run(Q, "r", 4, never), "the last batch may be repeated after a restart"
    sink.open("r")
    assert steps.cluster.epoch == epoch, "it is open"
    assert sink.run(Q, "r", 5, writing(steps, 1))
    assert steps.cluster.rows == [1]


def test_a_batch_that_was_passed_over_leaves_an_old_entry() -> None:
    steps = FakeSteps(Cluster(entry=Entry(Q, 4, 1)))
    sink = batches(steps)
    assert not sink.run(Q, "r", 4, never)
    assert sink.renew(10.0)


def test_a_sink_without_an_entry_is_opened_by_its_first_batch() -> None:
    """Until then the broker may have forgotten who opened it."""
    steps = FakeSteps(Cluster())
    sink = batches(steps)
    sink.open("r")
    assert not sink.renew(0.0)
    steps.cluster.bump()  # as good as forgotten: what was had is worth nothing
    steps.cluster.bump()
    assert sink.run(Q, "r", 0, writing(steps, 1))
    assert steps.cluster.rows == [1]


def test_opening_takes_the_sink_from_older_runs() -> None:
    cluster = Cluster(entry=Entry(Q, 4, 1))
    old, new = FakeSteps(cluster), FakeSteps(cluster)
    before, after = batches(old), batches(new)
    assert before.run(Q, "r1", 5, writing(old, 1))
    after.open("r2")
    assert after.renew(10.0)
    with pytest.raises(errors.ProducerFenced):
        before.run(Q, "r1", 6, writing(old, 2))
    assert after.run(Q, "r2", 6, writing(new, 3))
    assert cluster.rows == [1, 3]
    after.open("r3")
    with pytest.raises(errors.StateError, match="another run of the query has it now"):
        after.open("r2")


@pytest.mark.parametrize("seed", range(200))
def test_any_schedule_of_failures_and_deaths_writes_every_batch_once(seed: int) -> None:
    chance = random.Random(seed)
    cluster = Cluster()

    def trouble(place: str) -> None:
        draw = chance.random()
        if draw < 0.08:
            raise Crash(place)
        if draw < 0.2 and place != "before open" and place != "after open":
            raise errors.Disconnected(place)

    batch, runs = 0, 0
    while batch < 10:
        runs += 1
        assert runs < 1000
        steps = FakeSteps(cluster, trouble)
        sink = batches(steps, retries=1)
        try:
            if chance.random() < 0.5:
                sink.open(f"r{runs}")
                sink.renew(10.0)
            while batch < 10:
                sink.run(Q, f"r{runs}", batch, writing(steps, batch))
                trouble("before Spark's commit log")
                batch += 1
        except (Crash, errors.KarrowError):
            continue
    assert cluster.rows == list(range(10))


@pytest.mark.parametrize(
    ("option", "value"), [("on_missing", "guess"), ("retries", -1), ("retries", "3")]
)
def test_impossible_options_are_refused(option: str, value: object) -> None:
    wrong = {option: value}
    with pytest.raises(errors.ConfigError, match=str(value)):
        Batches(FakeSteps(Cluster()), sink_id="s", **wrong)  # type: ignore[arg-type]
