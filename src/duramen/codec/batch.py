"""Record batches v2, the unit on the wire, on disk and in replication. Big-endian, as in Kafka's protocol.

     0  int64   base offset            stamped by the leader; outside the CRC
     8  int32   length                 of everything after this field
    12  int32   leader epoch           stamped by the leader; outside the CRC
    16  int8    magic                  2
    17  uint32  CRC-32C                of everything after this field
    21  int16   attributes             0-2 codec, 3 timestamps are the append's, 4 transactional, 5 control,
                                       6 base timestamp is the delete horizon
    23  int32   last offset delta
    27  int64   base timestamp         ms since 1970
    35  int64   max timestamp
    43  int64   producer id            -1 without idempotence
    51  int16   producer epoch
    53  int32   base sequence
    57  int32   count of records
    61  …       records, compressed together

A record: varint length, int8 attributes, varint timestamp delta, varint offset delta, varint key length (-1
null) and key, varint value length and value, varint count of headers, each varint length and key, varint
length (-1 null) and value. https://kafka.apache.org/documentation/#recordbatch
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt, BatchInvalid
from duramen.base.native import is_installed
from duramen.base.ports import Buffer
from duramen.codec.compression import CODECS, compress, decompress
from duramen.codec.crc import crc32c
from duramen.codec.varint import encode_varint, read_varint

__all__ = [
    "APPEND_TIME",
    "CODEC_MASK",
    "CONTROL",
    "CRC_START",
    "DELETE_HORIZON",
    "HEADER_BYTES",
    "LARGEST_BASE_OFFSET",
    "LENGTH_END",
    "MAX_DECOMPRESSED_BYTES",
    "TRANSACTIONAL",
    "BatchInput",
    "DecodedRecord",
    "Header",
    "Headers",
    "batches",
    "check",
    "checked_body",
    "encode",
    "encode_record",
    "encode_records",
    "first_timestamp",
    "header",
    "near",
    "plain_encode_records",
    "recompress",
    "records",
    "seal",
    "set_append_time",
    "set_max_timestamp",
    "set_producer",
    "stamp",
]

HEADER_BYTES: Final = 61
LENGTH_END: Final = 12  # the length field counts from here
CRC_START: Final = 21
CODEC_MASK: Final = 0x07
LARGEST_CODEC: Final = len(CODECS) - 1
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
_SMALLEST_RECORD_BYTES = 7
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
LARGEST_BASE_OFFSET: Final = (1 << 63) - (1 << 31)  # so that every record's offset is a 64-bit number

_HEADER = struct.Struct(">qiibIhiqqqhii")  # as many fields as Header has, which `tuple.__new__` does not check
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")
_UNSEALED = struct.Struct(">qiibI")  # up to the CRC
_SEALED = struct.Struct(">hiqqqhii")  # from the attributes on: the part before the records that the CRC covers

Headers = Sequence[tuple[bytes, bytes | None]]


class Header(NamedTuple):
    """The fields of a batch in the order of the layout above."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_END

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def first_timestamp(self) -> int:
        """The timestamp of its first record: the broker's where that is the one that counts.

        Where the base timestamp is a delete horizon (KIP-534) the largest stands for it.
        """
        return self.max_timestamp if self.attributes & (APPEND_TIME | DELETE_HORIZON) else self.base_timestamp

    @property
    def delete_horizon_ms(self) -> int:
        """When its tombstones may go, in ms since 1970; -1 where no compaction has seen them yet (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else -1


class DecodedRecord(NamedTuple):
    """A record as it is read: its own offset and its timestamp in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class BatchInput(NamedTuple):
    """A record as it is written."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def header(buffer: Buffer, position: int = 0) -> Header:
    """The header at `position`, unchecked. Raises BatchCorrupt where the buffer is too short for one."""
    try:
        return tuple.__new__(Header, _HEADER.unpack_from(buffer, position))
    except struct.error:
        raise BatchCorrupt("a record batch is cut off in its header") from None


def check(buffer: Buffer) -> Header:
    """The header of a batch that a producer sent, after every check that needs no decoding of records.

    Raises BatchCorrupt (size, CRC), which a client may mend by sending again, or BatchInvalid (everything else).
    """
    size = len(buffer)
    if size < HEADER_BYTES:
        raise BatchCorrupt(f"a record batch has at least {HEADER_BYTES} bytes; this one has {size}")
    found = tuple.__new__(Header, _HEADER.unpack_from(buffer))
    if found.magic != 2:
        raise BatchInvalid(f"record batches have the magic 2; this one has {found.magic}")
    if found.length != size - LENGTH_END:
        if HEADER_BYTES - LENGTH_END <= found.length < size - LENGTH_END:
            raise BatchInvalid("one record batch a partition is allowed in a request")
        raise BatchCorrupt(f"a record batch says it has {found.length + LENGTH_END} bytes and has {size}")
    if crc32c(memoryview(buffer)[CRC_START:]) != found.crc:
        raise BatchCorrupt("a record batch does not match its CRC")
    problem = _problem(found)
    if problem:
        raise BatchInvalid(problem)
    return found


def _problem(found: Header) -> str:
    """The field that a producer must not set in a sound header; empty if there is none."""
    count, attributes = found.records, found.attributes
    if count <= 0 or found.last_offset_delta != count - 1:
        return f"a record batch has {count} records and a last offset delta of {found.last_offset_delta}"
    codec = attributes & CODEC_MASK
    if codec > LARGEST_CODEC:
        return f"no compression codec has the number {codec}"
    if codec == 0 and count * _SMALLEST_RECORD_BYTES > found.size - HEADER_BYTES:
        return f"{count} records do not fit into {found.size - HEADER_BYTES} bytes"
    if attributes & CONTROL:
        return "clients may not write control batches"
    if attributes & APPEND_TIME:
        return "only the broker gives records the time of the append"
    if attributes & DELETE_HORIZON:
        return "only compaction gives a batch a delete horizon"
    if attributes & TRANSACTIONAL and found.producer_id < 0:
        return "a batch of a transaction has a producer id"
    if found.producer_id >= 0 and (found.producer_epoch < 0 or found.base_sequence < 0):
        return f"producer {found.producer_id} has no epoch or no sequence"
    return ""


def stamp(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; the CRC does not cover them."""
    _INT64.pack_into(buffer, 0, base_offset)
    _INT32.pack_into(buffer, 12, leader_epoch)


def set_append_time(buffer: bytearray | memoryview, now_ms: int) -> None:
    """Mark the batch's timestamps as the append's and make them `now_ms`; the CRC is made again."""
    attributes = int.from_bytes(buffer[21:23], "big") | APPEND_TIME
    buffer[21:23] = attributes.to_bytes(2, "big")
    _INT64.pack_into(buffer, 35, now_ms)
    _UINT32.pack_into(buffer, 17, crc32c(memoryview(buffer)[CRC_START:]))


def set_max_timestamp(buffer: bytearray | memoryview, timestamp: int) -> Header:
    """Make `timestamp` (ms) the batch's largest; the CRC is made again. Returns the header as it is now."""
    _INT64.pack_into(buffer, 35, timestamp)
    _UINT32.pack_into(buffer, 17, crc32c(memoryview(buffer)[CRC_START:]))
    return header(buffer)


def set_producer(
    buffer: bytearray | memoryview, producer_id: int, epoch: int, base_sequence: int, *, transactional: bool
) -> None:
    """Set the producer and the sequence of the batch; the CRC is computed again."""
    if transactional:
        buffer[22] |= TRANSACTIONAL
    _PRODUCER.pack_into(buffer, 43, producer_id, epoch, base_sequence)
    _UINT32.pack_into(buffer, 17, crc32c(memoryview(buffer)[CRC_START:]))


def first_timestamp(buffer: Buffer, found: Header) -> int:
    """The timestamp (ms) of the first record of a batch that is not compressed. Raises BatchInvalid if it has none."""
    try:
        _, position = read_varint(buffer, HEADER_BYTES)
        if position + 1 < len(buffer) and not buffer[position + 1]:
            return found.base_timestamp
        timestamp = found.base_timestamp + read_varint(buffer, position + 1)[0]
    except ValueError as error:
        raise BatchInvalid(f"a record is damaged: {error}") from None
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise BatchInvalid(f"a record has the timestamp {timestamp}")
    return timestamp


def recompress(buffer: Buffer, codec: int, level: int | None, *, limit_bytes: int) -> bytearray:
    """The same batch with its records compressed with another codec, 0 for none; `level` is Kafka's for it.

    Raises BatchCorrupt where the records are damaged or have more than `limit_bytes`.
    """
    found = header(buffer)
    body = memoryview(buffer)[HEADER_BYTES:]
    present = found.attributes & CODEC_MASK
    data = decompress(present, body, limit_bytes) if present else bytes(body)
    if codec:
        data = compress(codec, data, level)
    attributes = found.attributes & ~CODEC_MASK | codec
    sealed = _SEALED.pack(attributes, *found[6:])
    crc = crc32c(data, crc32c(sealed))
    unsealed = _UNSEALED.pack(found.base_offset, HEADER_BYTES - LENGTH_END + len(data), found.leader_epoch, 2, crc)
    return bytearray().join((unsealed, sealed, data))


def batches(buffer: Buffer) -> Iterator[tuple[int, Header]]:
    """Position and header of each whole batch in `buffer`; a batch cut off at the end is left out.

    Raises BatchCorrupt where a length cannot be.
    """
    position, end = 0, len(buffer)
    while position + HEADER_BYTES <= end:
        found = tuple.__new__(Header, _HEADER.unpack_from(buffer, position))
        size = found.length + LENGTH_END
        if size < HEADER_BYTES:
            raise BatchCorrupt(f"a record batch says it has {size} bytes")
        if position + size > end:
            return
        yield position, found
        position += size


def checked_body(buffer: memoryview, position: int, head: Header) -> tuple[Buffer, int, int]:
    """The records of the whole batch at `position`, decompressed from `data[start:end]`.

    Raises BatchCorrupt for a batch that does not match its CRC or its header.
    """
    end = position + head.size
    if head.magic != 2:
        raise BatchCorrupt(f"record batches have the magic 2; the one at offset {head.base_offset} has {head.magic}")
    if crc32c(buffer[position + CRC_START : end]) != head.crc:
        raise BatchCorrupt(f"the record batch at offset {head.base_offset} does not match its CRC")
    if head.records < 0 or not 0 <= head.base_offset < LARGEST_BASE_OFFSET:
        raise BatchCorrupt(f"the record batch at offset {head.base_offset} has {head.records} records")
    codec = head.attributes & CODEC_MASK
    if not codec:
        return buffer, position + HEADER_BYTES, end
    data = decompress(codec, buffer[position + HEADER_BYTES : end], MAX_DECOMPRESSED_BYTES)
    return data, 0, len(data)


def records(
    buffer: Buffer, *, verify: bool = True, limit_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[DecodedRecord]:
    """The records of one whole batch. Raises BatchCorrupt where it does not match its CRC or itself."""
    found = header(buffer)
    view = memoryview(buffer)[: found.size]
    if len(view) != found.size or found.size < HEADER_BYTES:
        raise BatchCorrupt("a record batch is cut off")
    if found.magic != 2:
        raise BatchCorrupt(f"record batches have the magic 2; this one has {found.magic}")
    if verify and crc32c(view[CRC_START:]) != found.crc:
        raise BatchCorrupt("a record batch does not match its CRC")
    codec = found.attributes & CODEC_MASK
    body = view[HEADER_BYTES:]
    data = decompress(codec, body, limit_bytes) if codec else bytes(body)
    append_time = found.max_timestamp if found.attributes & APPEND_TIME else None
    position, previous, last = 0, found.base_offset - 1, found.next_offset - 1
    try:
        for _ in range(found.records):
            length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > len(data):
                raise BatchCorrupt("a record is cut off")
            record = _record(data, position, end, found, append_time)
            if not previous < record.offset <= last:
                raise BatchCorrupt(f"a record has the offset {record.offset}, between {previous} and {last + 1}")
            yield record
            position, previous = end, record.offset
    except ValueError as error:
        raise BatchCorrupt(f"a record is damaged: {error}") from None
    if position != len(data):
        raise BatchCorrupt(f"a record batch has {len(data) - position} bytes after its last record")


def _record(data: bytes, position: int, end: int, batch: Header, append_time: int | None) -> DecodedRecord:
    timestamp_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _field(data, position, end)
    value, position = _field(data, position, end)
    count, position = read_varint(data, position)
    if count < 0 or count > end - position:
        raise BatchCorrupt(f"a record has {count} headers")
    headers = []
    for _ in range(count):
        name, position = _field(data, position, end)
        content, position = _field(data, position, end)
        if name is None:
            raise BatchCorrupt("a record header has no key")
        headers.append((name, content))
    if position != end:
        raise BatchCorrupt("a record's fields do not fill its length")
    timestamp = batch.base_timestamp + timestamp_delta if append_time is None else append_time
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise BatchCorrupt(f"a record has the timestamp {timestamp}")
    return DecodedRecord(batch.base_offset + offset_delta, timestamp, key, value, tuple(headers))


def _field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise BatchCorrupt("a record is cut off")
    return data[position : position + length], position + length


def near(timestamp: int, base_timestamp: int) -> bool:
    """Whether a record of that time fits into a batch with that base: the difference must fit into 64 bits."""
    return _INT64_MIN <= timestamp - base_timestamp <= _INT64_MAX


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """One record behind its length, ready to be joined with others and sealed into a batch."""
    parts = [b"\0", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    parts += (b"\x01",) if key is None else (encode_varint(len(key)), key)
    parts += (b"\x01",) if value is None else (encode_varint(len(value)), value)
    parts.append(encode_varint(len(headers)))
    for name, content in headers:
        parts += (encode_varint(len(name)), name)
        parts += (b"\x01",) if content is None else (encode_varint(len(content)), content)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def encode_records(new: list[BatchInput]) -> tuple[bytes, int, int]:
    """The records of a batch joined, the timestamp of the first, and the largest; without records -1."""
    if is_installed():
        import duramen_native

        made = duramen_native.encode_records(new)
        if made is not None:
            return made
    return plain_encode_records(new)


def plain_encode_records(new: Sequence[BatchInput]) -> tuple[bytes, int, int]:
    """`encode_records` in plain Python."""
    base_timestamp = new[0].timestamp if new else -1
    parts = [
        encode_record(record.timestamp - base_timestamp, index, record.key, record.value, record.headers)
        for index, record in enumerate(new)
    ]
    return b"".join(parts), base_timestamp, max((record.timestamp for record in new), default=-1)


def seal(
    encoded: bytes,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch of `count` records that `encode_record` made with the deltas 0, 1, 2 … and were joined."""
    body = compress(codec, encoded) if codec else encoded
    sealed = _SEALED.pack(
        attributes | codec,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    length = HEADER_BYTES - LENGTH_END + len(body)
    out = bytearray(_UNSEALED.pack(base_offset, length, leader_epoch, 2, crc32c(body, crc32c(sealed))))
    out += sealed
    out += body
    return out


def encode(
    new: Iterable[BatchInput],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch of `new` records, of which there is at least one."""
    found = new if isinstance(new, list) else list(new)
    body, base_timestamp, max_timestamp = encode_records(found)
    return seal(
        body,
        len(found),
        base_timestamp,
        max_timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=codec,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
