"""Payloads of the write-ahead log's frames that are not record batches. Layouts: docs/storage-format.md."""

import struct
from typing import NamedTuple
from uuid import UUID

from duramen.base.ports import Buffer
from duramen.storage.log.log import LogKey

__all__ = [
    "DURABILITIES",
    "LogChange",
    "decode_change",
    "decode_created",
    "decode_forgotten",
    "decode_takeover",
    "decode_truncate",
    "encode_change",
    "encode_created",
    "encode_forgotten",
    "encode_takeover",
    "encode_truncate",
]

DURABILITIES = ("sync", "os", "memory")

_CREATED = struct.Struct(">16sIB")
_TAKEOVER = struct.Struct(">iiq")
_TRUNCATE = struct.Struct(">qi")
_CHANGE = struct.Struct(">qqB")
_FORGOTTEN = struct.Struct(">q")


def encode_created(key: LogKey, durability: str) -> bytes:
    """A log is created: its key and its durability."""
    return _CREATED.pack(key.stream_id.bytes, key.partition, DURABILITIES.index(durability))


def decode_created(payload: Buffer) -> tuple[LogKey, str]:
    """The arguments of `encode_created`."""
    stream_id, partition, durability = _CREATED.unpack(payload)
    return LogKey(UUID(bytes=stream_id), partition), DURABILITIES[durability]


def encode_takeover(epoch: int, leader_id: int, first_offset: int) -> bytes:
    """A leadership starts."""
    return _TAKEOVER.pack(epoch, leader_id, first_offset)


def decode_takeover(payload: Buffer) -> tuple[int, int, int]:
    """The arguments of `encode_takeover`."""
    epoch, leader_id, first_offset = _TAKEOVER.unpack(payload)
    return epoch, leader_id, first_offset


def encode_truncate(end_offset: int, epoch: int) -> bytes:
    """A log is truncated to `end_offset`, for the leader of `epoch`."""
    return _TRUNCATE.pack(end_offset, epoch)


def decode_truncate(payload: Buffer) -> tuple[int, int]:
    """The arguments of `encode_truncate`."""
    end_offset, epoch = _TRUNCATE.unpack(payload)
    return end_offset, epoch


def encode_forgotten(forgotten_id: int) -> bytes:
    """Producers up to that id may have written to the log, and are unknown there."""
    return _FORGOTTEN.pack(forgotten_id)


def decode_forgotten(payload: Buffer) -> int:
    """The arguments of `encode_forgotten`."""
    (forgotten_id,) = _FORGOTTEN.unpack(payload)
    return int(forgotten_id)


class LogChange(NamedTuple):
    """A checkpoint entry: the log's start and, from `end_offset` on, its durability."""

    start_offset: int
    end_offset: int
    durability: str


def encode_change(change: LogChange) -> bytes:
    """A change of a log's checkpoint entry."""
    return _CHANGE.pack(change.start_offset, change.end_offset, DURABILITIES.index(change.durability))


def decode_change(payload: Buffer) -> LogChange:
    """The arguments of `encode_change`."""
    start_offset, end_offset, durability = _CHANGE.unpack(payload)
    return LogChange(start_offset, end_offset, DURABILITIES[durability])
