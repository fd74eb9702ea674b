"""The health check of a cluster after its faults end: deviations from the required state, and the content of logs."""

from collections.abc import Callable, Mapping
from typing import Final

from duramen.base.errors import DuramenError, LogDamaged, StorageFull
from duramen.base.ports import Buffer
from duramen.broker.replicas.log import ReplicaLog
from duramen.codec.batch import batches
from duramen.controller.membership.lifecycle import LifecyclePhase
from duramen.metadata.partitions import PartitionId
from duramen.sim.cluster.checkers.history import Book
from duramen.sim.cluster.checkers.invariants import Witness
from duramen.sim.cluster.checkers.quorum import Council, is_coordinated
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.machine.trace import BrokenPromise
from duramen.storage.log.log import Log, LogKey

__all__ = ["ills", "inspect", "lacks_a_replica"]

_PIECE_BYTES: Final = 1 << 20


def ills(
    nodes: Mapping[int, SimulatedNode], council: Council, *, whole: bool = False, opened: bool = False
) -> list[str]:
    """The faults of the nodes; with `whole`, also of their content. `opened`: transactions may be open."""
    found = []
    for node in nodes.values():
        if node.process is None or not node.ready or node.member is None:
            found.append(f"node {node.node_id} does not run")
        elif node.member.lifecycle.phase is not LifecyclePhase.LIVE:
            found.append(f"node {node.node_id} is {node.member.lifecycle.phase.name}")
        elif whole and node.member.controller.applied_offset != council.end_offset:
            found.append(f"node {node.node_id} has not applied what is below {council.end_offset}")
        elif whole and node.replaces:
            found.append(f"node {node.node_id} does not vote yet in the place of the disk that it lost")
        elif whole and node.seeds and node.runner is not None:
            found += [
                f"node {node.node_id} counts on the vote of {voter}, whose disk is lost"
                for voter in node.runner.voters.ids
                if nodes[voter.node_id].replica_id != voter
            ]
    if whole and not found:
        for place, partition in council.state.partitions:
            if place in council.lost:
                continue
            if partition.leader is None:
                found.append(f"{place} has no leader: {partition}")
            elif set(partition.isr) != set(partition.replicas) or partition.is_moving:
                found.append(f"{place} is not in sync: {partition}")
            else:
                found += _behind(nodes, place, partition.leader, partition.replicas)
                found += [] if council.lost or opened else _open_transactions(nodes[partition.leader], place)
    return found


def _is_internal(council: Council, place: PartitionId) -> bool:
    return is_coordinated(council.state.stream_by_id(place.stream_id))


def _open_transactions(leader: SimulatedNode, place: PartitionId) -> list[str]:
    """Transactions without an end in a partition; their coordinator may wait for a lost partition."""
    log = None if leader.store is None else leader.store.log(LogKey(*place))
    opened = [] if log is None else log.transactions.opened()
    return [f"producer {producer_id} has a transaction open in {place}" for producer_id, _ in opened]


def lacks_a_replica(node: SimulatedNode) -> bool:
    """Whether the node takes no writes until a restart, as it has reported to its operator."""
    store, problem = node.store, None if node.member is None else node.member.problem
    if store is None or problem is None or isinstance(problem, StorageFull):
        return False
    follows_only = node.runner is not None and node.runner.problem is not None
    return follows_only or store.condition.problem is not None or any(log.failed for log in store.each_log())


def _behind(
    nodes: Mapping[int, SimulatedNode], place: PartitionId, leader_id: int, replicas: tuple[int, ...]
) -> list[str]:
    """Which replicas of a partition do not show all that there is."""
    ends = {node_id: _ends(nodes[node_id], place) for node_id in replicas}
    end_offset = ends[leader_id][1]
    return [
        f"node {node_id} shows {place} up to {shown}, not {end_offset}"
        for node_id, (shown, _) in ends.items()
        if shown != end_offset
    ]


def _ends(node: SimulatedNode, place: PartitionId) -> tuple[int, int]:
    log = None if node.store is None else node.store.log(LogKey(*place))
    return (-1, -2) if log is None else (log.high_watermark, log.end_offset)


def inspect(nodes: Mapping[int, SimulatedNode], witness: Witness, book: Book) -> None:
    """All logs are equal and have all committed and acknowledged records."""
    council = witness.council
    images = {node.node_id: node.member.state for node in nodes.values() if node.member is not None}
    for node_id, state in images.items():
        if state.streams != council.state.streams or state.partitions != council.state.partitions:
            raise BrokenPromise(f"node {node_id} has applied the same, and is in another state")
    for place, partition in council.state.partitions:
        if place in council.lost:
            continue
        ledger, page, internal = witness.ledger(place), book.page(place), _is_internal(council, place)
        ledger.holders_have_all()
        if witness.compacted(place):
            continue
        for node_id in partition.replicas:
            log, data = _read(nodes[node_id], place)
            if not internal:
                page.whole(log.start_offset, data)
            committed = [
                (one.first_offset, one.epoch, one.crc)
                for one in ledger.committed
                if one.first_offset >= log.start_offset
            ]
            if [(head.base_offset, head.leader_epoch, head.crc) for _, head in batches(data)] != committed:
                raise BrokenPromise(f"{ledger.name}: what is on node {node_id} is not what was committed")


def _read(node: SimulatedNode, place: PartitionId) -> tuple[Log, bytes]:
    """All of a log, from its files."""
    store, process = node.store, node.process
    log = None if store is None else store.log(LogKey(*place))
    if store is None or log is None or process is None:
        raise BrokenPromise(f"node {node.node_id} has no log of {place}")
    found: list[bytes] = []
    ended: list[DuramenError | None] = []
    source = ReplicaLog(store, log)

    def read(offset: int) -> Callable[[list[Buffer] | DuramenError], None]:
        def got(result: list[Buffer] | DuramenError) -> None:
            if isinstance(result, DuramenError):
                ended.append(result)
                return
            data = b"".join(bytes(piece) for piece in result)
            found.append(data)
            heads = [head for _, head in batches(data)]
            if not heads or heads[-1].next_offset >= log.end_offset:
                ended.append(None)
            else:
                source.read(heads[-1].next_offset, _PIECE_BYTES, read(heads[-1].next_offset))

        del offset
        return got

    source.read(log.start_offset, _PIECE_BYTES, read(log.start_offset))
    while not ended:
        process.hasten()
    if isinstance(ended[0], LogDamaged) or ended[0] is not None:
        raise BrokenPromise(f"node {node.node_id} cannot read {place}: {ended[0]}")
    return log, b"".join(found)
