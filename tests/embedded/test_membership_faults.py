"""Groups under random trouble: nobody owns what another one owns, and all is owned in the end."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.membership import (
    EmbeddedGroup,
    Pair,
    Partitions,
    Reader,
    group,
    run,
    settled,
    until,
)

STEPS = 25
APIS = {
    "classic": ["JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "FindCoordinator"],
    "consumer": ["ConsumerGroupHeartbeat", "FindCoordinator", "Metadata"],
}
PASSING = ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"]
SLOWEST = 0.15


class SlowReader(Reader):
    """An owner that takes its time."""

    async def assigned(self, added: Partitions, generation: int) -> None:
        await asyncio.sleep(random.random() * SLOWEST)
        await super().assigned(added, generation)

    async def revoking(self, gone: Partitions) -> None:
        await asyncio.sleep(random.random() * SLOWEST)
        await super().revoking(gone)


def make_trouble(g: EmbeddedGroup, protocol: str) -> None:
    api = random.choice(APIS[protocol])
    kind = random.choice(["close", "fail", "delay", "move"])
    if kind == "close":
        g.broker.close(api, when=random.choice(["before", "after"]))
    elif kind == "fail" and api != "Metadata":
        g.broker.fail(api, random.choice(PASSING))
    elif kind == "delay":
        g.broker.delay(api, random.random() * SLOWEST, when=random.choice(["before", "after"]))
    else:
        g.broker.move_coordinator("g", random.choice([1, 2]))


async def step(g: EmbeddedGroup, members: list[Pair]) -> None:
    """Somebody comes, goes, or wants other topics."""
    what = random.choice(["join", "close", "subscribe", "nothing"])
    if what == "join" and len(members) < 4:
        members.append(await g.join("t", "u"))
    elif what == "close" and len(members) > 1:
        await members.pop(random.randrange(len(members)))[0].close()
    elif what == "subscribe":
        member, reader = random.choice(members)
        reader.topics = frozenset(random.choice([("t",), ("u",), ("t", "u")]))
        member.rejoin("another subscription")
    await asyncio.sleep(random.random() * SLOWEST)


@pytest.mark.parametrize("protocol", list(APIS))
def test_a_partition_has_one_owner_whatever_happens(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"protocol": protocol}
    if protocol == "classic":
        options["assignors"] = "cooperative-sticky"

    async def main() -> None:
        monkeypatch.setattr("tests.membership.Reader", SlowReader)
        monkeypatch.setattr("karrow.aio.groups.member.JOIN_PAUSE", 0.05)
        async with group(brokers=2, **options) as g:
            g.broker.create_topic("u", 3)
            members: list[Pair] = [await g.join("t", "u")]
            readers = [members[0][1]]
            for _ in range(STEPS):
                make_trouble(g, protocol)
                await step(g, members)
                readers += [reader for _, reader in members if reader not in readers]
            g.broker.clear_faults()
            for member, reader in members:
                reader.topics = frozenset({"t", "u"})
                member.rejoin("as in the beginning")
            await until(lambda: len(g.owners) == 7 and settled(*members)(), 20.0)
            assert not any(reader.errors for reader in readers)

    run(main(), 60)
