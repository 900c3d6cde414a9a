"""Compares what producers were told with what is in the log. No I/O.

| finding | means |
| --- | --- |
| lost | acknowledged, and absent |
| doubled | one record at two offsets |
| disordered | behind a record that its writer sent later |
| phantom | failed for certain, and present |
| misplaced | acknowledged at another place than where it is |
| foreign | present, and nobody has sent it |
| unsettled | sent, and nobody ever said what became of it |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.chaos.events import EventLog, Outcome, Payload, Place

Kind = Literal["lost", "doubled", "disordered", "phantom", "misplaced", "foreign", "unsettled"]
# By partition, the offsets and values of all records, as they lie.
Contents = Mapping[int, Sequence[tuple[int, bytes]]]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be."""

    kind: Kind
    payload: str
    places: tuple[Place, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        where = ", ".join(map(str, self.places)) or "nowhere"
        return f"{self.kind}: {self.payload} at {where}" + (f" ({self.note})" if self.note else "")


def check(
    log: EventLog,
    contents: Contents,
    *,
    allow_duplicates: bool = False,
    order: Literal["all", "acknowledged"] = "all",
) -> list[Finding]:
    """Everything that is wrong.

    Where nothing lets a broker put batches in order, a record in doubt may arrive late: then only
    the ``order`` of acknowledged ones counts. Of a record that is there twice, the first counts.
    """
    known = dict(log)
    places: dict[Payload, list[Place]] = {}
    found: list[Finding] = []
    for partition, records in contents.items():
        for offset, value in records:
            place = Place(partition, offset)
            payload = Payload.parse(value)
            if payload is None or payload not in known:
                found.append(Finding("foreign", repr(value[:40]), (place,)))
            else:
                places.setdefault(payload, []).append(place)
    for payload, outcome in known.items():
        found += _judge(payload, outcome, places.get(payload, []), allow_duplicates)
    found += _disordered(known, places, acknowledged_only=order == "acknowledged")
    return found


def _judge(
    payload: Payload, outcome: Outcome | None, places: list[Place], allow_duplicates: bool
) -> Iterable[Finding]:
    name, where = str(payload), tuple(places)
    if len(places) > 1 and not allow_duplicates:
        yield Finding("doubled", name, where)
    if outcome is None:
        yield Finding("unsettled", name, where)
    elif outcome.kind == "failed" and places:
        yield Finding("phantom", name, where, outcome.error)
    elif outcome.kind == "ok" and not places:
        yield Finding("lost", name, (), f"acknowledged at {outcome.partition}@{outcome.offset}")
    elif outcome.kind == "ok" and not _is_there(outcome, places):
        yield Finding(
            "misplaced", name, where, f"acknowledged at {outcome.partition}@{outcome.offset}"
        )


def _is_there(outcome: Outcome, places: list[Place]) -> bool:
    return any(
        place.partition == outcome.partition and outcome.offset in (None, place.offset)
        for place in places
    )


def _disordered(
    known: Mapping[Payload, Outcome | None],
    places: Mapping[Payload, list[Place]],
    *,
    acknowledged_only: bool,
) -> Iterable[Finding]:
    """Records that lie behind a later one of the same writer in the same partition."""
    first: dict[tuple[str, int], list[tuple[int, Payload]]] = {}
    for payload, outcome in known.items():
        if acknowledged_only and (outcome is None or outcome.kind != "ok"):
            continue
        seen: set[int] = set()
        for place in sorted(places.get(payload, ())):
            if place.partition not in seen:
                seen.add(place.partition)
                key = (payload.writer, place.partition)
                first.setdefault(key, []).append((place.offset, payload))
    for (_, partition), records in first.items():
        records.sort()
        newest = records[0]
        for offset, payload in records:
            if payload.sequence < newest[1].sequence:
                behind = Place(partition, newest[0])
                yield Finding(
                    "disordered",
                    str(payload),
                    (Place(partition, offset),),
                    f"behind {newest[1]} at {behind}",
                )
            else:
                newest = (offset, payload)
