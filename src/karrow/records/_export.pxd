# Finished columns, as Arrow consumers take them.

from libc.stdint cimport int32_t, int64_t

from karrow.records._arrow cimport Block
from karrow.records._columns cimport ByteColumn, Columns


cdef class RecordColumns:
    cdef Block* block
    cdef Columns columns
    cdef tuple names
    cdef bytes timestamp_format
    cdef int32_t* partitions
    cdef ByteColumn topics
    cdef readonly object topic
    cdef readonly object partition
    cdef readonly int64_t next_offset

    cdef void adopt(self, void* memory) noexcept


cdef RecordColumns close_columns(
    Columns* columns, tuple names, bytes timestamp_format, object topic, object partition,
    int64_t next_offset,
)
