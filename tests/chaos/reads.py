"""What members of a group did, as they saw it, in one order for all of them; and what was wrong.

| finding | means |
| --- | --- |
| unread | acknowledged, and never handed to anybody |
| skipped | behind a gap: an assignment went past a record, or a commit past what was handed out |
| repeated | handed out twice in one assignment, or after a later one |
| again | handed out in an assignment that began after a commit past it was confirmed |
| stolen | handed to somebody who did not own the partition |
| shared | two owners at a time, of whom neither was told that it had lost the partition |
| late | a commit was stored though the partition had gone to somebody else |
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.chaos.checker import Contents

What = Literal["assigned", "revoked", "lost", "read", "committing", "stored", "seen", "unaware"]

# The place of what concerns a member and not one partition.
EVERYWHERE = (-1, -1)


@dataclass(frozen=True, slots=True)
class Did:
    """Something that happened to one partition; ``offset`` is the next one, where it is a commit.

    "committing" is before a commit is asked for, "stored" after it was confirmed; "seen" is what an
    onlooker was told that the group has stored. Who is "unaware" cannot know what happens from now
    on: it is frozen, or was dropped by the broker. That holds for what it got in generations up to
    ``generation``, also where it is told of it only later.
    """

    what: What
    member: str
    partition: int
    offset: int = -1
    generation: int = -1


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that must not be."""

    kind: Literal["unread", "skipped", "repeated", "again", "stolen", "shared", "late"]
    did: Did
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.did} {self.note}"


class ReadLog:
    """Everything that members did, in the order in which it happened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Did] = []

    def add(
        self, what: What, member: str, places: Iterable[tuple[int, int]], generation: int = -1
    ) -> None:
        """Note it for every partition, with an offset where there is one."""
        with self._lock:
            self._all += [Did(what, member, *place, generation) for place in places]

    def all(self) -> list[Did]:
        """A copy."""
        with self._lock:
            return list(self._all)

    def counts(self) -> dict[str, int]:
        """How much of what."""
        found: dict[str, int] = {}
        for did in self.all():
            found[did.what] = found.get(did.what, 0) + 1
        return found

    def read(self) -> set[tuple[int, int]]:
        """The places that were handed to anybody."""
        return {(did.partition, did.offset) for did in self.all() if did.what == "read"}


@dataclass
class Term:
    """A partition in the hands of one member; ``floor`` is what was stored before it began."""

    member: str
    begin: int
    generation: int
    floor: int = 0
    last: int | None = None
    end: int | None = None
    is_unaware: bool = False

    @property
    def is_real(self) -> bool:
        """Whether it was more than late news of a partition that was lost before they came."""
        return self.last is not None or not self.is_unaware


@dataclass
class Partition:
    """What is known of one partition while the log is gone through."""

    offsets: Sequence[int]
    terms: list[Term] = field(default_factory=list)
    handed: set[int] = field(default_factory=set)
    asked: dict[str, tuple[int, Term | None]] = field(default_factory=dict)
    # The last generation of each member whose end it may not have heard of.
    unaware: dict[str, int] = field(default_factory=dict)
    # Everything in front of it was handed out.
    done: int = 0
    # The furthest commit that anybody knows to be stored.
    stored: int = 0

    def term_of(self, member: str) -> Term | None:
        """The member's term, if it has one now."""
        found = [term for term in self.terms if term.member == member and term.end is None]
        return found[-1] if found else None

    def begin(self, did: Did, when: int) -> None:
        """A member is told that the partition is its own."""
        is_unaware = did.generation <= self.unaware.get(did.member, did.generation - 1)
        term = Term(did.member, when, did.generation, self.stored, is_unaware=is_unaware)
        self.terms.append(term)

    def note_unaware(self, did: Did) -> None:
        """A member may not hear of the end of what it got until now."""
        self.unaware[did.member] = did.generation
        term = self.term_of(did.member)
        if term is not None and term.generation <= did.generation:
            term.is_unaware = True


def check_reads(
    log: Sequence[Did], contents: Contents, wanted: set[tuple[int, int]]
) -> list[Wrong]:
    """Everything that is wrong; ``wanted`` are the places that must have been read."""
    partitions = {
        number: Partition([offset for offset, _ in records]) for number, records in contents.items()
    }
    found: list[Wrong] = []
    for when, did in enumerate(log):
        if did.what == "unaware":
            for known in partitions.values():
                known.note_unaware(did)
        else:
            found += _step(partitions[did.partition], when, did)
    for known in partitions.values():
        found += _shared(known, log)
    read = {(did.partition, did.offset) for did in log if did.what == "read"}
    found += [Wrong("unread", Did("read", "nobody", *place)) for place in sorted(wanted - read)]
    return found


def _step(known: Partition, when: int, did: Did) -> Iterable[Wrong]:
    term = known.term_of(did.member)
    if did.what == "assigned":
        known.begin(did, when)
    elif did.what in ("revoked", "lost"):
        if term is not None:
            term.is_unaware |= did.what == "lost"
            term.end = when
    elif did.what == "read":
        yield from _read(known, term, did)
    elif did.what == "committing":
        known.asked[did.member] = (when, term)
    elif did.what == "stored":
        yield from _stored(known, did)
    elif did.what == "seen":
        yield from _ahead(known, did)


def _read(known: Partition, term: Term | None, did: Did) -> Iterable[Wrong]:
    known.handed.add(did.offset)
    if term is None:
        yield Wrong("stolen", did)
        return
    if term.last is not None and did.offset <= term.last:
        yield Wrong("repeated", did, f"after {term.last}")
    elif did.offset < term.floor and not term.is_unaware:
        # Who could not know of that commit may have begun before it was made.
        yield Wrong("again", did, f"though {term.floor} was stored before")
    elif term.last is not None:
        gap = [one for one in known.offsets if term.last < one < did.offset]
        if gap:
            yield Wrong("skipped", did, f"without {gap[:5]}, after {term.last}")
    term.last = did.offset


def _stored(known: Partition, did: Did) -> Iterable[Wrong]:
    when, term = known.asked[did.member]
    if term is None or any(
        term.begin < one.begin < when and one.last is not None for one in known.terms
    ):
        yield Wrong("late", did)
    yield from _ahead(known, did)


def _ahead(known: Partition, did: Did) -> Iterable[Wrong]:
    """A commit past something that was not handed to anybody."""
    known.stored = max(known.stored, did.offset)
    gap = [
        one for one in known.offsets if known.done <= one < did.offset and one not in known.handed
    ]
    if gap:
        yield Wrong("skipped", did, f"stored without {gap[:5]}")
    else:
        known.done = max(known.done, did.offset)


def _shared(known: Partition, log: Sequence[Did]) -> Iterable[Wrong]:
    """Terms that overlap; who was told of a loss, or was frozen, could not know."""
    terms = sorted(known.terms, key=lambda term: term.begin)
    for number, first in enumerate(terms):
        for second in terms[number + 1 :]:
            is_over = first.end is not None and first.end < second.begin
            if not is_over and not first.is_unaware and second.is_real:
                yield Wrong("shared", log[second.begin], f"with {first}")
