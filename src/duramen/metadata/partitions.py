"""The replicas of partitions in the metadata log: assignment, leader, in-sync set. Pure.

Two indexes are kept besides, because a change of a node with ten thousand partitions must not scan all: the partitions
that have a replica on a node, and the number that the node leads.
"""

from collections.abc import Container, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from duramen.base.ids import StreamId
from duramen.metadata.events import PartitionChanged

__all__ = ["PartitionId", "PartitionState", "Partitions", "difference", "without"]

_NO_PARTITIONS: Final[Mapping[int, "PartitionState"]] = MappingProxyType({})


class PartitionId(NamedTuple):
    """A partition of a stream."""

    stream_id: StreamId
    partition: int


class PartitionState(msgspec.Struct, frozen=True, gc=False):
    """The replicas of a partition. Sets of nodes are tuples of their ids.

    `replicas`: the present and future ones; the first is the preferred leader. `isr`: those in sync. `elr`: others that
    have every acknowledged record (KIP-966). `last_known_elr`: former members that returned without their records.
    `adding` and `removing` are the replicas that a reassignment in progress adds and removes (KIP-455). `leader_epoch`
    increases with each change of the leader and each added replica, `partition_epoch` with each change.
    """

    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    leader: int | None = None
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after a reassignment in progress."""
        return without(self.replicas, self.removing)

    @property
    def preferred(self) -> int | None:
        """The preferred leader."""
        return next((member for member in self.replicas if member not in self.removing), None)

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)


_NOTHING: Final = PartitionState()


def without(members: tuple[int, ...], others: Container[int | None]) -> tuple[int, ...]:
    """The members that are not among the others, in order."""
    return tuple([member for member in members if member not in others])


def difference(
    place: PartitionId, before: PartitionState | None, after: PartitionState, *, unclean: bool = False
) -> PartitionChanged:
    """The event that changes `before` to `after`; None: a new partition."""
    stream_id, partition = str(place[0]), place[1]
    if before is None:
        return PartitionChanged(
            stream_id,
            partition,
            after.partition_epoch,
            after.leader,
            after.leader_epoch,
            after.replicas,
            after.isr,
            after.elr,
            after.last_known_elr,
            after.adding,
            after.removing,
            unclean,
        )
    return PartitionChanged(
        stream_id,
        partition,
        after.partition_epoch,
        UNSET if after.leader == before.leader else after.leader,
        UNSET if after.leader_epoch == before.leader_epoch else after.leader_epoch,
        UNSET if after.replicas == before.replicas else after.replicas,
        UNSET if after.isr == before.isr else after.isr,
        UNSET if after.elr == before.elr else after.elr,
        UNSET if after.last_known_elr == before.last_known_elr else after.last_known_elr,
        UNSET if after.adding == before.adding else after.adding,
        UNSET if after.removing == before.removing else after.removing,
        unclean,
    )


class Partitions:
    """The partitions with replicas. Those of a standalone node have none."""

    __slots__ = ("_by_stream", "_leaders", "_of_node", "_preferred")

    def __init__(self) -> None:
        self._by_stream: dict[StreamId, dict[int, PartitionState]] = {}
        self._of_node: dict[int, dict[PartitionId, None]] = {}  # not a set: its order must follow from the events
        self._leaders: dict[int, int] = {}
        self._preferred: dict[int, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partitions) and self._by_stream == other._by_stream

    __hash__ = None  # type: ignore[assignment]  # they change

    def __iter__(self) -> Iterator[tuple[PartitionId, PartitionState]]:
        return (
            (PartitionId(stream_id, partition), state)
            for stream_id, states in self._by_stream.items()
            for partition, state in states.items()
        )

    def __len__(self) -> int:
        return sum(map(len, self._by_stream.values()))

    def get(self, place: PartitionId) -> PartitionState | None:
        """The partition, if it has replicas."""
        return self._by_stream.get(place[0], _NO_PARTITIONS).get(place[1])

    def of_stream(self, stream_id: StreamId) -> Mapping[int, PartitionState]:
        """The partitions of a stream, by number."""
        return MappingProxyType(self._by_stream.get(stream_id, {}))

    def of_node(self, node_id: int) -> Iterator[tuple[PartitionId, PartitionState]]:
        """The partitions that have a replica on the node; no event may be applied meanwhile."""
        by_stream = self._by_stream
        return ((place, by_stream[place[0]][place[1]]) for place in self._of_node.get(node_id, ()))

    def replica_count(self, node_id: int) -> int:
        """The number of a node's replicas."""
        return len(self._of_node.get(node_id, ()))

    def leader_count(self, node_id: int) -> int:
        """The number of partitions that a node leads."""
        return self._leaders.get(node_id, 0)

    def preferred_count(self, node_id: int) -> int:
        """The number of partitions that have the node as preferred leader."""
        return self._preferred.get(node_id, 0)

    def copy(self) -> "Partitions":
        """A copy of the partitions."""
        other = Partitions()
        other._by_stream = {stream_id: dict(states) for stream_id, states in self._by_stream.items()}
        other._of_node = {node_id: dict(places) for node_id, places in self._of_node.items()}
        other._leaders = dict(self._leaders)
        other._preferred = dict(self._preferred)
        return other

    def apply(self, stream_id: StreamId, event: PartitionChanged) -> None:
        """Apply an event; one that is not newer than the known state changes nothing."""
        states = self._by_stream.get(stream_id)
        if states is None:
            states = self._by_stream[stream_id] = {}
        before = states.get(event.partition, _NOTHING)
        if before is not _NOTHING and event.partition_epoch <= before.partition_epoch:
            return
        after = states[event.partition] = _changed(before, event)
        if before.leader != after.leader:
            _move(self._leaders, before.leader, after.leader)
        if before.replicas != after.replicas or before.adding != after.adding or before.removing != after.removing:
            _move(self._preferred, before.preferred, after.preferred)
        if before.replicas != after.replicas:
            self._index(PartitionId(stream_id, event.partition), before.replicas, after.replicas)

    def remove_stream(self, stream_id: StreamId) -> None:
        """The stream is deleted."""
        for partition, state in self._by_stream.pop(stream_id, {}).items():
            _move(self._leaders, state.leader, None)
            _move(self._preferred, state.preferred, None)
            self._index(PartitionId(stream_id, partition), state.replicas, ())

    def _index(self, place: PartitionId, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        of_node = self._of_node
        for node_id in before:
            if node_id not in after:
                del of_node[node_id][place]
        for node_id in after:
            places = of_node.get(node_id)
            if places is None:
                places = of_node[node_id] = {}
            places[place] = None


def _move(counts: dict[int, int], before: int | None, after: int | None) -> None:
    """Count a partition for one node instead of another."""
    if before == after:
        return
    if before is not None:
        counts[before] -= 1
    if after is not None:
        counts[after] = counts.get(after, 0) + 1


def _changed(before: PartitionState, event: PartitionChanged) -> PartitionState:
    return PartitionState(
        before.replicas if event.replicas is UNSET else event.replicas,
        before.isr if event.isr is UNSET else event.isr,
        before.leader if event.leader is UNSET else event.leader,
        before.leader_epoch if event.leader_epoch is UNSET else event.leader_epoch,
        event.partition_epoch,
        before.elr if event.elr is UNSET else event.elr,
        before.last_known_elr if event.last_known_elr is UNSET else event.last_known_elr,
        before.adding if event.adding is UNSET else event.adding,
        before.removing if event.removing is UNSET else event.removing,
    )
