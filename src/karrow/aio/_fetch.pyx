"""Fetch requests and their answers, by hand: what stands between a record and its reader.

The generic codec says the same in many more steps; a test holds the two together, version by
version. An answer in which anything went wrong, or that says more than usual, is left to it.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from karrow.aio._fields cimport (
    has_tags, read_count, read_int16, read_unsigned, write_count, write_tags,
)
from karrow.records._cursor cimport (
    FAULT_NONE, Cursor, left, read_int32, read_int64, store16, store32, store64, take, write_varint,
)
from karrow.records._header cimport Reach, reach_of

from karrow.errors import LocalProtocolError

cdef enum:
    FIRST = 4                    # the first version with batches as they are today
    FIRST_WITH_START = 5         # ... the log's first offset
    FIRST_WITH_SESSIONS = 7
    FIRST_WITH_EPOCHS = 9
    FIRST_WITH_RACKS = 11
    FIRST_COMPACT = 12
    FIRST_WITH_IDS = 13
    FIRST_WITHOUT_REPLICA = 15
    LAST = 18
    ID_BYTES = 16
    LONGEST = 0x7FFF             # what the length of a string can say
    ENDS = 64                    # more than all numbers around the topics
    TOPIC = 16                   # more than all numbers around a topic's name and partitions
    PARTITION = 40               # more than a partition takes

FIRST_BY_HAND, LAST_BY_HAND = FIRST, LAST


@cython.final
cdef class FetchedPartition:
    """What an answer without an error says of one partition.

    Of its record data, ``size`` bytes, the batch headers were walked: ``whole`` is what reaches to
    the end of the last whole batch (or all of it, where there is none), ``next_offset`` the offset
    after that, ``leader_epoch`` that of the last batch. What the broker does not say is None.
    """

    cdef readonly int32_t partition_index
    cdef readonly int32_t preferred_read_replica
    cdef readonly int64_t high_watermark
    cdef readonly int64_t size
    cdef readonly object last_stable
    cdef readonly object log_start
    cdef readonly list aborted_transactions
    cdef readonly object whole
    cdef readonly object next_offset
    cdef readonly object leader_epoch

    def __init__(
        self, int32_t partition_index, records, *, int64_t high_watermark,
        int64_t last_stable_offset, int64_t log_start_offset, int32_t preferred_read_replica,
        list aborted_transactions,
    ):
        cdef Py_buffer buffer
        self.partition_index = partition_index
        self.preferred_read_replica = preferred_read_replica
        self.high_watermark = high_watermark
        self.last_stable = number_or_none(last_stable_offset)
        self.log_start = number_or_none(log_start_offset)
        self.aborted_transactions = aborted_transactions
        if records:
            PyObject_GetBuffer(records, &buffer, PyBUF_SIMPLE)
            try:
                self.walk(memoryview(records), 0, <const uint8_t*>buffer.buf, buffer.len)
            finally:
                PyBuffer_Release(&buffer)

    cdef int walk(
        self, object frame, int64_t begin, const uint8_t* data, int64_t size
    ) except -1:
        """Look at the batch headers of data that begins somewhere in a frame."""
        cdef Reach reach = reach_of(data, size)
        self.size = size
        self.next_offset = number_or_none(reach.after)
        self.leader_epoch = number_or_none(reach.epoch)
        self.whole = frame[begin:begin + (reach.size or size)]
        return 0


cdef object number_or_none(int64_t number):
    return None if number < 0 else number


@cython.final
cdef class Fetched:
    """An answer in which nothing is wrong: its partitions by topic, in the broker's order."""

    cdef readonly int32_t throttle_time_ms
    cdef readonly int32_t session_id
    cdef readonly list topics

    @property
    def error_code(self):
        return 0


cdef class FetchCodec:
    """Fetches of one version that differ in their partitions only.

    ``names`` is how they name topics: by name, or by id from version 13 on. Whoever asks for a
    topic that is not in it has to ``add`` it.
    """

    cdef readonly int version
    cdef readonly dict names
    cdef dict _topics
    cdef bytes _head
    cdef bytes _rack
    cdef int32_t _partition_max_bytes

    def __init__(
        self, int version, *, int32_t max_wait_ms, int32_t min_bytes, int32_t max_bytes,
        int32_t partition_max_bytes, int isolation_level, str rack,
    ):
        cdef uint8_t room[20]
        cdef uint8_t* at = room
        if not FIRST <= version <= LAST:
            raise LocalProtocolError(f"Fetch v{version} is not written by hand")
        self.version = version
        self.names = {}
        self._topics = {}
        self._rack = short(rack.encode(), "a rack's")
        self._partition_max_bytes = partition_max_bytes
        if version < FIRST_WITHOUT_REPLICA:
            store32(at, -1)
            at += 4
        store32(at, max_wait_ms)
        store32(at + 4, min_bytes)
        store32(at + 8, max_bytes)
        at[12] = <uint8_t>isolation_level
        self._head = PyBytes_FromStringAndSize(<char*>room, at + 13 - room)

    def add(self, str topic, bytes name):
        """Name a topic in this way, and know it by that in answers."""
        self.names[topic] = short(name, "a topic's")
        self._topics[name] = topic

    # ---- the request

    def encode(self, int32_t session_id, int32_t session_epoch, dict asked not None, forgotten):
        """A request's body.

        ``asked`` has by topic and number the offset and the leader epoch, ``forgotten`` topics and
        numbers.
        """
        cdef bint compact = self.version >= FIRST_COMPACT
        cdef dict topics = by_topic(asked, asked)
        cdef dict gone = by_topic(forgotten, None)
        cdef int64_t most = self.room_for(topics) + self.room_for(gone)
        cdef bytes body = PyBytes_FromStringAndSize(
            NULL, most + ENDS + PyBytes_GET_SIZE(self._head) + PyBytes_GET_SIZE(self._rack)
        )
        cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(body)
        cdef uint8_t* at = write_bytes(start, self._head)
        if self.version >= FIRST_WITH_SESSIONS:
            store32(at, session_id)
            store32(at + 4, session_epoch)
            at += 8
        at = self.write_topics(at, topics)
        if self.version >= FIRST_WITH_SESSIONS:
            at = self.write_topics(at, gone)
        if self.version >= FIRST_WITH_RACKS:
            at = write_length(at, PyBytes_GET_SIZE(self._rack), compact)
            at = write_bytes(at, self._rack)
        at = write_tags(at, compact)
        return body[:at - start]

    cdef int64_t room_for(self, dict topics) except -1:
        cdef int64_t room = 0
        cdef bytes name
        for topic, partitions in topics.items():
            name = self.names[topic]
            room += TOPIC + PyBytes_GET_SIZE(name) + PARTITION * len(<list>partitions)
        return room

    cdef uint8_t* write_topics(self, uint8_t* at, dict topics) except NULL:
        """Partitions by topic; of one without a place only the number."""
        cdef bint compact = self.version >= FIRST_COMPACT
        cdef bytes name
        at = write_count(at, <int32_t>len(topics), compact)
        for topic, partitions in topics.items():
            name = self.names[topic]
            if self.version < FIRST_WITH_IDS:
                at = write_length(at, PyBytes_GET_SIZE(name), compact)
            at = write_bytes(at, name)
            at = write_count(at, <int32_t>len(<list>partitions), compact)
            for number, place in <list>partitions:
                store32(at, number)
                at += 4
                if place is not None:
                    at = self.write_partition(at, place)
            at = write_tags(at, compact)
        return at

    cdef uint8_t* write_partition(self, uint8_t* at, place) except NULL:
        """What stands behind a partition's number."""
        cdef int64_t offset
        cdef int32_t epoch
        offset, epoch = place
        if self.version >= FIRST_WITH_EPOCHS:
            store32(at, epoch)
            at += 4
        store64(at, offset)
        at += 8
        if self.version >= FIRST_COMPACT:
            store32(at, -1)              # the epoch that a follower has fetched last
            at += 4
        if self.version >= FIRST_WITH_START:
            store64(at, -1)              # the first offset of a follower
            at += 8
        store32(at, self._partition_max_bytes)
        return write_tags(at + 4, self.version >= FIRST_COMPACT)

    # ---- the answer

    def decode(self, frame not None, int64_t begin, int version):
        """The answer, if nothing is wrong and nothing unusual is said in it; else None."""
        cdef Py_buffer buffer
        cdef Cursor cursor
        PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
        try:
            if version != self.version or not 0 <= begin <= buffer.len:
                return None
            cursor.at = <const uint8_t*>buffer.buf + begin
            cursor.end = <const uint8_t*>buffer.buf + buffer.len
            cursor.fault = FAULT_NONE
            return self.read(&cursor, frame, <const uint8_t*>buffer.buf)
        finally:
            PyBuffer_Release(&buffer)

    cdef Fetched read(self, Cursor* cursor, object frame, const uint8_t* base):
        cdef bint compact = self.version >= FIRST_COMPACT
        cdef Fetched answer = Fetched.__new__(Fetched)
        cdef int64_t topics
        answer.topics = []
        answer.throttle_time_ms = read_int32(cursor)
        if self.version >= FIRST_WITH_SESSIONS:
            if read_int16(cursor):
                return None
            answer.session_id = read_int32(cursor)
        topics = read_count(cursor, compact)
        if topics < 0:
            return None
        while topics > 0:
            topics -= 1
            topic = self.read_topic(cursor, frame, base)
            if topic is None:
                return None
            answer.topics.append(topic)
        if has_tags(cursor, compact) or cursor.fault or left(cursor):
            return None
        return answer

    cdef tuple read_topic(self, Cursor* cursor, object frame, const uint8_t* base):
        cdef bint compact = self.version >= FIRST_COMPACT
        cdef object topic = self.read_name(cursor)
        cdef int64_t count = read_count(cursor, compact)
        cdef list partitions = []
        cdef FetchedPartition found
        if topic is None or count < 0:
            return None
        while count > 0:
            count -= 1
            found = self.read_partition(cursor, frame, base)
            if found is None:
                return None
            partitions.append(found)
        return None if has_tags(cursor, compact) or cursor.fault else (topic, partitions)

    cdef object read_name(self, Cursor* cursor):
        """Which topic this is; None for one that nobody has asked for."""
        cdef int64_t length = ID_BYTES
        cdef const uint8_t* at
        if self.version < FIRST_COMPACT:
            length = read_int16(cursor)
        elif self.version < FIRST_WITH_IDS:
            length = read_unsigned(cursor) - 1
        at = take(cursor, length)
        if at == NULL:
            return None
        return self._topics.get(PyBytes_FromStringAndSize(<const char*>at, length))

    cdef FetchedPartition read_partition(
        self, Cursor* cursor, object frame, const uint8_t* base
    ):
        """One partition; None if it has an error, or more is said of it than usual."""
        cdef bint compact = self.version >= FIRST_COMPACT
        cdef FetchedPartition found = FetchedPartition.__new__(FetchedPartition)
        cdef int64_t size
        cdef const uint8_t* data
        found.partition_index = read_int32(cursor)
        if read_int16(cursor):
            return None
        found.high_watermark = read_int64(cursor)
        found.last_stable = number_or_none(read_int64(cursor))
        if self.version >= FIRST_WITH_START:
            found.log_start = number_or_none(read_int64(cursor))
        if not self.read_aborted(cursor, found):
            return None
        found.preferred_read_replica = -1
        if self.version >= FIRST_WITH_RACKS:
            found.preferred_read_replica = read_int32(cursor)
        size = read_count(cursor, compact)
        if size > 0:
            data = take(cursor, size)
            if data == NULL:
                return None
            found.walk(frame, data - base, data, size)
        return None if size < -1 or has_tags(cursor, compact) or cursor.fault else found

    cdef bint read_aborted(self, Cursor* cursor, FetchedPartition found) except -1:
        """The transactions that were aborted; False if there is something wrong with them."""
        cdef bint compact = self.version >= FIRST_COMPACT
        cdef int64_t count = read_count(cursor, compact)
        cdef int64_t producer
        if count < -1 or count > left(cursor):
            return False
        if count >= 0:
            found.aborted_transactions = []
        while count > 0:
            count -= 1
            producer = read_int64(cursor)
            found.aborted_transactions.append((producer, read_int64(cursor)))
            if has_tags(cursor, compact) or cursor.fault:
                return False
        return True


cdef bytes short(bytes name, str whose):
    """A name, if it is as short as names have to be."""
    if PyBytes_GET_SIZE(name) > LONGEST:
        raise LocalProtocolError(f"{whose} name of {len(name)} bytes")
    return name


cdef dict by_topic(keys, dict places):
    """Numbers and places of partitions by topic, in their order."""
    cdef dict topics = {}
    cdef list found
    for key in keys:
        topic, number = key
        found = topics.get(topic)
        if found is None:
            found = topics[topic] = []
        found.append((number, None if places is None else places[key]))
    return topics


cdef uint8_t* write_bytes(uint8_t* at, bytes data) noexcept:
    memcpy(at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return at + PyBytes_GET_SIZE(data)


cdef uint8_t* write_length(uint8_t* at, int64_t length, bint compact) noexcept nogil:
    """The length of a string."""
    if compact:
        return write_varint(at, <uint64_t>length + 1)
    store16(at, <int16_t>length)
    return at + 2
