"""Valid bytes made invalid: what the seeded fuzz tests feed the decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

# Lengths and counts that ask for more than there is, in all the forms they are written in.
BOMBS = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80",
)


def mutations(rng: random.Random, seed: bytes) -> bytes:
    """One damaged copy of ``seed``: one to three changes, each of a random kind."""
    data = bytearray(seed)
    for _ in range(rng.randint(1, 3)):
        rng.choice(_CHANGES)(rng, data)
    return bytes(data)


def _flip_bit(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_byte(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))


def _truncate(rng: random.Random, data: bytearray) -> None:
    del data[rng.randint(0, len(data)) :]


def _overwrite_with_bomb(rng: random.Random, data: bytearray) -> None:
    bomb = rng.choice(BOMBS)
    start = rng.randint(0, len(data))
    data[start : start + len(bomb)] = bomb


def _insert(rng: random.Random, data: bytearray) -> None:
    start = rng.randint(0, len(data))
    data[start:start] = rng.randbytes(rng.randint(1, 8))


def _remove(rng: random.Random, data: bytearray) -> None:
    start = rng.randint(0, len(data))
    del data[start : start + rng.randint(1, 8)]


def _repeat(rng: random.Random, data: bytearray) -> None:
    start = rng.randint(0, len(data))
    piece = data[start : start + rng.randint(1, 32)]
    data[start:start] = piece


_CHANGES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip_bit,
    _set_byte,
    _truncate,
    _overwrite_with_bomb,
    _insert,
    _remove,
    _repeat,
)
