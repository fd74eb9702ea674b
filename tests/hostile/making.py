"""Requests of every API and version, made from the tables of messages, and what hostile clients make of them.

A request is a list of parts that know what they are: a count, a length, a value, the tagged fields of a structure. A
mutation puts a lie in place of some of them. Everything follows from the seed.
"""

import random
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tests.hostile.tables import SCHEMAS

from duramen.codec.batch import BatchInput, encode
from duramen.codec.compression import compress
from duramen.codec.crc import crc32c
from duramen.codec.kafka.schema import SchemaField
from duramen.codec.kafka.versions import APIS, Api
from duramen.codec.varint import encode_uvarint

__all__ = ["Case", "Known", "Maker", "Part", "every_version"]

_LAYOUTS: Final = {
    "bool": ">?", "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q", "float64": ">d",
}  # fmt: skip
_NUMBERS: Final = (0, 1, 2, 3, 5, 100, -1, -2)
_HOSTILE_COUNTS: Final = (-2, -1, 0, 1, 2, 1000, 100_001, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 62, (1 << 64) - 2)
_TEXTS: Final = ("", "a", "ü" * 40, "x" * 249, "x" * 300, "..", "a/b", "\0", "consumer", "range", "uniform", "[")
_WORDS: Final = {
    "entity_type": ("client-id", "ip"), "key": ("producer_byte_rate", "consumer_byte_rate", "request_percentage"),
    "subscribed_topic_regex": ("fir.*", "(", "(a*)*b", "[[:alpha:]]+"), "server_assignor": ("range", "uniform"),
}  # fmt: skip
"""What certain fields are about. No quotas of users: they would be those of the client beside."""
_FRAMES: Final = 8
_SWOLLEN_BYTES: Final = 1_000_000


class Known(NamedTuple):
    """What there is on the node: names that make a request more than noise."""

    topics: Sequence[str]
    topic_ids: Sequence[uuid.UUID]
    groups: Sequence[str]


class Part(NamedTuple):
    """Bytes of a request, and what they are: `count`, `length`, `value` or `tags`."""

    kind: str
    data: bytes


class Case(NamedTuple):
    """Frames for one connection. `whole` says whether every frame has the bytes that it declares, and no more."""

    api: Api
    version: int
    frames: Sequence[bytes]
    whole: bool


def every_version() -> list[tuple[Api, int]]:
    """Each API in each version that is advertised."""
    return [(api, version) for api in APIS.values() for version in range(api.low, api.high + 1)]


class Maker:
    """Makes requests by chance."""

    def __init__(self, chance: random.Random, known: Known) -> None:
        self._chance = chance
        self._known = known

    # -- what is valid ------------------------------------------------------------------------------

    def parts(self, api: Api, version: int) -> list[Part]:
        """The body of a valid request."""
        out: list[Part] = []
        self._structure(SCHEMAS[api.key].fields, version, version >= api.flexible, out)
        return out

    def _structure(self, fields: Sequence[SchemaField], version: int, flexible: bool, out: list[Part]) -> None:
        present = [field for field in fields if field.low <= version <= field.high]
        for field in present:
            if field.tag < 0:
                self._field(field, version, flexible, out)
        if flexible:
            out.append(Part("tags", self._tags([field for field in present if field.tag >= 0], version)))

    def _tags(self, fields: Sequence[SchemaField], version: int) -> bytes:
        given = {}
        for field in fields:
            if self._chance.random() < 0.3:
                content: list[Part] = []
                self._field(field, version, True, content)
                given[field.tag] = b"".join(part.data for part in content)
        if self._chance.random() < 0.1:
            given[self._chance.randrange(100, 20_000)] = self._chance.randbytes(self._chance.randrange(20))
        packed = [
            encode_uvarint(tag) + encode_uvarint(len(content)) + content for tag, content in sorted(given.items())
        ]
        return encode_uvarint(len(given)) + b"".join(packed)

    def _field(self, field: SchemaField, version: int, flexible: bool, out: list[Part]) -> None:
        if not field.is_array:
            self._element(field, version, flexible, out)
            return
        if field.nullable and self._chance.random() < 0.1:
            out.append(Part("count", _number(-1, flexible)))
            return
        count = self._chance.choice((0, 1, 1, 1, 2, 3))
        out.append(Part("count", _number(count, flexible)))
        for _ in range(count):
            self._element(field, version, flexible, out)

    def _element(self, field: SchemaField, version: int, flexible: bool, out: list[Part]) -> None:
        kind = field.kind
        if kind == "struct":
            if field.nullable and not field.is_array:
                out.append(Part("value", b"\x01" if field.fields else b"\xff"))
            self._structure(field.fields, version, flexible, out)
        elif kind in _LAYOUTS:
            out.append(Part("value", self._number(field, _LAYOUTS[kind])))
        elif kind == "uuid":
            ids = (*self._known.topic_ids, uuid.UUID(int=0), uuid.UUID(int=self._chance.getrandbits(128)))
            out.append(Part("value", self._chance.choice(ids).bytes))
        else:
            self._sized(field, flexible, out)

    def _number(self, field: SchemaField, layout: str) -> bytes:
        chance = self._chance
        if layout == ">?":
            return bytes((chance.randrange(2),))
        if layout == ">d":
            return struct.pack(layout, chance.choice((0.0, 1.0, -1.0, 1e300, float("nan"), float("inf"))))
        bits = 8 * struct.calcsize(layout) - 1
        if field.name == "replica_id" and chance.random() < 0.9:
            return struct.pack(layout, -1)  # replicas are refused whatever they want
        if field.name.endswith("_ms") and chance.random() < 0.9:
            value = chance.choice((0, 10, 100, 6000, 10_000))
        elif chance.random() < 0.1:
            value = chance.choice((1 << bits, (1 << bits) - 1, -(1 << bits), chance.getrandbits(bits)))
        else:
            value = chance.choice(_NUMBERS)
        modulus = 1 << (bits + 1)
        return (value % modulus).to_bytes((bits + 1) // 8, "big")

    def _sized(self, field: SchemaField, flexible: bool, out: list[Part]) -> None:
        text = field.kind == "string"
        if field.nullable and not field.is_array and self._chance.random() < 0.2:
            out.append(Part("length", _number(-1, flexible, wide=not text)))
            return
        if text:
            value = self._text(field.name)
        elif field.kind == "records":
            value = self._batch()
        else:
            value = self._chance.choice((b"", self._subscription(), self._chance.randbytes(30)))
        out += (Part("length", _number(len(value), flexible, wide=not text)), Part("value", value))

    def _text(self, name: str) -> bytes:
        chance = self._chance
        if chance.random() < 0.15:
            return chance.choice(_TEXTS).encode()
        names = (*self._known.topics, *self._known.groups)
        if "group" in name:
            names = tuple(self._known.groups)
        elif "topic" in name or name == "name":
            names = tuple(self._known.topics)
        else:
            names = _WORDS.get(name, names)
        return chance.choice(names).encode()

    def _subscription(self) -> bytes:
        """What a consumer tells its group: version 0 of the embedded protocol, one topic, no user data."""
        name = self._chance.choice(self._known.topics).encode()
        return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)

    def _batch(self) -> bytes:
        chance = self._chance
        codec = chance.randrange(5)
        count = chance.choice((1, 1, 3, 50))
        headers = ((b"h", None), (b"", b"x"))
        record = BatchInput(
            chance.choice((0, 1, 1 << 41)), chance.choice((None, b"key")), chance.randbytes(20), headers
        )
        batch = bytearray(encode([record] * count, codec=codec))
        while chance.random() < 0.5:
            if chance.random() < 0.2:
                batch[61:] = compress(max(1, codec), bytes(chance.choice((0, 1 << 16, 1 << 24))))
                batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
            else:
                at = chance.randrange(len(batch))
                batch[at] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if chance.random() < 0.8:
            batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        return bytes(batch)

    # -- what is not --------------------------------------------------------------------------------

    def case(self, api: Api, version: int) -> Case:
        """Frames for one connection: most of them damaged, the rest valid."""
        frames, whole = [], True
        for number in range(_FRAMES):
            parts = self.parts(api, version)
            damages = self._chance.choice((0, 1, 1, 2, 4))
            for _ in range(damages):
                parts = self._damaged(parts, version >= api.flexible)
            body = b"".join(part.data for part in parts)
            if damages and self._chance.random() < 0.3:
                body = self._bytes_damaged(body)
            frame = _header(api, version, number) + body
            size = len(frame)
            if damages and self._chance.random() < 0.05:
                size += self._chance.choice((-1, 1, 7, -7, 1000))
                whole = False
            frames.append(struct.pack(">i", size) + frame)
        return Case(api, version, frames, whole)

    def _damaged(self, parts: list[Part], flexible: bool) -> list[Part]:
        if not parts:
            return parts
        damages: tuple[Callable[[list[Part], int, bool], list[Part]], ...] = (
            self._lie, self._lie, self._lie, self._drop, self._repeat, self._swap,
        )  # fmt: skip
        return self._chance.choice(damages)(parts, self._chance.randrange(len(parts)), flexible)

    def _lie(self, parts: list[Part], at: int, flexible: bool) -> list[Part]:
        kind, data = parts[at]
        if kind in ("count", "length"):
            wide = kind == "count" or len(data) == 4
            data = _number(self._chance.choice(_HOSTILE_COUNTS), flexible, wide=wide)
        elif kind == "tags":
            data = encode_uvarint(self._chance.choice((1, 2, 16, 17, 1 << 31))) + self._chance.randbytes(6)
        else:
            data = self._chance.choice((b"\xff", b"\0", b"\x7f", b"\x80")) * len(data)
        return [*parts[:at], Part(kind, data), *parts[at + 1 :]]

    def _drop(self, parts: list[Part], at: int, _: bool) -> list[Part]:
        return parts[:at] + parts[at + 1 :]

    def _repeat(self, parts: list[Part], at: int, _: bool) -> list[Part]:
        run = parts[at : at + self._chance.randrange(1, 8)]
        # What a node holds is measured beside this: a request of many megabytes would rightly be held whole.
        most = max(1, _SWOLLEN_BYTES // max(1, sum(len(part.data) for part in run)))
        return parts[:at] + run * min(self._chance.choice((2, 3, 50)), most) + parts[at:]

    def _swap(self, parts: list[Part], at: int, _: bool) -> list[Part]:
        other = self._chance.randrange(len(parts))
        changed = list(parts)
        changed[at], changed[other] = changed[other], changed[at]
        return changed

    def _bytes_damaged(self, body: bytes) -> bytes:
        chance = self._chance
        match chance.randrange(3):
            case 0:
                return body[: chance.randrange(len(body) + 1)]
            case 1:
                return body + chance.randbytes(chance.randrange(40))
            case _:
                changed = bytearray(body)
                for _ in range(chance.randrange(1, 6)):
                    if changed:
                        changed[chance.randrange(len(changed))] = chance.randrange(256)
                return bytes(changed)

    def swollen(self, api: Api, version: int) -> bytes | None:
        """A frame of up to a megabyte whose first array names one valid element again and again; None without one."""
        flexible = version >= api.flexible
        before: list[Part] = []
        for field in SCHEMAS[api.key].fields:
            if not field.low <= version <= field.high or field.tag >= 0:
                continue
            if not field.is_array:
                self._element(field, version, flexible, before)
                continue
            element: list[Part] = []
            self._element(field, version, flexible, element)
            once = b"".join(part.data for part in element)
            count = min(99_000 // max(1, len(element)), _SWOLLEN_BYTES // len(once))
            head = b"".join(part.data for part in before)
            rest = b"\0" * 64  # what follows is empty, false or 0
            body = head + _number(count, flexible) + once * count + rest
            frame = _header(api, version, 0) + body
            return struct.pack(">i", len(frame)) + frame
        return None


def _header(api: Api, version: int, number: int) -> bytes:
    tags = b"\0" if version >= api.flexible else b""
    return struct.pack(">hhih", api.key, version, number, 4) + b"fuzz" + tags


def _number(value: int, flexible: bool, *, wide: bool = True) -> bytes:
    """A count or length as it is written, -1 for null, whatever it is."""
    if flexible:
        return encode_uvarint((value + 1) % (1 << 64))
    bits = 32 if wide else 16
    return (value % (1 << bits)).to_bytes(bits // 8, "big")
