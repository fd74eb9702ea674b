"""Plans that spread replicas and leaders over nodes: the moves, their reasons, and their order. Pure.

A plan is made and shown first; to execute it, each of its moves becomes a reassignment, a few at a time. It moves as
little as possible: replicas only leave nodes that are to be emptied, that share a rack with another replica although a
rack is free, or that have more than others. Leadership follows the order of the replicas and moves no data.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from duramen.metadata.events import PartitionChanged
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId, without
from duramen.metadata.reassignment import can_cancel, cancel, reassign
from duramen.metadata.state import ControllerState

__all__ = ["MoveReason", "MovesProgress", "ReplicaMove", "begin_moves", "cancel_moves", "plan", "progress"]


class MoveReason(Enum):
    """The reason of a move."""

    DRAIN = "a node is to have no replicas"
    RACK = "the replicas are spread better over racks"
    LOAD = "another node has fewer replicas"
    LEADER = "another node is the preferred leader of fewer partitions"


class ReplicaMove(NamedTuple):
    """A move of a partition from the replicas `before` to `after`."""

    place: PartitionId
    before: tuple[int, ...]
    after: tuple[int, ...]
    reasons: tuple[MoveReason, ...]

    @property
    def copies(self) -> int:
        """The number of replicas that it copies."""
        return len(without(self.after, self.before))


class MovesProgress(NamedTuple):
    """The moves of a plan by state: done, in progress, not started, and void, as their partition has changed."""

    done: int
    moving: int
    waiting: int
    void: int


def plan(state: ControllerState, without_nodes: Collection[int] = ()) -> list[ReplicaMove]:
    """The moves that spread all partitions over the nodes that take replicas, and empty the nodes `without_nodes`.

    Fenced and draining nodes keep their replicas. Reassignments in progress count as done. A partition stays unchanged
    if too few nodes are left for it.
    """
    nodes = [node for node in state.registrations if node.takes_replicas and node.id not in without_nodes]
    planner = _Planner(state, nodes, without_nodes)
    planner.empty()
    planner.spread_racks()
    planner.spread_load()
    planner.spread_leaders()
    return planner.moves()


class _Planner:
    """The state of all partitions while the plan is made."""

    def __init__(self, state: ControllerState, nodes: Sequence[Node], emptied: Collection[int]) -> None:
        self._nodes = {node.id: node for node in nodes}
        self._emptied = emptied
        self._racks = {node.id: node.rack for node in state.registrations}
        self._before = {place: partition.target for place, partition in state.partitions}
        self._after = {place: list(replicas) for place, replicas in self._before.items()}
        self._reasons: dict[PartitionId, dict[MoveReason, None]] = {}
        self._load: Counter[int] = Counter({node.id: 0 for node in nodes})
        for replicas in self._after.values():
            self._load.update(replicas)

    def moves(self) -> list[ReplicaMove]:
        return [
            ReplicaMove(place, self._before[place], tuple(self._after[place]), tuple(reasons))
            for place, reasons in self._reasons.items()
            if self._before[place] != tuple(self._after[place])
        ]

    def empty(self) -> None:
        """Replace the replicas on nodes to be emptied."""
        for place, replicas in self._after.items():
            for node_id in [member for member in replicas if member in self._emptied]:
                to = self._best(replicas, node_id, self._nodes)
                if to is not None:
                    self._replace(place, node_id, to, MoveReason.DRAIN)

    def spread_racks(self) -> None:
        """Replace replicas that share a rack if another rack has two fewer of the partition."""
        for place, replicas in self._after.items():
            while (swap := self._rack_swap(replicas)) is not None:
                self._replace(place, *swap, MoveReason.RACK)

    def _rack_swap(self, replicas: Sequence[int]) -> tuple[int, int] | None:
        counts = Counter(self._racks[member] for member in replicas)
        free = [node for node in self._nodes.values() if node.id not in replicas]
        if not free:
            return None
        to = min(free, key=lambda node: (counts[node.rack], self._load[node.id], node.id))
        member = max(replicas, key=lambda member: (counts[self._racks[member]], self._load[member], member))
        return (member, to.id) if counts[self._racks[member]] - counts[to.rack] > 1 else None

    def spread_load(self) -> None:
        """Replace replicas on nodes with at least two more than another one that can take them.

        First nodes give down to the mean and take up to it: moves beyond would have to be reversed.
        """
        if self._nodes:
            mean = math.ceil(sum(self._load[node_id] for node_id in self._nodes) / len(self._nodes))
            for least, most in ((mean, mean), (0, sum(self._load.values()))):
                while any(self._unload(node_id, least, most) for node_id in sorted(self._nodes, key=self._heaviest)):
                    pass

    def _heaviest(self, node_id: int) -> tuple[int, int]:
        return (-self._load[node_id], node_id)

    def _unload(self, node_id: int, least: int, most: int) -> bool:
        """Move replicas from a node with more than `least` to those with fewer than `most`; returns whether it did."""
        moved = False
        if self._load[node_id] - min(self._load[other] for other in self._nodes) < 2:
            return False
        for place, replicas in self._after.items():
            load = self._load[node_id]
            lighter = [other for other in self._nodes if self._load[other] < min(load - 1, most)]
            if not lighter or load <= least:
                break
            to = self._best(replicas, node_id, lighter) if node_id in replicas else None
            if to is not None and self._keeps_racks(replicas, node_id, to):
                self._replace(place, node_id, to, MoveReason.LOAD)
                moved = True
        return moved

    def _keeps_racks(self, replicas: Sequence[int], node_id: int, to: int) -> bool:
        old, new = self._racks[node_id], self._racks[to]
        if old == new:
            return True
        counts = Counter(self._racks[member] for member in replicas)
        return counts[new] < counts[old]

    def spread_leaders(self) -> None:
        """Put another replica first if its node is first less often, by two or more.

        Nodes to be emptied are first only if no other can be.
        """
        first = Counter(replicas[0] for replicas in self._after.values())
        moved = True
        while moved:
            moved = False
            for place, replicas in self._after.items():
                staying = [member for member in replicas if member not in self._emptied] or replicas
                best = min(staying, key=lambda member: (first[member], member))
                leaves = replicas[0] not in staying
                if leaves or first[replicas[0]] - first[best] > 1:
                    first[replicas[0]] -= 1
                    first[best] += 1
                    at = replicas.index(best)
                    replicas[0], replicas[at] = replicas[at], replicas[0]
                    self._reasons.setdefault(place, {})[MoveReason.DRAIN if leaves else MoveReason.LEADER] = None
                    moved = True

    def _best(self, replicas: Sequence[int], leaving: int, candidates: Iterable[int]) -> int | None:
        """The node to replace a replica: in the rack with the fewest of the others, with the fewest replicas."""
        counts = Counter(self._racks[member] for member in replicas if member != leaving)
        able = [node_id for node_id in candidates if node_id not in replicas]
        return min(
            able,
            key=lambda node_id: (
                counts[self._racks[node_id]],
                self._nodes[node_id].fenced,
                self._load[node_id],
                node_id,
            ),
            default=None,
        )

    def _replace(self, place: PartitionId, node_id: int, to: int, reason: MoveReason) -> None:
        replicas = self._after[place]
        replicas[replicas.index(node_id)] = to
        self._load[node_id] -= 1
        self._load[to] += 1
        self._reasons.setdefault(place, {})[reason] = None


def progress(state: ControllerState, moves: Sequence[ReplicaMove]) -> MovesProgress:
    """The progress of a plan."""
    counts = Counter(_stage(state, move) for move in moves)
    return MovesProgress(counts["done"], counts["moving"], counts["waiting"], counts["void"])


def _stage(state: ControllerState, move: ReplicaMove) -> str:
    partition = state.partitions.get(move.place)
    nodes = [state.registrations.get(member) for member in move.after]
    if partition is None or not all(node is not None and node.holds_partitions for node in nodes):
        return "void"
    if partition.target == move.after:
        return "moving" if partition.is_moving else "done"
    return "waiting" if partition.target == move.before and not partition.is_moving else "void"


def begin_moves(state: ControllerState, moves: Sequence[ReplicaMove], at_once: int) -> list[PartitionChanged]:
    """Start the next moves of a plan, up to `at_once` that copy data."""
    room = at_once - progress(state, moves).moving
    events: list[PartitionChanged] = []
    for move in moves:
        if _stage(state, move) == "waiting" and (move.copies == 0 or room > 0):
            room -= move.copies > 0
            events += reassign(state, move.place, move.after)
    return events


def cancel_moves(state: ControllerState, moves: Sequence[ReplicaMove]) -> list[PartitionChanged]:
    """Cancel the moves of a plan that are in progress; completed ones stay, and those that can only continue."""
    events: list[PartitionChanged] = []
    for move in moves:
        partition = state.partitions.get(move.place)
        if partition is not None and _stage(state, move) == "moving" and can_cancel(partition):
            events += cancel(state, move.place)
    return events
