"""What the kernel takes: names for the types of its arguments."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable


@runtime_checkable
class Buffer(Protocol):
    """Anything with the buffer interface: bytes, bytearray, memoryview, mmap, numpy arrays."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


@runtime_checkable
class ArrowStream(Protocol):
    """A table or stream: pyarrow, polars, pandas 2.2 and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class ArrowArray(Protocol):
    """A record batch or array."""

    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...


ArrowData: TypeAlias = ArrowStream | ArrowArray
Bytes: TypeAlias = Buffer | str
Header: TypeAlias = tuple[str, Bytes | None]
