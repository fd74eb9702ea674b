"""Fields of Kafka's records of internal topics, read one after the other. Raises ValueError and struct.error."""

import struct
from typing import Final

from duramen.codec.varint import read_uvarint

__all__ = ["FieldReader"]

_INT16: Final = struct.Struct(">h")


class FieldReader:
    """The fields of a key or value from a position on."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """The values of a layout."""
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def number(self, layout: struct.Struct) -> int:
        """The value of a layout that has one."""
        (value,) = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return int(value)

    def uvarint(self) -> int:
        """An unsigned varint."""
        value, self.position = read_uvarint(self.data, self.position)
        return value

    def take(self, length: int) -> bytes:
        """A field of so many bytes."""
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise ValueError("a field is cut off")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def text(self) -> str:
        """A string with an int16 length."""
        return self.take(self.number(_INT16)).decode()

    def nullable_text(self) -> str | None:
        """A nullable string with an int16 length."""
        length = self.number(_INT16)
        return None if length < 0 else self.take(length).decode()
