# The Arrow C data interface, as its specification lays it out, and memory that exports share.

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    #include <stdint.h>
    struct ArrowSchema {
      const char* format; const char* name; const char* metadata;
      int64_t flags; int64_t n_children;
      struct ArrowSchema** children; struct ArrowSchema* dictionary;
      void (*release)(struct ArrowSchema*); void* private_data;
    };
    struct ArrowArray {
      int64_t length; int64_t null_count; int64_t offset; int64_t n_buffers; int64_t n_children;
      const void** buffers; struct ArrowArray** children; struct ArrowArray* dictionary;
      void (*release)(struct ArrowArray*); void* private_data;
    };
    #endif
    #ifndef ARROW_C_STREAM_INTERFACE
    #define ARROW_C_STREAM_INTERFACE
    struct ArrowArrayStream {
      int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
      int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
      const char* (*get_last_error)(struct ArrowArrayStream*);
      void (*release)(struct ArrowArrayStream*); void* private_data;
    };
    #endif
    """
    cdef struct ArrowSchema:
        const char* format
        const char* name
        const char* metadata
        int64_t flags
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*) noexcept nogil
        void* private_data

    cdef struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data

    cdef struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
        void (*release)(ArrowArrayStream*) noexcept nogil
        void* private_data

cdef enum:
    FLAG_NULLABLE = 2
    MAX_BLOCK_BUFFERS = 24

# Memory handed to Arrow consumers: freed with the last array that points into it, by any thread,
# without the GIL.
cdef struct Block:
    int references
    int count
    void* memory[MAX_BLOCK_BUFFERS]

cdef Block* new_block() noexcept nogil
cdef void drop_block(Block* block) noexcept nogil
cdef int make_array(
    ArrowArray* array, Block* block, int64_t length, int64_t null_count,
    const void** buffers, int n_buffers, int n_children,
) noexcept nogil
cdef int make_schema(
    ArrowSchema* schema, const char* format, const char* name, bint nullable, int n_children
) noexcept nogil
cdef object schema_capsule(ArrowSchema* schema)
cdef object array_capsule(ArrowArray* array)
