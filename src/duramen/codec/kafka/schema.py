"""Messages from tables: a schema is text with one field per line, compiled once for each version in use.

A line: indentation (two blanks a level), name, type, and then, in any order, versions (`5+`, `0-7`, `3`), `tag N`,
`= default`, `once` (a broker leaves out an array's element that is there again, byte for byte: an answer for each
would be many times the request). Types: bool int8 int16 uint16 int32 int64 float64 uuid string bytes records,
`[]TYPE` for an array of these, `[]` for an array and `{}` for a single one of the structure that the deeper lines
describe; `?` behind it: nullable.

Messages are dictionaries. Decoding never trusts a count or length: a count is checked against the bytes left and
the smallest element there can be, and all arrays of one message together against a bound.
"""

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.varint import encode_uvarint, read_uvarint

__all__ = [
    "LARGEST_ELEMENTS",
    "LARGEST_TAGS",
    "LARGEST_TEXT_BYTES",
    "ByteInput",
    "EncodedElements",
    "Message",
    "Schema",
    "SchemaField",
]

Message = dict[str, Any]

LARGEST_ELEMENTS: Final = 100_000
"""The maximum number of elements of all arrays of a message."""

LARGEST_TEXT_BYTES: Final = 0x7FFF
"""The longest string in bytes, compact ones too: stored strings have 16 bits for their length."""

LARGEST_TAGS: Final = 16
"""The maximum number of tagged fields of a structure; Kafka's have four at most."""

_NO_VERSION: Final = 1 << 15
_FIXED: Final[Mapping[str, struct.Struct]] = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
_NULL_UUID = uuid.UUID(int=0)


class EncodedElements(list[bytes]):
    """An array's elements that are encoded already, in a message to encode."""


class SchemaField(NamedTuple):
    """A line of a table: a field of versions `low` to `high`; `tag` is -1 if it is not a tagged field."""

    name: str
    kind: str  # a basic type, or "struct"
    is_array: bool
    nullable: bool
    low: int
    high: int
    tag: int
    default: Any
    once: bool
    fields: tuple["SchemaField", ...]


class ByteInput:
    """Bytes being decoded: the position, and how many elements all arrays together may still have."""

    __slots__ = ("data", "elements", "position")

    def __init__(self, data: Buffer, position: int) -> None:
        self.data = memoryview(data)
        self.position = position
        self.elements = LARGEST_ELEMENTS

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise ValueError(f"{size} bytes wanted, {len(self.data) - self.position} left")
        taken = self.data[self.position : end]
        self.position = end
        return taken


class _Input(ByteInput):
    """A message being decoded."""

    __slots__ = ("once",)

    def __init__(self, data: Buffer, position: int) -> None:
        super().__init__(data, position)
        self.once = False

    def uvarint(self) -> int:
        value, self.position = read_uvarint(self.data, self.position)
        return value

    def tags(self) -> int:
        count = self.uvarint()
        if count > LARGEST_TAGS:
            raise ValueError(f"a structure has {count} tagged fields")
        return count

    def count(self, count: int, smallest: int) -> int:
        self.elements -= count
        if count * smallest > len(self.data) - self.position or self.elements < 0:
            raise ValueError(f"an array cannot have {count} elements")
        return count


Decoder = Callable[[_Input], Any]
Encoder = Callable[[Any, list[bytes]], None]


class _Codec(NamedTuple):
    decode: Decoder
    encode: Encoder
    smallest: int  # bytes


class Schema:
    """A message in all its versions. `flexible` is the first version with compact lengths and tagged fields."""

    def __init__(self, name: str, flexible: int, text: str) -> None:
        self.name = name
        self.flexible = flexible
        self.fields = _parse([line for line in text.splitlines() if line.strip()])
        self._codec = cache(self._compile)
        self._element = cache(self._compile_element)

    def _compile(self, version: int) -> _Codec:
        return _struct_codec(self.fields, version, flexible=version >= self.flexible)

    def _compile_element(self, version: int, name: str) -> "Encoder":
        (field,) = [one for one in self.fields if one.name == name]
        return _struct_codec(field.fields, version, flexible=version >= self.flexible).encode

    def encode_element(self, version: int, name: str, element: Mapping[str, Any]) -> bytes:
        """The bytes of one structure of the array with that name."""
        out: list[bytes] = []
        self._element(version, name)(element, out)
        return b"".join(out)

    def decode(self, version: int, data: Buffer, position: int = 0) -> Message:
        """The message in `data` from `position` on. Raises RequestInvalid.

        Bytes after it are ignored, as in Apache Kafka: librdkafka's request for all topics has such bytes.
        """
        return self._decode(version, _Input(data, position))

    def decode_request(self, version: int, data: Buffer, position: int) -> tuple[Message, int]:
        """The same for a broker: without `once` fields, and with the number of elements of all arrays together."""
        source = _Input(data, position)
        source.once = True
        return self._decode(version, source), LARGEST_ELEMENTS - source.elements

    def _decode(self, version: int, source: _Input) -> Message:
        try:
            message: Message = self._codec(version).decode(source)
        except (ValueError, struct.error) as error:
            raise RequestInvalid(f"{self.name} version {version} is damaged: {error}") from None
        return message

    def encode(self, version: int, message: Mapping[str, Any]) -> bytes:
        """The bytes of `message`; fields that it lacks have their defaults."""
        out: list[bytes] = []
        self._codec(version).encode(message, out)
        return b"".join(out)


# -- reading the tables -------------------------------------------------------------------------------


def _parse(lines: list[str]) -> tuple[SchemaField, ...]:
    fields = []
    while lines:
        line = lines.pop(0)
        depth = len(line) - len(line.lstrip())
        nested = []
        while lines and len(lines[0]) - len(lines[0].lstrip()) > depth:
            nested.append(lines.pop(0))
        fields.append(_parse_line(line.split(), _parse(nested)))
    return tuple(fields)


def _parse_line(words: list[str], nested: tuple[SchemaField, ...]) -> SchemaField:
    name, kind, *rest = words
    nullable = kind.endswith("?")
    kind = kind.removesuffix("?")
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    low, high, tag = 0, _NO_VERSION, -1
    default: Any = None
    once = False
    while rest:
        word = rest.pop(0)
        if word == "tag":
            tag = int(rest.pop(0))
        elif word == "=":
            default = _literal(rest.pop(0))
        elif word == "once":
            once = True
        else:
            first, _, last = word.partition("-")
            low = int(first.removesuffix("+"))
            high = int(last) if last else (_NO_VERSION if word.endswith("+") else low)
    if kind in ("", "{}"):
        kind = "struct"
    if default is None and not nullable and not is_array:
        default = {"string": "", "bytes": b"", "uuid": _NULL_UUID, "bool": False, "struct": {}}.get(kind, 0)
    elif default is None and is_array and not nullable:
        default = ()
    return SchemaField(name, kind, is_array, nullable, low, high, tag, default, once, nested)


def _literal(word: str) -> int | bool:
    return word == "true" if word in ("true", "false") else int(word)


# -- compiling ----------------------------------------------------------------------------------------


def _struct_codec(fields: tuple[SchemaField, ...], version: int, *, flexible: bool) -> _Codec:
    present = [field for field in fields if field.low <= version <= field.high]
    plain = [(field, _field_codec(field, version, flexible=flexible)) for field in present if field.tag < 0]
    tagged = {
        field.tag: (field, _field_codec(field, version, flexible=flexible)) for field in present if field.tag >= 0
    }
    defaults = {field.name: field.default for field in fields if field not in present or field.tag >= 0}
    smallest = sum(codec.smallest for _, codec in plain) + (1 if flexible else 0)

    def decode(source: _Input) -> Message:
        message = dict(defaults)
        for field, codec in plain:
            message[field.name] = codec.decode(source)
        if flexible:
            for _ in range(source.tags()):
                tag, size = source.uvarint(), source.uvarint()
                known = tagged.get(tag)
                if known is None:
                    source.take(size)
                    continue
                end = source.position + size
                message[known[0].name] = known[1].decode(source)
                if source.position != end:
                    raise ValueError(f"the tagged field {known[0].name} does not fill its size")
        return message

    def encode(message: Mapping[str, Any], out: list[bytes]) -> None:
        for field, codec in plain:
            codec.encode(message.get(field.name, field.default), out)
        if flexible:
            _encode_tags(message, tagged, out)

    return _Codec(decode, encode, smallest)


def _encode_tags(
    message: Mapping[str, Any], tagged: Mapping[int, tuple[SchemaField, _Codec]], out: list[bytes]
) -> None:
    given = [
        (tag, codec, message[field.name])
        for tag, (field, codec) in sorted(tagged.items())
        if field.name in message and message[field.name] != field.default
    ]
    out.append(encode_uvarint(len(given)))
    for tag, codec, value in given:
        content: list[bytes] = []
        codec.encode(value, content)
        body = b"".join(content)
        out += (encode_uvarint(tag), encode_uvarint(len(body)), body)


def _field_codec(field: SchemaField, version: int, *, flexible: bool) -> _Codec:
    if field.kind == "struct":
        element = _struct_codec(field.fields, version, flexible=flexible)
        if field.nullable and not field.is_array:
            return _nullable_codec(element)
    elif field.kind in _FIXED:
        element = _fixed_codec(_FIXED[field.kind])
    elif field.kind == "uuid":
        element = _UUID_CODEC
    else:
        # For an array, the array may be null, never its elements.
        one = field._replace(nullable=False) if field.is_array else field
        element = _sized_codec(one, flexible=flexible)
    return _array_codec(field, element, flexible=flexible) if field.is_array else element


def _nullable_codec(element: _Codec) -> _Codec:
    """A single structure that may be null: behind an int8, which is -1 where there is none."""

    def decode(source: _Input) -> Message | None:
        present: Message | None = element.decode(source) if source.take(1)[0] < 0x80 else None
        return present

    def encode(value: Message | None, out: list[bytes]) -> None:
        out.append(b"\xff" if value is None else b"\x01")
        if value is not None:
            element.encode(value, out)

    return _Codec(decode, encode, 1)


def _fixed_codec(layout: struct.Struct) -> _Codec:
    unpack, pack, size = layout.unpack, layout.pack, layout.size
    return _Codec(lambda source: unpack(source.take(size))[0], lambda value, out: out.append(pack(value)), size)


_UUID_CODEC: Final = _Codec(
    lambda source: uuid.UUID(bytes=bytes(source.take(16))), lambda value, out: out.append(value.bytes), 16
)


def _length_codec(layout: str, *, flexible: bool) -> tuple[Callable[[_Input], int], Callable[[int], bytes], int]:
    """Reading and writing a length or count, -1 for null; and its smallest size."""
    if flexible:
        return (lambda source: source.uvarint() - 1), (lambda length: encode_uvarint(length + 1)), 1
    packed = struct.Struct(">" + layout)
    return (lambda source: int(packed.unpack(source.take(packed.size))[0])), packed.pack, packed.size


def _sized_codec(field: SchemaField, *, flexible: bool) -> _Codec:
    text = field.kind == "string"
    layout = "h" if text else "i"
    null = _null_of(field)
    read_length, write_length, smallest = _length_codec(layout, flexible=flexible)

    def decode(source: _Input) -> str | bytes | None:
        length = read_length(source)
        if length < 0:
            null()
            return None
        if text and length > LARGEST_TEXT_BYTES:
            raise ValueError(f"{field.name} has {length} bytes")
        taken = source.take(length)
        return str(taken, "utf-8") if text else bytes(taken)

    def encode(value: str | bytes | None, out: list[bytes]) -> None:
        if value is None:
            out.append(write_length(-1))
            return
        body = value.encode() if isinstance(value, str) else value
        if text and len(body) > LARGEST_TEXT_BYTES:
            raise RequestInvalid(f"{field.name} is too long")
        out += (write_length(len(body)), body)

    return _Codec(decode, encode, smallest)


def _null_of(field: SchemaField) -> Callable[[], None]:
    def null() -> None:
        if not field.nullable:
            raise ValueError(f"{field.name} is null")

    return null


def _different(source: _Input, count: int, decode: Decoder) -> list[Any]:
    """The elements that are not those before them again."""
    found: dict[bytes, Any] = {}
    for _ in range(count):
        start = source.position
        value = decode(source)
        found.setdefault(bytes(source.data[start : source.position]), value)
    return list(found.values())


def _array_codec(field: SchemaField, element: _Codec, *, flexible: bool) -> _Codec:
    read_length, write_length, smallest = _length_codec("i", flexible=flexible)
    decode_element, encode_element = element.decode, element.encode
    null = _null_of(field)

    def decode(source: _Input) -> list[Any] | None:
        count = read_length(source)
        if count < 0:
            null()
            return None
        count = source.count(count, max(1, element.smallest))
        if field.once and source.once:
            return _different(source, count, decode_element)
        return [decode_element(source) for _ in range(count)]

    def encode(values: Sequence[Any] | None, out: list[bytes]) -> None:
        if values is None:
            out.append(write_length(-1))
            return
        out.append(write_length(len(values)))
        if type(values) is EncodedElements:
            out += values
            return
        for value in values:
            encode_element(value, out)

    return _Codec(decode, encode, smallest)
