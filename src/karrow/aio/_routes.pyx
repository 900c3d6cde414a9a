"""Where the rows of Arrow data go: their topics, and in these their partitions.

Rules:
- A *slot* is a topic of the data, a *target* one partition of one of them; targets count through
  all topics. A row's *place* is its target, or the number of targets and its slot if the row may
  go wherever the topic's next row without a key goes.
- Everything is decided before the first row is taken, so that a fault is found while nothing is on
  its way yet. Only rows that may go anywhere are left to the moment.
- A chunk without columns that decide has no places at all: its rows go together.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from karrow.aio._accumulator cimport Accumulator, Topic, next_random
from karrow.records._hash cimport digest_of
from karrow.records._source cimport (
    ABSENT, ArrowChunk, byte_field, has_integer, integer, null_field,
)
from karrow.records._writing cimport Field

from karrow.errors import ConfigError, InvalidTopicException, LocalProtocolError
from karrow.types import is_topic_name

cdef enum:
    MURMUR2 = 0                  # any hash will do for names


cdef class Places:
    """A number for each row of a chunk."""

    def __cinit__(self, int64_t rows):
        self.of_row = <int32_t*>malloc(max(rows, 1) * sizeof(int32_t))
        if self.of_row == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.of_row)


cdef inline Field topic_name(ArrowChunk chunk, int64_t row) noexcept nogil:
    cdef int64_t entry
    if not chunk.topic_index.present:
        return byte_field(&chunk.topic, row)
    if not has_integer(&chunk.topic_index, row):
        return null_field()
    entry = integer(&chunk.topic_index, row)
    return byte_field(&chunk.topic, entry) if 0 <= entry < chunk.topic_entries else null_field()


cdef inline bint is_same(Field one, Field other) noexcept nogil:
    return one.length == other.length and (
        one.length <= 0 or memcmp(one.start, other.start, one.length) == 0
    )


cdef class Routes:
    """The topics and partitions of all rows."""

    def __cinit__(self, Accumulator accumulator, topic, list chunks):
        cdef int i
        self.accumulator = accumulator
        self.chunks = chunks
        self.argument = topic
        self.names = []
        self.slots = {}
        self.random_state = accumulator.lot() | 1
        for i in range(KNOWN_NAMES):
            self.known[i].name.length = -2
        self.name_all()

    def __dealloc__(self):
        free(self.counts)
        free(self.bases)

    # ---- topics

    cdef int name_all(self) except -1:
        cdef ArrowChunk chunk
        cdef Places places
        cdef int64_t before = 0
        cdef int64_t row
        cdef int32_t slot
        self.places = []
        for chunk in self.chunks:
            places = Places(chunk.rows) if self.is_decided(chunk) else None
            if chunk.topic.kind != ABSENT:
                self.name_chunk(chunk, places, before)
            elif chunk.rows:
                slot = self.slot_of(None, before)
                self.argument_slot = slot
                if places is not None:
                    for row in range(chunk.rows):
                        places.of_row[row] = slot
            self.places.append(places)
            before += chunk.rows
        return 0

    cdef bint is_decided(self, ArrowChunk chunk) noexcept:
        """Whether a row of the chunk may have a place of its own."""
        return (
            chunk.topic.kind != ABSENT or chunk.partition.present or chunk.key.kind != ABSENT
            or self.accumulator.choose_partition is not None or self.accumulator.kind < 0
        )

    cdef int name_chunk(self, ArrowChunk chunk, Places places, int64_t before) except -1:
        cdef int64_t row = 0
        cdef Field name
        cdef KnownName* known
        while True:
            with nogil:
                row = self.name_rows(chunk, places.of_row, row)
            if row == chunk.rows:
                return 0
            name = topic_name(chunk, row)
            known = &self.known[cell_of(name)]
            text = None if name.length < 0 else (<const char*>name.start)[:name.length]
            known.slot = self.slot_of(text, before + row)
            known.name = name

    cdef int64_t name_rows(
        self, ArrowChunk chunk, int32_t* places, int64_t begin
    ) noexcept nogil:
        """Gives rows their topic's slot; ends at the first name that is not at hand."""
        cdef int64_t row
        cdef Field name
        cdef KnownName* known
        for row in range(begin, chunk.rows):
            name = topic_name(chunk, row)
            known = &self.known[cell_of(name)]
            if not is_same(known.name, name):
                return row
            places[row] = known.slot
        return chunk.rows

    cdef int32_t slot_of(self, object name, int64_t row) except -1:
        """The slot of a name in a column; null is the topic that was given beside the data."""
        cdef str topic = self.argument if name is None else name.decode("utf-8", "replace")
        if topic is None:
            raise LocalProtocolError(
                f"column 'topic' is null or missing, and no topic is given (row {row})"
            )
        if topic not in self.slots:
            if not is_topic_name(topic):
                raise InvalidTopicException(
                    f"column 'topic' has {topic!r}, which no topic can be called (row {row})"
                )
            self.slots[topic] = len(self.names)
            self.names.append(topic)
        return self.slots[topic]

    def unknown(self):
        """The topics whose partitions the accumulator does not know."""
        return [name for name in self.names if self.accumulator.topics.get(name) is None]

    # ---- partitions

    def absent(self):
        """The first row whose partition its topic does not have, as (topic, partition, row)."""
        cdef ArrowChunk chunk
        cdef Places places
        cdef int64_t before = 0
        cdef int64_t row
        self.count_partitions()
        for chunk, places in zip(self.chunks, self.places, strict=True):
            if chunk.partition.present:
                with nogil:
                    row = self.absent_row(chunk, places.of_row)
                if row < chunk.rows:
                    name = self.names[places.of_row[row]]
                    return name, integer(&chunk.partition, row), before + row
            before += chunk.rows
        return None

    cdef int64_t absent_row(self, ArrowChunk chunk, int32_t* places) noexcept nogil:
        cdef int64_t row
        cdef int64_t number
        for row in range(chunk.rows):
            if has_integer(&chunk.partition, row):
                number = integer(&chunk.partition, row)
                if not 0 <= number < self.counts[places[row]]:
                    return row
        return chunk.rows

    cdef int count_partitions(self) except -1:
        """Note how many partitions the topics have now; they may grow, and that changes nothing."""
        cdef Topic topic
        cdef int64_t slot
        cdef int64_t most = max(len(self.names), 1)
        free(self.counts)
        free(self.bases)
        self.bases = NULL
        self.counts = <int32_t*>malloc(most * sizeof(int32_t))
        self.bases = <int32_t*>malloc(most * sizeof(int32_t))
        if self.counts == NULL or self.bases == NULL:
            raise MemoryError
        self.topics = [self.accumulator.topics[name] for name in self.names]
        self.partitions = []
        for slot, topic in enumerate(self.topics):
            self.counts[slot] = topic.count
            self.bases[slot] = len(self.partitions)
            self.partitions += topic.partitions[:topic.count]
        self.targets = len(self.partitions)
        return 0

    def place(self):
        """Decide for all rows; when no topic is unknown and no partition absent."""
        cdef ArrowChunk chunk
        cdef Places places
        cdef int64_t before = 0
        for chunk, places in zip(self.chunks, self.places, strict=True):
            if places is None:
                pass
            elif self.accumulator.choose_partition is not None:
                self.ask_rows(chunk, places.of_row, before)
            else:
                with nogil:
                    self.place_rows(chunk, places.of_row)
            before += chunk.rows

    cdef void place_rows(self, ArrowChunk chunk, int32_t* places) noexcept nogil:
        """Turns slots into places."""
        cdef int kind = self.accumulator.kind
        cdef int64_t row
        cdef int32_t slot
        cdef uint32_t number
        cdef Field key
        for row in range(chunk.rows):
            slot = places[row]
            if has_integer(&chunk.partition, row):
                number = <uint32_t>integer(&chunk.partition, row)
            elif kind < 0:       # "random"
                number = <uint32_t>(next_random(&self.random_state) % <uint32_t>self.counts[slot])
            else:
                key = byte_field(&chunk.key, row)
                if key.length < 0:
                    places[row] = self.targets + slot
                    continue
                number = digest_of(kind, key.start, key.length) % <uint32_t>self.counts[slot]
            places[row] = self.bases[slot] + <int32_t>number

    cdef int ask_rows(self, ArrowChunk chunk, int32_t* places, int64_t before) except -1:
        """As place_rows(), where the user's function chooses."""
        cdef int64_t row
        cdef int32_t slot
        cdef Field key
        ask = self.accumulator.choose_partition
        for row in range(chunk.rows):
            slot = places[row]
            if has_integer(&chunk.partition, row):
                number = integer(&chunk.partition, row)
            else:
                key = byte_field(&chunk.key, row)
                text = None if key.length < 0 else (<const char*>key.start)[:key.length]
                number = ask(self.names[slot], text, self.counts[slot])
                if type(number) is not int or not 0 <= number < self.counts[slot]:
                    raise ConfigError(
                        f"the partitioner chose {number!r} of {self.counts[slot]} partitions "
                        f"(row {before + row})"
                    )
            places[row] = self.bases[slot] + <int32_t>number
        return 0


cdef inline int64_t cell_of(Field name) noexcept nogil:
    """Where a name is looked for among those at hand."""
    if name.length < 0:
        return 0
    return digest_of(MURMUR2, <const uint8_t*>name.start, name.length) % KNOWN_NAMES
