"""The quorum replica on this node: opened from disk, with its messages sent to the other nodes."""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, StorageFailed
from duramen.base.ids import METADATA_STREAM_ID
from duramen.base.ports import Buffer, Clock, FileSystem, Randomness, Worker
from duramen.codec.cluster.channels import Subject
from duramen.controller.quorum.applier import ControllerView
from duramen.controller.quorum.recovery import Opening, QuorumIdentity
from duramen.controller.quorum.runner import Runner
from duramen.controller.quorum.snapshot_chunks import Wire
from duramen.doors.cluster.door import ClusterDoor
from duramen.doors.cluster.link import PeerLink
from duramen.doors.cluster.quorum import channel_of, from_bytes, to_bytes
from duramen.raft.effects import Append, Became, Cut, Effect, Install
from duramen.raft.voters import ReplicaId, Voters
from duramen.storage.log.log import Log, LogConfig, LogKey
from duramen.storage.store import Store

__all__ = ["METADATA_LOG", "ClusterParts", "QuorumReplica", "chance_of"]

_log = logging.getLogger("duramen.cluster")

METADATA_LOG: Final = LogKey(METADATA_STREAM_ID, 0)

_CHANCE_BYTES: Final = 8


class ClusterParts(NamedTuple):
    """The parts of a node that its cluster side uses."""

    files: FileSystem
    store: Store
    worker: Worker
    clock: Clock
    deadlines: Deadlines
    randomness: Randomness


def chance_of(randomness: Randomness) -> Callable[[int], int]:
    """Draws numbers below its argument."""
    return lambda below: int.from_bytes(randomness.token(_CHANCE_BYTES), "big") % below


class QuorumReplica:
    """Opens the replica, and executes its outside effects. Messages before the opening are lost, as on any network."""

    def __init__(
        self,
        parts: ClusterParts,
        door: ClusterDoor,
        view: ControllerView,
        *,
        voters: Callable[[Voters], None],
        carried_out: Callable[[Effect], None],
        failed: Callable[[DuramenError], None],
    ) -> None:
        """`voters` gets the present set whenever it or the leader may have changed, `failed` the reason of a stop.

        `carried_out` gets each effect.
        """
        self._parts = parts
        self._door = door
        self._view = view
        self._voters = voters
        self._told = carried_out
        self._failed = failed
        self._leader: tuple[int, ReplicaId | None] = (0, None)
        self.runner: Runner | None = None

    @property
    def log(self) -> Log:
        """The metadata log."""
        return self._parts.store.ensure(METADATA_LOG, LogConfig(durability="sync"))

    def open(self, plan: QuorumIdentity, done: Callable[[Runner | DuramenError], None]) -> None:
        """Open the replica; `done` gets it, or the error."""
        parts = self._parts

        def opened(result: Runner | DuramenError) -> None:
            if isinstance(result, Runner):
                self.runner = result
                self._voters(result.machine.voters)
            done(result)

        Opening(
            parts.store, self.log, parts.files, parts.worker, parts.clock, parts.deadlines,
            plan=plan, view=self._view, outside=self, chance=chance_of(parts.randomness),
        ).run(opened)  # fmt: skip

    def message(self, link: PeerLink, body: Buffer) -> None:
        """Handle a message of another replica. Raises RequestInvalid if it is unreadable."""
        message = from_bytes(body, link.peer.identity[:2])
        if self.runner is not None:
            self.runner.receive(message)

    def connected(self, node_id: int) -> None:
        """A connection to a node has opened, perhaps one of several."""
        if self.runner is not None:
            self.runner.connected(node_id)

    def disconnected(self, node_id: int) -> None:
        """The last connection to a node closed."""
        if self.runner is not None:
            self.runner.disconnected(node_id)

    # -- dependencies of the replica ------------------------------------------------------------------

    def send(self, node_id: int, message: Wire) -> None:
        """Send a message; it is lost without a connection, or if too much waits on it."""
        link = self._door.peers.link(node_id, channel_of(message))
        if link is not None:
            link.send(Subject.QUORUM, to_bytes(message))

    def carried_out(self, effect: Effect) -> None:
        """Called with each effect."""
        self._told(effect)
        if isinstance(effect, Became):
            self._log_leader(effect.epoch, effect.leader)
        elif isinstance(effect, Append):
            if effect.batch.voters is None:
                return
        elif not isinstance(effect, Cut | Install):
            return
        if self.runner is not None:
            self._voters(self.runner.machine.voters)

    def failed(self, error: DuramenError) -> None:
        """The replica has stopped, or only follows."""
        if isinstance(error, StorageFailed):
            _log.error("this node follows the controller quorum without a vote until it is restarted: %s", error)
        else:
            _log.error("this node has left the controller quorum until it is restarted: %s", error)
        self._failed(error)

    def report(self, finding: str) -> None:
        """Report a message to the operator."""
        _log.warning("%s", finding)

    def _log_leader(self, epoch: int, leader: ReplicaId | None) -> None:
        before, self._leader = self._leader, (epoch, leader)
        if leader is not None and before != (epoch, leader):
            _log.info("node %d leads the controller quorum in epoch %d", leader.node_id, epoch)
        elif leader is None and before[1] is not None:
            _log.warning("no leader of the controller quorum is known; it was node %d", before[1].node_id)
