"""Kafka for Python and PySpark, at Arrow speed.

Public names load on first touch: importing karrow starts no thread and imports neither the kernel
nor pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karrow import errors as errors
    from karrow import records as records
    from karrow import wire as wire
    from karrow.records import Record as Record

__version__ = "0.1.0"
__all__ = ["Record", "__version__", "errors", "records", "wire"]

_ROOMS = frozenset({"errors", "records", "wire"})
_HOMES = {"Record": "karrow.records"}


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return importlib.import_module(f"karrow.{name}")
    if name in _HOMES:
        value: object = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'karrow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
