"""Members of both kinds of groups: the same on the embedded broker and on a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from karrow import errors
from karrow.aio.groups.member import MemberState
from karrow.aio.groups.membership import Membership
from karrow.types import TopicPartition
from tests.contract.grouping import new_id
from tests.fix_any import AnyKafka
from tests.membership import Members, Pair, parts, settled, until

PATIENCE = 20.0
COOPERATIVE = {"protocol": "classic", "assignors": "cooperative-sticky"}
SERVED = {"protocol": "consumer"}


@pytest.fixture(params=[COOPERATIVE, SERVED], ids=["classic", "consumer"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Members of either kind, which keep what they have while others come and go."""
    return {"group": new_id(), **request.param}


@pytest.fixture
def topic(newest_kafka: AnyKafka) -> str:
    return newest_kafka.create_topic(partitions=6)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


@asynccontextmanager
async def members(kafka: AnyKafka, options: dict[str, Any]) -> AsyncIterator[Members]:
    """A group without members."""
    found = Members(kafka.bootstrap, heartbeat_interval=0.3, **options)
    try:
        yield found
    finally:
        await found.close()


async def shared(g: Members, count: int, *them: Pair) -> None:
    """Wait until everything is owned."""
    await until(lambda: len(g.owners) == count and settled(*them)(), PATIENCE)


def test_members_share_and_hand_over(
    newest_kafka: AnyKafka, options: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with members(newest_kafka, options) as g:
            first = await g.join(topic)
            await shared(g, 6, first)
            second = await g.join(topic)
            await shared(g, 6, first, second)
            assert len(first[1].owned()) == len(second[1].owned()) == 3
            # What it keeps is not touched, what it gives up is given up once.
            assert first[1].heard("assigned")[0] == parts(*range(6), topic=topic)
            assert first[1].heard("revoked") == [second[1].owned()]
            assert isinstance(first[0], Membership) is (options["protocol"] == "classic")
            await first[0].close()
            await until(lambda: len(second[1].owned()) == 6, PATIENCE)
            assert not second[1].heard("revoked")
            assert not first[1].heard("lost")
            assert not second[1].errors

    run(main())


def test_three_come_and_go_at_once(
    newest_kafka: AnyKafka, options: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with members(newest_kafka, options) as g:
            them = await asyncio.gather(*(g.join(topic) for _ in range(3)))
            await shared(g, 6, *them)
            assert [len(reader.owned()) for _, reader in them] == [2, 2, 2]
            late, *rest = await asyncio.gather(
                g.join(topic), them[0][0].close(), them[1][0].close()
            )
            assert rest == [None, None]
            await shared(g, 6, late, them[2])
            assert not any(reader.heard("lost") for _, reader in (*them, late))
            assert not any(reader.errors for _, reader in (*them, late))

    run(main())


def test_a_static_member_comes_back_to_its_partitions(
    newest_kafka: AnyKafka, options: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with members(newest_kafka, options) as g:
            first = await g.join(topic, instance_id="one")
            second = await g.join(topic, instance_id="two")
            await shared(g, 6, first, second)
            had = first[1].owned()
            await first[0].close()
            again = await g.join(topic, instance_id="one")
            await shared(g, 6, again, second)
            assert again[1].owned() == had
            await again[0].leave("for a while")
            await again[0].start()
            await shared(g, 6, again, second)
            assert again[1].owned() == had
            await again[0].leave("for good", for_good=True)
            await until(lambda: len(second[1].owned()) == 6, PATIENCE)

    run(main())


def test_another_subscription_takes_away_and_gives(
    newest_kafka: AnyKafka, options: dict[str, Any], topic: str
) -> None:
    other = newest_kafka.create_topic(partitions=2)

    async def main() -> None:
        async with members(newest_kafka, options) as g:
            member, reader = await g.join(topic)
            await shared(g, 6, (member, reader))
            reader.topics = frozenset({other})
            member.rejoin("the subscription has changed")
            await until(lambda: reader.owned() == parts(0, 1, topic=other), PATIENCE)
            assert reader.heard("revoked") == [parts(*range(6), topic=topic)]

    run(main())


def test_a_pattern_is_matched_by_the_broker(newest_kafka: AnyKafka) -> None:
    prefix = new_id()
    for number in (1, 2):
        newest_kafka.create_topic(f"{prefix}-{number}", partitions=number)
    newest_kafka.create_topic(f"other-{prefix}-3")
    wanted = {
        TopicPartition(f"{prefix}-1", 0),
        TopicPartition(f"{prefix}-2", 0),
        TopicPartition(f"{prefix}-2", 1),
    }

    async def main() -> None:
        async with members(newest_kafka, {"group": new_id(), **SERVED}) as g:
            member, reader = await g.join(pattern=f"{prefix}-[0-9]+")
            await until(lambda: reader.owned() == wanted, PATIENCE)
            reader.topics, reader.regex = frozenset({f"{prefix}-1"}), None
            member.rejoin("names instead")
            await until(lambda: reader.owned() == parts(0, topic=f"{prefix}-1"), PATIENCE)
            _, other = await g.join(pattern="(")
            await until(lambda: other.errors, PATIENCE)
            assert isinstance(other.errors[0], errors.InvalidRegularExpression)

    run(main())


def test_who_is_not_known_any_more_joins_anew(newest_kafka: AnyKafka, topic: str) -> None:
    async def main() -> None:
        async with members(newest_kafka, {"group": new_id(), **SERVED}) as g:
            first = await g.join(topic)
            await shared(g, 6, first)
            first[0].generation += 7  # an epoch that the broker has not counted
            await until(lambda: first[1].heard("lost"), PATIENCE)
            await shared(g, 6, first)
            assert not first[1].errors

    run(main())


def test_an_instance_or_assignor_that_cannot_be_had_is_named(
    newest_kafka: AnyKafka, topic: str
) -> None:
    async def main() -> None:
        async with members(newest_kafka, {"group": new_id(), **SERVED}) as g:
            first = await g.join(topic, instance_id="one", remote_assignor="range")
            await shared(g, 6, first)
            taken, bad = (
                await g.join(topic, instance_id="one"),
                await g.join(topic, remote_assignor="none of them"),
            )
            await until(lambda: taken[1].errors and bad[1].errors, PATIENCE)
            assert isinstance(taken[1].errors[0], errors.UnreleasedInstanceId)
            assert isinstance(bad[1].errors[0], errors.UnsupportedAssignor)
            assert first[0].state is MemberState.STABLE

    run(main())


def test_brokers_without_the_protocol_are_named(any_kafka: AnyKafka) -> None:
    if any_kafka.number >= (4, 0):
        pytest.skip("it has the protocol")

    async def main() -> None:
        async with members(any_kafka, {"group": new_id(), **SERVED}) as g:
            _, reader = await g.join("t")
            await until(lambda: reader.errors, PATIENCE)
            assert isinstance(reader.errors[0], errors.UnsupportedVersion)
            assert "protocol='classic'" in str(reader.errors[0])

    run(main())
