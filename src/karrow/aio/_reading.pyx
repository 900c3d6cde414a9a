"""Iteration over records, compiled: no Python frame per record.

Rules:
- Before each record one flag and a clock are looked at (``Attention``): whoever revokes, seeks,
  pauses or has a callback to run sets the flag; the clock says how long that is enough, since a
  process that was stopped may have lost everything before anybody could set it. Then, and where
  nothing is in hand, Python is asked (``_more``).
- A record is taken under the GIL from a batch that is loaded. Loading may let other threads run, so
  the flag is looked at again after it: no record comes out behind a revocation.
- ``before`` and ``after`` are the positions around the record that was returned last. They change
  together with its return, so that another thread may read them at any time under the GIL.
"""

cimport cython
from cpython.list cimport PyList_Append
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport INT64_MAX

from karrow.records._reader cimport RecordReader
from karrow.records._record cimport Record

import asyncio
import os

from karrow.errors import CorruptRecordError

cdef extern from *:
    """
    /* An awaitable with this slot gives its result without an exception being made. */
    #include <time.h>
    #ifdef CLOCK_MONOTONIC_COARSE
    #define KARROW_CLOCK CLOCK_MONOTONIC_COARSE
    #else
    #define KARROW_CLOCK CLOCK_MONOTONIC
    #endif
    /* A few milliseconds late, and much cheaper than an exact clock. */
    static long long karrow_now(void) {
        struct timespec now;
        clock_gettime(KARROW_CLOCK, &now);
        return (long long) now.tv_sec * 1000000000 + now.tv_nsec;
    }

    static void karrow_set_send(PyObject *type, void *send) {
        ((PyTypeObject *) type)->tp_as_async->am_send = (sendfunc) send;
    }
    """
    void karrow_set_send(PyObject* kind, void* send)
    long long karrow_now() nogil

cdef enum:
    TURN = 1000                  # records after which other tasks get a turn, or
    TURN_TIME = 50_000_000       # nanoseconds, for whoever works long on each of them
    RETURNED = 0                 # PYGEN_RETURN

cdef int forks = 0               # how deep this process is in a line of forks
cdef double FAR = 9e9            # seconds, which as nanoseconds fit into 64 bits

UNLIMITED = INT64_MAX


def _forked():
    global forks
    forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@cython.final
@cython.no_gc
cdef class Attention:
    """Says whether something has to happen before the next record is handed out.

    After ``until``, a time of the monotonic clock, something always has; so it has in a process
    that was forked off.
    """

    def __cinit__(self):
        self.wanted = False
        self._until = INT64_MAX
        self._forks = forks

    @property
    def until(self):
        return self._until / 1e9

    @until.setter
    def until(self, double when):
        self._until = INT64_MAX if when >= FAR else <int64_t>(when * 1e9)

    cdef bint is_due(self):
        if self.wanted or self._forks != forks:
            return True
        return self._until != INT64_MAX and karrow_now() > self._until


cdef class Hand:
    """The reader in hand, and how far its records were handed out one by one.

    A batch of more than ``inline_bytes`` is not loaded by itself: it is left to whoever can wait.
    While another thread decodes (``is_beside``) nothing is taken.
    """

    def __cinit__(self, *args, **kwargs):
        self.inline_bytes = INT64_MAX

    @property
    def reader(self):
        """What records are taken from."""
        return self._reader

    @reader.setter
    def reader(self, RecordReader reader):
        self._reader = reader
        if reader is not None:
            self.before = self.after = reader._next_offset

    def moved(self):
        """Records were handed out by the list: go on behind them."""
        self.before = self.after = self._reader._next_offset

    cdef Record take(self):
        """The next record; None where something else has to happen first."""
        cdef RecordReader reader = self._reader
        cdef Record record
        if reader is None or self.is_beside:
            return None
        while not self.attention.is_due():
            try:
                record = reader.take()
            except CorruptRecordError:
                return None              # load() raises it again
            if record is not None:
                self.before = self.after
                self.after = reader._next_offset
                return record
            if not self.is_ready(reader):
                return None
        return None

    cdef bint is_ready(self, RecordReader reader) except -1:
        """Load the next batch if that is quick; False where there is none, or a damaged one."""
        if reader.to_load() > self.inline_bytes:
            return False
        try:
            return reader.load()
        except CorruptRecordError:
            return False

    @property
    def to_load(self):
        """The size of the next batch if it has to be loaded, else 0."""
        return self._reader.to_load()

    def take_list(self, Py_ssize_t most):
        """Up to so many records in one list; fewer in front of what is large, damaged, the end."""
        cdef RecordReader reader = self._reader
        cdef Record record
        cdef list taken = []
        while len(taken) < most:
            try:
                record = reader.take()
            except CorruptRecordError:
                break
            if record is not None:
                PyList_Append(taken, record)
            elif not self.is_ready(reader):
                break
        return taken


def load(RecordReader reader not None):
    """Have records to take; False where everything was taken. Raises what is damaged."""
    return reader.load() != 0


cdef class Iteration:
    """What Consumer inherits: it is an iterator over its records."""

    cdef Hand _hand

    def __iter__(self):
        """Records one by one, for ever."""
        return self

    def __next__(self):
        cdef Record record
        while True:
            record = self._hand.take()
            if record is not None:
                return record
            self._hand.attention.wanted = False
            try:
                self._more()
            except BaseException:
                self._hand.attention.wanted = True  # what is in hand was not looked at
                raise

    def _iterate_over(self, Hand hand not None):
        self._hand = hand


@cython.final
@cython.no_gc
@cython.freelist(8)
cdef class NextRecord:
    """An awaitable of the next record, which is taken when it is awaited and not before.

    One that is made and dropped, as by a call that is cancelled before it began, takes nothing.
    """

    def __await__(self):
        cdef AwaitedIteration iteration = self.iteration
        if iteration is None:
            raise RuntimeError("the next record was awaited already; ask for another")
        self.iteration = None
        self.record = iteration.at_hand()
        return iteration._later().__await__() if self.record is None else self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(self.record)


cdef int send_next(PyObject* ready, PyObject* sent, PyObject** result) noexcept:
    cdef PyObject* record = <PyObject*>(<NextRecord>ready).record
    Py_INCREF(<object>record)
    result[0] = record
    return RETURNED


karrow_set_send(<PyObject*>NextRecord, <void*>send_next)


cdef class AwaitedIteration:
    """What AsyncConsumer inherits: it is an iterator over its records, without a coroutine each."""

    cdef Hand _hand
    cdef int _in_turn
    cdef long long _turn_ends

    def __cinit__(self, *args, **kwargs):
        self._in_turn = 0
        self._turn_ends = INT64_MAX

    def __aiter__(self):
        """Records one by one, for ever."""
        return self

    def __anext__(self):
        cdef NextRecord coming = NextRecord.__new__(NextRecord)
        coming.iteration = self
        return coming

    cdef Record at_hand(self):
        """The next record, if it is there and no other task is to have its turn first."""
        self._in_turn += 1
        return None if self.is_turn_over() else self._hand.take()

    cdef bint is_turn_over(self):
        return self._in_turn >= TURN or karrow_now() > self._turn_ends

    async def _later(self):
        cdef Record record
        if self.is_turn_over():
            await asyncio.sleep(0)
        while True:
            record = self._hand.take()
            if record is not None:
                self._in_turn = 0
                self._turn_ends = karrow_now() + TURN_TIME
                return record
            self._hand.attention.wanted = False
            try:
                await self._more()
            except BaseException:
                self._hand.attention.wanted = True  # as above
                raise

    def _iterate_over(self, Hand hand not None):
        self._hand = hand
