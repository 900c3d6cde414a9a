from libc.stdint cimport int64_t

from karrow.aio._batch cimport Batch


cdef class Delivery:
    cdef Batch batch
    cdef readonly int64_t index  # its place in the batch
    cdef int64_t timestamp

    cdef Batch resolve(self)
    cdef object outcome(self)
