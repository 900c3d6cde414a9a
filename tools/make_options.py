"""Makes src/karrow/config/options.py: keyword arguments as TypedDicts, from the option sets.

So that ``Client(bootstrap, **options: Unpack[ClientOptions])`` is checked and completed by editors
while each option is declared once, in its dataclass.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from generated import write_or_check

from karrow.config.client import ClientConfig
from karrow.config.consumer import ConsumerConfig
from karrow.config.fetch import FetchConfig
from karrow.config.option import Option, Options
from karrow.config.producer import ProducerConfig
from karrow.config.workers import WorkerConfig

OUTPUT = Path(__file__).parent.parent / "src/karrow/config/options.py"
SETS: dict[str, type[Options]] = {
    "ClientOptions": ClientConfig,
    "ProducerOptions": ProducerConfig,
    "FetchOptions": FetchConfig,
    "ConsumerOptions": ConsumerConfig,
    "WorkerOptions": WorkerConfig,
}

HEAD = '''"""Keyword arguments of the clients, for type checkers and editors.

Made by tools/make_options.py; edit the option sets.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from karrow.config.client import AddressMap, MetadataRecovery
    from karrow.config.consumer import (
        Assignors,
        GroupProtocol,
        OutOfRange,
        Rebalanced,
        Start,
    )
    from karrow.config.fetch import Isolation
    from karrow.config.producer import Acks, AfterFork, Callbacks, Compression, Partitioner
    from karrow.config.sasl import Mechanism
    from karrow.config.tls import TLS
    from karrow.config.workers import Columns

'''


def annotation(field: dataclasses.Field[object], about: Option) -> str:
    """What callers may give: a duration also as a timedelta."""
    given = str(field.type)
    return given.replace("float", "float | timedelta") if about.unit == "seconds" else given


def entry(field: dataclasses.Field[object]) -> str:
    """One key, with its documentation as the comment that editors show."""
    about: Option = field.metadata["option"]
    return f'    {field.name}: {annotation(field, about)}\n    """{about.doc}"""\n'


def typed_dict(name: str, options: type[Options]) -> str:
    """One set of options, on top of its parent's; what is given by position is no keyword."""
    parents = {parent: known for known, parent in SETS.items() if parent in options.__bases__}
    inherited = {field for parent in parents for field in parent.describe()}
    fields = [
        field
        for field in dataclasses.fields(options)
        if not field.metadata["option"].positional and field.name not in inherited
    ]
    bases = ", ".join(parents.values()) or "TypedDict"
    head = f'class {name}({bases}, total=False):\n    """The options of {options.__name__}."""\n'
    return "\n".join([head, *map(entry, fields)])


def source() -> str:
    """The whole of options.py."""
    names = ", ".join(f'"{name}"' for name in sorted(SETS))
    classes = "\n\n".join(typed_dict(name, options) for name, options in SETS.items())
    return f"{HEAD}__all__ = [{names}]\n\n\n{classes}"


if __name__ == "__main__":
    write_or_check({OUTPUT: source()}, sys.argv[1:])
