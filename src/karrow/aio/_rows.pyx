"""Arrow rows into batches: what ``send_arrow`` does.

Rows are encoded without the GIL into batches of its own, one for each target; nobody else sees such
a batch until it is full.

Rules:
- Nothing is on its way before every row was looked at: ``check`` and ``place`` raise what is
  wrong, and ``absent`` tells it.
- What a partition got before stays before: its open batch is closed when one of ours joins the
  line.
- A batch is begun, or grows, only while the accumulator's bytes and the memory of the batches here
  are within the limit. Without room ``step`` ends and the caller waits; where too little is on its
  way to wait for, what is here is put on its way first.
- The last batches stay open, and lingering, for what follows; a few rows join an open batch
  instead.
- A batch is handed over in one breath: between the look at the refusal and its place in the line no
  Python runs and no object is made, so no other thread does. A producer that is closed would never
  settle it, and one that fails all it has would leave a failed batch in the line.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from karrow.aio._accumulator cimport AWAKE, EMPTY, Accumulator, Partition, Topic
from karrow.aio._batch cimport Batch
from karrow.aio._routes cimport Places, Routes
from karrow.records._encode cimport (
    WRITE_SIZE, Writer, check_rows, write_error, write_rows, write_scattered,
)
from karrow.records._layout cimport BATCH_OVERHEAD
from karrow.records._segment cimport RawRecord, Segment, next_record
from karrow.records._source cimport ArrowChunk
from karrow.records._writing cimport RECORD_OVERHEAD

from karrow.errors import MessageTooLarge
from karrow.records._source import routed_chunks

cdef enum:
    MANY_ROWS = 256              # for one target: its batch begins with all the memory it may need
    FEW_ROWS = 1000              # rather copied into an open batch than sent on their own


cdef class ArrowRows:
    """The rows of Arrow data on their way into batches.

    Example::

        rows = ArrowRows(accumulator, "orders", table)
        rows.check()
        for topic in rows.unknown(): ...         # look them up
        while (absent := rows.absent()): ...     # look again, or raise
        rows.place()
        while not rows.step(): ...               # wait for room
        rows.parts                               # [(batch, index of its first row, how many)]
    """

    cdef Accumulator accumulator
    cdef object topic
    cdef Routes routes
    cdef list chunks
    cdef int64_t chunk_number
    cdef int64_t row             # the next one of that chunk
    cdef int64_t before          # rows of the chunks that are done
    cdef readonly int64_t count
    cdef list filling            # the batches here, by target
    cdef Writer** writers        # theirs, by place
    cdef int32_t* stuck          # where a topic's rows without a key go now, by slot; -1 is nowhere
    cdef int64_t held            # the memory of the batches here
    cdef int64_t filled
    cdef readonly list parts
    cdef readonly bint is_stuck  # step() ended for want of room

    def __cinit__(self, Accumulator accumulator, topic, data):
        cdef ArrowChunk chunk
        self.accumulator = accumulator
        self.topic = topic
        self.require_open()
        self.chunks = routed_chunks(data)
        self.parts = []
        for chunk in self.chunks:
            self.count += chunk.rows

    def __dealloc__(self):
        free(self.writers)
        free(self.stuck)

    cdef int require_open(self) except -1:
        if self.accumulator.refusal is not None or self.accumulator.is_forked:
            self.accumulator.refuse()
        return 0

    # ---- before the first row

    def check(self):
        """Raise what is wrong with a row, and find the topics."""
        cdef ArrowChunk chunk
        cdef int64_t most = self.accumulator.record_limit - BATCH_OVERHEAD
        cdef int64_t before = 0
        cdef int64_t row
        cdef int fault = 0
        for chunk in self.chunks:
            with nogil:
                row = check_rows(chunk, most, &fault)
            if fault == WRITE_SIZE:
                raise MessageTooLarge(
                    f"columns 'key', 'value' and 'headers' take {row_bytes(chunk, row)} bytes, and "
                    f"max_request_bytes is {self.accumulator.record_limit} (row {before + row})"
                )
            if fault:
                raise write_error(fault, before + row)
            before += chunk.rows
        self.routes = Routes(self.accumulator, self.topic, list(self.chunks))

    def unknown(self):
        """The topics whose partitions the accumulator does not know."""
        return self.routes.unknown()

    def absent(self):
        """The first row whose partition its topic does not have, as (topic, partition, row)."""
        return self.routes.absent()

    def place(self):
        """Decide where all rows go; when no topic is unknown and no partition absent."""
        cdef int64_t slot
        cdef int64_t slots = len(self.routes.names)
        self.routes.place()
        self.routes.chunks = None
        self.filling = [None] * self.routes.targets
        self.writers = <Writer**>calloc(self.routes.targets + slots + 1, sizeof(Writer*))
        self.stuck = <int32_t*>malloc((slots + 1) * sizeof(int32_t))
        if self.writers == NULL or self.stuck == NULL:
            raise MemoryError
        for slot in range(slots):
            self.stuck[slot] = -1

    # ---- rows in

    @property
    def taken(self):
        """Rows that were taken so far."""
        return self.before + self.row

    def step(self, int64_t batches=0):
        """Take rows while there is room, or until so many batches were filled: whether it took all.

        What is here when the last row was taken goes on its way then.
        """
        cdef ArrowChunk chunk
        cdef int64_t enough = self.filled + batches
        self.require_open()
        self.is_stuck = False
        while self.chunk_number < len(self.chunks):
            chunk = self.chunks[self.chunk_number]
            while self.row < chunk.rows:
                if not self.take(chunk):
                    self.is_stuck = True
                    return False
                if batches and self.filled >= enough:
                    return False
            self.chunks[self.chunk_number] = None
            self.routes.places[self.chunk_number] = None
            self.chunk_number += 1
            self.before += self.row
            self.row = 0
        self.leave_rest()
        return True

    def give_up(self):
        """Put the rows that were taken on their way, and take no more."""
        self.hand_over_all()
        self.chunks = []

    cdef bint take(self, ArrowChunk chunk) except -1:
        """Take rows until one needs a batch, and get it one; False without room for that."""
        cdef Places places = self.routes.places[self.chunk_number]
        cdef int64_t row = self.row
        cdef int32_t place = self.routes.targets + self.routes.argument_slot
        if places is None:
            if self.writers[place] != NULL:
                with nogil:
                    row = write_rows(self.writers[place], chunk, row)
        else:
            with nogil:
                row = write_scattered(self.writers, places.of_row, chunk, row)
        self.row = row
        if row == chunk.rows:
            return True
        if places is not None:
            place = places.of_row[row]
        if self.writers[place] != NULL and self.writers[place].fault:
            raise write_error(self.writers[place].fault, self.before + row)
        return self.make_way(chunk, place)

    cdef bint make_way(self, ArrowChunk chunk, int32_t place) except -1:
        """A batch with room for the next row; True as well when it is worth another try."""
        cdef int64_t size = row_bytes(chunk, self.row)
        cdef int32_t target
        cdef Batch batch
        cdef int64_t more
        while True:
            target = self.target_of(place, size)
            batch = self.filling[target]
            if batch is None or batch.has_room(size, self.accumulator.batch_limit):
                break
            self.filled += 1
            self.hand_over(target)
        more = self.more_for(chunk, batch, size)
        if not self.is_room_for(more):
            if self.held == 0 or self.accumulator.bytes > self.accumulator.wake_below:
                self.accumulator.wanted = self.accumulator.limit - self.accumulator.wake_below
                return False
            self.hand_over_all()
            return True
        if batch is None:
            batch = self.begin(target)
        self.grow(batch, more, size)
        return True

    cdef int32_t target_of(self, int32_t place, int64_t size) except -1:
        """The target of a place; for rows that may go anywhere it is drawn."""
        cdef int32_t slot = place - self.routes.targets
        cdef Topic topic
        cdef Partition where
        if slot < 0:
            return place
        if self.stuck[slot] < 0:
            topic = self.routes.topics[slot]
            where = topic.sticky
            if where is None or where.open is None or not where.open.has_room(
                size, self.accumulator.batch_limit
            ):
                where = self.accumulator.drawn(topic)
            self.stuck[slot] = self.routes.bases[slot] + where.number % self.routes.counts[slot]
            self.writers[place] = self.writers[self.stuck[slot]]
        return self.stuck[slot]

    # ---- room

    cdef int64_t more_for(self, ArrowChunk chunk, Batch batch, int64_t size) noexcept:
        """The memory that a batch takes more for its next row."""
        cdef int64_t block = self.accumulator.batch_limit
        cdef int64_t targets = 1
        if batch is not None:
            return max(size, min(batch.capacity * 4, block) - batch.capacity)
        if self.routes.places[self.chunk_number] is not None:
            targets = self.routes.targets
        if chunk.rows - self.row < MANY_ROWS * targets:
            block = 0
        if block * targets > self.accumulator.limit // 2:
            block = 0
        return max(size, block - BATCH_OVERHEAD)

    cdef bint is_room_for(self, int64_t more) noexcept:
        cdef int64_t taken = self.accumulator.bytes
        if self.held == 0 and taken <= self.accumulator.wake_below:
            return True          # nobody would be woken for more room than that
        return taken + self.held + more <= self.accumulator.limit

    cdef Batch begin(self, int32_t target):
        cdef Partition partition = self.routes.partitions[target]
        cdef Batch batch = Batch(self.accumulator, partition, self.accumulator.pool)
        cdef int32_t slot = self.routes.slots[partition.topic.name]
        self.filling[target] = batch
        self.held += batch.capacity
        self.writers[target] = &batch.writer
        if self.stuck[slot] == target:
            self.writers[self.routes.targets + slot] = &batch.writer
        return batch

    cdef int grow(self, Batch batch, int64_t more, int64_t size) except -1:
        """Memory for a row at least, and how far it may be filled."""
        self.held -= batch.capacity
        batch.make_room(max(more, size) if batch.writer.count == 0 else size)
        self.held += batch.capacity
        batch.writer.limit = max(
            batch.memory + min(batch.capacity, self.accumulator.batch_limit),
            batch.writer.at + size if batch.writer.count == 0 else NULL,
        )
        return 0

    # ---- batches out

    cdef Batch released(self, int32_t target):
        """A batch that is not filled here any more; rows without a key go elsewhere then."""
        cdef Batch batch = self.filling[target]
        cdef Partition partition = batch.partition
        cdef int32_t slot = self.routes.slots[partition.topic.name]
        self.filling[target] = None
        self.writers[target] = NULL
        self.held -= batch.capacity
        if self.stuck[slot] == target:
            self.stuck[slot] = -1
            self.writers[self.routes.targets + slot] = NULL
        batch.charged = batch.writer.at - batch.memory - BATCH_OVERHEAD
        return batch

    cdef int hand_over(self, int32_t target) except -1:
        """Put a batch into its partition's line, behind what is there."""
        cdef Batch batch = self.released(target)
        cdef Partition partition = batch.partition
        batch.close()
        if partition.open is not None:
            self.accumulator.close_open(partition)
        self.require_open()
        self.accumulator.adopt(batch)
        partition.queue.append(batch)
        self.note(batch, 0, batch.writer.count)
        if self.accumulator.sleep != AWAKE:
            self.accumulator.wake()
        return 0

    cdef int note(self, Batch batch, int64_t first, int64_t count) except -1:
        """Rows are on their way, in this batch."""
        self.accumulator.enlist(batch.partition)
        self.accumulator.records += count
        self.parts.append((batch, first, count))
        return 0

    cdef int hand_over_all(self) except -1:
        cdef int32_t target
        for target in range(self.routes.targets):
            if self.filling[target] is not None:
                self.hand_over(target)
        return 0

    cdef int leave_rest(self) except -1:
        """The last rows are taken: what is here stays open for others where it can."""
        cdef int32_t target
        cdef int32_t slot
        cdef Batch batch
        cdef Partition partition
        for slot in range(len(self.routes.names)):
            if self.stuck[slot] >= 0:
                (<Topic>self.routes.topics[slot]).sticky = (
                    self.routes.partitions[self.stuck[slot]]
                )
        for target in range(self.routes.targets):
            batch = self.filling[target]
            if batch is None:
                continue
            partition = batch.partition
            if partition.open is None:
                self.leave_open(target)
            elif batch.writer.count <= FEW_ROWS and partition.open.has_room(
                batch.writer.at - batch.memory, self.accumulator.batch_limit
            ):
                self.join(target)
            else:
                self.hand_over(target)
        return 0

    cdef int leave_open(self, int32_t target) except -1:
        cdef Batch batch = self.released(target)
        cdef Partition partition = batch.partition
        self.require_open()
        self.accumulator.adopt(batch)
        partition.open = batch
        self.note(batch, 0, batch.writer.count)
        if self.accumulator.sleep == EMPTY:
            self.accumulator.wake()
        return 0

    cdef int join(self, int32_t target) except -1:
        """Copy a few rows into the partition's open batch."""
        cdef Batch batch = self.released(target)
        cdef Batch into = (<Partition>batch.partition).open
        cdef int64_t first = into.writer.count
        cdef Segment segment
        cdef RawRecord record
        memset(&record, 0, sizeof(RawRecord))
        self.require_open()
        self.accumulator.bytes -= into.charged
        batch.read_records(&segment)
        while segment.remaining:
            next_record(&segment, &record)
            into.append_raw(&record)
        self.accumulator.bytes += into.charged
        return self.note(into, first, batch.writer.count)


cdef int64_t row_bytes(ArrowChunk chunk, int64_t row) noexcept nogil:
    """The most that a row takes in a batch."""
    return chunk.most_bytes(row, row + 1) + RECORD_OVERHEAD + 2


def error_in(Batch batch, int64_t first, int64_t count):
    """What went wrong with some records of a batch; one that was to blame rather than the rest."""
    cdef int64_t index
    for index in sorted(batch.record_errors or ()):
        if first <= index < first + count:
            return batch.record_errors[index]
    return batch.error
