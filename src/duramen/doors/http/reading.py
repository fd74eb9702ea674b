"""Reading records: whole batches as consumers get them, decoded a page at a time off the event loop."""

import asyncio
from typing import Final, NamedTuple, TypeVar

from duramen.base.errors import DuramenError, NodeStopping, RequestInvalid, StorageFailed
from duramen.base.positions import At, Last, Position, parse_position
from duramen.broker.broker import Broker
from duramen.broker.fetching import Fetched, Wanted
from duramen.broker.partition import Partition
from duramen.codec.batch import CONTROL, Record, batches, records
from duramen.codec.jsonbytes import Base64, JsonBytes, json_of
from duramen.doors.http.types import RecordInfo, RecordPage, RecordsQuery
from duramen.storage.scanning import read_slice

__all__ = ["Reading"]

_AT_ONCE: Final = 2  # pages that are read and decoded at a time: each may hold a large batch
_MOST_WAITING: Final = 50  # half of the connections; beyond that, answers come at once

_T = TypeVar("_T")


class _Page(NamedTuple):
    """What is asked of a partition: names for the answer, and bounds."""

    topic: str
    partition: int
    offset: int
    limit: int
    max_bytes: int
    decoded_limit_bytes: int


class _Decoded(NamedTuple):
    """As many records of whole batches as the page takes, the offset behind them, the bytes of those batches."""

    records: list[RecordInfo]
    next_offset: int
    bytes: int


class Reading:
    """Answers reads; knows how many of them wait."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[list[Fetched]]] = set()
        self._decoding = asyncio.Semaphore(_AT_ONCE)

    def stop(self) -> None:
        """Those who wait are told that the node is stopping."""
        for future in self._waiting:
            _settle(future, NodeStopping("this node is stopping"))

    async def read(self, broker: Broker, name: str, query: RecordsQuery) -> RecordPage:
        """A page of records below the high watermark. Raises StreamNotFound, OffsetOutOfRange, LogDamaged …"""
        stream = broker.streams.get(name)
        partition = stream.partition(query.partition)
        offset = await _offset(partition, _position(query.offset, broker.now_ms()))
        fetched = await self._fetch(broker, partition, offset, query)
        if fetched.error is not None:
            raise fetched.error
        if fetched.slice is None:
            return RecordPage([], offset, fetched.high_watermark)
        page = _Page(stream.name, partition.index, offset, query.limit, query.max_bytes, stream.decoded_limit_bytes)
        async with self._decoding:
            data = await _read(broker, fetched)
            decoded = await _decode(broker, data, page)
        stream.bytes_out.value += decoded.bytes
        stream.records_out.value += len(decoded.records)
        return RecordPage(decoded.records, decoded.next_offset, fetched.high_watermark)

    async def _fetch(self, broker: Broker, partition: Partition, offset: int, query: RecordsQuery) -> Fetched:
        future: asyncio.Future[list[Fetched]] = asyncio.get_running_loop().create_future()
        fetcher = broker.fetches.fetch(
            [Wanted(partition, offset, query.max_bytes)],
            min_bytes=1,
            max_bytes=query.max_bytes,
            max_wait_ms=query.max_wait_ms if len(self._waiting) < _MOST_WAITING else 0,
            done=lambda fetched: _settle(future, fetched),
        )
        self._waiting.add(future)
        try:
            return (await future)[0]
        finally:
            self._waiting.discard(future)
            fetcher.cancel()


def _settle(future: "asyncio.Future[_T]", result: _T | BaseException) -> None:
    if future.done():
        return
    if isinstance(result, OSError):
        future.set_exception(StorageFailed(f"reading failed: {result}"))
    elif isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def _position(text: str, now_ms: int) -> Position:
    try:
        return parse_position(text, now_ms)
    except ValueError as error:
        raise RequestInvalid(f"the query parameter offset does not fit: {error}") from None


async def _offset(partition: Partition, position: Position) -> int:
    log = partition.log
    if position == "start":
        return log.start_offset
    if position == "end":
        return log.high_watermark
    if isinstance(position, At):
        return position.offset
    if isinstance(position, Last):
        return max(log.start_offset, log.high_watermark - position.count)
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def found(offset: int, _: int, error: DuramenError | OSError | None) -> None:
        _settle(future, offset if error is None else error)

    partition.find_offset(position.timestamp_ms, found)
    offset = await future
    return offset if offset >= 0 else log.high_watermark


async def _read(broker: Broker, fetched: Fetched) -> bytes:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    if fetched.slice is None:
        return b""
    read_slice(broker.store, fetched.slice, lambda data: _settle(future, data))
    return await future


async def _decode(broker: Broker, data: bytes, page: _Page) -> _Decoded:
    future: asyncio.Future[_Decoded] = asyncio.get_running_loop().create_future()
    broker.store.run(lambda: _decoded(data, page), lambda result: _settle(future, result))
    return await future


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
                size += _size(record)
                if found and (len(found) >= page.limit or size > page.max_bytes):
                    return _Decoded(found, record.offset, seen)
                found.append(_info(record, page))
        next_offset = max(next_offset, head.next_offset)
        if len(found) >= page.limit:
            break
    return _Decoded(found, next_offset, seen)


def _size(record: Record) -> int:
    headers = sum(len(name) + len(content or b"") for name, content in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _info(record: Record, page: _Page) -> RecordInfo:
    headers = [(_name(name), json_of(content)) for name, content in record.headers]
    key, value = json_of(record.key), json_of(record.value)
    return RecordInfo(page.topic, page.partition, record.offset, record.timestamp, key, value, headers)


def _name(name: bytes) -> str | Base64:
    shown: JsonBytes = json_of(name)
    return "" if shown is None else shown
