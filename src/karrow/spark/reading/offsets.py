"""The offsets of a stream, as they stand in its checkpoint.

The form is that of Spark's own connector, ``{"orders": {"0": 23, "1": 42}}``: the next offset of
each partition. Beside it stands what that form cannot say, under names that no topic can have:

- ``@ids``: the ids of the topics (KIP-516). A topic that was deleted and made anew has another one,
  although it has the same name and may have offsets as high.
- ``@from``: where partitions begin in the batch that ends here, if not where the batch before it
  ended: all of them in the first batch, later those that were added. So a batch that is repeated
  after a crash has the same range, even if ``latest`` or ``earliest`` would be elsewhere by then.
- ``@epochs``: the epochs of the leaders that have told how far to go, or further. Leaders of newer
  epochs may lack what these had (epochs.py).
- ``@initial``: nothing has been read yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from karrow.errors import StateError
from karrow.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Offsets", "plain"]

_IDS, _FROM, _EPOCHS, _INITIAL = "@ids", "@from", "@epochs", "@initial"


@dataclass(frozen=True, slots=True)
class Offsets:
    """The next offset of each partition, and what is known beside."""

    offsets: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_initial: bool = False
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As Spark writes it down; equal offsets give equal texts, since Spark compares those."""
        found: dict[str, Any] = plain(self.offsets)
        if self.ids:
            found[_IDS] = dict(sorted(self.ids.items()))
        if self.begins:
            found[_FROM] = plain(self.begins)
        if self.epochs:
            found[_EPOCHS] = plain(self.epochs)
        if self.is_initial:
            found[_INITIAL] = True
        return found

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Offsets:
        """What ``to_json`` has given, or Spark's own connector."""
        try:
            return cls(
                _offsets({name: parts for name, parts in read.items() if name[0] != "@"}),
                {str(topic): str(name) for topic, name in read.get(_IDS, {}).items()},
                _offsets(read.get(_FROM, {})),
                bool(read.get(_INITIAL)),
                _offsets(read.get(_EPOCHS, {})),
            )
        except (AttributeError, IndexError, TypeError, ValueError):
            raise StateError(
                f"the checkpoint has no offsets of Kafka: {str(read)[:200]}",
                hint="is it the checkpoint of another source?",
            ) from None

    @property
    def lacks_begins(self) -> bool:
        """Whether a first batch that ends here has records, and does not say from where on."""
        return not self.is_initial and not self.offsets.keys() <= self.begins.keys()

    def not_before(self, other: Offsets) -> Offsets:
        """These, or others where they are further."""
        further = {
            one: max(mine, other.offsets.get(one, mine)) for one, mine in self.offsets.items()
        }
        return replace(self, offsets=further)

    def beyond(self, other: Offsets) -> set[TopicPartition]:
        """Partitions in which these are further, although the topic is the same."""
        return {
            one
            for one, offset in self.offsets.items()
            if offset > other.offsets.get(one, offset) and not self.is_other_topic(one.topic, other)
        }

    def overruled(self, other: Offsets) -> dict[TopicPartition, int]:
        """The epochs of these where others are of a newer leader of the same topic."""
        return {
            one: epoch
            for one, epoch in self.epochs.items()
            if one in self.offsets
            and epoch < other.epochs.get(one, epoch)
            and not self.is_other_topic(one.topic, other)
        }

    def newest_epochs(self, other: Offsets) -> dict[TopicPartition, int]:
        """The epochs of others, or of these where those say nothing or are behind."""
        mine = {
            one: epoch
            for one, epoch in self.epochs.items()
            if one in other.offsets and not self.is_other_topic(one.topic, other)
        }
        theirs = {one: max(epoch, mine.get(one, epoch)) for one, epoch in other.epochs.items()}
        return {**mine, **theirs}

    def is_other_topic(self, topic: str, other: Offsets) -> bool:
        """Whether a topic of that name is not the one it was; without ids nobody can tell."""
        mine, theirs = self.ids.get(topic), other.ids.get(topic)
        return mine is not None and theirs is not None and mine != theirs


def plain(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Offsets in the form of Spark's own connector."""
    found: dict[str, dict[str, int]] = {}
    for one in sorted(offsets):
        found.setdefault(one.topic, {})[str(one.partition)] = offsets[one]
    return found


def _offsets(read: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, parts in read.items()
        for number, offset in parts.items()
    }
