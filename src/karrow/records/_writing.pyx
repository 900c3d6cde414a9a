"""What a caller may give as key, value and headers, turned into bytes."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from karrow.records._cursor cimport write_varint, zigzag

from karrow.errors import LocalProtocolError


cdef bytes field_bytes(str name, object value):
    """Bytes-like, str (as UTF-8) or None; anything else is refused by the field's name."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise LocalProtocolError(
            f"{name} must be bytes-like, str or None, not {type(value).__name__}"
        ) from None


cdef bytes header_name(object name):
    if not isinstance(name, str):
        raise LocalProtocolError(f"a header name must be str, not {type(name).__name__}")
    return name.encode()


cdef bytes encoded_headers(tuple headers):
    """The headers of one record as they stand in a batch, without their count."""
    cdef list parts
    cdef bytes name
    cdef bytes value
    if not headers:
        return b""
    parts = []
    for pair in headers:
        try:
            first, second = pair
        except (TypeError, ValueError):
            raise LocalProtocolError(
                f"a header must be a (name, value) pair, not {type(pair).__name__}"
            ) from None
        name = header_name(first)
        value = field_bytes("a header value", second)
        parts.append(encoded_varint(len(name)))
        parts.append(name)
        parts.append(encoded_varint(-1 if value is None else len(value)))
        if value:
            parts.append(value)
    return b"".join(parts)


cdef bytes encoded_varint(long long value):
    cdef uint8_t room[10]
    cdef uint8_t* end = write_varint(room, zigzag(value))
    return PyBytes_FromStringAndSize(<char*>room, end - room)
