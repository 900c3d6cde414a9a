"""An open batch: records go in one by one or as Arrow rows, bytes come out.

Rules: a record is encoded the moment it is appended, so the size is known at every moment; a batch
never grows past max_bytes, except that the first record is always taken (its own size may be too
much for the broker, and only the broker knows). Offsets count from 0 until build().
"""

from libc.limits cimport INT_MAX
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from karrow.records._encode cimport (
    Stamp, check_format, finish_batch, finish_messages, make_stamp, now_ms, open_writer,
    read_back, write_error, write_row, write_rows,
)
from karrow.records._layout cimport BATCH_OVERHEAD
from karrow.records._segment cimport RawRecord, Segment, next_record
from karrow.records._source cimport ArrowChunk
from karrow.records._writing cimport (
    RECORD_OVERHEAD, WRITE_SLACK, Field, encoded_headers, field_at, field_bytes, field_of,
)

from karrow.errors import ConfigError, LocalProtocolError, StateError
from karrow.records._source import table_chunks
from karrow.records.compression import find_codec

cdef enum:
    FIRST_ROOM = 4096
    MAX_BATCH_BYTES = INT_MAX - 65536


cdef class BatchBuilder:
    """One batch (magic 2) or message set (magic 0 and 1) while it is being filled.

    Example::

        builder = BatchBuilder(compression="lz4", max_bytes=1_000_000)
        if builder.append(b"key", b"value", headers=[("trace", b"1")]) is None:
            ...                      # full: build this one and open the next
        data = builder.build(producer_id=7, producer_epoch=0, base_sequence=0)
    """

    def __cinit__(
        self, *, int magic=2, str compression=None, level=None, int64_t max_bytes=1_000_000
    ):
        self.codec = find_codec(compression, level)
        check_format(magic, self.codec)
        if not 0 < max_bytes <= MAX_BATCH_BYTES:
            raise ConfigError(f"max_bytes={max_bytes} is outside 1 to {MAX_BATCH_BYTES}")
        self.level = level
        self.max_bytes = max_bytes
        self.overhead = BATCH_OVERHEAD if magic == 2 else 0
        self.payload_limit = max_bytes - self.overhead
        open_writer(&self.writer, magic)
        self.make_room(FIRST_ROOM)

    def __dealloc__(self):
        free(self.memory)

    @property
    def magic(self):
        """The record format: 2 for batches, 0 and 1 for message sets."""
        return self.writer.magic

    @property
    def compression(self):
        """The codec's name, or None."""
        return None if self.codec is None else self.codec.name

    @property
    def count(self):
        """Records in the batch."""
        return self.writer.count

    def __len__(self):
        return self.writer.count

    @property
    def size_bytes(self):
        """The encoded size before compression."""
        return self.writer.at - self.memory + self.overhead

    cdef int make_room(self, int64_t more) except -1:
        """Memory for `more` bytes after what is written."""
        cdef int64_t used = 0 if self.memory == NULL else self.writer.at - self.memory
        cdef int64_t capacity = max(used + more, min(self.capacity * 2, self.max_bytes))
        cdef uint8_t* memory
        if used + more <= self.capacity:
            return 0
        if capacity > INT_MAX - WRITE_SLACK:
            raise LocalProtocolError("a batch holds less than 2 GiB")
        memory = <uint8_t*>realloc(self.memory, capacity + WRITE_SLACK)
        if memory == NULL:
            raise MemoryError
        self.memory = memory
        self.capacity = capacity
        self.writer.at = memory + used
        return 0

    cdef int refuse_second_thread(self) except -1:
        if self.writing:
            raise StateError("a BatchBuilder is used by two threads at once")
        return 0

    cdef bint has_room(self, int64_t more) noexcept nogil:
        return self.writer.count == 0 or self.writer.at - self.memory + more <= self.payload_limit

    cdef int64_t append_encoded(
        self, Field key, Field value, int64_t timestamp, bytes headers, int64_t header_count
    ) except -2:
        """The record's index in the batch, -1 when there is no room."""
        cdef int64_t extra = len(headers)
        cdef int64_t most = RECORD_OVERHEAD + key.length + value.length + 2 + extra
        if not self.has_room(most):
            return -1
        self.make_room(most)
        write_row(
            &self.writer, timestamp, self.writer.last_delta + 1, key, value, header_count, extra
        )
        if extra:
            memcpy(self.writer.at, <const char*>headers, extra)
            self.writer.at += extra
        return self.writer.last_delta

    def append(self, key, value, *, timestamp_ms=None, headers=()):
        """Encode one record into the batch: its index, or None when there is no room."""
        cdef bytes key_bytes = field_bytes("key", key)
        cdef bytes value_bytes = field_bytes("value", value)
        cdef tuple pairs = tuple(headers) if headers else ()
        cdef bytes header_bytes = encoded_headers(pairs)
        cdef int64_t timestamp = now_ms() if timestamp_ms is None else timestamp_ms
        cdef int64_t index
        self.refuse_second_thread()
        if timestamp < 0:
            raise LocalProtocolError(f"timestamp_ms={timestamp_ms} is below zero")
        if header_bytes and self.writer.magic < 2:
            raise LocalProtocolError(f"headers cannot be written with magic={self.writer.magic}")
        index = self.append_encoded(
            field_of(key_bytes), field_of(value_bytes), timestamp, header_bytes, len(pairs)
        )
        return None if index < 0 else index

    def append_arrow(self, data, start=0):
        """Encode rows of Arrow data from row ``start`` on, as many as fit: how many were taken."""
        cdef ArrowChunk chunk
        cdef int64_t skip = start
        cdef int64_t taken = 0
        cdef int64_t row
        self.refuse_second_thread()
        for chunk in table_chunks(data):
            if skip >= chunk.rows:
                skip -= chunk.rows
                continue
            row = self.append_rows(chunk, skip)
            taken += row - skip
            skip = 0
            if row < chunk.rows:
                break
        return taken

    cdef int64_t append_rows(self, ArrowChunk chunk, int64_t begin) except -1:
        """Encodes rows of one chunk; gives the first row that did not fit."""
        cdef int64_t row = begin
        cdef int64_t most
        while row < chunk.rows:
            # Another thread may have come while the data was looked at, or between two turns.
            self.refuse_second_thread()
            most = chunk.most_bytes(row, row + 1) + RECORD_OVERHEAD + 2
            if not self.has_room(most):
                break
            self.make_room(most)
            self.writer.limit = max(
                self.writer.at + most, self.memory + min(self.capacity, self.payload_limit)
            )
            self.writing = True
            with nogil:
                row = write_rows(&self.writer, chunk, row)
            self.writing = False
            if self.writer.fault:
                fault = self.writer.fault
                self.writer.fault = 0
                raise write_error(fault, row)
        return row

    def build(
        self, *, int64_t base_offset=0, int64_t producer_id=-1, int16_t producer_epoch=-1,
        int32_t base_sequence=-1, int32_t leader_epoch=-1, bint transactional=False,
        bint control=False,
    ):
        """The bytes of the batch. May be called again with other numbers; appending may go on."""
        cdef Stamp stamp = make_stamp(
            base_offset, leader_epoch, producer_id, producer_epoch, base_sequence, transactional,
            control,
        )
        cdef int64_t size = self.writer.at - self.memory
        self.refuse_second_thread()
        if self.writer.count == 0:
            raise LocalProtocolError("the batch is empty")
        if self.writer.magic == 2:
            return finish_batch(self.memory, size, &self.writer, &stamp, self.codec, self.level)
        if producer_id >= 0 or transactional or control:
            raise LocalProtocolError(
                f"magic={self.writer.magic} has no producer ids, transactions or control records"
            )
        return finish_messages(
            self.memory, size, &self.writer, base_offset, self.codec, self.level
        )

    def split(self, int64_t max_bytes):
        """The same records in several builders of at most ``max_bytes`` each, in order.

        For a batch that the broker found too large. A record that is larger by itself gets a
        builder of its own.
        """
        cdef Segment segment
        cdef RawRecord record
        cdef BatchBuilder part = self.sibling(max_bytes)
        cdef list parts = [part]
        self.refuse_second_thread()
        read_back(&self.writer, self.memory, &segment)
        while segment.remaining:
            next_record(&segment, &record)
            if segment.cursor.fault:
                raise AssertionError("a builder holds only what it encoded itself")
            if not part.append_raw(&record):
                part = self.sibling(max_bytes)
                parts.append(part)
                part.append_raw(&record)
        return parts

    cdef BatchBuilder sibling(self, int64_t max_bytes):
        return BatchBuilder(
            magic=self.writer.magic, compression=self.compression, level=self.level,
            max_bytes=max_bytes,
        )

    cdef bint append_raw(self, RawRecord* record) except -1:
        cdef bytes headers = b""
        if record.header_count:
            headers = (<const char*>record.headers)[:record.headers_length]
        return self.append_encoded(
            field_at(record.key, record.key_length), field_at(record.value, record.value_length),
            record.timestamp, headers, record.header_count,
        ) >= 0
