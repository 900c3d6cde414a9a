"""gzip, snappy, lz4 and zstd behind one table, with a cap on what comes out.

A peer's word about sizes is never trusted: a declared size is only a first guess, bounded by what
the codec can reach, and the output buffer never grows past the cap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import cramjam

from karrow.errors import ConfigError, RemoteProtocolError
from karrow.records._lz4frame import repair_lz4_frame, spoil_lz4_frame
from karrow.records._slab import Slab

if TYPE_CHECKING:
    from collections.abc import Callable

    from karrow.records.typing import Buffer

DEFAULT_MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
MAX_DECOMPRESSED_BYTES = 2**31 - 1024  # Arrow's 32-bit offsets must hold a batch

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_MAX_RATIO = 32  # a three-byte copy gives 64 bytes at most
_FIRST_GUESS_RATIO = 8  # untouched memory costs nothing, a second try all the work
_MAX_GUESS_RATIO = 256
_NO_ROOM = "failed to write whole buffer"


@dataclass(frozen=True, slots=True)
class Codec:
    """One compression: its number on the wire, its levels, and both directions."""

    name: str
    number: int
    levels: range | None
    default_level: int | None
    compress: Callable[[Buffer, int | None], Buffer]
    decompress: Callable[[memoryview, int], Slab]


def _too_large(limit: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"the batch decompresses to more than {limit} bytes",
        hint="raise max_decompressed_bytes if the data is meant to be that large",
    )


def _expand(
    decompress_into: Callable[[memoryview, memoryview], int],
    data: memoryview,
    limit: int,
    declared: int | None,
) -> Slab:
    """Decompress into a buffer that grows fourfold up to the limit."""
    size = declared if declared is not None else len(data) * _FIRST_GUESS_RATIO
    size = min(max(size, 64), len(data) * _MAX_GUESS_RATIO, limit)
    while True:
        slab = Slab(size)
        try:
            written = decompress_into(data, memoryview(slab))
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise RemoteProtocolError(f"the compressed data is damaged: {error}") from None
        else:
            slab.shrink(written)
            return slab
        if size >= limit:
            raise _too_large(limit)
        size = min(size * 4, limit)


def _gzip_compress(data: Buffer, level: int | None) -> Buffer:
    return cramjam.gzip.compress(data, level=level)


def _gzip_decompress(data: memoryview, limit: int) -> Slab:
    declared = int.from_bytes(data[-4:], "little")
    return _expand(cramjam.gzip.decompress_into, data, limit, declared)


def _lz4_compress(data: Buffer, level: int | None) -> Buffer:
    # Brokers refuse frames with linked blocks.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return compressor.finish()


def _lz4_decompress(data: memoryview, limit: int) -> Slab:
    return _expand(cramjam.lz4.decompress_into, data, limit, None)


def _zstd_compress(data: Buffer, level: int | None) -> Buffer:
    return cramjam.zstd.compress(data, level=level)


def _zstd_decompress(data: memoryview, limit: int) -> Slab:
    return _expand(cramjam.zstd.decompress_into, data, limit, None)


def _snappy_compress(data: Buffer, level: int | None) -> Buffer:  # noqa: ARG001 (no levels)
    """Snappy in the framing of Java's library, which every Kafka client reads."""
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += [len(block).to_bytes(4, "big"), block]
    return b"".join(parts)


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    at = len(_XERIAL_HEADER)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if not 0 <= size <= len(data) - at:
            raise RemoteProtocolError("a snappy block reaches past the end of its data")
        blocks.append(data[at : at + size])
        at += size
    return blocks


def _snappy_length(block: memoryview) -> int:
    length: int = cramjam.snappy.decompress_raw_len(block)
    if length > len(block) * _SNAPPY_MAX_RATIO:
        raise RemoteProtocolError("a snappy block declares an impossible length")
    return length


def _snappy_decompress(data: memoryview, limit: int) -> Slab:
    framed = data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
    try:
        blocks = _xerial_blocks(data) if framed else [data]
        lengths = [_snappy_length(block) for block in blocks]
        if sum(lengths) > limit:
            raise _too_large(limit)
        slab = Slab(sum(lengths))
        out = memoryview(slab)
        at = 0
        for block, length in zip(blocks, lengths, strict=True):
            cramjam.snappy.decompress_raw_into(block, out[at : at + length])
            at += length
    except cramjam.DecompressionError as error:
        raise RemoteProtocolError(f"the compressed data is damaged: {error}") from None
    return slab


CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        Codec("gzip", 1, range(10), 6, _gzip_compress, _gzip_decompress),
        Codec("snappy", 2, None, None, _snappy_compress, _snappy_decompress),
        Codec("lz4", 3, range(1, 18), 1, _lz4_compress, _lz4_decompress),
        Codec("zstd", 4, range(-7, 23), 3, _zstd_compress, _zstd_decompress),
    )
}
_BY_NUMBER = {codec.number: codec for codec in CODECS.values()}


def find_codec(name: str | None, level: int | None = None) -> Codec | None:
    """The codec called ``name``, None for no compression; a wrong name or level is refused."""
    if name is None or name == "none":
        if level is not None:
            raise ConfigError(f"level={level} needs a compression that has levels")
        return None
    codec = CODECS.get(name)
    if codec is None:
        raise ConfigError(f"compression={name!r} is none of {', '.join(CODECS)} or None")
    if level is not None and (codec.levels is None or level not in codec.levels):
        span = codec.levels
        allowed = "no levels" if span is None else f"{span[0]} to {span[-1]}"
        raise ConfigError(f"level={level} does not fit compression={name!r}, which has {allowed}")
    return codec


def compress(codec: Codec, data: Buffer, *, level: int | None = None, magic: int = 2) -> Buffer:
    """Compress record data as messages and batches of ``magic`` want it."""
    out = codec.compress(data, codec.default_level if level is None else level)
    return spoil_lz4_frame(out) if codec.name == "lz4" and magic == 0 else out


def decompress(number: int, data: memoryview, limit: int, *, magic: int = 2) -> Slab:
    """Undo the codec with this number; never gives more than ``limit`` bytes."""
    codec = _BY_NUMBER.get(number)
    if codec is None:
        raise RemoteProtocolError(f"unknown compression codec {number}")
    if codec.name == "lz4" and magic == 0:
        data = memoryview(repair_lz4_frame(data))
    return codec.decompress(data, limit)
