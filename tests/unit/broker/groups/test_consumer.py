"""Groups of the consumer protocol: epochs, time-outs, and partitions that have one owner."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies

from karrow.broker.groups.assignors import Partition
from tests.unit.broker.groups.coordinating import GROUP, Coordinating, outcome

NAMES = ("a", "b", "c", "d")


def test_silence_ends_a_session() -> None:
    kafka = Coordinating(t=1)
    kafka.subscribe("a", "t")
    kafka.subscribe("b", "t")
    assert kafka.beat("a", 2) == ("a", 3, None)
    kafka.clock.advance(44)
    assert kafka.beat("a", 3) == ("a", 3, None)
    kafka.clock.advance(1)
    assert outcome(kafka.beat, "b", 3) == "UNKNOWN_MEMBER_ID"
    assert kafka.beat("a", 3) == ("a", 4, None)
    kafka.clock.advance(45)
    assert kafka.state == "Empty"


def test_partitions_must_be_given_up_in_time() -> None:
    kafka = Coordinating(t=2)
    kafka.subscribe("a", "t", rebalance_timeout=20.0)
    kafka.subscribe("b", "t")
    everything = kafka.partitions("t", 0, 1)
    assert kafka.beat("a", 2, owned=everything).assignment == kafka.partitions("t", 0)
    kafka.clock.advance(19)
    assert kafka.beat("a", 2, owned=everything) == ("a", 2, None)
    kafka.clock.advance(1)
    assert outcome(kafka.beat, "a", 2) == "UNKNOWN_MEMBER_ID"
    assert kafka.beat("b", 3).assignment == everything


def test_partitions_given_up_in_time_are_enough() -> None:
    kafka = Coordinating(t=2)
    kafka.subscribe("a", "t", rebalance_timeout=20.0)
    kafka.subscribe("b", "t")
    kafka.beat("a", 2, owned=kafka.partitions("t", 0, 1))
    kafka.beat("a", 2, owned=kafka.partitions("t", 0))
    kafka.clock.advance(30)
    assert kafka.beat("a", 3) == ("a", 3, None)


def test_a_static_member_that_stays_away_is_removed() -> None:
    kafka = Coordinating(t=2)
    kafka.subscribe("a", "t", instance_id="i")
    kafka.beat("a", -2, instance_id="i")
    kafka.subscribe("b", "t")
    assert kafka.beat("b", 3).assignment is None
    kafka.clock.advance(40)
    assert kafka.beat("b", 3).assignment is None
    kafka.clock.advance(5)
    assert kafka.beat("b", 3).assignment == kafka.partitions("t", 0, 1)


def test_a_topic_that_is_made_anew_is_another_topic() -> None:
    kafka = Coordinating(t=1)
    before = kafka.subscribe("a", "t").assignment
    kafka.cluster.delete_topic("t")
    kafka.cluster.create_topic("t", 1)
    told = kafka.beat("a", 2, owned=before)
    assert told == ("a", 2, frozenset())
    assert kafka.beat("a", 2, owned=frozenset()) == ("a", 3, kafka.partitions("t", 0))


def test_new_topics_that_a_regular_expression_matches() -> None:
    kafka = Coordinating(t1=1, x=1)
    assert kafka.subscribe("a", topics=None, regex="t.*") == ("a", 2, kafka.partitions("t1", 0))
    kafka.subscribe("b", "x")
    kafka.cluster.create_topic("t2", 1)
    both = kafka.partitions("t1", 0) | kafka.partitions("t2", 0)
    assert kafka.beat("a", 2) == ("a", 4, both)
    assert kafka.beat("a", 4, regex="") == ("a", 4, frozenset())


def test_members_that_want_different_topics() -> None:
    kafka = Coordinating(t1=4, t2=2)
    kafka.subscribe("a", "t1")
    kafka.subscribe("b", "t1", "t2")
    kafka.beat("a", 2, owned=kafka.partitions("t1", 0, 1, 2))
    group = kafka.groups.consumer(GROUP)
    assert {member: len(owned) for member, owned in group.target.items()} == {"a": 3, "b": 3}
    assert kafka.partitions("t2", 0, 1) < group.target["b"]


def test_members_go_on_after_a_restart() -> None:
    kafka = Coordinating(t=2)
    kafka.subscribe("a", "t", instance_id="i")
    kafka.subscribe("b", "t")
    kafka.beat("a", 2, owned=kafka.partitions("t", 0, 1))
    kafka.restart()
    assert kafka.state == "Reconciling"
    assert outcome(kafka.subscribe, "c", "t", instance_id="i") == "UNRELEASED_INSTANCE_ID"
    assert kafka.beat("a", 2, owned=kafka.partitions("t", 0)) == ("a", 3, None)
    assert kafka.beat("b", 3).assignment == kafka.partitions("t", 1)
    kafka.restart()
    assert kafka.state == "Stable"
    kafka.clock.advance(45)
    assert kafka.state == "Empty"


def test_a_revocation_is_timed_after_a_restart_too() -> None:
    kafka = Coordinating(t=2)
    kafka.subscribe("a", "t")
    kafka.subscribe("b", "t")
    kafka.beat("a", 2, owned=kafka.partitions("t", 0, 1))
    kafka.restart()
    kafka.clock.advance(30)
    assert outcome(kafka.beat, "a", 2) == "UNKNOWN_MEMBER_ID"


class Client:
    """A member as it sees itself: it gives up what it must, and owns what it was told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.owned: frozenset[Partition] = frozenset()
        self.told: frozenset[Partition] = frozenset()

    def beat(self, kafka: Coordinating, topics: frozenset[str]) -> None:
        if self.epoch == 0:
            beaten = kafka.subscribe(self.name, *topics)
        else:
            beaten = kafka.beat(self.name, self.epoch, owned=self.owned, topics=topics)
        self.epoch = beaten.epoch
        if beaten.assignment is not None:
            self.told = beaten.assignment

    def reconcile(self) -> None:
        self.owned = self.told

    def leave(self, kafka: Coordinating) -> None:
        if self.epoch:
            kafka.beat(self.name, -1)
        self.__init__(self.name)  # type: ignore[misc]


@hypothesis.given(strategies.data())
def test_a_partition_has_one_owner_and_in_the_end_everyone_has_a_fair_share(
    data: strategies.DataObject,
) -> None:
    sizes = {"t1": data.draw(strategies.integers(1, 5)), "t2": data.draw(strategies.integers(1, 5))}
    kafka = Coordinating(**sizes)
    clients = {name: Client(name) for name in NAMES}
    wanted = {name: frozenset({"t1", "t2"}) for name in NAMES}
    step = strategies.tuples(
        strategies.sampled_from(NAMES), strategies.sampled_from(["beat", "own", "leave", "want"])
    )
    for name, action in data.draw(strategies.lists(step, max_size=40)):
        client = clients[name]
        if action == "own":
            client.reconcile()
        elif action == "leave":
            client.leave(kafka)
        else:
            if action == "want":
                wanted[name] = data.draw(strategies.sampled_from([{"t1"}, {"t2"}, {"t1", "t2"}]))
            client.beat(kafka, frozenset(wanted[name]))
        owned = [partition for client in clients.values() for partition in client.owned]
        assert len(owned) == len(set(owned))
    present = [client for client in clients.values() if client.epoch]
    for _ in range(6):
        for client in present:
            client.beat(kafka, frozenset(wanted[client.name]))
            client.reconcile()
    if present:
        assert kafka.state == "Stable"
        topics = {topic for client in present for topic in wanted[client.name]}
        assert sum(len(client.owned) for client in present) == sum(sizes[t] for t in topics)
        alike = len({frozenset(wanted[client.name]) for client in present}) == 1
        counts = [len(client.owned) for client in present]
        assert not alike or max(counts) - min(counts) <= 1
