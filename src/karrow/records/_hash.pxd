# The hashes of partitioners, for the accumulator, which chooses a partition per record.

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef uint32_t digest_of(int kind, const uint8_t* data, int64_t length) noexcept nogil
cdef int kind_of(str partitioner) except -1
