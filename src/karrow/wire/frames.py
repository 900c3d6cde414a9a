"""Bytes to frames: an int32 length, then that many bytes. No I/O, no clock.

State machine:
- *between*: bytes collect in a scratch buffer until a length and its frame are complete. A frame
  that is complete there is copied out, so the scratch buffer is free again at once.
- *inside*: a frame larger than SMALL_FRAME that is not complete yet has a buffer of its own, made
  once, after its length was checked. Everything that is still missing is read straight into it.
- *broken*: a length below zero or above the cap. There is no way to find the next frame. The call
  that met it still gives the frames before it, if there are any; every further one raises.

A frame comes out as a read-only view of memory that is never written again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from karrow.errors import RemoteProtocolError

LENGTH = struct.Struct(">i")
MAX_FRAME = 100 * 1024 * 1024
SCRATCH = 64 * 1024
SMALL_FRAME = 16 * 1024

# What other protocols' first four bytes begin with, and what that tells the user.
STRANGERS = (
    (b"\x15\x03", "a TLS alert: the other side expects TLS on this port, or refused the handshake"),
    (b"\x16\x03", "a TLS handshake: this port is plaintext, and the other side uses TLS"),
    (b"HTTP", "an HTTP answer: this is not a Kafka port"),
    (b"GET ", "an HTTP request: the other side is not a Kafka client"),
    (b"POST", "an HTTP request: the other side is not a Kafka client"),
)


class FrameReader:
    """Collects frames from bytes that arrive in any portions.

    Either ``feed`` it, or read into ``get_buffer()`` and say how much with ``advance``, which is
    what asyncio's BufferedProtocol does.

    >>> [bytes(frame) for frame in FrameReader().feed(b"\\0\\0\\0\\2hi\\0\\0")]
    [b'hi']
    """

    __slots__ = ("_body", "_filled", "_scratch", "_view", "allocate", "broken", "max_frame")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        # Memory for a large frame; it need not be clean, since a frame is given away full.
        self.allocate: Callable[[int], Any] = bytearray
        self._scratch = bytearray(SCRATCH)
        # The view to read into: of the scratch buffer, or of the frame in `_body`.
        self._view = memoryview(self._scratch)
        self._filled = 0
        self._body: memoryview | None = None
        # What a length was that cannot be.
        self.broken: RemoteProtocolError | None = None

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame: not zero at the end of a stream means it was cut."""
        return self._filled + (4 if self._body is not None else 0)

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self.broken is not None:
            raise self.broken
        return self._view[self._filled :] if self._filled else self._view

    def advance(self, count: int) -> list[memoryview]:
        """The frames that ``count`` more bytes in the buffer have completed."""
        if self._is_one_frame(count):
            return [memoryview(bytes(self._view[4:count]))]
        self._raise_broken()
        frames = self._take(count)
        if not frames:
            self._raise_broken()
        return frames

    def _is_one_frame(self, count: int) -> bool:
        """Whether these bytes are a frame as most are: small, whole, and alone."""
        return (
            not self._filled
            and self._body is None
            and 4 <= count <= self.max_frame
            and LENGTH.unpack_from(self._scratch)[0] == count - 4
            and self.broken is None
        )

    def feed(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """The frames that ``data`` completes."""
        self._raise_broken()
        frames: list[memoryview] = []
        rest = memoryview(data).cast("B")
        while len(rest) and self.broken is None:
            room = self.get_buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            frames += self._take(count)
        if not frames:
            self._raise_broken()
        return frames

    def _take(self, count: int) -> list[memoryview]:
        self._filled += count
        if self._body is None:
            return self._scan()
        if self._filled < len(self._body):
            return []
        frame = self._body
        self._collect(b"")
        return [frame.toreadonly()]

    def _raise_broken(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _scan(self) -> list[memoryview]:
        """Cut the frames out of the scratch buffer."""
        frames: list[memoryview] = []
        start, end = 0, self._filled
        while end - start >= 4:
            length = self._length(start)
            if self.broken is not None:
                break
            stop = start + 4 + length
            if stop > end:
                if length > SMALL_FRAME:
                    self._begin(length, start + 4)
                    return frames
                break
            frames.append(memoryview(bytes(self._view[start + 4 : stop])))
            start = stop
        if start == end:
            self._filled = 0
        elif start:
            self._collect(bytes(self._view[start:end]))
        return frames

    def _length(self, start: int) -> int:
        length: int = LENGTH.unpack_from(self._scratch, start)[0]
        if not 0 <= length <= self.max_frame:
            head = bytes(self._view[start : start + 4])
            hint = next((text for begin, text in STRANGERS if head.startswith(begin)), None)
            self.broken = RemoteProtocolError(
                f"a frame of {length} bytes, the most is {self.max_frame}",
                hint=f"these bytes look like {hint}" if hint else None,
            )
        return length

    def _begin(self, length: int, start: int) -> None:
        """Go inside a frame, taking along what came with its length."""
        body = memoryview(self.allocate(length))
        count = self._filled - start
        body[:count] = self._view[start : self._filled]
        self._body = self._view = body
        self._filled = count

    def _collect(self, head: bytes) -> None:
        """Go between frames, with the first bytes of the next one."""
        self._view = memoryview(self._scratch)
        self._view[: len(head)] = head
        self._filled = len(head)
        self._body = None
