"""The ballot on disk: the epoch that a replica knows and its vote in it, in a file of its own.

`quorum/ballot`, "DURVOTE1": a MessagePack array of the replica (node id, directory id), the epoch, the voted replica or
nil, and the initial voters if the log does not name them. A damaged one is refused: the replica's promise is unknown
then, and treating it as none would allow a second vote.
"""

from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import LogDamaged
from duramen.base.ports import FileSystem
from duramen.controller.quorum.small_file import WholeFile
from duramen.raft.ballots import Ballot
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voter, Voters

__all__ = ["BallotFile", "Promised"]

_WAY_OUT: Final = (
    "the votes of this replica are no longer known, so it may not vote: restore the file from a backup of this state,"
    " or start the node with an empty directory, and it joins as a new replica"
)


class Promised(NamedTuple):
    """The content of the file: the replica, the ballot, and the initial voters of a log that names none."""

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
        self._file = WholeFile(files, "ballot", b"DURVOTE1")

    def read(self) -> Promised | None:
        """The stored ballot; None if there never was one. The result is durable, including the file's name.

        Raises LogDamaged if the file is damaged.
        """
        try:
            content = self._file.read()
        except ValueError as error:
            raise LogDamaged(f"the ballot of the quorum ({self._file.path}) {error}: {_WAY_OUT}") from None
        return None if content is None else _decode(content)

    def write(self, promised: Promised) -> None:
        """Replace the ballot; durable on return."""
        self._file.write(msgspec.msgpack.encode(_row(promised)))


def _row(promised: Promised) -> _Row:
    voted = promised.ballot.voted
    founders = [(voter.id.node_id, voter.id.directory_id, voter.endpoint) for voter in promised.founders]
    me = (promised.replica.node_id, promised.replica.directory_id)
    return _Row(me, promised.ballot.epoch, None if voted is None else (voted.node_id, voted.directory_id), founders)


def _decode(content: memoryview) -> Promised:
    row = msgspec.msgpack.decode(content, type=_Row)
    founders = Voters(Voter(ReplicaId(node_id, directory), endpoint) for node_id, directory, endpoint in row.founders)
    voted = None if row.voted is None else ReplicaId(*row.voted)
    return Promised(ReplicaId(*row.replica), Ballot(row.epoch, voted), founders)
