# The fast path into columns: runs of records about which nothing needs a second thought.
#
# A record is simple when at least WIDE bytes follow it, its varints are short, and all of it checks
# out; its batch begins at the asked offset or after, and the columns will surely not be full then.
# The first record that is not simple stays where it is for read_record(), which alone knows what is
# wrong with a record. All state is in locals, so that the loop runs in registers.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from karrow.records._cursor cimport unzigzag
from karrow.records._segment cimport WIDE, Segment

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


cdef inline uint32_t load_pair(const uint8_t* at) noexcept nogil:
    """Four bytes, the first one lowest."""
    return at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24


cdef inline const uint8_t* skip_simple_headers(
    const uint8_t* at, uint64_t count, const uint8_t* stop
) noexcept nogil:
    """The place after `count` headers, NULL if they are not simple or pass `stop`."""
    cdef uint64_t number = 0
    cdef int size
    while count:
        size = small_varint(at, &number)
        at += size
        if size == 0 or number & 1 or <int64_t>(number >> 1) > stop - at:
            return NULL
        at += number >> 1
        size = small_varint(at, &number)
        at += size
        if number != 1:                                     # the zigzag form of -1: null
            if size == 0 or number & 1 or <int64_t>(number >> 1) > stop - at:
                return NULL
            at += number >> 1
        if at > stop:
            return NULL
        count -= 1
    return at


cdef inline void parse_run(
    Run* run, Segment* segment, int64_t most, int64_t max_bytes
) noexcept nogil:
    """Parses up to `most` simple records out of less than `max_bytes` of payload."""
    cdef const uint8_t* at = segment.cursor.at
    cdef const uint8_t* end = segment.cursor.end
    cdef const uint8_t* last_start = at + min(end - at - WIDE, max_bytes)
    cdef const uint8_t* field
    cdef const uint8_t* stop
    cdef uint64_t base_timestamp = <uint64_t>segment.base_timestamp
    cdef int64_t base_offset = segment.base_offset
    cdef uint64_t last_delta = <uint64_t>segment.last_delta
    cdef int64_t* offsets = run.offsets
    cdef int64_t* timestamps = run.timestamps
    cdef int64_t count = 0
    cdef int64_t header_total = 0
    cdef int64_t header_bytes = 0
    cdef uint64_t number = 0
    cdef uint64_t time = 0
    cdef uint32_t pair
    cdef int64_t length
    cdef int size
    # The segment's last record is never simple: read_record() sees to it that nothing follows.
    most = min(most, segment.remaining - 1, <int64_t>RUN)
    while count < most and at < last_start:
        size = small_varint(at, &number)
        field = at + size
        stop = field + (number >> 1)
        if size == 0 or number & 1 or stop > last_start:
            break
        field += 1                                          # the attributes: none defined
        pair = load_pair(field)
        if pair & <uint32_t>0x80808080 == <uint32_t>0x00800080:     # both deltas take two bytes
            time = (pair & 0x7F) | (pair >> 1 & 0x3F80)
            number = (pair >> 16 & 0x7F) | (pair >> 17 & 0x3F80)
            field += 4
        else:
            size = small_varint(field, &time)
            if size == 0:
                break
            field += size
            size = small_varint(field, &number)
            if size == 0:
                break
            field += size
        if number & 1 or number >> 1 > last_delta:
            break
        timestamps[count] = <int64_t>(base_timestamp + <uint64_t>unzigzag(time))
        offsets[count] = base_offset + <int64_t>(number >> 1)
        length = -1
        if field[0] == 1:                                   # the zigzag form of -1: null
            field += 1
        else:
            size = small_varint(field, &number)
            length = <int64_t>(number >> 1)
            field += size
            run.keys[count] = field
            if size == 0 or number & 1 or length > end - field - WIDE:
                break
            field += length
        run.key_lengths[count] = <int32_t>length
        size = small_varint(field, &number)
        length = <int64_t>(number >> 1)
        field += size
        if size == 0 or number & 1 or length >= stop - field:
            break
        run.values[count] = field
        run.value_lengths[count] = <int32_t>length
        field += length
        run.header_counts[count] = 0
        if field[0] != 0 or field + 1 != stop:
            size = small_varint(field, &number)
            run.headers[count] = field + size
            run.header_counts[count] = <int32_t>(number >> 1)
            if size == 0 or number & 1 or number > 2 * RUN:
                break
            if skip_simple_headers(field + size, number >> 1, stop) != stop:
                break
            header_total += number >> 1
            header_bytes += stop - field
        count += 1
        at = stop
    segment.cursor.at = at
    segment.remaining -= count
    run.count = count
    run.header_total = header_total
    run.header_bytes = header_bytes
