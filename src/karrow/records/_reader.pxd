# The fields of a reader, and what compiled code calls: load() an entry, then take() its records.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from karrow.records._columns cimport Columns
from karrow.records._layout cimport BatchHeader
from karrow.records._record cimport BatchOrigin, Record
from karrow.records._segment cimport RawRecord, Segment


cdef class RecordReader:
    cdef object view
    cdef const uint8_t* start
    cdef int64_t size
    cdef int64_t at
    cdef Segment segment
    cdef object owner                    # what the segment points into; None: the source
    cdef BatchOrigin origin              # of the records made from the segment
    cdef int64_t segment_at
    cdef int64_t segment_offset
    cdef int32_t leader_epoch
    cdef str _topic
    cdef object _partition
    cdef int64_t from_offset
    cdef int64_t _next_offset
    cdef list aborted
    cdef set active
    cdef bint check_crc
    cdef int64_t limit
    cdef tuple failure                   # what is wrong, a hint, the offset to go on at
    cdef readonly bint partial_tail
    cdef bint filling                    # another thread reads in the segment, without the GIL

    cdef int load(self) except -1
    cdef int refuse_second_thread(self) except -1
    cdef int finish(self) except -1
    cdef void close_segment(self) noexcept
    cdef int damage(self, str what, object next_offset) except -1
    cdef object error(self)
    cdef int load_batch(self, int64_t length) except -1
    cdef int64_t plausible(self, int64_t next_offset, int64_t base_offset, int64_t end) noexcept
    cdef void pass_over(self, int64_t next_offset) noexcept
    cdef bint is_hidden(
        self, BatchHeader* header, const uint8_t* payload, const uint8_t* end
    ) except -1
    cdef int open_batch(
        self, BatchHeader* header, int64_t begin, int64_t end, int64_t next_offset
    ) except -1
    cdef void open_segment(
        self, int8_t magic, const uint8_t* payload, int64_t size, int64_t count,
        int64_t next_offset, object owner,
    ) noexcept
    cdef object expand(self, int codec, int64_t begin, int64_t end, int magic, object next_offset)
    cdef int load_messages(self, int8_t magic, int64_t length) except -1
    cdef bint message_is_sound(
        self, object view, const uint8_t* base, int64_t begin, int64_t end, int8_t magic
    ) except -1
    cdef int load_run(self, int8_t magic) except -1
    cdef int load_wrapper(self, int8_t magic, int64_t end, object next_offset) except -1
    cdef int open_inner(
        self, object owner, int8_t magic, RawRecord* wrapper, object next_offset
    ) except -1
    cdef int fault_in_segment(self) except -1
    cdef int gather(self, Columns* out, int64_t most, int64_t most_bytes) except -1
    cdef int hold_fault(self, int64_t rows) except -1
    cdef void settle(self, Columns* out) noexcept
    cdef Record take(self)
    cdef int64_t to_load(self) noexcept
    cdef int make_origin(self) except -1
