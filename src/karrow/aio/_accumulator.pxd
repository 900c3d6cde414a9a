# Records that wait to be sent, by topic and partition.

from libc.stdint cimport int32_t, int64_t, uint64_t

from karrow.aio._batch cimport Batch, MemoryPool
from karrow.aio._delivery cimport Delivery

cpdef enum Obstacle:
    NO_TOPIC = 1                 # its partitions are not known
    NO_PARTITION = 2             # the partition asked for is none of them
    NO_ROOM = 3

cdef enum Sleep:
    AWAKE = 0                    # the sender is about to look
    EMPTY = 1                    # it wants to know of the first record
    LINGERING = 2                # it has set a timer and wants to know of a full batch


cdef class Topic:
    cdef readonly str name
    cdef readonly list partitions
    cdef int32_t count
    cdef Partition sticky


cdef class Partition:
    cdef readonly Topic topic
    cdef readonly int32_t number
    cdef Batch open
    cdef readonly object queue
    cdef public int backlog      # batches that are not complete
    cdef public bint is_available
    cdef bint is_listed
    cdef public object progress  # the sender's notes


cdef class Accumulator:
    cdef dict topics
    cdef str last_name
    cdef Topic last_topic
    cdef readonly int64_t bytes
    cdef readonly int64_t limit
    cdef int64_t wake_below
    cdef int64_t batch_limit
    cdef int64_t record_limit
    cdef readonly int64_t records
    cdef readonly int64_t batches
    cdef readonly set incomplete
    cdef readonly list listed
    cdef MemoryPool pool
    cdef public object refusal
    cdef public Obstacle obstacle
    cdef Sleep sleep
    cdef public object waker
    cdef int64_t changes
    cdef int64_t seen
    cdef int kind
    cdef object choose_partition
    cdef bint is_adaptive
    cdef uint64_t random_state
    cdef int64_t process
    cdef list room_waiters
    cdef list finish_waiters
    cdef set calling             # threads that are running callbacks
    cdef int64_t wanted          # the size of the last record without room
    cdef bint is_due             # the sender is to be woken at the end of this append
    cdef public object callback_runner
    cdef public object on_settled
    cdef readonly object finished
    cdef bint has_finished
    cdef public object loop_thread

    cdef Delivery append(
        self, object name, object value, object key, object headers, object partition,
        object timestamp_ms, object partitioner
    )
    cdef Partition chosen(
        self, Topic topic, object partition, bytes key, object partitioner, int64_t size
    )
    cdef Partition by_function(self, Topic topic, bytes key, object partitioner)
    cdef Partition stuck_to(self, Topic topic, int64_t size)
    cdef Partition drawn(self, Topic topic)
    cdef Batch batch_for(self, Partition partition, int64_t size)
    cdef int close_open(self, Partition partition) except -1
    cdef int enlist(self, Partition partition) except -1
    cdef int wake(self) except -1
    cpdef adopt(self, Batch batch)
    cdef uint64_t lot(self) noexcept


cdef inline uint64_t next_random(uint64_t* state) noexcept nogil:
    """Xorshift: good enough to spread load."""
    state[0] ^= state[0] << 13
    state[0] ^= state[0] >> 7
    state[0] ^= state[0] << 17
    return state[0] >> 1
