"""Dependencies of a quorum replica: disk, ports, peers, and limits."""

from typing import Final, NamedTuple, Protocol

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ports import Clock, Worker
from duramen.controller.quorum.applier import EventsApplied
from duramen.controller.quorum.ballot_file import BallotFile
from duramen.controller.quorum.log import MetadataLog
from duramen.controller.quorum.snapshot_chunks import Wire
from duramen.controller.quorum.snapshots import SnapshotFiles
from duramen.raft.effects import Effect
from duramen.raft.voters import Voters

__all__ = ["LIMITS", "QuorumDependencies", "QuorumEffects", "QuorumLimits"]


class QuorumLimits(NamedTuple):
    """`fetch_bytes` of batches in a response, `batch_bytes` of a proposal, `chunk_bytes` of a snapshot in a message.

    `kept_bytes` of the log stay in memory, and a snapshot is made for every `snapshot_bytes` of it that are applied.
    """

    fetch_bytes: int = 1 << 20
    batch_bytes: int = 8 << 20
    chunk_bytes: int = 1 << 20
    kept_bytes: int = 4 << 20
    snapshot_bytes: int = 8 << 20


LIMITS: Final = QuorumLimits()


class QuorumEffects(Protocol):
    """The effects of a replica on its surroundings."""

    def send(self, node_id: int, message: Wire) -> None:
        """Send a message to a node; it may be lost."""

    def carried_out(self, effect: Effect) -> None:
        """Called with each effect after its execution, if that is immediate: a batch written, a ballot durable."""

    def failed(self, error: DuramenError) -> None:
        """The replica has stopped until a restart; after StorageFailed it continues to follow."""

    def report(self, finding: str) -> None:
        """Report a message to the operator."""


class QuorumDependencies(NamedTuple):
    """The disk state and the dependencies of a replica. `founders` vote if the log names no voters."""

    log: MetadataLog
    ballots: BallotFile
    snapshots: SnapshotFiles
    founders: Voters
    applied: EventsApplied
    worker: Worker
    clock: Clock
    deadlines: Deadlines
    limits: QuorumLimits
