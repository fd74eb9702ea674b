"""Reading records: whole batches as consumers get them, decoded page by page off the event loop."""

import asyncio
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import NodeBusy, RequestInvalid
from duramen.base.positions import Position, parse_position
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.batch import CONTROL, DecodedRecord, batches, records
from duramen.codec.jsonbytes import Base64, JsonBytes, json_of
from duramen.doors.http.completions import call_back, settle
from duramen.doors.http.types.records import RecordInfo, RecordPage, RecordsQuery
from duramen.service.broker import Broker
from duramen.service.forwarded_requests import Bytes
from duramen.service.forwarding.forwarding import Forwarding
from duramen.service.forwarding.local import LocalSlice
from duramen.service.forwarding.memory import Room
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Slice

__all__ = ["HttpReads", "record_info", "record_size"]

_AT_ONCE: Final = 2  # pages that are read and decoded at a time: each may hold a large batch
_MOST_WAITING: Final = 50  # half of the connections; beyond that, answers come at once


class _Page(NamedTuple):
    """A read of one partition: names for the response, and bounds."""

    topic: str
    partition: int
    offset: int
    limit: int
    max_bytes: int
    decoded_limit_bytes: int


class _Decoded(NamedTuple):
    """Records of whole batches that fit the page, the offset after them, the bytes of those batches."""

    records: list[RecordInfo]
    next_offset: int
    bytes: int


class HttpReads:
    """Executes reads, and bounds the number that wait."""

    def __init__(self) -> None:
        self._waiting = 0
        self._decoding = asyncio.Semaphore(_AT_ONCE)

    async def read(self, broker: Broker, forwarding: Forwarding, stream: Stream, query: RecordsQuery) -> RecordPage:
        """A page of records below the high watermark. Raises OffsetOutOfRange, LogDamaged …"""
        partition = stream.partition(query.partition)
        found = await self._find(forwarding, partition, _position(query.offset, broker.now_ms()), query)
        page = _Page(
            stream.name, partition.index, found.offset, query.limit, query.max_bytes, stream.decoded_limit_bytes
        )
        if isinstance(found, Bytes):
            decoded = await self._decode_sent(broker, forwarding.room, found.data, page)
        elif found.content is None:
            return RecordPage([], found.offset, found.high_watermark)
        else:
            async with self._decoding:
                decoded = await _decode(broker, await _read(broker, found.content), page)
            stream.bytes_out.value += decoded.bytes
            stream.records_out.value += len(decoded.records)
        return RecordPage(decoded.records, decoded.next_offset, found.high_watermark)

    async def _find(
        self, forwarding: Forwarding, partition: Partition, position: Position, query: RecordsQuery
    ) -> LocalSlice | Bytes:
        future: asyncio.Future[LocalSlice | Bytes] = asyncio.get_running_loop().create_future()
        max_wait_ms = query.max_wait_ms if self._waiting < _MOST_WAITING else 0
        cancel = forwarding.read(partition, position, query.max_bytes, max_wait_ms, partial(settle, future))
        self._waiting += 1
        try:
            return await future
        finally:
            self._waiting -= 1
            cancel()

    async def _decode_sent(self, broker: Broker, room: Room, data: bytes, page: _Page) -> _Decoded:
        """The records in batches that another node sent; waiting reads are bounded by memory."""
        if not room.take(len(data), alone=True):
            raise NodeBusy(f"requests in progress already use {room.limit_bytes} bytes: retry")
        try:
            async with self._decoding:
                return await _decode(broker, data, page)
        finally:
            room.give(len(data))


def _position(text: str, now_ms: int) -> Position:
    try:
        return parse_position(text, now_ms)
    except ValueError as error:
        raise RequestInvalid(f"the query parameter offset does not fit: {error}") from None


async def _read(broker: Broker, slice_: Slice) -> bytes:
    return await call_back(lambda done: read_slice(broker.store, slice_, done))


async def _decode(broker: Broker, data: bytes, page: _Page) -> _Decoded:
    return await call_back(lambda done: broker.store.run(lambda: _decoded(data, page), done))


def _decoded(data: bytes, page: _Page) -> _Decoded:
    found: list[RecordInfo] = []
    size, next_offset, seen = 0, page.offset, 0
    view = memoryview(data)
    for position, head in batches(data):
        seen = position + head.size
        if not head.attributes & CONTROL:
            for record in records(view[position:seen], limit_bytes=page.decoded_limit_bytes):
                if record.offset < page.offset:
                    continue
                size += record_size(record)
                if found and (len(found) >= page.limit or size > page.max_bytes):
                    return _Decoded(found, record.offset, seen)
                found.append(record_info(record, page.topic, page.partition))
        next_offset = max(next_offset, head.next_offset)
        if len(found) >= page.limit:
            break
    return _Decoded(found, next_offset, seen)


def record_size(record: DecodedRecord) -> int:
    """Bytes of key, value and headers."""
    headers = sum(len(name) + len(content or b"") for name, content in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def record_info(record: DecodedRecord, topic: str, partition: int) -> RecordInfo:
    """A record as JSON has it."""
    headers = [(_name(name), json_of(content)) for name, content in record.headers]
    key, value = json_of(record.key), json_of(record.value)
    return RecordInfo(topic, partition, record.offset, record.timestamp, key, value, headers)


def _name(name: bytes) -> str | Base64:
    shown: JsonBytes = json_of(name)
    return "" if shown is None else shown
