"""The Record: a frozen view of one record in its batch.

Nothing is copied when a record is made. ``key``, ``value`` and ``headers`` are cut from the batch
each time they are asked for; a record keeps its own batch alive and nothing more.
"""

import sys

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject_GenericGetAttr
from libc.stdint cimport int32_t, int64_t, uint8_t

from karrow.records._cursor cimport FAULT_NONE, Cursor, read_varint, take, take_nullable
from karrow.records._segment cimport CREATE_TIME, NO_TIMESTAMP, RawRecord
from karrow.records._writing cimport encoded_headers, field_bytes


cdef str VALUE = sys.intern("value")
cdef str KEY = sys.intern("key")
cdef str OFFSET = sys.intern("offset")
cdef str TIMESTAMP_MS = sys.intern("timestamp_ms")
cdef str HEADERS = sys.intern("headers")


@cython.final
@cython.no_gc
cdef class BatchOrigin:
    pass


cdef Record make_record(BatchOrigin origin, RawRecord* raw):
    cdef Record record = Record.__new__(Record)
    record.origin = origin
    record.raw = raw[0]
    return record


cdef inline object cut(const uint8_t* start, int32_t length):
    if length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>start, length)


cdef tuple cut_headers(RawRecord* raw):
    cdef Cursor cursor
    cdef int64_t length
    cdef const uint8_t* start
    cdef list headers = []
    cursor.at = raw.headers
    cursor.end = raw.headers + raw.headers_length
    cursor.fault = FAULT_NONE
    for _ in range(raw.header_count):
        length = read_varint(&cursor, 32)
        start = take(&cursor, length)
        name = (<const char*>start)[:length].decode("utf-8", "replace")
        length = read_varint(&cursor, 32)
        start = take_nullable(&cursor, length)
        headers.append((name, cut(start, <int32_t>length)))
    return tuple(headers)


def rebuild(fields):
    """Unpickles a record."""
    return Record(**fields)


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Record:
    """One record, as read from a partition or built by keyword.

    ``key`` and ``value`` are bytes, or None for null; ``headers`` is a tuple of (name, value) pairs
    with order and duplicates kept. ``timestamp_ms`` is None where the message format has none,
    ``timestamp_type`` then -1, else 0 (set by the producer) or 1 (by the broker). ``attributes``
    are those of the record's batch, or of the message in the old formats, which also have ``crc``.

    A handler can be tested with records built by hand::

        Record(topic="orders", partition=0, offset=7, key=b"k", value=b"v")
    """

    def __init__(
        self, *, str topic="", int32_t partition=0, int64_t offset=0, key=None, value=None,
        headers=(), timestamp_ms=None, timestamp_type=None, leader_epoch=None, attributes=0,
        crc=None,
    ):
        cdef bytes key_bytes = field_bytes("key", key)
        cdef bytes value_bytes = field_bytes("value", value)
        cdef tuple pairs = tuple(headers)
        cdef bytes header_bytes = encoded_headers(pairs)
        cdef BatchOrigin origin = BatchOrigin.__new__(BatchOrigin)
        origin.owner = (key_bytes, value_bytes, header_bytes)
        origin.topic = topic
        origin.partition = partition
        origin.leader_epoch = -1 if leader_epoch is None else leader_epoch
        self.origin = origin
        self.raw.key_length = -1 if key_bytes is None else len(key_bytes)
        self.raw.key = NULL if key_bytes is None else <uint8_t*>PyBytes_AS_STRING(key_bytes)
        self.raw.value_length = -1 if value_bytes is None else len(value_bytes)
        self.raw.value = NULL if value_bytes is None else <uint8_t*>PyBytes_AS_STRING(value_bytes)
        self.raw.headers = <uint8_t*>PyBytes_AS_STRING(header_bytes)
        self.raw.headers_length = len(header_bytes)
        self.raw.header_count = len(pairs)
        self.raw.offset = offset
        self.raw.timestamp = -1 if timestamp_ms is None else timestamp_ms
        if timestamp_type is None:
            timestamp_type = NO_TIMESTAMP if timestamp_ms is None else CREATE_TIME
        self.raw.timestamp_type = timestamp_type
        self.raw.attributes = attributes
        self.raw.crc = -1 if crc is None else crc

    def __getattribute__(self, name):
        # The five names that every loop reads, found by identity: attribute names in code are
        # interned, and this saves the look-up of a property, which costs more than reading it.
        if name is VALUE:
            return cut(self.raw.value, self.raw.value_length)
        if name is KEY:
            return cut(self.raw.key, self.raw.key_length)
        if name is OFFSET:
            return self.raw.offset
        if name is TIMESTAMP_MS and self.raw.timestamp_type != NO_TIMESTAMP:
            return self.raw.timestamp
        if name is HEADERS and self.raw.header_count == 0:
            return ()
        return PyObject_GenericGetAttr(self, name)

    @property
    def topic(self):
        """The topic's name."""
        return self.origin.topic

    @property
    def partition(self):
        """The partition's number."""
        return self.origin.partition

    @property
    def offset(self):
        """The record's place in its partition."""
        return self.raw.offset

    @property
    def key(self):
        """The key's bytes, or None."""
        return cut(self.raw.key, self.raw.key_length)

    @property
    def value(self):
        """The value's bytes, or None."""
        return cut(self.raw.value, self.raw.value_length)

    @property
    def headers(self):
        """The headers as (name, value) pairs, in their order."""
        if self.raw.header_count == 0:
            return ()
        return cut_headers(&self.raw)

    @property
    def timestamp_ms(self):
        """Milliseconds since 1970, or None."""
        if self.raw.timestamp_type == NO_TIMESTAMP:
            return None
        return self.raw.timestamp

    @property
    def timestamp_type(self):
        """0 set by the producer, 1 by the broker, -1 none."""
        return self.raw.timestamp_type

    @property
    def leader_epoch(self):
        """The partition's leader epoch when the record was written, or None."""
        return None if self.origin.leader_epoch < 0 else self.origin.leader_epoch

    @property
    def serialized_key_size(self):
        """Bytes of the key, -1 for null."""
        return self.raw.key_length

    @property
    def serialized_value_size(self):
        """Bytes of the value, -1 for null."""
        return self.raw.value_length

    @property
    def attributes(self):
        """The attribute bits of the batch or message."""
        return self.raw.attributes

    @property
    def crc(self):
        """The checksum of a message in the old formats, else None."""
        return None if self.raw.crc < 0 else self.raw.crc

    def header(self, str name):
        """The value of the last header called ``name``; KeyError when there is none."""
        cdef tuple pair
        for pair in reversed(self.headers):
            if pair[0] == name:
                return pair[1]
        raise KeyError(name)

    cdef dict fields(self):
        return {
            "topic": self.topic, "partition": self.partition, "offset": self.offset,
            "key": self.key, "value": self.value, "headers": self.headers,
            "timestamp_ms": self.timestamp_ms, "timestamp_type": self.timestamp_type,
            "leader_epoch": self.leader_epoch, "attributes": self.attributes, "crc": self.crc,
        }

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self.fields() == (<Record>other).fields()

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self):
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"key={self.key!r}, value={self.value!r}, headers={self.headers!r}, "
            f"timestamp_ms={self.timestamp_ms})"
        )

    def __reduce__(self):
        return rebuild, (self.fields(),)
