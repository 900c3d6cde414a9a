"""The hashes that decide a key's partition, over one key and over a whole Arrow column.

murmur2 is Java's; murmur2_legacy is how KafkaEx before 1.0 cut it, to 32 unsigned bits; consistent
(crc32) and fnv1a are librdkafka's, the latter as Sarama does it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from karrow.records._arrow cimport (
    ArrowArray, ArrowSchema, Block, array_capsule, drop_block, make_array, make_schema, new_block,
    schema_capsule,
)
from karrow.records._source cimport ByteChunk, byte_field
from karrow.records._writing cimport Field, field_bytes

from karrow.errors import ConfigError
from karrow.records._source import byte_chunks

cdef enum Kind:
    MURMUR2 = 0
    MURMUR2_LEGACY = 1
    CRC32 = 2
    FNV1A = 3

PARTITIONERS = ("murmur2", "murmur2_legacy", "consistent", "fnv1a")
cdef uint32_t CRC_TABLE[256]


cdef void fill_crc_table() noexcept:
    cdef uint32_t value
    cdef int byte
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        CRC_TABLE[byte] = value


fill_crc_table()


cdef uint32_t murmur2_of(const uint8_t* data, int64_t length) noexcept nogil:
    cdef uint32_t mix = 0x5BD1E995
    cdef uint32_t digest = <uint32_t>0x9747B28C ^ <uint32_t>length
    cdef uint32_t word
    cdef int64_t at = 0
    while at + 4 <= length:
        word = (
            data[at] | <uint32_t>data[at + 1] << 8 | <uint32_t>data[at + 2] << 16
            | <uint32_t>data[at + 3] << 24
        )
        word *= mix
        word ^= word >> 24
        digest = (digest * mix) ^ (word * mix)
        at += 4
    if length - at == 3:
        digest ^= <uint32_t>data[at + 2] << 16
    if length - at >= 2:
        digest ^= <uint32_t>data[at + 1] << 8
    if length - at >= 1:
        digest = (digest ^ data[at]) * mix
    digest = (digest ^ (digest >> 13)) * mix
    return digest ^ (digest >> 15)


cdef uint32_t fnv1a_of(const uint8_t* data, int64_t length) noexcept nogil:
    """FNV-1a, its absolute value as a signed number."""
    cdef uint32_t digest = 0x811C9DC5
    cdef int64_t at
    for at in range(length):
        digest = (digest ^ data[at]) * <uint32_t>0x01000193
    return digest if digest < <uint32_t>0x80000000 else 0 - digest


cdef uint32_t crc32_of(const uint8_t* data, int64_t length) noexcept nogil:
    cdef uint32_t digest = <uint32_t>0xFFFFFFFF
    cdef int64_t at
    for at in range(length):
        digest = (digest >> 8) ^ CRC_TABLE[(digest ^ data[at]) & 0xFF]
    return ~digest


cdef uint32_t digest_of(int kind, const uint8_t* data, int64_t length) noexcept nogil:
    """The non-negative number whose remainder is the partition."""
    if kind == MURMUR2:
        return murmur2_of(data, length) & 0x7FFFFFFF
    if kind == MURMUR2_LEGACY:
        return murmur2_of(data, length)
    if kind == CRC32:
        return crc32_of(data, length)
    return fnv1a_of(data, length)


cdef int kind_of(str partitioner) except -1:
    if partitioner not in PARTITIONERS:
        raise ConfigError(f"partitioner={partitioner!r} is none of {', '.join(PARTITIONERS)}")
    return PARTITIONERS.index(partitioner)


cdef int32_t checked_count(object partitions) except -1:
    if not 0 < partitions <= 0x7FFFFFFF:
        raise ConfigError(f"partitions={partitions} must be above 0")
    return partitions


def murmur2(key):
    """Java's murmur2 of a key, as the signed number Java gives."""
    cdef bytes data = field_bytes("key", key)
    return <int32_t>murmur2_of(<const uint8_t*><const char*>data, len(data))


def partition_for(key, partitions, str partitioner="murmur2"):
    """The partition of a key among ``partitions``.

    >>> partition_for(b"user-1", 6)
    2
    """
    cdef int kind = kind_of(partitioner)
    cdef uint32_t count = checked_count(partitions)
    cdef bytes data = field_bytes("key", key)
    if data is None:
        raise ConfigError("a null key has no partition of its own")
    return digest_of(kind, <const uint8_t*><const char*>data, len(data)) % count


cdef class PartitionColumn:
    """A column of partition numbers, null where the key was null; an Arrow int32 array."""

    cdef Block* block
    cdef int32_t* values
    cdef uint8_t* valid
    cdef int64_t rows
    cdef int64_t nulls

    def __cinit__(self, int64_t rows):
        cdef int64_t i
        self.block = new_block()
        self.rows = rows
        self.values = <int32_t*>malloc(max(rows, 1) * sizeof(int32_t))
        self.valid = <uint8_t*>malloc(rows // 8 + 1)
        if self.block == NULL or self.values == NULL or self.valid == NULL:
            free(self.values)
            free(self.valid)
            raise MemoryError
        for i in range(rows // 8 + 1):
            self.valid[i] = 0xFF
        self.block.memory[0] = self.values
        self.block.memory[1] = self.valid
        self.block.count = 2

    def __dealloc__(self):
        drop_block(self.block)

    def __len__(self):
        return self.rows

    def __arrow_c_schema__(self):
        cdef ArrowSchema* schema = <ArrowSchema*>malloc(sizeof(ArrowSchema))
        if schema == NULL:
            raise MemoryError
        make_schema(schema, "i", "partition", True, 0)
        return schema_capsule(schema)

    def __arrow_c_array__(self, requested_schema=None):
        cdef ArrowArray* array = <ArrowArray*>malloc(sizeof(ArrowArray))
        cdef const void* buffers[2]
        buffers[0] = self.valid if self.nulls else NULL
        buffers[1] = self.values
        if array == NULL or make_array(array, self.block, self.rows, self.nulls, buffers, 2, 0) < 0:
            free(array)
            raise MemoryError
        return self.__arrow_c_schema__(), array_capsule(array)


cdef void hash_chunk(
    PartitionColumn column, ByteChunk chunk, int kind, uint32_t count, int64_t row
) noexcept nogil:
    cdef int64_t i
    cdef Field key
    for i in range(chunk.rows):
        key = byte_field(&chunk.source, i)
        if key.length < 0:
            column.valid[(row + i) >> 3] &= ~(1 << ((row + i) & 7))
            column.values[row + i] = 0
            column.nulls += 1
        else:
            column.values[row + i] = <int32_t>(digest_of(kind, key.start, key.length) % count)


def partition_column(keys, partitions, str partitioner="murmur2"):
    """The partition of every key in an Arrow column, null for null keys.

    Example::

        pyarrow.array(partition_column(table["key"], 6))
    """
    cdef int kind = kind_of(partitioner)
    cdef uint32_t count = checked_count(partitions)
    cdef list chunks = byte_chunks(keys)
    cdef PartitionColumn column = PartitionColumn(sum([chunk.rows for chunk in chunks]))
    cdef ByteChunk chunk
    cdef int64_t row = 0
    for chunk in chunks:
        with nogil:
            hash_chunk(column, chunk, kind, count, row)
        row += chunk.rows
    return column
