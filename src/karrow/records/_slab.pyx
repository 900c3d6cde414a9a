"""A block of plain memory that library calls can write into.

Large blocks come and go with every answer of a broker, in one thread and another. An allocator
gives them back to the system and has every page made anew, so a few are kept for the next one.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, malloc, realloc

cdef enum:
    LARGE = 4 << 20              # the smallest block that is kept
    ROUND = 4 << 20              # so that answers of about the same size fit into the same block
    MOST = 4                     # how many are kept, and how much they are together
    MOST_BYTES = 64 << 20

cdef struct Block:
    void* memory
    Py_ssize_t size

cdef Block kept[MOST]
cdef int count = 0
cdef Py_ssize_t kept_bytes = 0


cdef Block take(Py_ssize_t size) noexcept:
    """A block of at least this size; its memory is NULL where there is none to be had."""
    global count, kept_bytes
    cdef Block found
    cdef int best = -1
    cdef int i
    if size >= LARGE:
        size = (size + ROUND - 1) // ROUND * ROUND
        for i in range(count):
            if kept[i].size >= size and (best < 0 or kept[i].size < kept[best].size):
                best = i
        if best >= 0:
            found = kept[best]
            count -= 1
            kept[best] = kept[count]
            kept_bytes -= found.size
            return found
    found.size = max(size, 1)
    found.memory = malloc(found.size)
    return found


cdef void give_back(Block block) noexcept:
    global count, kept_bytes
    if block.size < LARGE or count == MOST or kept_bytes + block.size > MOST_BYTES:
        free(block.memory)
        return
    kept[count] = block
    count += 1
    kept_bytes += block.size


cdef class Slab:
    """Uninitialised memory with the buffer interface, cut down to what was written at the end."""

    cdef Block block
    cdef Py_ssize_t size

    def __cinit__(self, Py_ssize_t size):
        self.block = take(size)
        if self.block.memory == NULL:
            raise MemoryError
        self.size = size

    def __dealloc__(self):
        give_back(self.block)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.block.memory, self.size, False, flags)

    def __len__(self):
        return self.size

    def shrink(self, Py_ssize_t size):
        """Keeps the first ``size`` bytes; views taken before must be gone."""
        cdef void* memory
        if size < self.size:
            memory = realloc(self.block.memory, max(size, 1))
            if memory != NULL:
                self.block.memory = memory
                self.block.size = max(size, 1)
            self.size = size
