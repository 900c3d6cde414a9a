"""Arrow columns into record batches and message sets.

The rows are written without the GIL into memory that was sized before; compression and checksums
are library calls on the finished run.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.limits cimport INT_MAX
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from karrow.records._cursor cimport (
    FAULT_NONE, load32, store16, store32, store64, varint_size, zigzag,
)
from karrow.records._layout cimport (
    ATTRIBUTES_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, BATCH_OVERHEAD, CONTROL, COUNT_AT, CRC_AT,
    ENTRY_OVERHEAD, LAST_DELTA_AT, LEADER_EPOCH_AT, LENGTH_AT, MAGIC_AT, MAX_TIMESTAMP_AT,
    MESSAGE_CRC_AT, PRODUCER_EPOCH_AT, PRODUCER_ID_AT, TRANSACTIONAL,
)
from karrow.records._segment cimport Segment
from karrow.records._source cimport (
    ArrowChunk, ByteSource, NumberSource, byte_field, has_number, header_range, null_field, number,
)
from karrow.records._writing cimport (
    MESSAGE_OVERHEAD, RECORD_OVERHEAD, WRITE_SLACK, Field, field_of, write_field, write_message,
    write_record,
)

import zlib

import crc32c

from karrow.errors import ConfigError, LocalProtocolError
from karrow.records._slab import Slab
from karrow.records._source import table_chunks
from karrow.records.compression import compress, find_codec

cdef dict WRITE_FAULTS = {
    WRITE_TIMESTAMP: "column 'timestamp' is below zero",
    WRITE_OFFSET: "column 'offset' must rise from row to row, by less than 2**31 in all",
    WRITE_HEADER: "column 'headers' has a header without a key",
    WRITE_HEADERS_OLD: "column 'headers' cannot be written below magic 2, which has no headers",
}


cdef object write_error(int fault, int64_t row):
    return LocalProtocolError(f"{WRITE_FAULTS[fault]} (row {row})")


cdef int64_t now_ms() noexcept nogil:
    cdef timespec time
    clock_gettime(CLOCK_REALTIME, &time)
    return <int64_t>time.tv_sec * 1000 + time.tv_nsec // 1_000_000


cdef void open_writer(Writer* writer, int magic) noexcept nogil:
    memset(writer, 0, sizeof(Writer))
    writer.magic = magic
    writer.last_delta = -1
    writer.now = now_ms()


cdef void read_back(Writer* writer, const uint8_t* start, Segment* segment) noexcept nogil:
    """Everything that was written from `start` on, to be read again."""
    memset(segment, 0, sizeof(Segment))
    segment.cursor.at = start
    segment.cursor.end = writer.at
    segment.cursor.fault = FAULT_NONE
    segment.remaining = writer.count
    segment.last_delta = writer.last_delta
    segment.base_timestamp = writer.base_timestamp
    segment.magic = writer.magic


# ---- rows

cdef int64_t headers_size(ArrowChunk chunk, int64_t begin, int64_t end) noexcept nogil:
    """The encoded size of these header entries, -1 if one has no key."""
    cdef int64_t total = 0
    cdef int64_t entry
    cdef Field key
    cdef Field value
    for entry in range(begin, end):
        key = byte_field(&chunk.headers.key, entry)
        value = byte_field(&chunk.headers.value, entry)
        if key.length < 0:
            return -1
        total += varint_size(zigzag(key.length)) + key.length
        total += varint_size(zigzag(value.length)) + (value.length if value.length > 0 else 0)
    return total


cdef uint8_t* write_headers(
    uint8_t* at, ArrowChunk chunk, int64_t begin, int64_t end
) noexcept nogil:
    cdef int64_t entry
    cdef Field field
    for entry in range(begin, end):
        field = byte_field(&chunk.headers.key, entry)
        at = write_field(at, field.start, field.length, field.readable_end)
        field = byte_field(&chunk.headers.value, entry)
        at = write_field(at, field.start, field.length, field.readable_end)
    return at


cdef inline int64_t next_delta(Writer* writer, ArrowChunk chunk, int64_t row) noexcept nogil:
    """The row's offset relative to the batch's first one, -1 if it does not fit."""
    cdef int64_t delta = writer.last_delta + 1
    if has_number(&chunk.offset, row):
        if writer.count == 0:
            writer.first_offset = number(&chunk.offset, row)
        delta = number(&chunk.offset, row) - writer.first_offset
    if delta <= writer.last_delta or delta > INT_MAX:
        return -1
    return delta


cdef int64_t write_plain_rows(Writer* writer, ArrowChunk chunk, int64_t begin) noexcept nogil:
    """The fast path of write_rows(): a batch's rows without headers and without an offset column.

    All state is in locals; the first row that needs a second thought is left to write_rows().
    """
    cdef ByteSource keys = chunk.key
    cdef ByteSource values = chunk.value
    cdef NumberSource times = chunk.timestamp
    cdef uint8_t* at = writer.at
    cdef uint8_t* limit = writer.limit
    cdef int64_t base = writer.base_timestamp
    cdef int64_t latest = writer.max_timestamp
    cdef int64_t delta = writer.last_delta
    cdef int64_t timestamp
    cdef int64_t rows = chunk.rows
    cdef int64_t row = begin
    cdef Field key
    cdef Field value
    while row < rows and delta < INT_MAX:
        key = byte_field(&keys, row)
        value = byte_field(&values, row)
        timestamp = number(&times, row) if has_number(&times, row) else writer.now
        if timestamp < 0 or limit - at < RECORD_OVERHEAD + key.length + value.length + 2:
            break
        latest = max(latest, timestamp)
        delta += 1
        at = write_record(at, timestamp - base, delta, key, value, 0, 0)
        row += 1
    writer.at = at
    writer.count += row - begin
    writer.max_timestamp = latest
    writer.last_delta = delta
    return row


cdef inline bint write_one(Writer* writer, ArrowChunk chunk, int64_t row) noexcept nogil:
    """Writes a row; False if it has no room, or a fault that the writer then knows."""
    cdef int64_t timestamp
    cdef int64_t delta
    cdef int64_t entry = 0
    cdef int64_t stop = 0
    cdef int64_t extra = 0
    cdef Field key = byte_field(&chunk.key, row)
    cdef Field value = byte_field(&chunk.value, row)
    if chunk.headers.present:
        header_range(&chunk.headers, row, &entry, &stop)
        extra = headers_size(chunk, entry, stop)
        if extra < 0 or stop > entry and writer.magic < 2:
            writer.fault = WRITE_HEADER if extra < 0 else WRITE_HEADERS_OLD
            return False
    if writer.limit - writer.at < RECORD_OVERHEAD + key.length + value.length + 2 + extra:
        return False
    timestamp = writer.now
    if has_number(&chunk.timestamp, row):
        timestamp = number(&chunk.timestamp, row)
    delta = next_delta(writer, chunk, row)
    if timestamp < 0 or delta < 0:
        writer.fault = WRITE_TIMESTAMP if timestamp < 0 else WRITE_OFFSET
        return False
    write_row(writer, timestamp, delta, key, value, stop - entry, extra)
    if stop > entry:
        writer.at = write_headers(writer.at, chunk, entry, stop)
    return True


cdef int64_t write_rows(Writer* writer, ArrowChunk chunk, int64_t begin) noexcept nogil:
    """Writes rows until one has no room or a fault; gives the first row not written."""
    cdef int64_t row = begin
    cdef bint plain = writer.magic == 2 and not chunk.headers.present and not chunk.offset.present
    while row < chunk.rows:
        if plain and writer.count:
            row = write_plain_rows(writer, chunk, row)
            if row == chunk.rows:
                break
        if not write_one(writer, chunk, row):
            break
        row += 1
    return row


cdef int64_t write_scattered(
    Writer** writers, const int32_t* places, ArrowChunk chunk, int64_t begin
) noexcept nogil:
    """As write_rows(), each row to the writer at its place; also ends at a place without one."""
    cdef int64_t row = begin
    cdef Writer* writer
    while row < chunk.rows:
        writer = writers[places[row]]
        if writer == NULL or not write_one(writer, chunk, row):
            break
        row += 1
    return row


cdef int64_t check_rows(ArrowChunk chunk, int64_t most_bytes, int* fault) noexcept nogil:
    """The first row with a fault, or with more than `most_bytes`; all of them if there is none."""
    cdef int64_t row
    cdef int64_t entry = 0
    cdef int64_t stop = 0
    cdef int64_t size
    for row in range(chunk.rows):
        if has_number(&chunk.timestamp, row) and number(&chunk.timestamp, row) < 0:
            fault[0] = WRITE_TIMESTAMP
            return row
        size = row_size(chunk, row)
        if chunk.headers.present:
            header_range(&chunk.headers, row, &entry, &stop)
            if headers_size(chunk, entry, stop) < 0:
                fault[0] = WRITE_HEADER
                return row
            size += headers_size(chunk, entry, stop)
        if size > most_bytes:
            fault[0] = WRITE_SIZE
            return row
    return chunk.rows


cdef inline int64_t row_size(ArrowChunk chunk, int64_t row) noexcept nogil:
    """The most a row may take, without its headers."""
    return RECORD_OVERHEAD + 2 + byte_field(&chunk.key, row).length + byte_field(
        &chunk.value, row
    ).length


cdef void write_row(
    Writer* writer, int64_t timestamp, int64_t delta, Field key, Field value,
    int64_t header_count, int64_t headers_length,
) noexcept nogil:
    """One record or message up to its header count; keeps the batch's totals."""
    if writer.count == 0:
        writer.base_timestamp = timestamp
        writer.max_timestamp = timestamp
    elif timestamp > writer.max_timestamp:
        writer.max_timestamp = timestamp
    if writer.magic == 2:
        writer.at = write_record(
            writer.at, timestamp - writer.base_timestamp, delta, key, value, header_count,
            headers_length,
        )
    else:
        writer.at = write_message(writer.at, writer.magic, 0, delta, timestamp, key, value)
    writer.last_delta = delta
    writer.count += 1


# ---- finishing a batch

cdef Stamp make_stamp(
    int64_t base_offset, int32_t leader_epoch, int64_t producer_id,
    int16_t producer_epoch, int32_t base_sequence, bint transactional, bint control,
) except *:
    cdef Stamp stamp
    if base_offset < 0:
        raise ConfigError(f"base_offset={base_offset} is below 0")
    stamp.base_offset = base_offset
    stamp.leader_epoch = leader_epoch
    stamp.attributes = (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    stamp.producer_id = producer_id
    stamp.producer_epoch = producer_epoch
    stamp.base_sequence = base_sequence
    return stamp


cdef void stamp_header(uint8_t* start, int64_t size, Writer* writer, Stamp* stamp) noexcept nogil:
    """Fills the 61 bytes of the header, all but the checksum."""
    store64(start, stamp.base_offset)
    store32(start + LENGTH_AT, <int32_t>(size - ENTRY_OVERHEAD))
    store32(start + LEADER_EPOCH_AT, stamp.leader_epoch)
    start[MAGIC_AT] = 2
    store32(start + CRC_AT, 0)
    store16(start + ATTRIBUTES_AT, stamp.attributes)
    store32(start + LAST_DELTA_AT, <int32_t>writer.last_delta)
    store64(start + BASE_TIMESTAMP_AT, writer.base_timestamp)
    store64(start + MAX_TIMESTAMP_AT, writer.max_timestamp)
    store64(start + PRODUCER_ID_AT, stamp.producer_id)
    store16(start + PRODUCER_EPOCH_AT, stamp.producer_epoch)
    store32(start + BASE_SEQUENCE_AT, stamp.base_sequence)
    store32(start + COUNT_AT, <int32_t>writer.count)


cdef object view_of(const uint8_t* start, int64_t size):
    """The bytes as a library call takes them; they must outlive the view."""
    return PyMemoryView_FromMemory(<char*>start, size, PyBUF_READ)


cdef int seal_batch(bytes batch) except -1:
    """Writes the checksum into a batch that nobody else has seen yet."""
    cdef uint32_t checksum = crc32c.crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    store32(<uint8_t*>PyBytes_AS_STRING(batch) + CRC_AT, <int32_t>checksum)
    return 0


cdef bytes finish_batch(
    const uint8_t* records, int64_t size, Writer* writer, Stamp* stamp, object codec, object level
):
    """A whole batch from its encoded records: header, records (compressed), checksum."""
    cdef bytes batch
    cdef const uint8_t[::1] payload
    cdef uint8_t* start
    if codec is None:
        batch = PyBytes_FromStringAndSize(NULL, BATCH_OVERHEAD + size)
        memcpy(<uint8_t*>PyBytes_AS_STRING(batch) + BATCH_OVERHEAD, records, size)
    else:
        stamp.attributes |= codec.number
        payload = compress(codec, view_of(records, size), level=level)
        batch = PyBytes_FromStringAndSize(NULL, BATCH_OVERHEAD + payload.shape[0])
        memcpy(
            <uint8_t*>PyBytes_AS_STRING(batch) + BATCH_OVERHEAD, &payload[0], payload.shape[0]
        )
    start = <uint8_t*>PyBytes_AS_STRING(batch)
    stamp_header(start, len(batch), writer, stamp)
    seal_batch(batch)
    return batch


# ---- messages, magic 0 and 1

cdef int seal_messages(uint8_t* messages, int64_t size, int64_t shift) except -1:
    """Moves the offsets of a run of messages by `shift` and writes every checksum."""
    cdef int64_t at = 0
    cdef int64_t end
    cdef uint32_t checksum
    view = view_of(messages, size)
    while at < size:
        end = at + ENTRY_OVERHEAD + load32(messages + at + LENGTH_AT)
        if shift:
            store64(messages + at, shift + load32(messages + at + 4))
        checksum = zlib.crc32(view[at + MAGIC_AT:end])
        store32(messages + at + MESSAGE_CRC_AT, <int32_t>checksum)
        at = end
    return 0


cdef bytes finish_messages(
    uint8_t* messages, int64_t size, Writer* writer, int64_t base_offset, object codec, object level
):
    """A message set from messages whose offsets count from 0; compressed, it is one wrapper."""
    cdef bytes inner
    cdef bytes wrapper
    cdef uint8_t* at
    # Inner offsets are absolute in magic 0 and relative in magic 1 (KIP-31).
    seal_messages(messages, size, base_offset if codec is None or writer.magic == 0 else 0)
    if codec is None:
        return PyBytes_FromStringAndSize(<char*>messages, size)
    inner = bytes(compress(codec, view_of(messages, size), level=level, magic=writer.magic))
    wrapper = PyBytes_FromStringAndSize(
        NULL, len(inner) + MESSAGE_OVERHEAD - (8 if writer.magic == 0 else 0)
    )
    at = <uint8_t*>PyBytes_AS_STRING(wrapper)
    write_message(
        at, writer.magic, codec.number, base_offset + writer.last_delta,
        writer.max_timestamp, null_field(), field_of(inner),
    )
    seal_messages(at, len(wrapper), 0)
    return wrapper


# ---- a whole table at once

cdef bytes encode_chunks(
    list chunks, Writer* writer, Stamp* stamp, object codec, object level
):
    cdef ArrowChunk chunk
    cdef uint8_t* start
    cdef int64_t room = 0
    for chunk in chunks:
        room += chunk.most_bytes(0, chunk.rows) + chunk.rows * (RECORD_OVERHEAD + 2)
    if room > INT_MAX - 1024:
        raise LocalProtocolError(
            f"the data takes up to {room} bytes; one batch holds less than 2 GiB",
            hint="encode it in pieces",
        )
    memory = Slab(room + WRITE_SLACK)
    start = slab_start(memory)
    write_chunks(chunks, writer, start, room)
    if writer.magic == 2:
        return finish_batch(start, writer.at - start, writer, stamp, codec, level)
    return finish_messages(start, writer.at - start, writer, stamp.base_offset, codec, level)


cdef uint8_t* slab_start(object slab) except NULL:
    cdef uint8_t[::1] view = slab
    return &view[0]


cdef int write_chunks(list chunks, Writer* writer, uint8_t* start, int64_t room) except -1:
    cdef ArrowChunk chunk
    cdef int64_t row
    writer.at = start
    writer.limit = start + room
    for chunk in chunks:
        with nogil:
            row = write_rows(writer, chunk, 0)
        if writer.fault:
            raise write_error(writer.fault, row)
    return 0


def encode(
    data, *, int magic=2, str compression=None, level=None, base_offset=None,
    int64_t producer_id=-1, int16_t producer_epoch=-1, int32_t base_sequence=-1,
    int32_t leader_epoch=-1, bint transactional=False, bint control=False,
):
    """Encode a whole Arrow table, stream or record batch as one record batch or message set.

    Columns: ``value`` is needed; ``key``, ``timestamp`` (any unit, or int64 milliseconds; now where
    it is missing) and ``headers`` are taken where they are there. With an ``offset`` column the
    records keep their distances; ``base_offset`` moves the first one. ``topic``, ``partition`` and
    ``timestamp_type`` are not part of a batch and left out. No rows give no bytes.

    Example::

        data = karrow.records.encode(pyarrow.table({"value": [b"a", b"b"]}), compression="zstd")
    """
    cdef Writer writer
    cdef Stamp stamp
    codec = find_codec(compression, level)
    check_format(magic, codec)
    if magic < 2 and (producer_id >= 0 or transactional or control):
        raise ConfigError(f"magic={magic} has no producer ids, transactions or control records")
    chunks = [chunk for chunk in table_chunks(data) if chunk.rows]
    if not chunks:
        return b""
    open_writer(&writer, magic)
    stamp = make_stamp(
        first_offset(chunks[0]) if base_offset is None else base_offset, leader_epoch, producer_id,
        producer_epoch, base_sequence, transactional, control,
    )
    return encode_chunks(chunks, &writer, &stamp, codec, level)


cdef int check_format(int magic, object codec) except -1:
    if magic not in (0, 1, 2):
        raise ConfigError(f"magic={magic} is none of 0, 1, 2")
    if magic < 2 and codec is not None and codec.name == "zstd":
        raise ConfigError(f"compression='zstd' needs magic=2, not magic={magic}")
    return 0


cdef int64_t first_offset(ArrowChunk chunk) noexcept:
    return number(&chunk.offset, 0) if has_number(&chunk.offset, 0) else 0
