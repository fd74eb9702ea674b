"""Cluster events as log lines for operators: node events at once, partition events one line for all of a second.

They are in the order of the metadata log: a node's event comes before its effects on partitions.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.ports import Clock
from duramen.metadata.events import NodeDraining, NodeEvent, NodeFenced, NodeRegistered, NodeUnfenced, NodeUnregistered
from duramen.metadata.partitions import PartitionState, without

__all__ = ["ClusterEventLog"]

_SUMMED_MS: Final = 1_000
_NAMED: Final = 3


class ClusterEventLog:
    """Reports the events of the metadata log to `tell`, in order. The lines of several nodes are equal.

    `warn` gets elections by which records may be lost, at once.
    """

    def __init__(
        self, clock: Clock, deadlines: Deadlines, tell: Callable[[str], None], warn: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._tell = tell
        self._warn = warn
        self._moves: Counter[tuple[int | None, int | None]] = Counter()
        self._leaderless: list[str] = []
        self._left: Counter[int] = Counter()
        self._joined: Counter[int] = Counter()
        self._led: set[str] = set()  # the partitions in the pending lines; one may change more than once
        self._isr_changed: set[str] = set()
        self._alarm = Alarm(deadlines, self._fire)
        self._due_ms: int | None = None

    def node(self, event: NodeEvent) -> None:
        """Report a node event, after pending partition events."""
        self._say()
        match event:
            case NodeRegistered(node_id=node_id, rack=rack):
                self._tell(f"node {node_id} has registered{f', in rack {rack}' if rack else ''}")
            case NodeFenced(node_id=node_id):
                self._tell(
                    f"node {node_id} is fenced: it leads no partition, and leaves each in-sync set that has "
                    "another member"
                )
            case NodeUnfenced(node_id=node_id):
                self._tell(f"node {node_id} is live")
            case NodeDraining(node_id=node_id, unwritable=True):
                self._tell(f"node {node_id} accepts no writes: its leaderships move to other nodes")
            case NodeDraining(node_id=node_id):
                self._tell(f"node {node_id} is about to stop: its leaderships move to other nodes")
            case NodeUnregistered(node_id=node_id):
                self._tell(f"node {node_id} was removed from the cluster")

    def partition(self, name: str, before: PartitionState, after: PartitionState, *, unclean: bool = False) -> None:
        """A partition has changed; `name` is for people. `unclean`: its leader may lack acknowledged records."""
        if unclean:
            self._say()
            self._warn(
                f"unclean election: {_who(after.leader)} leads {name}; acknowledged records that it lacks are lost"
            )
        if before.leader != after.leader:
            self._led.add(name)
            self._moves[before.leader, after.leader] += 1
            if after.leader is None:
                self._leaderless.append(name)
        if before.isr != after.isr:
            left, joined = without(before.isr, after.isr), without(after.isr, before.isr)
            if left or joined:
                self._isr_changed.add(name)
            for node_id in left:
                self._left[node_id] += 1
            for node_id in joined:
                self._joined[node_id] += 1
        if self._due_ms is None and (self._moves or self._isr_changed):
            self._due_ms = self._clock.monotonic_ms() + _SUMMED_MS
            self._alarm.move(self._due_ms)

    def stop(self) -> None:
        """Report pending events."""
        self._alarm.move(None)
        self._say()

    def _fire(self) -> None:
        if self._due_ms is not None and self._clock.monotonic_ms() >= self._due_ms:
            self._say()
        else:
            self._alarm.move(self._due_ms)

    def _say(self) -> None:
        self._due_ms = None
        if self._moves:
            moves = ", ".join(
                f"{count} from {_who(before)} to {_who(after)}" for (before, after), count in self._moves.most_common()
            )
            self._tell(f"leaders of {_partitions(len(self._led))} changed: {moves}{self._waiting()}")
        if self._isr_changed:
            parts = ", ".join(filter(None, [_each("left", self._left), _each("joined", self._joined)]))
            self._tell(f"in-sync sets of {_partitions(len(self._isr_changed))} changed: {parts}")
        self._moves.clear()
        self._leaderless.clear()
        self._left.clear()
        self._joined.clear()
        self._led.clear()
        self._isr_changed.clear()

    def _waiting(self) -> str:
        if not self._leaderless:
            return ""
        more = " …" if len(self._leaderless) > _NAMED else ""
        return f"; without a leader: {', '.join(self._leaderless[:_NAMED])}{more}"


def _who(node_id: int | None) -> str:
    return "nobody" if node_id is None else f"node {node_id}"


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def _each(verb: str, counts: Mapping[int, int]) -> str:
    return ", ".join(f"node {node_id} {verb} {counts[node_id]}" for node_id in sorted(counts))
