"""Record batches to Arrow columns and Record objects, and back. No I/O.

The loops are compiled and run without the GIL; Arrow data goes in and out by the PyCapsule
interface, so pyarrow is needed only by those who ask for pyarrow objects.
"""

from __future__ import annotations

from karrow.records._build import build_info
from karrow.records._builder import BatchBuilder
from karrow.records._encode import encode
from karrow.records._export import RecordColumns
from karrow.records._hash import (
    PARTITIONERS,
    PartitionColumn,
    murmur2,
    partition_column,
    partition_for,
)
from karrow.records._header import BatchInfo, batches
from karrow.records._reader import RecordReader
from karrow.records._record import Record
from karrow.records.batch import decode

__all__ = [
    "PARTITIONERS",
    "BatchBuilder",
    "BatchInfo",
    "PartitionColumn",
    "Record",
    "RecordColumns",
    "RecordReader",
    "batches",
    "build_info",
    "decode",
    "encode",
    "murmur2",
    "partition_column",
    "partition_for",
]
