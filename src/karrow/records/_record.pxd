# One record; it points into its batch's bytes and cuts them on demand.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from karrow.records._segment cimport RawRecord


cdef class BatchOrigin:
    """What the records of one batch share; keeps the batch's bytes alive."""
    cdef object owner
    cdef str topic
    cdef int32_t partition
    cdef int32_t leader_epoch


cdef class Record:
    cdef BatchOrigin origin
    cdef RawRecord raw

    cdef dict fields(self)


cdef Record make_record(BatchOrigin origin, RawRecord* raw)
