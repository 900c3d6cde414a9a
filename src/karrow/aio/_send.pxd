from karrow.aio._accumulator cimport Accumulator


cdef class Sending:
    cdef Accumulator _accumulator
