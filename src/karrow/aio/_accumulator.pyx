"""Records that wait to be sent: the open batch of every partition, and the room they take.

``append`` is the whole way of a record through the library until its batch is sent: it chooses the
partition, encodes the record into the open batch, and makes the Delivery.

Rules:
- The GIL is the lock. Nothing between the choice of a batch and the end of an append lets another
  thread in; waking the sender, which may, comes last.
- A record without a key goes where the last one went while that batch is open (KIP-480); then a
  partition is drawn, those with a shorter line more often (KIP-794).
- The sender is woken when it said that it wants to be: by the first record, or by a full batch.
  While it looks, ``changes`` counts what it may have missed; it does not sleep before it saw that.
- Senders that wait for room are woken when a quarter of the buffer is free.
- A forked child has its parent's records, but not the thread that sends them: it must not use them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from karrow.aio._batch cimport Batch, MemoryPool
from karrow.aio._delivery cimport Delivery
from karrow.records._encode cimport now_ms
from karrow.records._hash cimport digest_of, kind_of
from karrow.records._layout cimport BATCH_OVERHEAD
from karrow.records._writing cimport (
    RECORD_OVERHEAD, encoded_headers, field_bytes, field_of,
)

import copy
import logging
import os
import random
import threading
from collections import deque

from karrow.aio.waiting import blocked
from karrow.errors import ConfigError, LocalProtocolError, MessageTooLarge, StateError

cdef enum:
    RANDOM = -1                  # a partitioner that looks at no key

log = logging.getLogger("karrow.producer")

cdef int64_t process = 0         # counts the forks that led to this process


def _count_fork():
    global process
    process += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


cdef class Topic:
    """A topic that records are sent to."""

    def __cinit__(self, str name):
        self.name = name
        self.partitions = []

    def __repr__(self):
        return self.name

    def resize(self, int32_t count):
        """Have so many partitions; a topic never loses any."""
        while len(self.partitions) < count:
            self.partitions.append(Partition(self, len(self.partitions)))
        self.count = len(self.partitions)


cdef class Partition:
    """A partition's line: batches that are closed, and the one that is open."""

    def __cinit__(self, Topic topic, int32_t number):
        self.topic = topic
        self.number = number
        self.queue = deque()
        self.is_available = True

    def __repr__(self):
        return f"{self.topic.name}-{self.number}"

    @property
    def open_batch(self):
        """The batch that takes records, None if there is none."""
        return self.open


cdef class Accumulator:
    """All records of a producer that are not settled."""

    def __cinit__(
        self, *, int64_t buffer_bytes, int64_t batch_bytes, int64_t record_bytes, partitioner,
        bint adaptive,
    ):
        self.topics = {}
        self.limit = buffer_bytes
        self.wake_below = buffer_bytes - buffer_bytes // 4
        self.batch_limit = batch_bytes
        self.record_limit = record_bytes
        self.incomplete = set()
        self.listed = []
        self.room_waiters = []
        self.finish_waiters = []
        self.calling = set()
        self.finished = deque()
        self.pool = MemoryPool(batch_bytes)
        self.is_adaptive = adaptive
        self.random_state = random.getrandbits(63) | 1
        self.process = process
        self.sleep = EMPTY
        if callable(partitioner):
            self.choose_partition = partitioner
        else:
            self.kind = RANDOM if partitioner == "random" else kind_of(partitioner)

    # ---- a record in

    cdef Delivery append(
        self, object name, object value, object key, object headers, object partition,
        object timestamp_ms, object partitioner
    ):
        """Take a record; None if something is in the way, which ``obstacle`` then says."""
        cdef Topic topic = self.last_topic
        cdef Partition where
        cdef Batch batch
        cdef Delivery delivery
        cdef bytes value_bytes
        cdef bytes key_bytes = None
        cdef bytes header_bytes = None
        cdef tuple pairs = None
        cdef const uint8_t* header_start = NULL
        cdef int64_t header_length = 0
        cdef int64_t header_count = 0
        cdef int64_t timestamp
        cdef int64_t size
        if self.refusal is not None or process != self.process:
            self.refuse()
        if name is not self.last_name:
            topic = self.topics.get(name)
            if topic is None:
                self.obstacle = NO_TOPIC
                return None
            self.last_topic = topic
            self.last_name = topic.name if type(name) is not str else name
        value_bytes = <bytes>value if type(value) is bytes else field_bytes("value", value)
        size = RECORD_OVERHEAD + 2
        if value_bytes is not None:
            size += PyBytes_GET_SIZE(value_bytes)
        if key is not None:
            key_bytes = <bytes>key if type(key) is bytes else field_bytes("key", key)
            size += PyBytes_GET_SIZE(key_bytes)
        if headers is not None:
            pairs = header_pairs(headers)
            header_bytes = encoded_headers(pairs)
            header_start = <const uint8_t*>PyBytes_AS_STRING(header_bytes)
            header_length = PyBytes_GET_SIZE(header_bytes)
            header_count = len(pairs)
            size += header_length
        timestamp = now_ms() if timestamp_ms is None else checked_time(timestamp_ms)
        if size + BATCH_OVERHEAD > self.record_limit:
            raise too_large(topic, size + BATCH_OVERHEAD, self.record_limit)
        delivery = Delivery.__new__(Delivery)
        where = self.chosen(topic, partition, key_bytes, partitioner, size)
        if where is None:
            self.obstacle = NO_PARTITION
            return None
        if self.bytes + size > self.limit and self.bytes:
            self.obstacle = NO_ROOM
            self.wanted = size
            return None
        batch = where.open
        if batch is None or not batch.has_room(size, self.batch_limit):
            batch = self.batch_for(where, size)
        self.bytes -= batch.charged
        delivery.index = batch.append(
            field_of(key_bytes), field_of(value_bytes), timestamp, header_start, header_length,
            header_count,
        )
        delivery.batch = batch
        delivery.timestamp = timestamp
        self.bytes += batch.charged
        self.records += 1
        if self.is_due:
            self.wake()
        return delivery

    def refuse_fork(self):
        """Raise, in a child of the process that has the sender."""
        if process != self.process:
            raise StateError(
                "the producer was opened in another process, and its records stay there",
                hint="make a new one after the fork, or give after_fork='restart'",
            )

    def refuse(self):
        """Raise why nothing is taken."""
        self.refuse_fork()
        raise copy.copy(self.refusal)

    @property
    def is_forked(self):
        """Whether this is a child of the process that has the sender."""
        return process != self.process

    cdef Partition chosen(
        self, Topic topic, object partition, bytes key, object partitioner, int64_t size
    ):
        """Where a record goes; None for a partition that the topic does not have."""
        cdef int64_t number
        if partition is not None:
            number = checked_number(partition)
            return topic.partitions[number] if 0 <= number < topic.count else None
        if partitioner is not None or self.choose_partition is not None:
            return self.by_function(
                topic, key, self.choose_partition if partitioner is None else partitioner
            )
        if key is not None and self.kind != RANDOM:
            number = digest_of(
                self.kind, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
            ) % <uint64_t>topic.count
            return topic.partitions[number]
        if self.kind == RANDOM:
            return topic.partitions[self.lot() % <uint64_t>topic.count]
        return self.stuck_to(topic, size)

    cdef Partition by_function(self, Topic topic, bytes key, object partitioner):
        if not callable(partitioner):
            raise ConfigError(f"partitioner={partitioner!r} is no function")
        number = partitioner(topic.name, key, topic.count)
        if type(number) is not int or not 0 <= number < topic.count:
            raise ConfigError(f"the partitioner chose {number!r} of {topic.count} partitions")
        return topic.partitions[number]

    cdef Partition stuck_to(self, Topic topic, int64_t size):
        cdef Partition where = topic.sticky
        if where is not None and where.open is not None:
            if where.open.has_room(size, self.batch_limit):
                return where
            self.close_open(where)
        where = self.drawn(topic)
        topic.sticky = where
        return where

    cdef Partition drawn(self, Topic topic):
        """One of the partitions that can be reached, by lot; a long line makes it less likely."""
        cdef Partition where
        cdef int64_t longest = 0
        cdef int64_t total = 0
        cdef int64_t drawn_lot
        cdef bint anywhere = True
        for where in topic.partitions:
            if where.is_available:
                anywhere = False
                longest = max(longest, where.backlog)
        for where in topic.partitions:
            if anywhere or where.is_available:
                total += longest + 1 - where.backlog if self.is_adaptive and not anywhere else 1
        drawn_lot = self.lot() % <uint64_t>total
        for where in topic.partitions:
            if anywhere or where.is_available:
                drawn_lot -= longest + 1 - where.backlog if self.is_adaptive and not anywhere else 1
                if drawn_lot < 0:
                    break
        return where

    cdef uint64_t lot(self) noexcept:
        return next_random(&self.random_state)

    cdef Batch batch_for(self, Partition partition, int64_t size):
        """A new open batch; the one before is full."""
        cdef Batch batch = Batch(self, partition, self.pool)
        if partition.open is not None:
            # Making an object may have run the garbage collector, and that another thread.
            if partition.open.has_room(size, self.batch_limit):
                return partition.open
            self.close_open(partition)
        partition.open = batch
        partition.backlog += 1
        self.incomplete.add(batch)
        self.batches += 1
        self.enlist(partition)
        if self.sleep == EMPTY:
            self.is_due = True
        return batch

    cdef int enlist(self, Partition partition) except -1:
        self.changes += 1
        if not partition.is_listed:
            partition.is_listed = True
            self.listed.append(partition)
        return 0

    cdef int close_open(self, Partition partition) except -1:
        cdef Batch batch = partition.open
        batch.close()
        partition.open = None
        partition.queue.append(batch)
        self.changes += 1
        if self.sleep == LINGERING:
            self.is_due = True
        return 0

    cdef int wake(self) except -1:
        self.is_due = False
        if self.sleep != AWAKE:
            self.sleep = AWAKE
            self.waker()
        return 0

    # ---- for the sender

    def topic(self, str name):
        """A topic whose partitions are known, else None."""
        return self.topics.get(name)

    def add_topic(self, str name, int32_t partitions):
        """Take records for a topic, or learn that it has grown."""
        cdef Topic topic = self.topics.get(name)
        if topic is None:
            topic = Topic(name)
            topic.resize(partitions)
            self.topics[name] = topic
        elif partitions > topic.count:
            topic.resize(partitions)
        return topic

    def shrink_topic(self, str name, int32_t partitions):
        """Learn that another topic has taken the name: the partitions it does not have."""
        cdef Topic topic = self.topics[name]
        gone = topic.partitions[partitions:]
        del topic.partitions[partitions:]
        topic.count = len(topic.partitions)
        topic.sticky = None
        return gone

    def look(self):
        """The partitions that have something, before the sender goes through them."""
        self.sleep = AWAKE
        self.seen = self.changes
        return list(self.listed)

    def rest(self, bint lingering):
        """Go to sleep; False if something has changed since ``look``."""
        if self.changes != self.seen:
            return False
        self.sleep = LINGERING if lingering else EMPTY
        return True

    def unlist(self, Partition partition):
        """Strike a partition off that has nothing left."""
        if partition.is_listed and partition.open is None and not partition.queue:
            partition.is_listed = False
            self.listed.remove(partition)

    def close_batch(self, Partition partition):
        """Close the open batch, to be sent."""
        if partition.open is not None:
            self.close_open(partition)
            self.seen += 1
            self.is_due = False

    def put_back(self, Partition partition, Batch batch, int place):
        """Put a batch into the line again."""
        partition.queue.insert(place, batch)
        self.enlist(partition)

    cpdef adopt(self, Batch batch):
        """Count a batch that was not made by appending here."""
        self.incomplete.add(batch)
        self.bytes += batch.charged
        self.batches += 1
        (<Partition>batch.partition).backlog += 1

    def urge(self, Batch batch):
        """Somebody waits for this batch: it goes without lingering."""
        if batch.is_urgent:
            return
        batch.is_urgent = True
        self.changes += 1
        self.wake()

    def note_change(self):
        """Do not let the sender rest that is looking right now."""
        self.changes += 1

    def nudge(self):
        """Have the sender look."""
        self.changes += 1
        self.wake()

    def settled(self, Batch batch, list callbacks):
        """A batch has its outcome: its room is free."""
        self.incomplete.discard(batch)
        self.bytes -= batch.charged
        (<Partition>batch.partition).backlog -= 1
        if self.on_settled is not None:
            self.on_settled(batch)
        if callbacks is not None:
            self.call_back(callbacks)
        if self.room_waiters and self.bytes <= self.wake_below:
            waiters, self.room_waiters = self.room_waiters, []
            for wake in waiters:
                wake()

    # ---- waiting for room

    @property
    def is_blocked(self):
        """Whether somebody waits for room."""
        return bool(self.room_waiters)

    def add_room_waiter(self, wake):
        """Call ``wake`` when there may be room for what had none; False when there is."""
        if self.bytes + self.wanted <= self.limit or not self.bytes:
            return False
        self.room_waiters.append(wake)
        self.nudge()
        return True

    def remove_room_waiter(self, wake):
        """Forget a waiter that has gone."""
        if wake in self.room_waiters:
            self.room_waiters.remove(wake)

    def wait_for_room(self, timeout):
        """Block until there is room: whether there is."""
        return blocked(self.add_room_waiter, self.remove_room_waiter, timeout)

    def release_waiters(self):
        """Wake everybody who waits for room: they will be refused."""
        waiters, self.room_waiters = self.room_waiters, []
        for wake in waiters:
            wake()

    # ---- callbacks

    def call_back(self, list callbacks):
        """Have callbacks run where this producer runs them."""
        if self.callback_runner is not None:
            self.callback_runner(callbacks)
            return
        self.finished.extend(callbacks)
        self.has_finished = True
        waiters, self.finish_waiters = self.finish_waiters, []
        for wake in waiters:
            wake()

    def run_callbacks(self):
        """Run the callbacks that are due, in this thread; how many ran."""
        cdef int64_t count = 0
        here = threading.get_ident()
        if here in self.calling:
            return 0  # a callback sends: the loop below gets to what that finishes
        self.calling.add(here)
        try:
            while self.finished:
                try:
                    delivery, call = self.finished.popleft()
                except IndexError:
                    break  # another thread took it
                run_callback(delivery, call)
                count += 1
        finally:
            self.calling.discard(here)
        self.has_finished = bool(self.finished)
        return count

    def add_finish_waiter(self, wake):
        """Call ``wake`` when a callback is due; False when one is."""
        if self.finished:
            return False
        self.finish_waiters.append(wake)
        return True

    def remove_finish_waiter(self, wake):
        """Forget a waiter that has gone."""
        if wake in self.finish_waiters:
            self.finish_waiters.remove(wake)

    def wait_for_callbacks(self, timeout):
        """Block until a callback is due, or the time is up."""
        blocked(self.add_finish_waiter, self.remove_finish_waiter, timeout)

    def is_loop_here(self):
        """Whether this is the thread of the loop that sends."""
        return self.loop_thread == threading.get_ident()


def run_callback(delivery, call):
    """Call back; what a callback raises is its own affair, and goes into the log."""
    try:
        call(delivery)
    except Exception:
        log.exception("a callback of %r raised", delivery)


cdef tuple header_pairs(object headers):
    if isinstance(headers, dict):
        return tuple(headers.items())
    try:
        return tuple(headers)
    except TypeError:
        raise LocalProtocolError(
            f"headers must be (name, value) pairs, not {type(headers).__name__}"
        ) from None


cdef int64_t checked_time(object timestamp_ms) except -1:
    if type(timestamp_ms) is not int or not 0 <= timestamp_ms < 2**63:
        raise LocalProtocolError(f"timestamp_ms={timestamp_ms!r} is no time since 1970")
    return timestamp_ms


cdef int64_t checked_number(object partition) except? -2:
    if type(partition) is not int:
        raise LocalProtocolError(f"partition={partition!r} is no number")
    return partition if -1 < partition < 2**31 else -1


cdef object too_large(Topic topic, int64_t size, int64_t limit):
    return MessageTooLarge(
        f"the record takes {size} bytes, and max_request_bytes is {limit}", topic=topic.name
    )
