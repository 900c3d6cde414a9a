"""The lz4 frame of magic 0 (KAFKA-3160): its header checksum was taken over the wrong bytes.

Kafka's first lz4 writer began at the frame's magic number instead of after it. Such frames need the
checksum put right before a library reads them, and put wrong again when we write them.
"""

from libc.stdint cimport uint8_t, uint32_t

from karrow.errors import RemoteProtocolError

cdef enum:
    FRAME_MAGIC_BYTES = 4
    HAS_CONTENT_SIZE = 0x08
    HAS_DICTIONARY = 0x01

cdef uint32_t PRIME1 = 2654435761
cdef uint32_t PRIME2 = 2246822519
cdef uint32_t PRIME3 = 3266489917
cdef uint32_t PRIME4 = 668265263
cdef uint32_t PRIME5 = 374761393


cdef inline uint32_t rotate(uint32_t value, int bits) noexcept:
    return (value << bits) | (value >> (32 - bits))


cdef uint32_t short_xxh32(const uint8_t* data, Py_ssize_t length) noexcept:
    """xxHash32 with seed 0 of fewer than 16 bytes, which is all a frame header has."""
    cdef uint32_t digest = PRIME5 + <uint32_t>length
    cdef Py_ssize_t at = 0
    cdef uint32_t word
    while at + 4 <= length:
        word = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | <uint32_t>data[at + 3] << 24
        digest = rotate(digest + word * PRIME3, 17) * PRIME4
        at += 4
    while at < length:
        digest = rotate(digest + data[at] * PRIME5, 11) * PRIME1
        at += 1
    digest = (digest ^ (digest >> 15)) * PRIME2
    digest = (digest ^ (digest >> 13)) * PRIME3
    return digest ^ (digest >> 16)


cdef Py_ssize_t descriptor_end(const uint8_t[::1] frame) except -1:
    """Where the frame's descriptor ends and its checksum byte stands."""
    cdef Py_ssize_t end = FRAME_MAGIC_BYTES + 2
    if frame.shape[0] <= end:
        raise RemoteProtocolError("an lz4 frame is cut off in its header")
    if frame[FRAME_MAGIC_BYTES] & HAS_DICTIONARY:
        raise RemoteProtocolError("an lz4 frame asks for a dictionary, which Kafka never uses")
    if frame[FRAME_MAGIC_BYTES] & HAS_CONTENT_SIZE:
        end += 8
    if frame.shape[0] <= end:
        raise RemoteProtocolError("an lz4 frame is cut off in its header")
    return end


cdef bytearray with_checksum_from(object frame, Py_ssize_t start):
    cdef bytearray copy = bytearray(frame)
    cdef uint8_t[::1] view = copy
    cdef Py_ssize_t end = descriptor_end(view)
    view[end] = <uint8_t>(short_xxh32(&view[start], end - start) >> 8)
    return copy


def repair_lz4_frame(frame):
    """The frame with the header checksum its specification asks for."""
    return with_checksum_from(frame, FRAME_MAGIC_BYTES)


def spoil_lz4_frame(frame):
    """The frame with the header checksum that readers of magic 0 expect."""
    return with_checksum_from(frame, 0)
