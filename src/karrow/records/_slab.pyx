"""A block of plain memory that library calls can write into."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, malloc, realloc


cdef class Slab:
    """Uninitialised memory with the buffer interface, cut down to what was written at the end."""

    cdef void* memory
    cdef Py_ssize_t size

    def __cinit__(self, Py_ssize_t size):
        self.memory = malloc(size if size > 0 else 1)
        if self.memory == NULL:
            raise MemoryError
        self.size = size

    def __dealloc__(self):
        free(self.memory)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.memory, self.size, False, flags)

    def __len__(self):
        return self.size

    def shrink(self, Py_ssize_t size):
        """Keeps the first ``size`` bytes; views taken before must be gone."""
        cdef void* memory
        if size < self.size:
            memory = realloc(self.memory, max(size, 1))
            if memory != NULL:
                self.memory = memory
            self.size = size
