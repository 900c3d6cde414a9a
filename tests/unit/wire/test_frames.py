from __future__ import annotations

import pytest

from karrow.errors import RemoteProtocolError
from karrow.wire import FrameReader
from karrow.wire.frames import SCRATCH, SMALL_FRAME


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def contents(frames: list[memoryview]) -> list[bytes]:
    return [bytes(frame) for frame in frames]


BODIES = [b"", b"a", bytes(range(256)) * 40, b"x" * SMALL_FRAME, b"y" * (SMALL_FRAME + 1),
          b"z" * (3 * SCRATCH), b"end"]  # fmt: skip


@pytest.mark.parametrize("portion", [1, 3, 4, 7, 1000, SCRATCH - 1, SCRATCH, SCRATCH + 1, 10**7])
def test_frames_come_out_whatever_the_portions(portion: int) -> None:
    stream = framed(*BODIES)
    reader = FrameReader()
    found: list[bytes] = []
    for start in range(0, len(stream), portion):
        found += contents(reader.feed(stream[start : start + portion]))
    assert found == BODIES
    assert reader.pending == 0


def test_reading_into_the_buffer_is_the_same() -> None:
    stream = memoryview(framed(*BODIES))
    reader = FrameReader()
    found: list[bytes] = []
    while stream:
        room = reader.get_buffer()
        count = min(len(room), len(stream), 5000)
        room[:count] = stream[:count]
        stream = stream[count:]
        found += contents(reader.advance(count))
    assert found == BODIES


def test_large_frame_is_read_straight_into_its_own_buffer() -> None:
    reader = FrameReader()
    assert reader.feed((1_000_000).to_bytes(4, "big") + b"ab") == []
    room = reader.get_buffer()
    assert len(room) == 999_998
    room[:] = bytes(999_998)
    (frame,) = reader.advance(999_998)
    assert frame.obj is room.obj
    assert bytes(frame[:3]) == b"ab\0"


def test_small_unfinished_frame_leaves_room_for_what_follows() -> None:
    reader = FrameReader()
    reader.feed((100).to_bytes(4, "big") + b"ab")
    assert len(reader.get_buffer()) == SCRATCH - 6


def test_frames_are_read_only_and_never_overwritten() -> None:
    reader = FrameReader()
    (first,) = reader.feed(framed(b"first"))
    reader.feed(framed(b"other", b"more"))
    assert bytes(first) == b"first"
    assert first.readonly


def test_unfinished_bytes_are_pending() -> None:
    reader = FrameReader()
    assert reader.pending == 0
    reader.feed(b"\0\0")
    assert reader.pending == 2
    reader.feed(b"\0\5ab")
    assert reader.pending == 6
    reader = FrameReader()
    reader.feed((SMALL_FRAME * 2).to_bytes(4, "big") + b"ab")
    assert reader.pending == 6


@pytest.mark.parametrize(
    ("head", "hint"),
    [
        (b"\xff\xff\xff\xff", None),
        (b"\x7f\xff\xff\xff", None),
        (b"\x15\x03\x03\x00", "TLS alert"),
        (b"\x16\x03\x01\x02", "TLS handshake"),
        (b"HTTP", "HTTP answer"),
        (b"GET ", "HTTP request"),
    ],
)
def test_length_out_of_range_breaks_the_stream(head: bytes, hint: str | None) -> None:
    reader = FrameReader()
    with pytest.raises(RemoteProtocolError) as caught:
        reader.feed(head)
    assert (hint in str(caught.value)) if hint else caught.value.hint is None
    with pytest.raises(RemoteProtocolError):
        reader.feed(framed(b"fine"))
    with pytest.raises(RemoteProtocolError):
        reader.get_buffer()


def test_frames_before_a_broken_length_are_not_lost() -> None:
    reader = FrameReader()
    stream = framed(b"one", b"y" * SCRATCH, b"two") + b"\xff\xff\xff\xff"
    assert contents(reader.feed(stream)) == [b"one", b"y" * SCRATCH, b"two"]
    with pytest.raises(RemoteProtocolError):
        reader.advance(0)


def test_cap_is_an_option() -> None:
    reader = FrameReader(max_frame=10)
    assert contents(reader.feed(framed(b"0123456789"))) == [b"0123456789"]
    with pytest.raises(RemoteProtocolError, match="a frame of 11 bytes, the most is 10"):
        reader.feed(framed(b"0123456789a"))
