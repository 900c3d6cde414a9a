"""``await send``: the compiled half of AsyncProducer, and what both producers share."""

from karrow.aio._accumulator cimport Accumulator
from karrow.aio._delivery cimport Delivery

import asyncio

cdef enum:
    TURN = 1000                  # records after which other tasks get a turn


cdef class Sending:
    """What both producers have: the accumulator, and a way into it that never waits."""

    @property
    def accumulator(self):
        """The records that wait."""
        return self._accumulator

    @accumulator.setter
    def accumulator(self, Accumulator accumulator):
        self._accumulator = accumulator

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


cdef class AwaitedSend(Sending):
    """What AsyncProducer inherits: sending without a Python frame per record."""

    cdef int _in_turn

    def __cinit__(self, *args, **kwargs):
        self._in_turn = 0

    async def send(
        self, topic, value=None, *, key=None, headers=None, partition=None, timestamp_ms=None,
        partitioner=None,
    ):
        """Put a record on its way; waits only for room, and for a topic heard of the first time.

        The Delivery that comes back is awaited for where the record went. ``key`` and ``value`` are
        bytes-like, str (UTF-8) or None, ``headers`` pairs of a name and such a value. ``partition``
        names one, ``partitioner`` is a function of topic, key and number of partitions for this
        record. Wrong arguments raise at once and concern nobody else.
        """
        cdef Delivery delivery = None
        cdef object deadline = None
        self._in_turn += 1
        if self._in_turn >= TURN:
            self._in_turn = 0
            await asyncio.sleep(0)
        while True:
            delivery = self._accumulator.append(
                topic, value, key, headers, partition, timestamp_ms, partitioner
            )
            if delivery is not None:
                return delivery
            deadline = await self.overcome(
                self._accumulator.obstacle, topic, partition, deadline
            )
