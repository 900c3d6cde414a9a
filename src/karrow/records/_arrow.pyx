"""The exporting half of the Arrow C data interface: array and schema trees, and their capsules.

Every node owns itself: a consumer may move a child out and release it later, so each one holds a
reference to the block of memory behind all of them.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

cdef extern from *:
    """
    #define karrow_retain(p) __atomic_add_fetch((p), 1, __ATOMIC_RELAXED)
    #define karrow_release(p) __atomic_sub_fetch((p), 1, __ATOMIC_ACQ_REL)
    """
    int retain "karrow_retain"(int* references) noexcept nogil
    int release "karrow_release"(int* references) noexcept nogil

cdef enum:
    MAX_NODE_BUFFERS = 3

cdef struct ArrayNode:
    Block* block
    const void* buffers[MAX_NODE_BUFFERS]


cdef Block* new_block() noexcept nogil:
    cdef Block* block = <Block*>calloc(1, sizeof(Block))
    if block != NULL:
        block.references = 1
    return block


cdef void drop_block(Block* block) noexcept nogil:
    cdef int i
    if block != NULL and release(&block.references) == 0:
        for i in range(block.count):
            free(block.memory[i])
        free(block)


cdef void release_array(ArrowArray* array) noexcept nogil:
    cdef ArrayNode* node = <ArrayNode*>array.private_data
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i] != NULL:
            if array.children[i].release != NULL:
                array.children[i].release(array.children[i])
            free(array.children[i])
    free(array.children)
    drop_block(node.block)
    free(node)
    array.release = NULL


cdef void release_schema(ArrowSchema* schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i] != NULL:
            if schema.children[i].release != NULL:
                schema.children[i].release(schema.children[i])
            free(schema.children[i])
    free(schema.children)
    schema.release = NULL


cdef int make_array(
    ArrowArray* array, Block* block, int64_t length, int64_t null_count,
    const void** buffers, int n_buffers, int n_children,
) noexcept nogil:
    """Fills one node; its children are allocated and empty. -1 when memory ran out."""
    cdef ArrayNode* node = <ArrayNode*>malloc(sizeof(ArrayNode))
    cdef int i
    memset(array, 0, sizeof(ArrowArray))
    if node == NULL:
        return -1
    node.block = block
    for i in range(n_buffers):
        node.buffers[i] = buffers[i]
    retain(&block.references)
    array.length = length
    array.null_count = null_count
    array.n_buffers = n_buffers
    array.buffers = node.buffers
    array.private_data = node
    array.release = release_array
    if n_children:
        array.children = <ArrowArray**>calloc(n_children, sizeof(ArrowArray*))
        if array.children == NULL:
            return -1
        array.n_children = n_children
        for i in range(n_children):
            array.children[i] = <ArrowArray*>calloc(1, sizeof(ArrowArray))
            if array.children[i] == NULL:
                return -1
    return 0


cdef int make_schema(
    ArrowSchema* schema, const char* format, const char* name, bint nullable, int n_children
) noexcept nogil:
    """Fills one node; format and name must live as long as the program."""
    cdef int i
    memset(schema, 0, sizeof(ArrowSchema))
    schema.format = format
    schema.name = name
    schema.flags = FLAG_NULLABLE if nullable else 0
    schema.release = release_schema
    if n_children:
        schema.children = <ArrowSchema**>calloc(n_children, sizeof(ArrowSchema*))
        if schema.children == NULL:
            return -1
        schema.n_children = n_children
        for i in range(n_children):
            schema.children[i] = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
            if schema.children[i] == NULL:
                return -1
    return 0


cdef void destroy_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void destroy_array_capsule(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef object schema_capsule(ArrowSchema* schema):
    """Takes over `schema`, which came from malloc."""
    return PyCapsule_New(schema, "arrow_schema", destroy_schema_capsule)


cdef object array_capsule(ArrowArray* array):
    """Takes over `array`, which came from malloc."""
    return PyCapsule_New(array, "arrow_array", destroy_array_capsule)
