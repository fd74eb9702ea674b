"""Variable-length integers of Kafka's protocol: base 128, low groups first; signed ones use zigzag (Protocol Buffers).

Readers return `(value, next position)` and raise ValueError for a varint that is cut off or has more than 64 bits.
"""

from duramen.base.ports import Buffer

__all__ = ["encode_uvarint", "encode_varint", "read_uvarint", "read_varint", "varint_size"]

_LARGEST = (1 << 64) - 1
_ONE_BYTE = tuple(bytes((value,)) for value in range(128))


def encode_uvarint(value: int) -> bytes:
    """`value` (0 to 2**64 - 1) as an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """`value` (64 bits, signed) as a zigzag varint."""
    return encode_uvarint((value << 1) ^ (value >> 63))


def varint_size(value: int) -> int:
    """The bytes of `encode_varint(value)`."""
    return max(1, (((value << 1) ^ (value >> 63)).bit_length() + 6) // 7)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most ten bytes."""
    result = shift = 0
    try:
        byte = buffer[position]
        if byte < 0x80:  # one byte, or two: nearly always
            return byte, position + 1
        high = buffer[position + 1]
        if high < 0x80:
            return byte & 0x7F | high << 7, position + 2
        while True:
            byte = buffer[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                if result > _LARGEST:
                    break
                return result, position
            shift += 7
            if shift > 63:
                break
    except IndexError:
        raise ValueError("a varint is cut off") from None
    raise ValueError("a varint has more than 64 bits")


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes."""
    try:
        low = buffer[position]
        if low < 0x80:  # one byte, or two: nearly always
            return low >> 1 ^ -(low & 1), position + 1
        high = buffer[position + 1]
    except IndexError:
        raise ValueError("a varint is cut off") from None
    if high < 0x80:
        value = low & 0x7F | high << 7
        return value >> 1 ^ -(value & 1), position + 2
    value, position = read_uvarint(buffer, position)
    return (value >> 1) ^ -(value & 1), position
