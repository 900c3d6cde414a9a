"""``send`` without await: the compiled half of Producer."""

from karrow.aio._delivery cimport Delivery
from karrow.aio._send cimport Sending


cdef class BlockingSend(Sending):
    """What Producer inherits: sending without a Python frame per record."""

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
