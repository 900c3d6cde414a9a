"""The proof at the end of `make demo` sees what is lost, doubled or wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples import demo

ORDERS = 4000
WINDOWS, IN_WINDOWS, IN_PARQUET, BAD = (
    "windows",
    "orders in windows",
    "orders in Parquet",
    "bad rows set aside",
)


@dataclass
class Record:
    """What the proof looks at of a record."""

    sent: bytes

    def value(self) -> bytes:
        return self.sent


class World:
    """What others find after the run, as it should be."""

    def __init__(self, sent: demo.Sent) -> None:
        self.windows = list(sent.totals.items())
        self.ids = [*sent.ids, -1]
        self.bad = list(sent.bad.elements())

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the proof look here, and not at a broker and files."""
        monkeypatch.setattr(demo, "totals", lambda *_: self.windows)
        monkeypatch.setattr(demo, "filed", lambda *_: (self.ids, 0))
        monkeypatch.setattr(demo, "committed", lambda *_: map(Record, self.bad))


def wrong_sum(world: World) -> None:
    key, (orders, cents) = world.windows[0]
    world.windows[0] = key, (orders, cents + 1)


def wrong_time(world: World) -> None:
    (customer, start), total = world.windows[0]
    world.windows[0] = (customer, start + 1), total


SPOILT: dict[str, tuple[Callable[[World], object], set[str]]] = {
    "a lost window": (lambda world: world.windows.pop(), {WINDOWS, IN_WINDOWS}),
    "a doubled window": (
        lambda world: world.windows.append(world.windows[0]),
        {WINDOWS, IN_WINDOWS},
    ),
    "a wrong sum": (wrong_sum, {WINDOWS}),
    "a wrong time": (wrong_time, {WINDOWS}),
    "a lost order": (lambda world: world.ids.pop(), {IN_PARQUET}),
    "a doubled order": (lambda world: world.ids.append(world.ids[0]), {IN_PARQUET}),
    "a wrong order": (lambda world: world.ids.__setitem__(0, ORDERS), {IN_PARQUET}),
    "a lost bad row": (lambda world: world.bad.pop(), {BAD}),
    "a doubled bad row": (lambda world: world.bad.append(world.bad[0]), {BAD}),
    "a wrong bad row": (lambda world: world.bad.__setitem__(0, b"{}"), {BAD}),
}


def verdicts(said: str) -> dict[str, str]:
    """What the last column of the table says of each row."""
    found = re.findall(r"^│ (\S.*?) +│.*│ (yes|NO) +│$", said, re.MULTILINE)
    assert len(found) == 4, said
    return dict(found)


def test_the_proof_agrees_with_what_is_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = demo.make_orders(ORDERS)
    assert len(sent.bad) == 4
    World(sent).use(monkeypatch)
    assert demo.proof(sent, "nowhere", Path())
    assert set(verdicts(capsys.readouterr().out).values()) == {"yes"}


@pytest.mark.parametrize("what", SPOILT)
def test_the_proof_sees_what_is_lost_or_doubled_or_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    sent = demo.make_orders(ORDERS)
    world = World(sent)
    spoil, wrong = SPOILT[what]
    spoil(world)
    world.use(monkeypatch)
    assert not demo.proof(sent, "nowhere", Path())
    found = verdicts(capsys.readouterr().out)
    assert {name for name, verdict in found.items() if verdict == "NO"} == wrong
