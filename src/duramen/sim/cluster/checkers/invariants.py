"""Observes every step of the nodes of a cluster, and raises BrokenPromise if a promise is broken."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.errors import DuramenError
from duramen.broker.replicas.batches import bytes_of
from duramen.broker.replicas.recovery import takeovers_of
from duramen.broker.replicas.replica import Replica
from duramen.codec.batch import CONTROL, header
from duramen.codec.markers import Marker, decode_marker
from duramen.controller.quorum.snapshot_chunks import Wire
from duramen.metadata.events import NodeRegistered
from duramen.metadata.partitions import PartitionId
from duramen.raft.effects import Became, Persist, Send
from duramen.raft.effects import Commit as QuorumCommit
from duramen.raft.effects import Effect as QuorumEffect
from duramen.raft.epochs import EpochEnd
from duramen.raft.machine import RaftMachine
from duramen.raft.messages import EntryBatch
from duramen.raft.roles import RaftRole
from duramen.raft.voters import ReplicaId, Voters
from duramen.replication.effects import (
    AdvanceHighWatermark,
    AppendRecords,
    Effect,
    Release,
    Restart,
    ServeReplicaFetch,
    Show,
    StartAt,
    TruncateRecords,
)
from duramen.replication.effects import SendReplicaMessage as ReplicaSend
from duramen.replication.history import ReplicaHistory
from duramen.sim.cluster.checkers.partitions import Holding, KnownBatch, PartitionLedger, has
from duramen.sim.cluster.checkers.quorum import Council
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.machine.trace import BrokenPromise, Trace
from duramen.storage.log.log import Log, LogKey

__all__ = ["Witness"]

Place = tuple[int, PartitionId]


class _OnDisk(NamedTuple):
    """The part of a log that survives a power loss.

    `written` is the log as it is, `known` as its replica has it: a truncation under way is in `known` already.
    """

    written: ReplicaHistory
    known: ReplicaHistory
    synced_offset: int

    def has(self, batch: KnownBatch) -> bool:
        if batch.first_offset < self.known.start_offset:
            return True
        return batch.next_offset <= self.synced_offset and has(self.written, batch) and has(self.known, batch)


_NOTHING: Final = _OnDisk(ReplicaHistory((), 0, 0), ReplicaHistory((), 0, 0), 0)


class Witness:
    """A Watcher: keeps a ledger for each partition, and the council for the quorum."""

    def __init__(
        self, nodes: dict[int, SimulatedNode], trace: Trace, failed: Callable[[int, DuramenError], None],
        voted: Callable[[int], None], led: Callable[[int], None],
    ) -> None:  # fmt: skip
        """`failed` is called with a node that takes no part any more until it is restarted.

        `voted` is called with votes, and `led` with new leaders of the quorum.
        """
        self.council = Council()
        self.ledgers: dict[PartitionId, PartitionLedger] = {}
        self.markers: dict[int, tuple[int, Marker]] = {}  # batches appended by leaders, with producer ids, by CRC
        self.cuts = 0
        self.restarts = 0
        self.voted: set[ReplicaId] = set()  # every voter at any time, committed or not
        self._nodes = nodes
        self._trace = trace
        self._failed = failed
        self._voted = voted
        self._led = led
        self._voters: dict[
            int, tuple[ReplicaId, RaftMachine]
        ] = {}  # the last machine of each node's replica of the quorum
        self._logs: dict[Place, ReplicaHistory] = {}  # of each replica that is open, as its effects have made it
        self._shown: dict[Place, int] = {}
        self._at_rest: dict[int, dict[LogKey, _OnDisk]] = {}  # of a node whose process is gone
        self._hooked: dict[Place, object] = {}
        self._begun: dict[Place, int] = {}  # in which epoch of the partition a replica last began with nothing
        self._doubted: set[int] = set()

    def ledger(self, place: PartitionId) -> PartitionLedger:
        """The ledger of a partition."""
        found = self.ledgers.get(place)
        if found is None:
            name = f"partition {place.partition} of {str(place.stream_id)[-4:]}"
            found = self.ledgers[place] = PartitionLedger(
                name, partial(self._holders, place), partial(self._cutting, place)
            )
        return found

    def compacted(self, place: PartitionId) -> bool:
        """Whether replicas compact a partition, each for itself: then their batches are not the same."""
        stream = self.council.state.stream_by_id(place.stream_id)
        return stream is not None and stream.config.get("keyed") == "true"

    # -- processes ----------------------------------------------------------------------------------

    def starts(self, node: SimulatedNode) -> None:
        """A process begins."""
        self.council.starts(node.node_id)

    def ends(self, node: SimulatedNode) -> None:
        """A process ends now: record the content of its disk."""
        if node.store is not None:
            self._at_rest[node.node_id] = {log.key: self._on_disk(node, log) for log in node.store.each_log()}
        for key in [key for key in self._logs if key[0] == node.node_id]:
            del self._logs[key]
            self._shown.pop(key, None)
            self._hooked.pop(key, None)

    def blank(self, node: SimulatedNode) -> None:
        """The disk of a node that does not run is lost."""
        self._at_rest.pop(node.node_id, None)
        self.council.blank.add(node.node_id)

    def emptied(self, node: SimulatedNode) -> None:
        """A node that is registered no more has an empty disk."""
        self._at_rest.pop(node.node_id, None)

    def doubts(self, node: SimulatedNode) -> None:
        """The disk of a stopped node may have lost records: it counts again when the node has registered."""
        self._at_rest.pop(node.node_id, None)
        self._doubted.add(node.node_id)

    def shows(self, node_id: int, place: PartitionId, offset: int) -> None:
        """A consumer gets a high watermark."""
        if offset > self.ledger(place).end_offset:
            raise self.ledger(place).broken(f"node {node_id} shows what is below {offset}, which is not committed")

    def _replica(self, node: SimulatedNode, place: PartitionId) -> Replica | None:
        replicas = None if node.member is None else node.member.replicating.replicas
        return None if replicas is None else replicas.get(place)

    def _on_disk(self, node: SimulatedNode, log: Log) -> _OnDisk:
        place = PartitionId(*log.key)
        written = self._logs.get((node.node_id, place))
        if written is None:
            written = ReplicaHistory(takeovers_of(log), log.start_offset, log.end_offset)
        replica = self._replica(node, place)
        return _OnDisk(written, written if replica is None else replica.machine.history, log.synced_offset)

    def _holders(self, place: PartitionId) -> Iterator[tuple[int, Holding]]:
        """The nodes that may lead next, and their disks; without those of lost disks, as the controller will learn."""
        state = self.council.state
        partition = state.partitions.get(place)
        if partition is None:
            return
        for node_id in sorted({*partition.isr, *partition.elr}):
            node, known = self._nodes[node_id], state.registrations.get(node_id)
            if known is None or known.directory_id != node.directory_id or node_id in self._doubted:
                continue
            if node.store is None:
                at_rest = self._at_rest.get(node_id, {}).get(LogKey(*place))
                yield node_id, at_rest or _NOTHING
            else:
                log = node.store.log(LogKey(*place))
                yield node_id, _NOTHING if log is None else self._on_disk(node, log)

    def _cutting(self, place: PartitionId, batch: KnownBatch) -> Iterator[int]:
        """Whose replica is letting go of a batch: its machine knows of it no more, and the log has it yet."""
        for node_id, node in self._nodes.items():
            written, replica = self._logs.get((node_id, place)), self._replica(node, place)
            if written is None or replica is None or not has(written, batch):
                continue
            if not has(replica.machine.history, batch):
                yield node_id

    # -- the cluster --------------------------------------------------------------------------------

    def belongs(self, node_id: int, cluster_id: UUID, founders: Voters) -> None:
        self._trace("node %d is of the cluster %s, which %s formed", node_id, cluster_id, founders)
        if founders and any(not self._nodes[one.node_id].life for one in founders.ids):
            raise BrokenPromise(f"node {node_id} is of a cluster that was formed without one of {founders}")
        self.council.belongs(cluster_id, founders)

    # -- the quorum ---------------------------------------------------------------------------------

    def applied(self, node_id: int, batch: EntryBatch) -> None:
        if self.council.applied(node_id, batch):
            for event in self.council.take(batch):
                self._trace("committed: %s", event)
                if isinstance(event, NodeRegistered):
                    self._doubted.discard(event.node_id)

    def restored(self, node_id: int, digest: int) -> None:
        self.council.restored(node_id, digest)

    def said(self, node_id: int, message: Wire) -> None:
        if self.council.said(self._nodes[node_id].replica_id, message):
            self._voted(node_id)

    def governed(self, node_id: int, effect: QuorumEffect) -> None:
        node = self._nodes[node_id]
        if node.runner is not None:
            self._voters[node_id] = node.replica_id, node.runner.machine
            if not isinstance(effect, Send | Persist):
                self.voted.update(node.runner.machine.voters.ids)
            if isinstance(effect, QuorumCommit) and node.runner.machine.role is RaftRole.LEADER:
                self._committed(node.runner.machine, effect.high_watermark)
        if isinstance(effect, Became):
            self._trace("node %d is %s of the quorum in epoch %d", node_id, effect.role.name, effect.epoch)
            if effect.role is RaftRole.LEADER:
                self.council.led(node.replica_id, effect.epoch)
                self._led(node_id)

    def _committed(self, leader: RaftMachine, end_offset: int) -> None:
        """A leader has committed records up to an offset: no voter without them could win an election now.

        Of each voter's log, only the part that survives a power loss counts.
        """
        end = EpochEnd(leader.epoch_below(end_offset), end_offset)
        known = dict(self._voters.values())
        disks = {voter: known[voter] for voter in leader.voters.ids if voter in known}
        for voter, machine in disks.items():
            own = machine.synced_end
            if machine.start.offset >= end.offset:
                continue
            if own.offset >= end.offset and machine.epoch_below(end.offset) == end.epoch:
                continue
            if leader.voters.majority([other for other, one in disks.items() if one.synced_end <= own]):
                raise BrokenPromise(f"{end} of the metadata is committed, and {voter}, which lacks it, may lead")

    def elects_without(self, lost: SimulatedNode) -> bool:
        """Whether a replica of the quorum can still be elected if this node's disk is lost too.

        A set of voters applies as soon as it is in a log. So one disk less may leave no electable voter during a
        change: the one with all committed entries needs the vote of the new one, whose log may be longer from the lost
        disk.
        """
        left = {
            replica: machine
            for node_id, (replica, machine) in self._voters.items()
            if node_id != lost.node_id and self._nodes[node_id].replica_id == replica
        }
        return any(
            candidate.voters.majority([voter for voter, one in left.items() if one.synced_end <= candidate.synced_end])
            for replica, candidate in left.items()
            if replica in candidate.voters
        )

    def failed(self, node_id: int, error: DuramenError) -> None:
        self._trace("node %d takes no part any more: %s", node_id, error)
        self._failed(node_id, error)

    def reported(self, node_id: int, finding: str) -> None:
        self._trace("node %d reports: %s", node_id, finding)

    # -- replicas -----------------------------------------------------------------------------------

    def opens(self, node_id: int, place: PartitionId) -> None:
        store = self._nodes[node_id].store
        if self._replica(self._nodes[node_id], place) is not None:
            return  # it is only asked for
        log = None if store is None else store.log(LogKey(*place))
        key = node_id, place
        self._logs.pop(key, None)
        partition = self.council.state.partitions.get(place)
        if log is not None and not log.end_offset and partition is not None:
            self._begun[key] = partition.partition_epoch
        if log is not None and (log.start_offset == log.end_offset or log.active.max_timestamp >= 0):
            self._logs[key] = ReplicaHistory(takeovers_of(log), log.start_offset, log.end_offset)

    def led(self, node_id: int, place: PartitionId, leader_epoch: int | None) -> None:
        node, key = self._nodes[node_id], (node_id, place)
        replica = self._replica(node, place)
        self._trace("node %d leads %s in epoch %s", node_id, place, leader_epoch)
        if leader_epoch is None or replica is None:
            return
        self.ledger(place).led(node_id, node.life, leader_epoch, replica.machine.history)
        replicated = replica.partition.log.replicated
        if replicated is None or self._hooked.get(key) is replicated:
            return
        self._hooked[key], first, log = replicated, replicated.on_append, replica.partition.log

        def appended(epoch: int, first_offset: int, end_offset: int) -> None:
            if epoch == replicated.leader_epoch:
                data = log.active.pending[-1]
                head = header(data)
                if head.attributes & CONTROL and (marker := decode_marker(data)) is not None:
                    self.markers[head.crc] = head.producer_id, marker
                self.ledger(place).appended(node_id, epoch, first_offset, end_offset, head.crc)
                known = self._logs.get(key)
                if known is not None:
                    known.append(epoch, node_id, end_offset - first_offset)
            first(epoch, first_offset, end_offset)

        replicated.on_append = appended

    def carried_out(self, node_id: int, place: PartitionId, effect: Effect) -> None:
        key = node_id, place
        match effect:
            case ReplicaSend() | ServeReplicaFetch() | Release():
                pass
            case AppendRecords(batch, leader_id):
                data = bytes_of(batch)
                end_offset = batch.first_offset + batch.records
                if batch.epoch >= 0 and not self.compacted(place):
                    crc = header(data).crc
                    self.ledger(place).appended(node_id, batch.epoch, batch.first_offset, end_offset, crc)
                if key in self._logs:
                    self._logs[key].append(batch.epoch, leader_id, batch.records)
            case AdvanceHighWatermark(offset) | Show(offset):
                self._show(node_id, place, offset)
            case TruncateRecords(end_offset):
                self.cuts += 1
                self._trace("node %d cuts %s at %d", node_id, place, end_offset)
                known, replica = self._logs.get(key), self._replica(self._nodes[node_id], place)
                if known is not None and replica is not None:
                    self.ledger(place).cut(node_id, replica.epoch, known, end_offset)
                    known.cut(end_offset)
                self.ledger(place).holders_have_all()
            case Restart(start_offset):
                self.restarts += 1
                self._trace("node %d begins %s anew at %d", node_id, place, start_offset)
                self._logs[key] = ReplicaHistory((), start_offset, start_offset)
                self.ledger(place).starts(node_id, start_offset)
                self.ledger(place).holders_have_all()
            case StartAt(start_offset):
                if key in self._logs and start_offset > self._logs[key].start_offset:
                    self._logs[key].start_at(start_offset)
                self.ledger(place).starts(node_id, start_offset)

    def redirected(self, place: PartitionId, by_id: int, node_id: int, offset: int) -> None:
        """A node redirects a consumer at an offset to another node, which has everything before it on its disk.

        This is KIP-392. A node that has not learned yet of the other's new disk decides by the old one, and one that
        has not learned of its recreated replica, by the one before.
        """
        node, sender = self._nodes[node_id], self._nodes[by_id].member
        if sender is None or not any(one.directory_id == node.directory_id for one in sender.nodes):
            return
        known = sender.state.partitions.get(place)
        if known is None or known.partition_epoch < self._begun.get((node_id, place), 0):
            return
        log = None if node.store is None else node.store.log(LogKey(*place))
        if log is not None and self._replica(node, place) is not None and log.synced_offset < offset:
            raise self.ledger(place).broken(f"who reads from {offset} is sent to node {node_id}, which lacks it")

    def _show(self, node_id: int, place: PartitionId, offset: int) -> None:
        key = node_id, place
        known = self._shown.get(key, 0)
        if offset <= known:
            return
        replica = self._replica(self._nodes[node_id], place)
        if replica is not None:
            self._shown[key] = offset
            log = self._logs.get(key, replica.machine.history)
            self.ledger(place).shown(node_id, replica.machine.state.leader_epoch, log, known, offset)
