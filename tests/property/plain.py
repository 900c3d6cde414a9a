"""Records as plain tuples, and hypothesis strategies for them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# zstd came with the newest format; the older ones have no number for it.
FORMATS = [
    (magic, codec) for magic in (0, 1, 2) for codec in CODECS if magic == 2 or codec != "zstd"
]

Headers = tuple[tuple[str, bytes | None], ...]


class Plain(NamedTuple):
    """What every library is asked for about a record."""

    offset: int
    timestamp_ms: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# Short and long, random and repetitive: long ones span the blocks of snappy and lz4.
repeated = st.builds(
    lambda piece, times: piece * times, st.binary(min_size=1, max_size=40), st.integers(1, 4_000)
)
nullable_bytes = st.none() | st.just(b"") | st.binary(max_size=60) | repeated
header = st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=20))
timestamps = st.integers(0, 2**45)


@st.composite
def plain_records(draw: st.DrawFn, magic: int, *, gaps: bool = True) -> list[Plain]:
    """Records of one batch in the order of their offsets; ``gaps`` as compaction leaves them."""
    count = draw(st.integers(1, 12))
    step = st.integers(1, 3) if gaps else st.just(1)
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(count):
        records.append(
            Plain(
                offset,
                draw(timestamps) if magic else None,
                0 if magic else -1,
                draw(nullable_bytes),
                draw(nullable_bytes),
                tuple(draw(st.lists(header, max_size=4))) if magic == 2 else (),
            )
        )
        offset += draw(step)
    return records
