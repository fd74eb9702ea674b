"""The node checkpoint: the state of every log, its synced position, and where the replay of the WAL starts.

A file `checkpoint-<number>`: 8 bytes "DURCHKP1", uint32 CRC-32C of everything after it, uint32 format, and a
MessagePack array (`NodeCheckpoint`). The two newest are kept, with the WAL that the older one needs, so that the loss
of either generation loses nothing.
"""

import struct
from typing import Final

import msgspec

from duramen.base.ports import FileSystem
from duramen.codec.crc import crc32c
from duramen.storage.io import write_all

__all__ = ["FORMAT", "NodeCheckpoint", "checkpoint_name", "checkpoint_numbers", "read_checkpoint", "write_checkpoint"]

FORMAT: Final = 1

_PREFIX: Final = "checkpoint-"
_MAGIC: Final = b"DURCHKP1"
_HEADER = struct.Struct(">8sII")
_KEPT = 2


class NodeCheckpoint(msgspec.Struct, array_like=True, frozen=True):
    """`logs` has one encoded `LogState` per log. `replay` is the WAL position of these states.

    `number` is that of its file, 0 in older versions: it reveals an older checkpoint in the place of a newer one.
    `damaged`: recovery found damage that may have cost synced records, and the cluster does not know it yet.
    `metadata_damaged`: the damage may have cost entries of the metadata log, and they were not fetched again yet.
    """

    directory_id: bytes
    node_epoch: int
    next_log_id: int
    replay: int
    wal_generation: int
    clean: bool
    logs: list[msgspec.Raw]
    number: int = 0
    damaged: bool = False
    metadata_damaged: bool = False


def checkpoint_name(number: int) -> str:
    """The file name of the checkpoint with that number."""
    return f"{_PREFIX}{number:012d}"


def checkpoint_numbers(files: FileSystem) -> list[int]:
    """The numbers of all checkpoints, newest first. Blocking."""
    found = []
    for name in files.names(""):
        number = name.removeprefix(_PREFIX)
        if name != number and number.isdigit():
            found.append(int(number))
    return sorted(found, reverse=True)


def read_checkpoint(files: FileSystem, number: int) -> NodeCheckpoint | None:
    """Read a checkpoint; None if it is damaged or has another number. Blocking. Raises OSError if it is unreadable."""
    file = files.open(checkpoint_name(number), read_only=True)
    data = bytes(file.read(0, file.size()))
    if len(data) < _HEADER.size:
        return None
    magic, crc, format_ = _HEADER.unpack_from(data)
    if magic != _MAGIC or crc != crc32c(memoryview(data)[12:]) or format_ != FORMAT:
        return None
    found = msgspec.msgpack.decode(memoryview(data)[_HEADER.size :], type=NodeCheckpoint)
    return found if found.number in (0, number) else None


def write_checkpoint(files: FileSystem, number: int, checkpoint: NodeCheckpoint) -> None:
    """Write a checkpoint and remove all but the newest two. Blocking; synced when it returns. Raises OSError."""
    checkpoint = msgspec.structs.replace(checkpoint, number=number)
    body = struct.pack(">I", FORMAT) + msgspec.msgpack.encode(checkpoint)
    temporary = "checkpoint.new"
    files.unlink(temporary)
    file = files.open(temporary, create=True)
    write_all(file, [_MAGIC, struct.pack(">I", crc32c(body)), body], 0)
    file.sync()
    file.close()
    files.rename(temporary, checkpoint_name(number))
    files.sync_directory("")
    for old in checkpoint_numbers(files):
        if old <= number - _KEPT:
            files.unlink(checkpoint_name(old))
