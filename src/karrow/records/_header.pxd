# How far the whole batches of record data reach, without reading a record.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct Reach:
    int64_t after                # the offset after them, -1 without any
    int64_t size                 # their bytes
    int32_t epoch                # the leader epoch of the last one, -1 if it has none

cdef Reach reach_of(const uint8_t* data, int64_t end) noexcept nogil
