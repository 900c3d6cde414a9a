# What interrupts iteration, and what is in hand to be iterated over.

from libc.stdint cimport int64_t

from karrow.records._reader cimport RecordReader
from karrow.records._record cimport Record


cdef class Attention:
    cdef public bint wanted
    cdef int64_t _until
    cdef int _forks

    cdef bint is_due(self)


cdef class Hand:
    cdef public Attention attention
    cdef RecordReader _reader
    cdef public int64_t inline_bytes
    cdef public bint is_beside
    cdef readonly int64_t before
    cdef readonly int64_t after

    cdef Record take(self)
    cdef bint is_ready(self, RecordReader reader) except -1


cdef class NextRecord:
    cdef object iteration
    cdef object record
