"""What a directory holds of how its node came to a cluster, in a file of its own.

`quorum/cluster`: 8 bytes "DURCLUS1", uint32 CRC-32C of everything after it, uint32 format, and a MessagePack array: the
number of the newest attempt, the proposal that was promised or nil, the cluster id or nil, and the voters that the
cluster was formed with. It is written beside the old one, synced, renamed and its name synced. One that is damaged is
refused: it may hold a promise, and "nothing" would let two clusters come of it.
"""

import struct
from typing import Final
from uuid import UUID

import msgspec

from duramen.base.errors import DirectoryUnusable
from duramen.base.ports import FileSystem
from duramen.broker.quorum.ballots import QUORUM_DIRECTORY
from duramen.codec.crc import crc32c
from duramen.controller.forming.values import Attempt, Kept, Proposal
from duramen.controller.quorum.voters import ReplicaId, Voter, Voters
from duramen.storage.io import write_all

__all__ = ["BelongingFile"]

_PATH: Final = f"{QUORUM_DIRECTORY}/cluster"
_NEW: Final = f"{_PATH}.new"
_FORMAT: Final = 1
_MAGIC: Final = b"DURCLUS1"
_HEADER = struct.Struct(">8sII")
_WAY_OUT: Final = (
    "what this node has promised to others, or its cluster, is not known any more: put the file back from a backup of"
    " this very state, or start the node with an empty directory"
)

_Voters = list[tuple[int, str, str]]


class _Proposal(msgspec.Struct, array_like=True, frozen=True):
    proposer: tuple[int, str]
    number: int
    seeds: tuple[str, ...]
    voters: _Voters


class _Row(msgspec.Struct, array_like=True, frozen=True):
    attempt: int
    promise: _Proposal | None
    cluster_id: UUID | None
    voters: _Voters


class BelongingFile:
    """Reads and writes it. Everything here blocks, and raises OSError."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def read(self) -> Kept:
        """What the directory holds; of an empty one, nothing. What is returned is on disk, name and all.

        Raises DirectoryUnusable where the file is not as it was written.
        """
        files = self._files
        files.make_directory(QUORUM_DIRECTORY)
        files.sync_directory("")
        files.sync_directory(QUORUM_DIRECTORY)  # a kill may have come between the new name and its sync
        if not files.exists(_PATH):
            return Kept()
        file = files.open(_PATH, read_only=True)
        data = bytes(file.read(0, file.size()))
        file.close()
        return _decode(data)

    def write(self, kept: Kept) -> None:
        """Put it in the place of what was there; it is on disk when this returns."""
        files = self._files
        body = struct.pack(">I", _FORMAT) + msgspec.msgpack.encode(_row(kept))
        files.unlink(_NEW)
        file = files.open(_NEW, create=True)
        write_all(file, [_MAGIC, struct.pack(">I", crc32c(body)), body], 0)
        file.sync()
        file.close()
        files.rename(_NEW, _PATH)
        files.sync_directory(QUORUM_DIRECTORY)


def _row(kept: Kept) -> _Row:
    promise = None
    if kept.promise is not None:
        (proposer, number), seeds, voters = kept.promise
        promise = _Proposal((proposer.node_id, proposer.directory_id), number, seeds, _voter_rows(voters))
    return _Row(kept.attempt, promise, kept.cluster_id, _voter_rows(kept.voters))


def _voter_rows(voters: Voters) -> _Voters:
    return [(voter.id.node_id, voter.id.directory_id, voter.endpoint) for voter in voters]


def _voters(rows: _Voters) -> Voters:
    return Voters(Voter(ReplicaId(node_id, directory), endpoint) for node_id, directory, endpoint in rows)


def _decode(data: bytes) -> Kept:
    if len(data) < _HEADER.size:
        raise DirectoryUnusable(f"the file {_PATH} is cut off: {_WAY_OUT}")
    magic, crc, format_ = _HEADER.unpack_from(data)
    if magic != _MAGIC or crc != crc32c(memoryview(data)[12:]):
        raise DirectoryUnusable(f"the file {_PATH} is damaged: {_WAY_OUT}")
    if format_ != _FORMAT:
        raise DirectoryUnusable(f"the file {_PATH} has the format {format_}; this version knows {_FORMAT}")
    row = msgspec.msgpack.decode(memoryview(data)[_HEADER.size :], type=_Row)
    promise = None
    if row.promise is not None:
        attempt = Attempt(ReplicaId(*row.promise.proposer), row.promise.number)
        promise = Proposal(attempt, row.promise.seeds, _voters(row.promise.voters))
    return Kept(row.attempt, promise, row.cluster_id, _voters(row.voters))
