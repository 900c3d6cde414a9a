"""Every message class by Kafka's name: ``messages.FetchRequest``, built on first touch.

messages.pyi, which tools/make_stubs.py makes, tells type checkers and editors their fields.
"""

from __future__ import annotations

from karrow.errors import LocalProtocolError
from karrow.wire.structs import Struct, struct_class
from karrow.wire.table import names


def __getattr__(name: str) -> type[Struct]:
    try:
        found = struct_class(name)
    except LocalProtocolError as error:
        raise AttributeError(str(error)) from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*names(), "Struct"]
