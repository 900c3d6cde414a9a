"""The headers of the entries in record data, without reading a record."""

from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from karrow.records._cursor cimport load32, load64
from karrow.records._layout cimport (
    BATCH_OVERHEAD, CODEC_MASK, CONTROL, ENTRY_OVERHEAD, LENGTH_AT, LOG_APPEND_TIME, MAGIC_AT,
    MESSAGE_ATTRIBUTES_AT, MESSAGE_BODY_AT, MESSAGE_CRC_AT, MIN_MESSAGE, TRANSACTIONAL, BatchHeader,
    load_header,
)

from karrow.errors import CorruptRecordError


cdef class BatchInfo:
    """What a batch says of itself; of a message in the old formats, what those have."""

    cdef readonly int64_t position
    cdef readonly int64_t size_bytes
    cdef readonly int8_t magic
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int32_t leader_epoch
    cdef readonly uint32_t crc
    cdef readonly int16_t attributes
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t count

    @property
    def codec(self):
        """The number of the compression, 0 for none."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self):
        """0 set by the producer, 1 by the broker, -1 none."""
        if self.magic == 0:
            return -1
        return 1 if self.attributes & LOG_APPEND_TIME else 0

    @property
    def transactional(self):
        """Whether the records belong to a transaction."""
        return self.magic == 2 and bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self):
        """Whether this is a marker of the broker's, not data."""
        return self.magic == 2 and bool(self.attributes & CONTROL)

    def __repr__(self):
        return (
            f"BatchInfo(position={self.position}, magic={self.magic}, offsets {self.base_offset} "
            f"to {self.last_offset}, count={self.count}, size_bytes={self.size_bytes})"
        )


cdef BatchInfo batch_info(const uint8_t* start):
    cdef BatchHeader header
    cdef BatchInfo info = BatchInfo.__new__(BatchInfo)
    load_header(start, &header)
    info.base_offset = header.base_offset
    info.last_offset = header.base_offset + header.last_delta
    info.leader_epoch = header.leader_epoch
    info.crc = header.crc
    info.attributes = header.attributes
    info.base_timestamp_ms = header.base_timestamp
    info.max_timestamp_ms = header.max_timestamp
    info.producer_id = header.producer_id
    info.producer_epoch = header.producer_epoch
    info.base_sequence = header.base_sequence
    info.count = header.count
    if header.base_offset < 0 or header.last_delta < 0 or header.count < 0:
        return None
    if header.base_offset >= INT64_MAX - header.last_delta:
        return None
    return info


cdef BatchInfo message_info(const uint8_t* start, int magic):
    cdef BatchInfo info = BatchInfo.__new__(BatchInfo)
    info.base_offset = info.last_offset = load64(start)
    info.leader_epoch = -1
    info.crc = <uint32_t>load32(start + MESSAGE_CRC_AT)
    info.attributes = start[MESSAGE_ATTRIBUTES_AT]
    info.base_timestamp_ms = info.max_timestamp_ms = (
        load64(start + MESSAGE_BODY_AT) if magic == 1 else -1
    )
    info.producer_id = -1
    info.producer_epoch = -1
    info.base_sequence = -1
    info.count = -1 if info.attributes & CODEC_MASK else 1
    return info if info.base_offset >= 0 else None


cdef BatchInfo entry_info(const uint8_t* start, int64_t size):
    """What the whole entry at `start` says, None if it cannot be read."""
    cdef int magic = start[MAGIC_AT]
    if magic == 2 and size >= BATCH_OVERHEAD:
        return batch_info(start)
    if magic < 2 and size >= MIN_MESSAGE + (8 if magic == 1 else 0):
        return message_info(start, magic)
    return None


def batches(data):
    """The header of every whole batch or message in ``data``; a partial one at the end is left out.

    A compressed message of the old formats counts its records as -1: only its content tells.

    Example::

        position_after = karrow.records.batches(data)[-1].last_offset + 1
    """
    cdef const uint8_t[::1] view = data
    cdef int64_t at = 0
    cdef int64_t size
    cdef BatchInfo info
    cdef list found = []
    while view.shape[0] - at >= MIN_MESSAGE:
        size = <int64_t>load32(&view[at] + LENGTH_AT) + ENTRY_OVERHEAD
        if size > view.shape[0] - at:
            break
        info = entry_info(&view[at], size) if size >= MIN_MESSAGE else None
        if info is None:
            raise CorruptRecordError("a batch header makes no sense", position=at)
        info.position = at
        info.size_bytes = size
        info.magic = view[at + MAGIC_AT]
        found.append(info)
        at += size
    return found


cdef Reach reach_of(const uint8_t* data, int64_t end) noexcept nogil:
    """Ends in front of a header that makes no sense: whoever reads the records will complain."""
    cdef Reach reach
    cdef int64_t size
    cdef BatchHeader header
    cdef const uint8_t* start
    reach.after = -1
    reach.size = 0
    reach.epoch = -1
    while end - reach.size >= MIN_MESSAGE:
        start = data + reach.size
        size = <int64_t>load32(start + LENGTH_AT) + ENTRY_OVERHEAD
        if size > end - reach.size or size < MIN_MESSAGE:
            break
        if start[MAGIC_AT] == 2 and size >= BATCH_OVERHEAD:
            load_header(start, &header)
            if header.base_offset < 0 or header.last_delta < 0:
                break
            if header.base_offset >= INT64_MAX - header.last_delta:
                break
            reach.after = header.base_offset + header.last_delta + 1
            reach.epoch = header.leader_epoch
        elif start[MAGIC_AT] < 2 and 0 <= load64(start) < INT64_MAX:
            reach.after = load64(start) + 1
        else:
            break
        reach.size += size
    return reach


def run_of(data):
    """How far the whole batches of ``data`` reach: offset after them, bytes, the last leader epoch.

    Only headers are looked at, so that the next fetch can leave before anything is decoded. The
    first two are None and 0 without a whole batch. Ends in front of a header that makes no sense:
    whoever reads the records will say what is wrong with it.
    """
    cdef const uint8_t[::1] view = data
    cdef Reach reach = reach_of(&view[0], view.shape[0]) if view.shape[0] else reach_of(NULL, 0)
    return (None if reach.after < 0 else reach.after), reach.size, reach.epoch
