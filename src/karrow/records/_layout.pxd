# Where things stand in a record batch (magic 2) and in a message (magic 0 and 1).
#
#   batch:    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc32c 4 | attributes 2 |
#             last offset delta 4 | base timestamp 8 | max timestamp 8 | producer id 8 |
#             producer epoch 2 | base sequence 4 | record count 4 | records ...
#   record:   length v | attributes 1 | timestamp delta v | offset delta v | key length v | key |
#             value length v | value | header count v |
#             (key length v | key | value length v | value)*
#   message:  offset 8 | size 4 | crc32 4 | magic 1 | attributes 1 | timestamp 8 (magic 1) |
#             key length 4 | key | value length 4 | value
#
# The length counts what follows it; crc32c covers everything from the attributes on, crc32
# everything from the magic on.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from karrow.records._cursor cimport load16, load32, load64

cdef enum:
    LENGTH_AT = 8
    ENTRY_OVERHEAD = 12          # offset and length: what every entry begins with
    MAGIC_AT = 16                # the same place in batches and in messages

    LEADER_EPOCH_AT = 12
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    COUNT_AT = 57
    BATCH_OVERHEAD = 61
    MIN_RECORD = 7               # length, attributes, two deltas, two lengths, header count

    MESSAGE_CRC_AT = 12
    MESSAGE_ATTRIBUTES_AT = 17
    MESSAGE_BODY_AT = 18         # key length (magic 0) or timestamp (magic 1)
    MIN_MESSAGE = 26             # magic 0, null key, null value

    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40        # base timestamp is then the horizon; deltas stay relative to it

cdef struct BatchHeader:
    int64_t base_offset
    int32_t length
    int32_t leader_epoch
    uint32_t crc
    int16_t attributes
    int32_t last_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t count


cdef inline void load_header(const uint8_t* at, BatchHeader* header) noexcept nogil:
    """Reads the 61 bytes of a batch header; the caller has checked that they are there."""
    header.base_offset = load64(at)
    header.length = load32(at + LENGTH_AT)
    header.leader_epoch = load32(at + LEADER_EPOCH_AT)
    header.crc = <uint32_t>load32(at + CRC_AT)
    header.attributes = load16(at + ATTRIBUTES_AT)
    header.last_delta = load32(at + LAST_DELTA_AT)
    header.base_timestamp = load64(at + BASE_TIMESTAMP_AT)
    header.max_timestamp = load64(at + MAX_TIMESTAMP_AT)
    header.producer_id = load64(at + PRODUCER_ID_AT)
    header.producer_epoch = load16(at + PRODUCER_EPOCH_AT)
    header.base_sequence = load32(at + BASE_SEQUENCE_AT)
    header.count = load32(at + COUNT_AT)
