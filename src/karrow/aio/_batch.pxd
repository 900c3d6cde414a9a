# A batch on its way: the records in it, its memory, and its outcome.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from karrow.records._encode cimport Writer
from karrow.records._segment cimport RawRecord, Segment
from karrow.records._writing cimport Field

cdef enum:
    POOL_BLOCKS = 64             # more are given back to the system

cdef enum BatchState:
    OPEN = 0                     # takes records
    CLOSED = 1                   # waits to be sent, or is under way
    WRITTEN = 2
    FAILED = 3
    DIVIDED = 4                  # its records are in `parts` now


cdef class MemoryPool:
    cdef readonly int64_t block_bytes
    cdef uint8_t* blocks[POOL_BLOCKS]
    cdef int count

    cdef uint8_t* take(self) noexcept
    cdef void give(self, uint8_t* block) noexcept


cdef class Batch:
    cdef uint8_t* memory         # room for the header, then the records
    cdef int64_t capacity
    cdef Writer writer
    cdef uint8_t* packed         # the same with compressed records
    cdef int64_t packed_size
    cdef int exports             # views of the memory that are in use
    cdef MemoryPool pool
    cdef readonly object owner   # the accumulator
    cdef readonly object partition
    cdef BatchState state
    cdef readonly double born
    cdef readonly int64_t charged          # bytes of the buffer that it takes
    cdef int16_t codec_number
    cdef readonly bint is_packed
    # what the sender notes
    cdef public int64_t producer_id
    cdef public int producer_epoch
    cdef public int64_t sequence
    cdef public bint is_reset
    cdef public bint is_packing
    cdef public bint is_under_way
    cdef public bint is_doubtful  # a copy of it may have been written already
    cdef public bint is_urgent
    cdef public int attempts
    cdef public object last_error
    cdef public object span      # what listeners are told of it
    # its outcome
    cdef readonly object base_offset
    cdef readonly object append_time_ms
    cdef readonly object log_start_offset
    cdef readonly object error
    cdef dict record_errors
    cdef readonly list parts
    cdef list waiters
    cdef list callbacks

    cdef int make_room(self, int64_t more) except -1
    cdef bint has_room(self, int64_t more, int64_t limit) noexcept nogil
    cdef int64_t append(
        self, Field key, Field value, int64_t timestamp, const uint8_t* headers,
        int64_t headers_length, int64_t header_count
    ) except -1
    cdef int64_t append_raw(self, RawRecord* record) except -1
    cdef int finish(self) except -1
    cdef void free_memory(self) noexcept
    cdef void read_records(self, Segment* segment) noexcept
