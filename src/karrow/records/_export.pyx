"""Finished columns: the batch object and its export over the Arrow C data interface."""

cimport cython

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from karrow.records._arrow cimport (
    ArrowArray, ArrowSchema, array_capsule, drop_block, make_array, make_schema, new_block,
    schema_capsule,
)
from karrow.records._columns cimport (
    KEY, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, TOPIC, VALUE, ByteColumn, Columns,
    Validity, grow_data, grow_rows, trim,
)

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers")
cdef dict BITS = {name: 1 << place for place, name in enumerate(ALL)}


def column_mask(names):
    """The bit mask of the columns named."""
    mask = 0
    for name in names:
        mask |= BITS[name]
    return mask


# What columns without rows point to: Arrow wants one offset even then, and no NULL buffers.
cdef int32_t EMPTY_ENDS[2]
EMPTY_ENDS[0] = 0
EMPTY_ENDS[1] = 0

# The schema's format strings must outlive every export; these live as long as the module.
cdef dict TIMESTAMP_FORMATS = {unit: b"ts%c:UTC" % unit[:1] for unit in (b"ms", b"us", b"ns")}


cdef int fill_schema(RecordColumns batch, ArrowSchema* schema, int column) except? -2:
    cdef ArrowSchema* entry
    cdef bytes timestamp_format
    if column == KEY:
        return make_schema(schema, "z", "key", True, 0)
    if column == VALUE:
        return make_schema(schema, "z", "value", True, 0)
    if column == TOPIC:
        return make_schema(schema, "u", "topic", True, 0)
    if column == PARTITION:
        return make_schema(schema, "i", "partition", True, 0)
    if column == OFFSET:
        return make_schema(schema, "l", "offset", True, 0)
    if column == TIMESTAMP:
        timestamp_format = TIMESTAMP_FORMATS[batch.timestamp_format]
        return make_schema(schema, timestamp_format, "timestamp", True, 0)
    if column == TIMESTAMP_TYPE:
        return make_schema(schema, "c", "timestamp_type", True, 0)
    if make_schema(schema, "+l", "headers", True, 1) < 0:
        return -1
    entry = schema.children[0]
    if make_schema(entry, "+s", "element", True, 2) < 0:
        return -1
    if make_schema(entry.children[0], "u", "key", True, 0) < 0:
        return -1
    return make_schema(entry.children[1], "z", "value", True, 0)


cdef int plain_array(
    RecordColumns batch, ArrowArray* array, const void* values, Validity* validity
) except? -2:
    cdef const void* buffers[2]
    cdef int64_t nulls = 0
    buffers[0] = NULL
    buffers[1] = values if values != NULL else EMPTY_ENDS
    if validity != NULL and validity.nulls:
        buffers[0] = validity.bits
        nulls = validity.nulls
    return make_array(array, batch.block, batch.columns.rows, nulls, buffers, 2, 0)


cdef int byte_array(
    RecordColumns batch, ArrowArray* array, ByteColumn* column, int64_t rows
) except? -2:
    cdef const void* buffers[3]
    buffers[0] = column.validity.bits if column.validity.nulls else NULL
    buffers[1] = column.ends if column.ends != NULL else EMPTY_ENDS
    buffers[2] = column.data if column.data != NULL else <uint8_t*>EMPTY_ENDS
    return make_array(array, batch.block, rows, column.validity.nulls, buffers, 3, 0)


cdef int header_array(RecordColumns batch, ArrowArray* array) except? -2:
    cdef Columns* columns = &batch.columns
    cdef const void* buffers[2]
    cdef ArrowArray* entry
    buffers[0] = NULL
    buffers[1] = columns.header_ends if columns.header_ends != NULL else EMPTY_ENDS
    if make_array(array, batch.block, columns.rows, 0, buffers, 2, 1) < 0:
        return -1
    entry = array.children[0]
    if make_array(entry, batch.block, columns.header_rows, 0, buffers, 1, 2) < 0:
        return -1
    if byte_array(batch, entry.children[0], &columns.header_key, columns.header_rows) < 0:
        return -1
    return byte_array(batch, entry.children[1], &columns.header_value, columns.header_rows)


cdef int fill_array(RecordColumns batch, ArrowArray* array, int column) except? -2:
    cdef Columns* columns = &batch.columns
    if column == KEY:
        return byte_array(batch, array, &columns.key, columns.rows)
    if column == VALUE:
        return byte_array(batch, array, &columns.value, columns.rows)
    if column == TOPIC:
        return byte_array(batch, array, &batch.topics, columns.rows)
    if column == PARTITION:
        return plain_array(batch, array, batch.partitions, NULL)
    if column == OFFSET:
        return plain_array(batch, array, columns.offset, NULL)
    if column == TIMESTAMP:
        return plain_array(batch, array, columns.timestamp, &columns.timestamp_validity)
    if column == TIMESTAMP_TYPE:
        return plain_array(batch, array, columns.timestamp_type, NULL)
    return header_array(batch, array)


@cython.final
@cython.no_gc
cdef class RecordColumns:
    """Decoded records as Arrow columns.

    Hand it to anything that speaks the Arrow PyCapsule interface::

        pyarrow.record_batch(columns)
        polars.from_arrow(pyarrow.table(columns))

    ``next_offset`` is the position after the data that was read, control and aborted batches
    included; ``topic`` and ``partition`` are what the reader was told.
    """

    def __cinit__(self):
        self.block = new_block()
        if self.block == NULL:
            raise MemoryError

    def __dealloc__(self):
        drop_block(self.block)

    cdef void adopt(self, void* memory) noexcept:
        if memory != NULL:
            self.block.memory[self.block.count] = memory
            self.block.count += 1

    def __len__(self):
        return self.columns.rows

    @property
    def num_rows(self):
        """How many records there are."""
        return self.columns.rows

    @property
    def column_names(self):
        """The columns, in the order they were asked for."""
        return list(self.names)

    @property
    def nbytes(self):
        """Bytes of key, value and header data."""
        return (
            self.columns.key.length + self.columns.value.length
            + self.columns.header_key.length + self.columns.header_value.length
        )

    def __repr__(self):
        names = ", ".join(self.names)
        return f"<karrow.records.RecordColumns {self.columns.rows} rows: {names}>"

    def __arrow_c_schema__(self):
        cdef ArrowSchema* schema = <ArrowSchema*>malloc(sizeof(ArrowSchema))
        cdef int place = 0
        if schema == NULL:
            raise MemoryError
        if make_schema(schema, "+s", "", False, len(self.names)) < 0:
            schema.release(schema)
            free(schema)
            raise MemoryError
        capsule = schema_capsule(schema)
        for name in self.names:
            if fill_schema(self, schema.children[place], BITS[name]) < 0:
                raise MemoryError
            place += 1
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        cdef ArrowArray* array = <ArrowArray*>malloc(sizeof(ArrowArray))
        cdef const void* none = NULL
        cdef int place = 0
        if array == NULL:
            raise MemoryError
        if make_array(array, self.block, self.columns.rows, 0, &none, 1, len(self.names)) < 0:
            if array.release != NULL:
                array.release(array)
            free(array)
            raise MemoryError
        capsule = array_capsule(array)
        for name in self.names:
            if fill_array(self, array.children[place], BITS[name]) < 0:
                raise MemoryError
            place += 1
        return self.__arrow_c_schema__(), capsule


cdef int fill_routing(RecordColumns made, object topic, object partition) except -1:
    """The topic and partition columns: the same value in every row."""
    cdef int64_t rows = made.columns.rows
    cdef int64_t row
    cdef int32_t number
    cdef bytes name
    cdef int32_t length
    cdef ByteColumn* topics = &made.topics
    if rows == 0:
        return 0
    if made.columns.wanted & PARTITION:
        number = partition
        made.partitions = <int32_t*>malloc(rows * sizeof(int32_t))
        if made.partitions == NULL:
            raise MemoryError
        made.adopt(made.partitions)
        for row in range(rows):
            made.partitions[row] = number
    if made.columns.wanted & TOPIC:
        name = topic.encode()
        length = len(name)
        if not grow_rows(topics, 0, rows):
            raise MemoryError
        made.adopt(topics.ends)
        if not grow_data(topics, rows * length):
            raise MemoryError
        made.adopt(topics.data)
        for row in range(rows):
            memcpy(topics.data + row * length, <const char*>name, length)
            topics.ends[row + 1] = <int32_t>((row + 1) * length)
        topics.length = rows * length
    return 0


cdef void adopt_bytes(RecordColumns made, ByteColumn* column) noexcept:
    trim(column)
    made.adopt(column.validity.bits)
    made.adopt(column.ends)
    made.adopt(column.data)


cdef RecordColumns close_columns(
    Columns* columns, tuple names, bytes timestamp_format, object topic, object partition,
    int64_t next_offset,
):
    """Moves the memory of the columns into an exportable batch, and leaves `columns` empty."""
    cdef RecordColumns made = RecordColumns.__new__(RecordColumns)
    made.columns = columns[0]
    memset(columns, 0, sizeof(Columns))
    adopt_bytes(made, &made.columns.key)
    adopt_bytes(made, &made.columns.value)
    adopt_bytes(made, &made.columns.header_key)
    adopt_bytes(made, &made.columns.header_value)
    made.adopt(made.columns.offset)
    made.adopt(made.columns.timestamp)
    made.adopt(made.columns.timestamp_validity.bits)
    made.adopt(made.columns.timestamp_type)
    made.adopt(made.columns.header_ends)
    made.names = names
    made.timestamp_format = timestamp_format
    made.topic = topic
    made.partition = partition
    made.next_offset = next_offset
    fill_routing(made, topic, partition)
    return made
