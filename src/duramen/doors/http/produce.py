"""Produces records over HTTP: builds batches, checks all before the first append, waits for all acknowledgements."""

import asyncio
import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from duramen.base.errors import BatchTooLarge, DuramenError, RequestInvalid, StreamNotFound
from duramen.base.units import MIB
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.batch import HEADER_BYTES, encode_record, near, seal
from duramen.codec.jsonbytes import request_bytes, request_headers
from duramen.codec.partitioner import partition_of
from duramen.doors.http.types.records import Place, RecordPlaces, RecordRequest
from duramen.doors.problems import PartlyStored, Stored
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.service.forwarded_requests import AppendResult
from duramen.service.forwarding.appends import PartitionBatch
from duramen.service.forwarding.forwarding import Forwarding

__all__ = ["largest_body_bytes", "produce"]

_AT_ONCE: Final = 200  # records that are encoded before others get their turn: about a millisecond
_LARGEST_BODY_BYTES: Final = 8 * MIB


class _Batch(NamedTuple):
    """A batch for a partition, and the positions of its records in the request."""

    partition: Partition
    content: bytearray
    numbers: list[int]


class _Building:
    """Builds batches of one partition's records, in order, in sizes that the stream accepts."""

    def __init__(self, stream: Stream, partition: Partition) -> None:
        self._stream = stream
        self._partition = partition
        self._begin(0)

    def _begin(self, base_timestamp: int) -> None:
        self._parts: list[bytes] = []
        self._numbers: list[int] = []
        self._size = HEADER_BYTES
        self._base_timestamp = self._max_timestamp = base_timestamp

    def add(self, number: int, record: RecordRequest, key: bytes | None, now_ms: int) -> _Batch | None:
        """Add a record; returns the previous batch if the record did not fit into it."""
        timestamp = now_ms if record.timestamp is None else record.timestamp
        full: _Batch | None = None
        if not self._parts:
            self._begin(timestamp)
        value, headers = _value(record), request_headers(record.headers)
        fits = near(timestamp, self._base_timestamp)
        encoded = encode_record(timestamp - self._base_timestamp if fits else 0, len(self._parts), key, value, headers)
        if self._parts and not (fits and self._size + len(encoded) <= self._stream.max_message_bytes):
            full = self.finish()
            self._begin(timestamp)
            encoded = encode_record(0, 0, key, value, headers)
        self._size += len(encoded)
        if self._size > self._stream.max_message_bytes:
            raise BatchTooLarge(
                f"it takes {self._size} bytes with its batch; max.message.bytes of {self._stream.name} is"
                f" {self._stream.max_message_bytes}"
            )
        self._parts.append(encoded)
        self._numbers.append(number)
        self._max_timestamp = max(self._max_timestamp, timestamp)
        return full

    def finish(self) -> _Batch:
        """The batch of the remaining records, of which there is at least one."""
        content = seal(b"".join(self._parts), len(self._parts), self._base_timestamp, self._max_timestamp)
        return _Batch(self._partition, content, self._numbers)


def largest_body_bytes(stream: Stream) -> int:
    """The largest body with records for `stream`: a largest batch as JSON, within bounds."""
    return max(MIB, min(2 * stream.max_message_bytes, _LARGEST_BODY_BYTES))


async def produce(
    broker: Broker, forwarding: Forwarding, stream: Stream, records: list[RecordRequest], within_ms: int
) -> RecordPlaces:
    """Store records; returns their offsets once all are acknowledged at the stream's durability.

    Stores nothing if one of them is invalid. Raises PartlyStored if some were stored or may have been.
    """
    if stream.internal:
        raise RequestInvalid(f"{stream.name} is the broker's own")
    built = await _build(stream, records, broker.now_ms(), random.choice(_takers(broker, stream)))
    if stream.deleted:
        raise StreamNotFound(f"stream {stream.name} was deleted meanwhile")
    for batch in built:
        batch.partition.check(batch.content)
    # Batches of this node's partitions are appended before anything else can come between that and the checks.
    results = await _results(forwarding, built, within_ms)
    places: dict[int, Place] = {}
    unknown: list[int] = []
    for batch, result in zip(built, results, strict=True):
        if result.error is None:
            for delta, number in enumerate(batch.numbers):
                places[number] = Place(batch.partition.index, result.base_offset + delta)
        elif result.unknown:
            unknown += batch.numbers
    failed = _worst(results)
    if failed is None:
        return RecordPlaces([places[number] for number in range(len(records))])
    if places or unknown:
        stored = [Stored(number, place.partition, place.offset) for number, place in sorted(places.items())]
        raise PartlyStored(failed, stored, sorted(unknown))
    raise failed


async def _results(forwarding: Forwarding, built: list[_Batch], within_ms: int) -> list[AppendResult]:
    future: asyncio.Future[list[AppendResult]] = asyncio.get_running_loop().create_future()

    def done(results: list[AppendResult]) -> None:
        if not future.done():
            future.set_result(results)

    forwarding.append([PartitionBatch(one.partition, one.content) for one in built], within_ms, done)
    return await future


def _worst(results: list[AppendResult]) -> DuramenError | None:
    """The first error; or the first that leaves the outcome unknown, if a batch may be stored."""
    failed = sorted((result for result in results if result.error is not None), key=lambda result: not result.unknown)
    return failed[0].error if failed else None


def _takers(broker: Broker, stream: Stream) -> Sequence[int]:
    """Partitions for records without a key: those led here, otherwise any."""
    here = [partition.index for partition in stream.partitions if partition.leads]
    every = range(len(stream.partitions))
    led = (index for index in every if broker.membership.partition(PartitionId(stream.id, index)).leader is not None)
    return here or list(led) or every


async def _build(stream: Stream, records: list[RecordRequest], now_ms: int, sticky: int) -> list[_Batch]:
    """Records without a key go to the partition `sticky`, like Kafka's sticky partitioner spreads batches."""
    built: list[_Batch] = []
    building: dict[int, _Building] = {}
    for number, record in enumerate(records):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        try:
            key = request_bytes("key", record.key)
            index = _partition(stream, record, key, sticky)
            if index not in building:
                building[index] = _Building(stream, stream.partition(index))
            full = building[index].add(number, record, key, now_ms)
        except DuramenError as error:
            raise type(error)(f"record {number}: {error}") from None
        if full is not None:
            built.append(full)
    built += [one.finish() for one in building.values()]
    return built


def _partition(stream: Stream, record: RecordRequest, key: bytes | None, sticky: int) -> int:
    if record.partition is not None:
        return record.partition
    return sticky if key is None else partition_of(key, len(stream.partitions))


def _value(record: RecordRequest) -> bytes | None:
    return request_bytes("value", record.value)
