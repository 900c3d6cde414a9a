"""The producers of this process: one for each configuration, kept between tasks.

Rules:
- Spark forks its workers and uses each for one task after the other, so a producer is made when
  the first task wants it, after the fork, and stays for those that follow.
- Before it is used again it is looked at: one that was closed, that a fatal error ended, that
  belongs to the process we were forked from, or that has rows of a task which is no more, is
  replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow.sync.producer import Producer

if TYPE_CHECKING:
    from karrow.config import ProducerConfig

kept: dict[ProducerConfig, Producer] = {}


def producer(config: ProducerConfig) -> Producer:
    """The producer for a configuration."""
    found = kept.get(config)
    if found is not None and _is_usable(found):
        return found
    if found is not None:
        found.close(timeout=0)
    made = kept[config] = Producer(config=config)
    return made


def _is_usable(found: Producer) -> bool:
    waiting = found.accumulator
    return waiting.refusal is None and not waiting.is_forked and not waiting.incomplete
