# Writing the rows of Arrow columns, and finishing a batch. For the builder and the accumulator.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from karrow.records._segment cimport Segment
from karrow.records._source cimport ArrowChunk
from karrow.records._writing cimport Field

cdef enum WriteFault:
    WRITE_FINE = 0
    WRITE_TIMESTAMP = 1          # below zero
    WRITE_OFFSET = 2             # not above the one before, or too far from the first
    WRITE_HEADER = 3             # a header without a name
    WRITE_HEADERS_OLD = 4        # headers in a format that has none
    WRITE_SIZE = 5               # larger than a record may be

cdef struct Writer:
    uint8_t* at
    uint8_t* limit               # no record may end past this; short copies overshoot it a little
    int magic
    int64_t count
    int64_t now                  # for rows without a timestamp
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t first_offset         # of an offset column: deltas count from it
    int64_t last_delta           # -1 before the first record
    int fault

cdef void open_writer(Writer* writer, int magic) noexcept nogil
cdef void read_back(Writer* writer, const uint8_t* start, Segment* segment) noexcept nogil
cdef int64_t write_rows(Writer* writer, ArrowChunk chunk, int64_t begin) noexcept nogil
cdef int64_t write_scattered(
    Writer** writers, const int32_t* places, ArrowChunk chunk, int64_t begin
) noexcept nogil
cdef int64_t check_rows(ArrowChunk chunk, int64_t most_bytes, int* fault) noexcept nogil
cdef void write_row(
    Writer* writer, int64_t timestamp, int64_t delta, Field key, Field value,
    int64_t header_count, int64_t headers_length,
) noexcept nogil
cdef int64_t now_ms() noexcept nogil
cdef object write_error(int fault, int64_t row)


# What a finished batch says of itself beside its records.
cdef struct Stamp:
    int64_t base_offset
    int32_t leader_epoch
    int16_t attributes
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence

cdef void stamp_header(uint8_t* start, int64_t size, Writer* writer, Stamp* stamp) noexcept nogil
cdef Stamp make_stamp(
    int64_t base_offset, int32_t leader_epoch, int64_t producer_id,
    int16_t producer_epoch, int32_t base_sequence, bint transactional, bint control,
) except *
cdef bytes finish_batch(
    const uint8_t* records, int64_t size, Writer* writer, Stamp* stamp, object codec, object level
)
cdef bytes finish_messages(
    uint8_t* messages, int64_t size, Writer* writer, int64_t base_offset, object codec, object level
)
cdef int check_format(int magic, object codec) except -1
