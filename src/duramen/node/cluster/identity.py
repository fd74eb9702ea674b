"""The directory's record of how its node joined a cluster, in a file of its own.

`quorum/cluster`, "DURCLUS1": a MessagePack array of the number of the newest attempt, the promised proposal or nil, the
cluster id or nil, the initial voters of the cluster, and whether this directory is to replace an earlier one of its
node as voter. A damaged file is refused: it may hold a promise, and treating it as none could form two clusters.
"""

from typing import Final
from uuid import UUID

import msgspec

from duramen.base.errors import DirectoryUnusable
from duramen.base.ports import FileSystem
from duramen.controller.quorum.small_file import WholeFile
from duramen.raft.forming.values import ClusterProposal, FormationAttempt, FormationDiskState
from duramen.raft.voters import ReplicaId, Voter, Voters

__all__ = ["BelongingFile"]

_WAY_OUT: Final = (
    "this node's promises to others, or its cluster, are no longer known: restore the file from a backup of exactly "
    "this state, or start the node with an empty directory"
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
    replaces: bool = False


class BelongingFile:
    """Reads and writes the file. All methods block, and raise OSError."""

    def __init__(self, files: FileSystem) -> None:
        self._file = WholeFile(files, "cluster", b"DURCLUS1")

    def read(self) -> FormationDiskState:
        """The directory's record; empty if there is none. The result is durable, including the file's name.

        Raises DirectoryUnusable if the file is damaged.
        """
        try:
            content = self._file.read()
        except ValueError as error:
            raise DirectoryUnusable(f"the file {self._file.path} {error}: {_WAY_OUT}") from None
        return FormationDiskState() if content is None else _decode(content)

    def write(self, kept: FormationDiskState) -> None:
        """Replace the record; durable on return."""
        self._file.write(msgspec.msgpack.encode(_row(kept)))

    def replace(self, *, replaces: bool) -> None:
        """Record whether this directory is to vote in place of another. Raises like `read`."""
        kept = self.read()
        if kept.replaces is not replaces:
            self.write(kept._replace(replaces=replaces))


def _row(kept: FormationDiskState) -> _Row:
    promise = None
    if kept.promise is not None:
        (proposer, number), seeds, voters = kept.promise
        promise = _Proposal((proposer.node_id, proposer.directory_id), number, seeds, _voter_rows(voters))
    return _Row(kept.attempt, promise, kept.cluster_id, _voter_rows(kept.voters), kept.replaces)


def _voter_rows(voters: Voters) -> _Voters:
    return [(voter.id.node_id, voter.id.directory_id, voter.endpoint) for voter in voters]


def _voters(rows: _Voters) -> Voters:
    return Voters(Voter(ReplicaId(node_id, directory), endpoint) for node_id, directory, endpoint in rows)


def _decode(content: memoryview) -> FormationDiskState:
    row = msgspec.msgpack.decode(content, type=_Row)
    promise = None
    if row.promise is not None:
        attempt = FormationAttempt(ReplicaId(*row.promise.proposer), row.promise.number)
        promise = ClusterProposal(attempt, row.promise.seeds, _voters(row.promise.voters))
    return FormationDiskState(row.attempt, promise, row.cluster_id, _voters(row.voters), row.replaces)
