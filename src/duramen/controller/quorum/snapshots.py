"""Snapshots on disk: the controller's state at a position of the metadata log, replacing the log before it (KIP-630).

`quorum/<offset>-<epoch>.snapshot`: 8 bytes "DURSNAP1", uint32 CRC-32C of everything after it, uint32 format, and a
MessagePack array: epoch and offset of the end, the voters there, and the state. Followers get the file unchanged, in
chunks. File operations block.
"""

import re
import struct
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import BatchCorrupt
from duramen.base.ports import FileSystem
from duramen.codec.crc import crc32c
from duramen.controller.quorum.small_file import QUORUM_DIRECTORY
from duramen.raft.epochs import EpochEnd
from duramen.raft.voters import ReplicaId, Voter, Voters
from duramen.storage.io import write_all

__all__ = ["FoundSnapshot", "MetadataSnapshot", "SnapshotFiles", "decode_snapshot_file", "encode_snapshot_file"]

_FORMAT: Final = 1
_MAGIC: Final = b"DURSNAP1"
_HEADER = struct.Struct(">8sII")
_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.snapshot")
_NEW: Final = ".new"
_KEPT: Final = 2  # a follower may be fetching the older one


class MetadataSnapshot(NamedTuple):
    """The state and the voters after all entries below `end`."""

    end: EpochEnd
    voters: Voters
    state: bytes


class FoundSnapshot(NamedTuple):
    """The newest sound snapshot, and the paths of later, damaged ones."""

    snapshot: MetadataSnapshot | None
    damaged: tuple[str, ...]


class _Row(msgspec.Struct, array_like=True, frozen=True):
    epoch: int
    offset: int
    voters: list[tuple[int, str, str]]
    state: bytes


def encode_snapshot_file(snapshot: MetadataSnapshot) -> bytes:
    """The bytes of the snapshot's file."""
    voters = [(voter.id.node_id, voter.id.directory_id, voter.endpoint) for voter in snapshot.voters]
    row = _Row(snapshot.end.epoch, snapshot.end.offset, voters, snapshot.state)
    body = struct.pack(">I", _FORMAT) + msgspec.msgpack.encode(row)
    return _MAGIC + struct.pack(">I", crc32c(body)) + body


def decode_snapshot_file(data: bytes) -> MetadataSnapshot:
    """The snapshot in these bytes. Raises BatchCorrupt."""
    if len(data) < _HEADER.size:
        raise BatchCorrupt("a snapshot of the metadata log is cut off")
    magic, crc, format_ = _HEADER.unpack_from(data)
    if magic != _MAGIC or crc != crc32c(memoryview(data)[12:]):
        raise BatchCorrupt("a snapshot of the metadata log does not match its CRC")
    if format_ != _FORMAT:
        raise BatchCorrupt(f"a snapshot of the metadata log has the format {format_}; this version knows {_FORMAT}")
    row = msgspec.msgpack.decode(memoryview(data)[_HEADER.size :], type=_Row)
    voters = Voters(Voter(ReplicaId(node_id, directory), endpoint) for node_id, directory, endpoint in row.voters)
    return MetadataSnapshot(EpochEnd(row.epoch, row.offset), voters, row.state)


def _path(end: EpochEnd) -> str:
    return f"{QUORUM_DIRECTORY}/{end.offset:020d}-{end.epoch:010d}.snapshot"


class SnapshotFiles:
    """The snapshots of a directory. Raises OSError."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def ends(self) -> list[EpochEnd]:
        """The ends of all snapshots, newest first."""
        names = (_NAME.fullmatch(name) for name in self._files.names(QUORUM_DIRECTORY))
        found = [EpochEnd(int(name[2]), int(name[1])) for name in names if name is not None]
        return sorted(found, key=lambda end: end.offset, reverse=True)

    def newest(self) -> FoundSnapshot:
        """The newest sound snapshot. Removes unfinished ones."""
        for name in self._files.names(QUORUM_DIRECTORY):
            if _NAME.fullmatch(name.removesuffix(_NEW)) and name.endswith(_NEW):
                self._files.unlink(f"{QUORUM_DIRECTORY}/{name}")
        return self.newest_sound()

    def newest_sound(self) -> FoundSnapshot:
        """The newest sound snapshot. Changes nothing."""
        damaged: list[str] = []
        for end in self.ends():
            try:
                snapshot = decode_snapshot_file(self._read(end))
            except BatchCorrupt:
                damaged.append(_path(end))
                continue
            if snapshot.end == end:
                return FoundSnapshot(snapshot, tuple(damaged))
            damaged.append(_path(end))
        return FoundSnapshot(None, tuple(damaged))

    def write(self, end: EpochEnd, data: bytes) -> None:
        """Write a snapshot's bytes; durable on return. Removes all but the newest two."""
        files, new = self._files, _path(end) + _NEW
        files.unlink(new)
        file = files.open(new, create=True)
        write_all(file, [data], 0)
        file.sync()
        file.close()
        files.rename(new, _path(end))
        files.sync_directory(QUORUM_DIRECTORY)
        for old in self.ends()[_KEPT:]:
            files.unlink(_path(old))

    def chunk(self, end: EpochEnd, position: int, size: int) -> tuple[bytes, int] | None:
        """Bytes of a snapshot's file, and its size; None if it is deleted."""
        if not self._files.exists(_path(end)):
            return None
        file = self._files.open(_path(end), read_only=True)
        data, total = bytes(file.read(position, size)), file.size()
        file.close()
        return data, total

    def _read(self, end: EpochEnd) -> bytes:
        file = self._files.open(_path(end), read_only=True)
        data = bytes(file.read(0, file.size()))
        file.close()
        return data
