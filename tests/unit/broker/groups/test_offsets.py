"""Stored offsets: transactions, retention, restarts."""

from __future__ import annotations

from karrow.broker.groups import Commit
from karrow.broker.groups.offsets import Place
from tests.unit.broker.groups.coordinating import GROUP, Coordinating, looped, outcome, wanting

DAY = 86_400.0
WEEK = 7 * DAY
PLACE: Place = ("t", 0)


def store(kafka: Coordinating, offset: int = 1, expires_ms: int | None = None) -> None:
    kafka.groups.check_commit(GROUP, "", None, -1, places=[PLACE], knows_epochs=True)
    commit = Commit(offset, timestamp_ms=kafka.clock.time_ms(), expires_ms=expires_ms)
    kafka.groups.commit(GROUP, {PLACE: commit})


def stored(kafka: Coordinating) -> int | None:
    found = kafka.groups.offsets.of(GROUP).get(PLACE)
    return None if found is None else found.offset


def test_a_transaction_stores_its_offsets_when_it_commits() -> None:
    kafka = Coordinating(t=1)
    store(kafka)
    kafka.groups.add_pending_offsets(GROUP, 7, {PLACE: Commit(5)})
    assert stored(kafka) == 1
    assert kafka.groups.offsets.is_pending(GROUP, PLACE)
    kafka.groups.complete_transaction(7, commit=True)
    assert stored(kafka) == 5
    assert not kafka.groups.offsets.is_pending(GROUP, PLACE)


def test_a_transaction_that_aborts_stores_nothing() -> None:
    kafka = Coordinating(t=1)
    kafka.groups.add_pending_offsets(GROUP, 7, {PLACE: Commit(5)})
    kafka.groups.complete_transaction(7, commit=False)
    kafka.groups.complete_transaction(8, commit=True)
    assert stored(kafka) is None
    assert not kafka.groups.offsets.is_open(GROUP)


def test_what_was_sent_last_stays() -> None:
    kafka = Coordinating(t=1)
    kafka.groups.add_pending_offsets(GROUP, 7, {PLACE: Commit(5)})
    store(kafka, 9)
    kafka.groups.complete_transaction(7, commit=True)
    assert stored(kafka) == 9


def test_deleting_an_offset_deletes_it_in_open_transactions() -> None:
    kafka = Coordinating(t=1)
    kafka.groups.add_pending_offsets(GROUP, 7, {PLACE: Commit(5), ("t", 1): Commit(6)})
    kafka.groups.delete_offset(GROUP, PLACE)
    kafka.groups.complete_transaction(7, commit=True)
    assert list(kafka.groups.offsets.of(GROUP)) == [("t", 1)]


def test_deleting_a_topic_or_group_deletes_its_offsets() -> None:
    kafka = Coordinating(t=1)
    store(kafka)
    kafka.groups.add_pending_offsets(GROUP, 7, {PLACE: Commit(5)})
    kafka.cluster.delete_topic("t")
    kafka.groups.complete_transaction(7, commit=True)
    assert stored(kafka) is None
    kafka.cluster.create_topic("t", 1)
    store(kafka)
    kafka.groups.delete(GROUP)
    assert stored(kafka) is None
    assert not any(kafka.store.tables[table] for table in ("offsets", "pending_offsets", "groups"))


def test_offsets_survive_a_restart() -> None:
    kafka = Coordinating(t=1)
    store(kafka)
    kafka.groups.add_pending_offsets(GROUP, 7, {PLACE: Commit(5, metadata="m")})
    kafka.groups.add_pending_offsets("a/b", 8, {PLACE: Commit(6)})
    kafka.restart()
    assert stored(kafka) == 1
    kafka.groups.complete_transaction(7, commit=True)
    assert kafka.groups.offsets.of(GROUP)[PLACE][:3] == (5, -1, "m")
    assert kafka.groups.find("a/b").is_empty
    store(kafka, 9)
    kafka.groups.complete_transaction(8, commit=False)
    kafka.restart()
    assert stored(kafka) == 9


@looped
async def test_who_may_store_offsets_in_a_transaction() -> None:
    kafka = Coordinating(t=1)
    check = kafka.groups.check_transactional_commit
    assert outcome(check, "", -1, "", None) == "INVALID_GROUP_ID"
    assert outcome(check, GROUP, 3, "x", None) == "ILLEGAL_GENERATION"
    assert outcome(check, GROUP, -1, "", None) == ""
    joined = kafka.enter().result()
    # Those of old versions do not say who they are; the assignment need not be known.
    assert outcome(check, GROUP, -1, "", None) == ""
    assert outcome(check, GROUP, 1, joined.member_id, None) == ""
    assert outcome(check, GROUP, 2, joined.member_id, None) == "ILLEGAL_GENERATION"
    assert outcome(check, GROUP, 1, "x", None) == "UNKNOWN_MEMBER_ID"
    assert outcome(check, GROUP, 1, joined.member_id, "i") == "UNKNOWN_MEMBER_ID"


def test_who_may_store_offsets_in_a_transaction_of_the_consumer_protocol() -> None:
    kafka = Coordinating(t=1)
    kafka.subscribe("a", "t")
    check = kafka.groups.check_transactional_commit
    assert outcome(check, GROUP, 2, "a", None) == ""
    assert outcome(check, GROUP, 1, "a", None) == "ILLEGAL_GENERATION"
    assert outcome(check, GROUP, 2, "x", None) == "UNKNOWN_MEMBER_ID"


def test_without_members_offsets_are_kept_a_week_after_they_were_stored() -> None:
    kafka = Coordinating(t=1)
    store(kafka)
    kafka.clock.advance(WEEK - DAY)
    store(kafka, 2)
    kafka.clock.advance(WEEK - 1)
    assert stored(kafka) == 2
    kafka.clock.advance(1200)
    assert stored(kafka) is None
    assert outcome(kafka.groups.find, GROUP) == "GROUP_ID_NOT_FOUND"


def test_a_commit_may_name_its_retention() -> None:
    kafka = Coordinating(t=1)
    store(kafka, expires_ms=kafka.clock.time_ms() + 3_600_000)
    kafka.clock.advance(3500)
    assert stored(kafka) == 1
    kafka.clock.advance(1200)
    assert stored(kafka) is None


@looped
async def test_a_group_keeps_its_offsets_for_a_week_after_the_last_member() -> None:
    kafka = Coordinating(t=1)
    store(kafka)
    joined = kafka.settle(session_timeout=1800.0, protocols=wanting("t"))
    for _ in range(10 * 24 * 3):
        kafka.clock.advance(1200)
        assert kafka.heartbeat(joined) == ""
    assert stored(kafka) == 1
    kafka.groups.leave(GROUP, [(joined.member_id, None)])
    kafka.clock.advance(WEEK - 1)
    assert stored(kafka) == 1
    kafka.clock.advance(1200)
    assert stored(kafka) is None


@looped
async def test_topics_that_no_member_wants_lose_their_offsets() -> None:
    kafka = Coordinating(t=1)
    store(kafka)
    joined = kafka.settle(session_timeout=1800.0, protocols=wanting("other"))
    for _ in range(8 * 24 * 3):
        kafka.clock.advance(1200)
        assert kafka.heartbeat(joined) == ""
    assert stored(kafka) is None
    assert kafka.state == "Stable"


def test_an_open_transaction_keeps_offsets_and_group() -> None:
    kafka = Coordinating(t=1)
    store(kafka)
    kafka.groups.add_pending_offsets(GROUP, 7, {PLACE: Commit(5)})
    kafka.clock.advance(2 * WEEK)
    assert stored(kafka) == 1


@looped
async def test_a_group_that_stored_nothing_goes_when_it_is_empty() -> None:
    kafka = Coordinating()
    kafka.new_id()
    assert kafka.state == "Empty"
    kafka.clock.advance(601)
    assert outcome(kafka.groups.find, GROUP) == "GROUP_ID_NOT_FOUND"
