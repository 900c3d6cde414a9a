"""Iteration over records, compiled: no Python frame per record."""

cimport cython


@cython.final
@cython.no_gc
cdef class Attention:
    """Says whether something has to happen before the next record is handed out.

    Set by whoever revokes, seeks, pauses, or has a callback to run; whoever takes records looks at
    it before each one and clears it.
    """

    def __cinit__(self):
        self.wanted = False
