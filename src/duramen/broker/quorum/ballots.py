"""The ballot on disk: which epoch a replica knows and whom it gave its vote in it, in a file of its own.

`quorum/ballot`: 8 bytes "DURVOTE1", uint32 CRC-32C of everything after it, uint32 format, and a MessagePack array: the
replica (node id, directory id), the epoch, the voted replica or nil, and the voters that the log begins with where it
does not name them. It is written beside the old one, synced, renamed and its name synced. One that is damaged is
refused: what the replica promised is not known then, and "nothing" would be a second vote.
"""

import struct
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import LogDamaged
from duramen.base.ports import FileSystem
from duramen.codec.crc import crc32c
from duramen.controller.quorum.ballots import Ballot
from duramen.controller.quorum.voters import NO_VOTERS, ReplicaId, Voter, Voters
from duramen.storage.io import write_all

__all__ = ["QUORUM_DIRECTORY", "BallotFile", "Promised"]

QUORUM_DIRECTORY: Final = "quorum"

_PATH: Final = f"{QUORUM_DIRECTORY}/ballot"
_NEW: Final = f"{_PATH}.new"
_FORMAT: Final = 1
_MAGIC: Final = b"DURVOTE1"
_HEADER = struct.Struct(">8sII")
_WAY_OUT: Final = (
    "what this replica has promised is not known any more, so it may not vote: put the file back from a backup of this"
    " very state, or start the node with an empty directory, and it takes part as a new replica"
)


class Promised(NamedTuple):
    """What the file holds: whose it is, the ballot, and the voters that a log begins with that names none."""

    replica: ReplicaId
    ballot: Ballot
    founders: Voters = NO_VOTERS


class _Row(msgspec.Struct, array_like=True, frozen=True):
    replica: tuple[int, str]
    epoch: int
    voted: tuple[int, str] | None
    founders: list[tuple[int, str, str]]


class BallotFile:
    """Reads and writes the ballot. Everything here blocks, and raises OSError."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def read(self) -> Promised | None:
        """What was promised; None where nothing ever was. What is returned is on disk, name and all.

        Raises LogDamaged where the file is not as it was written.
        """
        files = self._files
        if not files.exists(QUORUM_DIRECTORY):
            files.make_directory(QUORUM_DIRECTORY)
        files.sync_directory("")
        files.sync_directory(QUORUM_DIRECTORY)  # a kill may have come between the new name and its sync
        if not files.exists(_PATH):
            return None
        file = files.open(_PATH, read_only=True)
        data = bytes(file.read(0, file.size()))
        file.close()
        return _decode(data)

    def write(self, promised: Promised) -> None:
        """Put it in the place of the last one; it is on disk when this returns."""
        files = self._files
        body = struct.pack(">I", _FORMAT) + msgspec.msgpack.encode(_row(promised))
        files.unlink(_NEW)
        file = files.open(_NEW, create=True)
        write_all(file, [_MAGIC, struct.pack(">I", crc32c(body)), body], 0)
        file.sync()
        file.close()
        files.rename(_NEW, _PATH)
        files.sync_directory(QUORUM_DIRECTORY)


def _row(promised: Promised) -> _Row:
    voted = promised.ballot.voted
    founders = [(voter.id.node_id, voter.id.directory_id, voter.endpoint) for voter in promised.founders]
    me = (promised.replica.node_id, promised.replica.directory_id)
    return _Row(me, promised.ballot.epoch, None if voted is None else (voted.node_id, voted.directory_id), founders)


def _decode(data: bytes) -> Promised:
    if len(data) < _HEADER.size:
        raise LogDamaged(f"the ballot of the quorum ({_PATH}) is cut off: {_WAY_OUT}")
    magic, crc, format_ = _HEADER.unpack_from(data)
    if magic != _MAGIC or crc != crc32c(memoryview(data)[12:]):
        raise LogDamaged(f"the ballot of the quorum ({_PATH}) is damaged: {_WAY_OUT}")
    if format_ != _FORMAT:
        raise LogDamaged(f"the ballot of the quorum ({_PATH}) has the format {format_}; this version knows {_FORMAT}")
    row = msgspec.msgpack.decode(memoryview(data)[_HEADER.size :], type=_Row)
    founders = Voters(Voter(ReplicaId(node_id, directory), endpoint) for node_id, directory, endpoint in row.founders)
    voted = None if row.voted is None else ReplicaId(*row.voted)
    return Promised(ReplicaId(*row.replica), Ballot(row.epoch, voted), founders)
