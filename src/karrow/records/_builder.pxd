from libc.stdint cimport int64_t, uint8_t

from karrow.records._encode cimport Writer
from karrow.records._segment cimport RawRecord
from karrow.records._source cimport ArrowChunk
from karrow.records._writing cimport Field


cdef class BatchBuilder:
    cdef uint8_t* memory
    cdef int64_t capacity
    cdef Writer writer
    cdef readonly int64_t max_bytes
    cdef int64_t overhead            # of the header that build() adds
    cdef int64_t payload_limit       # max_bytes without it
    cdef bint writing                # another thread appends rows, without the GIL
    cdef object codec
    cdef object level

    cdef int refuse_second_thread(self) except -1
    cdef int make_room(self, int64_t more) except -1
    cdef bint has_room(self, int64_t more) noexcept nogil
    cdef int64_t append_encoded(
        self, Field key, Field value, int64_t timestamp, bytes headers, int64_t header_count
    ) except -2
    cdef int64_t append_rows(self, ArrowChunk chunk, int64_t begin) except -1
    cdef bint append_raw(self, RawRecord* record) except -1
    cdef BatchBuilder sibling(self, int64_t max_bytes)
