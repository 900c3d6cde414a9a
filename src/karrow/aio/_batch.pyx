"""A batch on its way: records go in, bytes for the broker come out, and an outcome comes back.

States: *open* takes records; *closed* waits to be sent or is under way; then *written*, *failed*,
or *divided*, when the broker found it too large and its records went into smaller batches.

Rules:
- The GIL is the lock: whatever two threads could see is touched only with it. Without it runs only
  what concerns a closed batch that one thread has: packing and checksums.
- A batch is complete at once, with all its records: a record's offset is the batch's plus its
  index.
- Its memory goes back to the pool when the outcome is there, unless a transport still has a view of
  it (a connection that broke); then it goes when the last view does.
"""

from cpython.buffer cimport PyBUF_READ, PyBuffer_FillInfo
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from karrow.records._builder cimport BatchBuilder
from karrow.records._cursor cimport store32
from karrow.records._encode cimport (
    Stamp, make_stamp, open_writer, read_back, stamp_header, write_row,
)
from karrow.records._layout cimport ATTRIBUTES_AT, BATCH_OVERHEAD, CRC_AT
from karrow.records._segment cimport RawRecord, Segment, next_record
from karrow.records._writing cimport RECORD_OVERHEAD, WRITE_SLACK, Field, field_at

import crc32c

from karrow.aio.waiting import blocked
from karrow.errors import LocalProtocolError, StateError
from karrow.records.compression import compress

cdef enum:
    FIRST_ROOM = 4096
    SEQUENCES = 0x7FFFFFFF       # they count up to this and go on with 0

NO_SEQUENCE = -1


cdef double monotonic() noexcept nogil:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <double>time.tv_sec + <double>time.tv_nsec * 1e-9


cdef class MemoryPool:
    """Blocks of one size that batches have used before: memory the system need not clear again."""

    def __cinit__(self, int64_t block_bytes):
        self.block_bytes = block_bytes

    def __dealloc__(self):
        while self.count:
            self.count -= 1
            free(self.blocks[self.count])

    cdef uint8_t* take(self) noexcept:
        if self.count:
            self.count -= 1
            return self.blocks[self.count]
        return <uint8_t*>malloc(self.block_bytes + WRITE_SLACK)

    cdef void give(self, uint8_t* block) noexcept:
        if self.count < POOL_BLOCKS:
            self.blocks[self.count] = block
            self.count += 1
        else:
            free(block)


cdef class Batch:
    """Records of one partition that are sent, and written, together."""

    def __cinit__(self, object owner, object partition, MemoryPool pool):
        self.owner = owner
        self.partition = partition
        self.pool = pool
        self.born = monotonic()
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequence = NO_SEQUENCE
        open_writer(&self.writer, 2)
        self.make_room(FIRST_ROOM)

    def __dealloc__(self):
        self.exports = 0
        self.free_memory()

    cdef void free_memory(self) noexcept:
        """Give up the memory, unless somebody is looking at it."""
        if self.exports:
            return
        # The garbage collector may have taken the pool away already.
        if self.pool is not None and self.capacity == self.pool.block_bytes:
            self.pool.give(self.memory)
        else:
            free(self.memory)
        free(self.packed)
        self.memory = NULL
        self.packed = NULL
        self.capacity = 0

    def __repr__(self):
        return f"<Batch of {self.count} for {self.partition}>"

    # ---- records in

    cdef int make_room(self, int64_t more) except -1:
        """Memory for `more` bytes after what is written."""
        cdef int64_t used = BATCH_OVERHEAD if self.memory == NULL else self.writer.at - self.memory
        cdef int64_t capacity = self.capacity * 4
        cdef uint8_t* memory
        if used + more <= self.capacity:
            return 0
        if capacity >= self.pool.block_bytes // 2:
            capacity = self.pool.block_bytes
        if capacity < used + more:
            capacity = used + more
        if capacity > INT_MAX - WRITE_SLACK:
            raise LocalProtocolError("a batch holds less than 2 GiB")
        if capacity == self.pool.block_bytes:
            memory = self.pool.take()
            if memory != NULL and self.memory != NULL:
                memcpy(memory, self.memory, used)
                free(self.memory)
        else:
            memory = <uint8_t*>realloc(self.memory, capacity + WRITE_SLACK)
        if memory == NULL:
            raise MemoryError
        self.memory = memory
        self.capacity = capacity
        self.writer.at = memory + used
        return 0

    cdef bint has_room(self, int64_t more, int64_t limit) noexcept nogil:
        return self.writer.count == 0 or self.writer.at - self.memory + more <= limit

    cdef int64_t append(
        self, Field key, Field value, int64_t timestamp, const uint8_t* headers,
        int64_t headers_length, int64_t header_count
    ) except -1:
        """Encode a record: its index."""
        cdef int64_t index = self.writer.count
        cdef uint8_t* before
        self.make_room(RECORD_OVERHEAD + 2 + key.length + value.length + headers_length)
        before = self.writer.at
        write_row(&self.writer, timestamp, index, key, value, header_count, headers_length)
        if headers_length:
            memcpy(self.writer.at, headers, headers_length)
            self.writer.at += headers_length
        self.charged += self.writer.at - before
        return index

    cdef int64_t append_raw(self, RawRecord* record) except -1:
        """Encode a record that was read: its index."""
        return self.append(
            field_at(record.key, record.key_length), field_at(record.value, record.value_length),
            record.timestamp, record.headers, record.headers_length, record.header_count,
        )

    def close(self):
        """Take no more records."""
        if self.state == OPEN:
            self.state = CLOSED

    # ---- what is in it

    @property
    def count(self):
        """Records in it."""
        return self.writer.count

    def __len__(self):
        return self.writer.count

    @property
    def size(self):
        """Bytes as they are sent."""
        return self.packed_size if self.is_packed else self.writer.at - self.memory

    @property
    def last_sequence(self):
        """The sequence of its last record."""
        return (self.sequence + self.writer.count - 1) & SEQUENCES

    # ---- bytes out

    def hold(self):
        """Keep the memory although the outcome may come meanwhile: a thread will pack it."""
        self.exports += 1

    def let_go(self):
        """Undo ``hold``."""
        self.exports -= 1
        if self.state > CLOSED:
            self.free_memory()

    def pack(self, codec, level):
        """Compress the records; for one thread, when the batch is closed."""
        cdef const uint8_t[::1] payload
        cdef uint8_t* memory
        if self.state > CLOSED:
            return
        view = PyMemoryView_FromMemory(
            <char*>self.memory + BATCH_OVERHEAD, self.writer.at - self.memory - BATCH_OVERHEAD,
            PyBUF_READ,
        )
        payload = compress(codec, view, level=level)
        memory = <uint8_t*>malloc(BATCH_OVERHEAD + payload.shape[0])
        if memory == NULL:
            raise MemoryError
        memcpy(memory + BATCH_OVERHEAD, &payload[0], payload.shape[0])
        self.packed = memory
        self.packed_size = BATCH_OVERHEAD + payload.shape[0]
        self.codec_number = codec.number
        self.is_packed = True

    def stamp(self, bint transactional):
        """Write the header: whose batch it is, its place in line, and the checksum."""
        cdef Stamp stamp = make_stamp(
            0, -1, self.producer_id, self.producer_epoch, self.sequence, transactional, False
        )
        cdef uint8_t* start = self.packed if self.is_packed else self.memory
        cdef int64_t size = self.size
        cdef object checksum
        stamp.attributes |= self.codec_number
        stamp_header(start, size, &self.writer, &stamp)
        checksum = crc32c.crc32c(
            PyMemoryView_FromMemory(<char*>start + ATTRIBUTES_AT, size - ATTRIBUTES_AT, PyBUF_READ)
        )
        store32(start + CRC_AT, <int32_t><int64_t>checksum)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef uint8_t* start = self.packed if self.is_packed else self.memory
        if start == NULL:
            raise BufferError("the batch is complete and has no bytes any more")
        PyBuffer_FillInfo(buffer, self, start, self.size, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.let_go()

    cdef void read_records(self, Segment* segment) noexcept:
        """Its records, to be read again."""
        read_back(&self.writer, self.memory + BATCH_OVERHEAD, segment)

    def message_set(self, int magic, str compression, level):
        """The records in the format of brokers before 0.11."""
        cdef BatchBuilder builder = BatchBuilder(
            magic=magic, compression=compression, level=level, max_bytes=INT_MAX - 131072
        )
        cdef Segment segment
        cdef RawRecord record
        self.read_records(&segment)
        while segment.remaining:
            next_record(&segment, &record)
            if record.header_count:
                raise LocalProtocolError("headers need a broker of 0.11 or newer")
            builder.append_raw(&record)
        return builder.build()

    def divide(self):
        """The same records in two smaller batches, which take its place."""
        cdef Batch first = Batch(self.owner, self.partition, self.pool)
        cdef Batch second = Batch(self.owner, self.partition, self.pool)
        cdef Batch part
        cdef Segment segment
        cdef RawRecord record
        cdef int64_t half = self.writer.count // 2
        cdef int64_t number
        memset(&record, 0, sizeof(RawRecord))
        self.read_records(&segment)
        for number in range(self.writer.count):
            next_record(&segment, &record)
            part = first if number < half else second
            part.append_raw(&record)
        for part in (first, second):
            part.born = self.born
            part.state = CLOSED
        self.hand_over(first, second, half)
        return first, second

    def hand_over(self, Batch first, Batch second, int64_t half):
        """Whoever waits for a record of this batch now waits for one of its halves."""
        cdef Batch part
        self.parts = [first, second]
        self.state = DIVIDED
        for delivery, call in self.callbacks or ():
            part = first if delivery.index < half else second
            part.add_callback(delivery, call)
        self.callbacks = None
        self.finish()

    # ---- the outcome

    @property
    def is_done(self):
        """Whether the outcome is there, or has passed to its parts."""
        return self.state > CLOSED

    @property
    def is_written(self):
        """Whether the broker has it."""
        return self.state == WRITTEN

    def succeed(self, base_offset, append_time_ms=None, log_start_offset=None):
        """The broker has written it; the offset is None where the broker did not say."""
        if self.state > CLOSED:
            return
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.log_start_offset = log_start_offset
        self.state = WRITTEN
        self.finish()

    def fail(self, error, dict record_errors=None):
        """It was not written, or not surely; some records may have an error of their own."""
        if self.state > CLOSED:
            return
        self.error = error
        self.record_errors = record_errors
        self.state = FAILED
        self.finish()

    def error_of(self, int64_t index):
        """What went wrong with one record."""
        if self.record_errors is not None and index in self.record_errors:
            return self.record_errors[index]
        return self.error

    cdef int finish(self) except -1:
        cdef list waiters = self.waiters
        cdef list callbacks = self.callbacks
        self.waiters = None
        self.callbacks = None
        self.free_memory()
        self.owner.settled(self, callbacks)
        if waiters is not None:
            for wake in waiters:
                wake()
        return 0

    # ---- waiting for it

    def add_waiter(self, wake):
        """Call ``wake`` when the outcome is there; False when it already is."""
        if self.state > CLOSED:
            return False
        if self.waiters is None:
            self.waiters = []
        self.waiters.append(wake)
        return True

    def remove_waiter(self, wake):
        """Forget a waiter that has gone."""
        if self.waiters is not None and wake in self.waiters:
            self.waiters.remove(wake)

    def add_callback(self, delivery, call):
        """Have ``call(delivery)`` run where callbacks run, when the outcome is there."""
        if self.state > CLOSED:
            return False
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((delivery, call))
        return True

    def wait(self, timeout):
        """Block until the outcome is there: whether it is."""
        if self.state > CLOSED:
            return True
        self.owner.refuse_fork()
        if self.owner.is_loop_here():
            raise StateError(
                "waiting here would block the event loop that sends the record", hint="await it"
            )
        self.owner.urge(self)
        blocked(self.add_waiter, self.remove_waiter, timeout)
        return self.state > CLOSED
