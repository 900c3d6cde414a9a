# Where the rows of Arrow data go.

from libc.stdint cimport int32_t, int64_t, uint64_t

from karrow.aio._accumulator cimport Accumulator
from karrow.records._source cimport ArrowChunk
from karrow.records._writing cimport Field

cdef enum:
    KNOWN_NAMES = 256


# A topic's name as it stands in a column, and its slot in Routes.topics.
cdef struct KnownName:
    Field name
    int32_t slot


cdef class Places:
    cdef int32_t* of_row


cdef class Routes:
    cdef Accumulator accumulator
    cdef list chunks
    cdef str argument
    cdef readonly list names     # the topics, by slot
    cdef dict slots
    cdef list topics             # the same as the accumulator has them
    cdef list places             # by chunk; None where all rows go wherever the topic's next goes
    cdef list partitions         # all there are, by target
    cdef int32_t* counts         # partitions, by slot
    cdef int32_t* bases          # the first target, by slot
    cdef int32_t targets
    cdef int32_t argument_slot   # where a chunk without places goes
    cdef uint64_t random_state
    cdef KnownName known[KNOWN_NAMES]

    cdef int name_all(self) except -1
    cdef bint is_decided(self, ArrowChunk chunk) noexcept
    cdef int32_t slot_of(self, object name, int64_t row) except -1
    cdef int name_chunk(self, ArrowChunk chunk, Places places, int64_t before) except -1
    cdef int64_t name_rows(
        self, ArrowChunk chunk, int32_t* places, int64_t begin
    ) noexcept nogil
    cdef int64_t absent_row(self, ArrowChunk chunk, int32_t* places) noexcept nogil
    cdef int count_partitions(self) except -1
    cdef void place_rows(self, ArrowChunk chunk, int32_t* places) noexcept nogil
    cdef int ask_rows(self, ArrowChunk chunk, int32_t* places, int64_t before) except -1
