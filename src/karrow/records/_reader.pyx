"""Reading one partition's record data: batches and message sets, as Arrow columns or records.

The reader walks the data entry by entry. Loading an entry (checksum, decompression, aborted
transactions) happens with the GIL and through libraries; the records in it are then read without.

Rules:
- `at` is the first byte not loaded yet; `segment` is what was loaded and not read yet.
- `next_offset` is the position after everything handed out or passed over: the last record given,
  or the end of its batch once the batch is through, so gaps left by compaction, control batches
  and aborted data never hold it back.
- A partial entry at the end is what a fetch leaves behind; it is ignored, `partial_tail` says so.
- A damaged entry raises CorruptRecordError, after everything before it has been handed out, and
  again on every call until skip_damaged() passes over it. Nothing of a batch with a wrong checksum
  is ever handed out.
"""

cimport cython
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from karrow.records._columns cimport (
    Columns, drop_columns, fill, open_columns, reserve_segment,
)
from karrow.records._cursor cimport (
    FAULT_CUT, FAULT_HEADERS, FAULT_LENGTH, FAULT_MEMORY, FAULT_OFFSET,
    FAULT_RECORD_SIZE, FAULT_TRAILING, FAULT_VARINT, load16, load32, load64,
)
from karrow.records._export cimport close_columns
from karrow.records._layout cimport (
    ATTRIBUTES_AT, BATCH_OVERHEAD, CODEC_MASK, CONTROL, ENTRY_OVERHEAD, LENGTH_AT, LOG_APPEND_TIME,
    MAGIC_AT, MESSAGE_ATTRIBUTES_AT, MESSAGE_CRC_AT, MIN_MESSAGE, MIN_RECORD, TRANSACTIONAL,
    BatchHeader, load_header,
)
from karrow.records._record cimport BatchOrigin, Record, make_record
from karrow.records._segment cimport RawRecord, Segment, next_record, read_message

import zlib

import crc32c

from karrow.errors import (
    ConfigError, CorruptRecordError, LocalProtocolError, RemoteProtocolError, StateError,
)
from karrow.records._export import ALL, column_mask
from karrow.records.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES, MAX_DECOMPRESSED_BYTES, decompress,
)

cdef enum:
    MIN_LENGTH = 14              # what the smallest entry of any format declares
    RUN_BYTES = 65536            # messages read as one segment, so a Record pins no more than this
    ABORT_MARKER = 0

cdef dict FAULTS = {
    FAULT_CUT: "a record or field reaches past the end of its batch",
    FAULT_VARINT: "a varint is longer than its type allows",
    FAULT_LENGTH: "a length is negative",
    FAULT_RECORD_SIZE: "a record's fields do not fill its declared size",
    FAULT_OFFSET: "a record's offset lies outside its batch",
    FAULT_HEADERS: "a record declares an impossible number of headers",
    FAULT_TRAILING: "bytes are left over after the last record",
}

cdef dict TIMESTAMP_FACTORS = {"ms": 1, "us": 1000, "ns": 1_000_000}
cdef object crc_of_batch = crc32c.crc32c
cdef object crc_of_message = zlib.crc32


# The columns by default: all that are known, by whether a topic and a partition were given.
cdef dict KNOWN = {
    (topic, partition): tuple([
        name for name in ALL if {"topic": topic, "partition": partition}.get(name, True)
    ])
    for topic in (False, True) for partition in (False, True)
}


cdef tuple chosen_columns(object columns, object topic, object partition):
    """The columns to build; by default all that are known."""
    if columns is None:
        return KNOWN[topic is not None, partition is not None]
    chosen = tuple(columns)
    for name in chosen:
        if name not in ALL:
            raise ConfigError(f"column {name!r} is none of {', '.join(ALL)}")
        if name == "topic" and topic is None or name == "partition" and partition is None:
            raise ConfigError(f"column {name!r} was asked for, but no {name} was given")
    if len(set(chosen)) != len(chosen):
        raise ConfigError("columns names one column twice")
    return chosen


@cython.final
@cython.no_gc
cdef class RecordReader:
    """Reads the record data of one partition, once, from front to back.

    Iterating gives Record objects, ``read_arrow`` gives columns; both may be mixed. Records below
    ``from_offset`` are dropped, control batches never come out. ``aborted`` lists the aborted
    transactions as (producer id, first offset) pairs; their records are dropped (read_committed).
    Without it everything comes out (read_uncommitted).

    Example::

        for record in RecordReader(data, topic="orders", partition=0):
            print(record.offset, record.value)
    """

    def __init__(
        self, data, *, str topic=None, partition=None, from_offset=None, aborted=None,
        bint check_crc=True, max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
    ):
        if self.view is not None:
            raise LocalProtocolError("a RecordReader reads one piece of data, once")
        if not 0 < max_decompressed_bytes <= MAX_DECOMPRESSED_BYTES:
            raise ConfigError(
                f"max_decompressed_bytes={max_decompressed_bytes} is outside 1 to "
                f"{MAX_DECOMPRESSED_BYTES}"
            )
        self.view = memoryview(data).cast("B")
        self.start = <const uint8_t*>PyMemoryView_GET_BUFFER(self.view).buf
        self.size = PyMemoryView_GET_BUFFER(self.view).len
        self._topic = topic
        self._partition = partition
        self.from_offset = INT64_MIN if from_offset is None else from_offset
        self._next_offset = -1 if from_offset is None else from_offset
        self.check_crc = check_crc
        self.limit = max_decompressed_bytes
        if aborted is not None:
            self.aborted = sorted(((first, producer) for producer, first in aborted), reverse=True)
            self.active = set()

    @property
    def topic(self):
        """The topic the records are said to be of."""
        return self._topic

    @property
    def partition(self):
        """The partition the records are said to be of."""
        return self._partition

    @property
    def next_offset(self):
        """The position after what was read so far; -1 before the first record."""
        return self._next_offset

    @property
    def is_damaged(self):
        """Whether the next call raises, since the data is damaged from here on."""
        return self.failure is not None

    @property
    def expanded_bytes(self):
        """The size of the batch that is held decompressed."""
        return 0 if self.owner is None else len(self.owner)

    # ---- loading: one entry of the data becomes the segment

    cdef int load(self) except -1:
        """1: a segment with records is loaded; 0: the data is through."""
        cdef int64_t length
        cdef int8_t magic
        self.refuse_second_thread()
        while True:
            if self.segment.remaining > 0:
                return 1
            self.close_segment()
            if self.failure is not None:
                raise self.error()
            if self.size - self.at < ENTRY_OVERHEAD + MIN_LENGTH:
                return self.finish()
            length = load32(self.start + self.at + LENGTH_AT)
            self.segment_at = self.at
            self.segment_offset = load64(self.start + self.at)
            if length < MIN_LENGTH:
                self.damage(f"a batch declares a length of {length} bytes", None)
            if length > self.size - self.at - ENTRY_OVERHEAD:
                return self.finish()
            magic = <int8_t>self.start[self.at + MAGIC_AT]
            if magic == 2:
                self.load_batch(length)
            elif magic == 0 or magic == 1:
                self.load_messages(magic, length)
            else:
                self.at += ENTRY_OVERHEAD + length
                self.damage(f"unknown record format (magic {magic})", None)

    cdef int refuse_second_thread(self) except -1:
        if self.filling:
            raise StateError("a RecordReader is used by two threads at once")
        return 0

    cdef int finish(self) except -1:
        """The data is through; what is left is a part of an entry, or nothing."""
        self.partial_tail = self.at < self.size
        return 0

    cdef void close_segment(self) noexcept:
        if self.owner is not None or self.segment.next_offset > 0:
            if self.segment.next_offset > self._next_offset:
                self._next_offset = self.segment.next_offset
            self.segment.next_offset = 0
            self.owner = None
            self.origin = None

    cdef int damage(self, str what, object next_offset) except -1:
        """Notes the failure for every later call, and raises it."""
        self.failure = (what, None, next_offset)
        raise self.error()

    cdef object error(self):
        """The failure as an error; a new one each time, since a raised one holds frames."""
        what, hint, next_offset = self.failure
        return CorruptRecordError(
            what, hint=hint, offset=self.segment_offset, next_offset=next_offset,
            position=self.segment_at, topic=self._topic, partition=self._partition,
        )

    cdef int load_batch(self, int64_t length) except -1:
        cdef const uint8_t* start = self.start + self.at
        cdef BatchHeader header
        cdef int64_t begin = self.at
        cdef int64_t end = begin + ENTRY_OVERHEAD + length
        self.at = end
        if length < BATCH_OVERHEAD - ENTRY_OVERHEAD:
            self.damage(f"a batch of {length} bytes is smaller than its header", None)
        load_header(start, &header)
        if (
            header.base_offset < 0 or header.last_delta < 0
            or header.base_offset >= INT64_MAX - header.last_delta
        ):
            self.damage(
                f"offsets {header.base_offset} + {header.last_delta} are impossible", None
            )
        next_offset = header.base_offset + header.last_delta + 1
        if next_offset <= self.from_offset and self.aborted is None:
            self.pass_over(next_offset)
            return 0
        if self.check_crc and header.crc != <uint32_t>crc_of_batch(
            self.view[begin + ATTRIBUTES_AT:end]
        ):
            self.damage(
                "the batch's checksum does not match its bytes",
                self.plausible(next_offset, header.base_offset, end),
            )
        if header.count < 0:
            self.damage(f"a batch declares {header.count} records", next_offset)
        if self.is_hidden(&header, start + BATCH_OVERHEAD, start + ENTRY_OVERHEAD + length):
            self.pass_over(next_offset)
            return 0
        self.open_batch(&header, begin + BATCH_OVERHEAD, end, next_offset)
        return 0

    cdef int64_t plausible(self, int64_t next_offset, int64_t base_offset, int64_t end) noexcept:
        """The offset after a batch whose header may be damaged too; the next one may know it."""
        cdef int64_t following
        if self.size - end >= ENTRY_OVERHEAD:
            following = load64(self.start + end)
            if base_offset < following < next_offset:
                return following
        return next_offset

    cdef void pass_over(self, int64_t next_offset) noexcept:
        if next_offset > self._next_offset:
            self._next_offset = next_offset

    cdef bint is_hidden(
        self, BatchHeader* header, const uint8_t* payload, const uint8_t* end
    ) except -1:
        """Whether the batch holds no records for the reader: a control batch or an aborted one."""
        cdef int64_t last = header.base_offset + header.last_delta
        if self.aborted is not None:
            while self.aborted and self.aborted[len(self.aborted) - 1][0] <= last:
                self.active.add(self.aborted.pop()[1])
        if header.attributes & CONTROL:
            if self.active and control_type(header, payload, end) == ABORT_MARKER:
                self.active.discard(header.producer_id)
            return True
        return (
            bool(self.active) and header.attributes & TRANSACTIONAL
            and header.producer_id in self.active
        )

    cdef int open_batch(
        self, BatchHeader* header, int64_t begin, int64_t end, int64_t next_offset
    ) except -1:
        """Points the segment at the batch's records, decompressed if need be."""
        cdef const uint8_t* payload = self.start + begin
        cdef int64_t size = end - begin
        cdef object owner = None
        if header.attributes & CODEC_MASK and header.count:
            owner = self.expand(header.attributes & CODEC_MASK, begin, end, 2, next_offset)
            payload = address(owner)
            size = len(owner)
        if header.count > size // MIN_RECORD:
            self.damage(f"{header.count} records do not fit into {size} bytes", next_offset)
        if header.count == 0 and size and not header.attributes & CODEC_MASK:
            self.damage(FAULTS[FAULT_TRAILING], next_offset)
        self.open_segment(2, payload, size, header.count, next_offset, owner)
        self.segment.base_offset = header.base_offset
        self.segment.last_delta = header.last_delta
        self.segment.base_timestamp = header.base_timestamp
        self.segment.fixed_time = (header.attributes & LOG_APPEND_TIME) != 0
        self.segment.fixed_timestamp = header.max_timestamp
        self.segment.attributes = header.attributes
        self.leader_epoch = header.leader_epoch
        return 0

    cdef void open_segment(
        self, int8_t magic, const uint8_t* payload, int64_t size, int64_t count,
        int64_t next_offset, object owner,
    ) noexcept:
        memset(&self.segment, 0, sizeof(Segment))
        self.segment.cursor.at = payload
        self.segment.cursor.end = payload + size
        self.segment.remaining = count
        self.segment.magic = magic
        self.segment.next_offset = next_offset
        self.owner = owner
        self.leader_epoch = -1

    cdef object expand(self, int codec, int64_t begin, int64_t end, int magic, object next_offset):
        try:
            return decompress(codec, self.view[begin:end], self.limit, magic=magic)
        except RemoteProtocolError as error:
            self.failure = (error.message, error.hint, next_offset)
        raise self.error()

    # ---- loading messages, magic 0 and 1

    cdef int load_messages(self, int8_t magic, int64_t length) except -1:
        cdef const uint8_t* start = self.start + self.at
        cdef int64_t end = self.at + ENTRY_OVERHEAD + length
        cdef object next_offset
        if self.segment_offset < 0 or self.segment_offset == INT64_MAX:
            self.at = end
            self.damage(f"offset {self.segment_offset} is impossible", None)
        next_offset = self.segment_offset + 1
        if not self.message_is_sound(self.view, self.start, self.at, end, magic):
            self.at = end
            self.damage("the message is damaged or its checksum does not match", next_offset)
        if start[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
            self.at = end
            self.load_wrapper(magic, end, next_offset)
        else:
            self.load_run(magic)
        return 0

    cdef bint message_is_sound(
        self, object view, const uint8_t* base, int64_t begin, int64_t end, int8_t magic
    ) except -1:
        """Whether begin to end holds one message of this magic with the right checksum."""
        if end - begin < MIN_MESSAGE or <int8_t>base[begin + MAGIC_AT] != magic:
            return False
        if not self.check_crc:
            return True
        return <uint32_t>load32(base + begin + MESSAGE_CRC_AT) == <uint32_t>crc_of_message(
            view[begin + MAGIC_AT:end]
        )

    cdef int load_run(self, int8_t magic) except -1:
        """Plain messages, as many as follow each other, as one segment. The first one is sound."""
        cdef int64_t begin = self.at
        cdef int64_t count = 0
        cdef int64_t last = 0
        cdef int64_t length
        cdef int64_t end
        while self.at - begin < RUN_BYTES and self.size - self.at >= MIN_MESSAGE:
            length = load32(self.start + self.at + LENGTH_AT)
            end = self.at + ENTRY_OVERHEAD + length
            if length < MIN_LENGTH or end > self.size:
                break
            if self.start[self.at + MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
                break
            if count and not self.message_is_sound(self.view, self.start, self.at, end, magic):
                break
            last = load64(self.start + self.at)
            if last < 0 or last == INT64_MAX:
                break
            count += 1
            self.at = end
        self.open_segment(magic, self.start + begin, self.at - begin, count, last + 1, None)
        return 0

    cdef int load_wrapper(self, int8_t magic, int64_t end, object next_offset) except -1:
        """A compressed message whose value is a message set of the same magic."""
        cdef Segment wrapper
        cdef RawRecord record
        cdef int64_t value_at
        memset(&wrapper, 0, sizeof(Segment))
        wrapper.cursor.at = self.start + self.segment_at
        wrapper.cursor.end = self.start + end
        wrapper.remaining = 1
        wrapper.magic = magic
        read_message(&wrapper, &record)
        if wrapper.cursor.fault:
            self.damage(FAULTS[wrapper.cursor.fault], next_offset)
        if record.value_length < 0:
            self.damage("a compressed message has no value", next_offset)
        value_at = record.value - self.start
        owner = self.expand(
            record.attributes & CODEC_MASK, value_at, value_at + record.value_length, magic,
            next_offset,
        )
        self.open_inner(owner, magic, &record, next_offset)
        return 0

    cdef int open_inner(
        self, object owner, int8_t magic, RawRecord* wrapper, object next_offset
    ) except -1:
        """Checks the inner messages and makes them the segment."""
        cdef const uint8_t* start = address(owner)
        cdef int64_t size = len(owner)
        cdef int64_t count = 0
        cdef int64_t last = 0
        cdef int64_t at = 0
        cdef int64_t end
        view = memoryview(owner)
        while at < size:
            end = size + 1
            if size - at >= MIN_MESSAGE:
                end = at + ENTRY_OVERHEAD + load32(start + at + LENGTH_AT)
            if end > size or end <= at or not self.message_is_sound(view, start, at, end, magic):
                self.damage("a message inside a compressed message is damaged", next_offset)
            if start[at + MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
                self.damage("a compressed message holds another one", next_offset)
            last = load64(start + at)
            count += 1
            at = end
        self.open_segment(magic, start, size, count, next_offset, owner)
        if magic == 1:
            # Inner offsets count from the first inner message; the wrapper has the last one's, or
            # none yet (0) in a set that comes straight from a producer.
            if 0 <= last <= wrapper.offset:
                self.segment.base_offset = wrapper.offset - last
            self.segment.fixed_time = (wrapper.attributes & LOG_APPEND_TIME) != 0
            self.segment.fixed_timestamp = wrapper.timestamp
        return 0

    # ---- handing out

    def skip_damaged(self):
        """Passes over the damaged batch that the last call raised for; False if there is none."""
        self.refuse_second_thread()
        if self.failure is None:
            return False
        if self.failure[2] is not None:
            self.pass_over(self.failure[2])
        elif self.at == self.segment_at:
            self.at = self.size              # not even its length is known
        self.failure = None
        self.segment.remaining = 0
        self.segment.next_offset = 0
        self.owner = None
        self.origin = None
        return True

    def expect_end(self):
        """Raises what stands in the way of the end: damage, or more data than 2 GiB of columns."""
        if self.load():
            raise LocalProtocolError(
                "the data decodes to more than one run of Arrow columns can hold",
                hint="take it in pieces with RecordReader.read_arrow",
            )

    cdef int fault_in_segment(self) except -1:
        cdef int fault = self.segment.cursor.fault
        self.segment.remaining = 0
        if fault == FAULT_MEMORY:
            raise MemoryError
        next_offset = self.segment.next_offset
        self.segment.next_offset = 0
        self.damage(FAULTS[fault], next_offset)

    def read_arrow(
        self, *, columns=None, max_records=None, max_bytes=None, str timestamp_unit="ms"
    ):
        """The next records as Arrow columns; without rows once everything has been read.

        At most ``max_records`` rows, ending with the row that reaches ``max_bytes`` of keys and
        values. ``columns`` names what to build, in which order; nothing else is built.
        """
        cdef Columns out
        cdef tuple names = chosen_columns(columns, self._topic, self._partition)
        cdef int64_t most = INT64_MAX if max_records is None else max_records
        cdef int64_t most_bytes = INT64_MAX if max_bytes is None else max_bytes
        if timestamp_unit not in TIMESTAMP_FACTORS:
            raise ConfigError(
                f"timestamp_unit={timestamp_unit!r} is none of {', '.join(TIMESTAMP_FACTORS)}"
            )
        if most <= 0 or most_bytes <= 0:
            raise ConfigError("max_records and max_bytes must be above 0")
        if self._topic is not None:
            most = min(most, MAX_DECOMPRESSED_BYTES // max(1, len(self._topic.encode())))
        open_columns(&out, column_mask(names), TIMESTAMP_FACTORS[timestamp_unit])
        try:
            self.gather(&out, most, most_bytes)
            return close_columns(
                &out, names, timestamp_unit.encode(), self._topic, self._partition,
                self._next_offset,
            )
        finally:
            drop_columns(&out)

    cdef int gather(self, Columns* out, int64_t most, int64_t most_bytes) except -1:
        cdef int room
        cdef int64_t ahead
        while out.rows < most and out.key.length + out.value.length < most_bytes:
            try:
                if not self.load():
                    return 0
            except CorruptRecordError:
                if out.rows:
                    return 0                # what came before goes out first
                raise
            ahead = min(self.size - self.at, most_bytes)
            room = reserve_segment(out, &self.segment, most - out.rows, ahead)
            if room < 0:
                raise MemoryError
            if room > 0:
                return 0
            self.filling = True
            with nogil:
                fill(out, &self.segment, most, most_bytes, self.from_offset)
            self.filling = False
            if self.segment.cursor.fault:
                self.hold_fault(out.rows)
                return 0
            self.settle(out)
        return 0

    cdef int hold_fault(self, int64_t rows) except -1:
        try:
            self.fault_in_segment()
        except CorruptRecordError:
            if not rows:
                raise
        return 0

    cdef void settle(self, Columns* out) noexcept:
        """After reading in the segment: moves the position past the last row, or past its end."""
        if self.segment.remaining == 0:
            self.close_segment()
        elif out.rows and out.last_offset >= self._next_offset:
            self._next_offset = out.last_offset + 1

    def __iter__(self):
        return self

    def __next__(self):
        cdef Record record
        while True:
            record = self.take()
            if record is not None:
                return record
            if not self.load():
                raise StopIteration

    cdef Record take(self):
        """The next record of what is loaded, None where nothing is; keeps the GIL all the time."""
        cdef RawRecord raw
        self.refuse_second_thread()
        if self.segment.remaining > 0 and self.origin is None:
            self.make_origin()
        while self.segment.remaining > 0:
            next_record(&self.segment, &raw)
            if self.segment.cursor.fault:
                self.fault_in_segment()
            if raw.offset < self.from_offset:
                continue
            self._next_offset = raw.offset + 1
            if self.segment.remaining == 0 and self.segment.next_offset > raw.offset:
                self._next_offset = self.segment.next_offset
            return make_record(self.origin, &raw)
        return None

    cdef int64_t to_load(self) noexcept:
        """How many bytes the next entry has, 0 while there are records to be taken."""
        if self.segment.remaining > 0 or self.size - self.at < ENTRY_OVERHEAD:
            return 0
        return load32(self.start + self.at + LENGTH_AT)

    cdef int make_origin(self) except -1:
        """Gives the segment's records bytes of their own: none keeps the whole data alive."""
        cdef int64_t size = self.segment.cursor.end - self.segment.cursor.at
        cdef bytes copy
        if self.owner is None:
            copy = PyBytes_FromStringAndSize(<const char*>self.segment.cursor.at, size)
            self.segment.cursor.at = <const uint8_t*>PyBytes_AS_STRING(copy)
            self.segment.cursor.end = self.segment.cursor.at + size
            self.owner = copy
        self.origin = BatchOrigin.__new__(BatchOrigin)
        self.origin.owner = self.owner
        self.origin.topic = self._topic if self._topic is not None else ""
        self.origin.partition = self._partition if self._partition is not None else -1
        self.origin.leader_epoch = self.leader_epoch
        return 0


cdef const uint8_t* address(object slab) except NULL:
    cdef const uint8_t[::1] view = slab
    if view.shape[0] == 0:
        return <const uint8_t*>b""
    return &view[0]


cdef int control_type(BatchHeader* header, const uint8_t* payload, const uint8_t* end) noexcept:
    """The type in a control batch's first record: 0 abort, 1 commit, -1 where there is none."""
    cdef Segment segment
    cdef RawRecord record
    if header.count < 1 or header.attributes & CODEC_MASK:
        return -1
    memset(&segment, 0, sizeof(Segment))
    segment.cursor.at = payload
    segment.cursor.end = end
    segment.remaining = header.count
    segment.magic = 2
    segment.last_delta = header.last_delta
    next_record(&segment, &record)
    if segment.cursor.fault or record.key_length < 4:
        return -1
    return load16(record.key + 2)
