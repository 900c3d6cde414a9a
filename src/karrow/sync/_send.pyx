"""``send`` without await: the compiled half of Producer."""

from karrow.aio._accumulator cimport Accumulator
from karrow.aio._delivery cimport Delivery


cdef class BlockingSend:
    """What Producer inherits: sending without a Python frame per record."""

    cdef Accumulator _accumulator

    @property
    def accumulator(self):
        """The records that wait."""
        return self._accumulator

    @accumulator.setter
    def accumulator(self, Accumulator accumulator):
        self._accumulator = accumulator

    def send(
        self, topic, value=None, *, key=None, headers=None, partition=None, timestamp_ms=None,
        partitioner=None,
    ):
        """Put a record on its way; waits only for room, and for a topic heard of the first time.

        ``key`` and ``value`` are bytes-like, str (UTF-8) or None, ``headers`` pairs of a name and
        such a value. ``partition`` names one, ``partitioner`` is a function of topic, key and
        number of partitions for this record. Wrong arguments raise at once and concern nobody else.
        """
        cdef Delivery delivery = None
        cdef object deadline = None
        while True:
            delivery = self._accumulator.append(
                topic, value, key, headers, partition, timestamp_ms, partitioner
            )
            if delivery is not None:
                break
            deadline = self._overcome(self._accumulator.obstacle, topic, partition, deadline)
        if self._accumulator.has_finished:
            self._accumulator.run_callbacks()
        return delivery

    def send_nowait(
        self, topic, value=None, *, key=None, headers=None, partition=None, timestamp_ms=None,
        partitioner=None,
    ):
        """As ``send``, without waiting: BufferFull when there is no room, or an unknown topic.

        A topic that was never heard of is looked up meanwhile; ``partitions_for`` waits for that.
        """
        cdef Delivery delivery = self._accumulator.append(
            topic, value, key, headers, partition, timestamp_ms, partitioner
        )
        if delivery is None:
            raise self._no_room(self._accumulator.obstacle, topic, partition)
        return delivery
