"""Record batches to Arrow columns and Record objects, and back. No I/O."""

from __future__ import annotations

from karrow.records._reader import RecordReader
from karrow.records._columns import RecordColumns
from karrow.records._record import Record
from karrow.records.batch import decode
