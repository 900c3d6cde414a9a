"""What ``send`` gives back: a record's batch and its place in it; no more is kept of a record."""

cimport cython

from karrow.aio._batch cimport FAILED, Batch

import copy

from karrow.aio.waiting import awaited, deadline_after, seconds_left
from karrow.errors import RequestTimeout
from karrow.types import RecordMetadata


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Delivery:
    """A record on its way.

    In a blocking producer ``result()`` waits for it; in an AsyncProducer it is awaited. Neither
    waits for ``linger``: the record leaves at once.

    Example::

        delivery = producer.send("orders", b"value")
        delivery.add_done_callback(lambda done: print(done.exception() or done.result().offset))
        print(delivery.result(timeout=5).offset)
    """

    cdef Batch resolve(self):
        """The batch that the record is in now: a batch that was too large has been divided."""
        cdef Batch batch = self.batch
        cdef Batch first
        while batch.parts is not None:
            first = batch.parts[0]
            if self.index >= first.writer.count:
                self.index -= first.writer.count
                batch = batch.parts[1]
            else:
                batch = first
            self.batch = batch
        return batch

    def done(self):
        """Whether the outcome is known."""
        return self.resolve().is_done

    def result(self, timeout=None):
        """Where the record is, a RecordMetadata; raises what went wrong.

        Waits up to ``timeout`` seconds and raises RequestTimeout after that; the record stays on
        its way, and waiting again is possible. Callbacks that are due run here.
        """
        self.wait(timeout)
        return self.outcome()

    def exception(self, timeout=None):
        """What went wrong, None for a record that was written; waits as ``result`` does."""
        self.wait(timeout)
        return self.failure()

    def wait(self, timeout=None):
        """Wait for the outcome, whatever it is."""
        cdef Batch batch
        deadline = deadline_after(timeout)
        while True:
            batch = self.resolve()
            if batch.wait(seconds_left(deadline)):
                if batch.parts is None:
                    break
            else:
                raise RequestTimeout(
                    f"no outcome within {timeout} s; the record is still on its way",
                    topic=batch.partition.topic.name, partition=batch.partition.number,
                )
        batch.owner.run_callbacks()

    def failure(self):
        """The error of a record whose outcome is known, as this caller's own; None without one."""
        cdef Batch batch = self.resolve()
        error = batch.error_of(self.index) if batch.state == FAILED else None
        return copy.copy(error)

    cdef object outcome(self):
        cdef Batch batch = self.resolve()
        error = self.failure()
        if error is not None:
            raise error
        return RecordMetadata(
            batch.partition.topic.name,
            batch.partition.number,
            None if batch.base_offset is None else batch.base_offset + self.index,
            self.timestamp if batch.append_time_ms is None else batch.append_time_ms,
            batch.log_start_offset,
        )

    def add_done_callback(self, call):
        """Have ``call(delivery)`` run when the outcome is known.

        In a blocking producer it runs inside ``send``, ``flush``, ``result``, ``poll`` or
        ``close``, in the thread that calls them, or with ``callbacks="thread"`` in a thread of its
        own; in an AsyncProducer on the loop.
        """
        cdef Batch batch = self.resolve()
        if not batch.add_callback(self, call):
            batch.owner.call_back([(self, call)])

    async def arrived(self):
        """What awaiting it does."""
        cdef Batch batch
        while True:
            batch = self.resolve()
            if batch.is_done and batch.parts is None:
                return self.outcome()
            await wait_for(batch)

    def __await__(self):
        return self.arrived().__await__()

    def __repr__(self):
        cdef Batch batch = self.resolve()
        state = "on its way"
        if batch.is_done:
            state = "failed" if batch.state == FAILED else "written"
        return f"<Delivery to {batch.partition}, {state}>"


async def wait_for(Batch batch):
    """Wait for a batch's outcome on a loop, its producer's or another."""
    batch.owner.refuse_fork()
    batch.owner.urge(batch)
    await awaited(batch.add_waiter, batch.remove_waiter)
