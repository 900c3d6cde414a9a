# A run of simple records, parsed and ready for the columns.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from karrow.records._segment cimport Segment

cdef enum:
    RUN = 128                    # records in a run, at most

cdef struct Run:
    int64_t count
    int64_t* offsets             # the columns' own memory where they are wanted
    int64_t* timestamps
    int64_t unwanted[RUN]
    int64_t header_total
    int64_t header_bytes         # of all their encoded headers
    const uint8_t* headers[RUN]
    int32_t header_counts[RUN]
    const uint8_t* keys[RUN]
    const uint8_t* values[RUN]
    int32_t key_lengths[RUN]
    int32_t value_lengths[RUN]

cdef void parse_run(Run* run, Segment* segment, int64_t most, int64_t max_bytes) noexcept nogil


cdef inline int small_varint(const uint8_t* at, uint64_t* value) noexcept nogil:
    """The size of a varint of up to three bytes, 0 for a longer one; three bytes must be there."""
    if at[0] < 0x80:
        value[0] = at[0]
        return 1
    if at[1] < 0x80:
        value[0] = (at[0] & 0x7F) | (<uint64_t>at[1] << 7)
        return 2
    if at[2] < 0x80:
        value[0] = (at[0] & 0x7F) | ((<uint64_t>at[1] & 0x7F) << 7) | (<uint64_t>at[2] << 14)
        return 3
    return 0
