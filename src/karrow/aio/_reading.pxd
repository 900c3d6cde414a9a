cdef class Attention:
    cdef public bint wanted
