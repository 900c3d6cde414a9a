"""What becomes of the properties of librdkafka and of Kafka's Java clients, for each option set.

Every known name is exactly one of supported, accepted without effect, or refused with a reason. A
set inherits what its parent says of a property, unless it has something else to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from karrow.config import client_properties as of_clients
from karrow.config import consumer_properties as of_consumers
from karrow.config import producer_properties as of_producers
from karrow.config.client import ClientConfig
from karrow.config.consumer import ConsumerConfig
from karrow.config.producer import ProducerConfig

if TYPE_CHECKING:
    from karrow.config.option import Options

__all__ = ["Dialect", "Meanings", "Property", "Reader", "Treatment", "properties"]

Dialect = Literal["librdkafka", "java"]
Treatment = Literal["supported", "ignored", "refused"]
# Values that are no plain number or name, in the property's own unit, and what they set.
Meanings = Mapping[Any, Any]
# What makes the option's value of the property's, where a table cannot.
Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Property:
    """How one property is treated: the option it sets, or why it has no effect or is refused."""

    name: str
    treatment: Treatment
    option: str | None = None
    reason: str = ""
    meanings: Meanings | Reader = field(default_factory=dict)


class _Tables(NamedTuple):
    """What an option set says of properties, beside the names in its options' metadata."""

    supported: dict[Dialect, dict[str, str]]
    ignored: dict[Dialect, dict[str, str]]
    refused: dict[Dialect, dict[str, str]]
    meanings: Mapping[Dialect, Mapping[str, Meanings | Reader]]


_TABLES: dict[type[Options], _Tables] = {
    ClientConfig: _Tables(
        of_clients.SUPPORTED, of_clients.IGNORED, of_clients.REFUSED, of_clients.MEANINGS
    ),
    ProducerConfig: _Tables(
        of_producers.SUPPORTED, of_producers.IGNORED, of_producers.REFUSED, of_producers.MEANINGS
    ),
    ConsumerConfig: _Tables(
        of_consumers.SUPPORTED, of_consumers.IGNORED, of_consumers.REFUSED, of_consumers.MEANINGS
    ),
}


def properties(dialect: Dialect, options: type[Options]) -> dict[str, Property]:
    """Every property that an option set knows in a dialect, by name."""
    known: dict[str, Property] = {}
    for kind in reversed(options.__mro__):
        if kind in _TABLES:
            known |= {row.name: row for row in _own(dialect, kind)}
    return dict(sorted(known.items()))


def _own(dialect: Dialect, options: type[Options]) -> list[Property]:
    """What the set itself says, be it new or instead of its parent."""
    tables = _TABLES[options]
    meanings = tables.meanings[dialect]
    supported = {**_named(dialect, options), **tables.supported[dialect]}
    return [
        *(Property(n, "supported", o, "", meanings.get(n, {})) for n, o in supported.items()),
        *(Property(n, "ignored", reason=why) for n, why in tables.ignored[dialect].items()),
        *(Property(n, "refused", reason=why) for n, why in tables.refused[dialect].items()),
    ]


def _named(dialect: Dialect, options: type[Options]) -> dict[str, str]:
    inherited = {name for base in options.__bases__ if base in _TABLES for name in base.describe()}
    return {
        foreign: name
        for name, about in options.describe().items()
        if name not in inherited
        and (foreign := about.librdkafka if dialect == "librdkafka" else about.java)
    }
