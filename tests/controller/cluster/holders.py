"""What the disks of a cluster hold, beside what its controller believes: the witness of the property tests.

Of each partition it counts the records that were acknowledged, and how many of them each replica surely has. Replicas
that are not in sync get nothing more: the worst that can be.
"""

from collections.abc import Iterable
from uuid import UUID

from msgspec import UNSET

from duramen.controller.cluster.rules import Loss, rules_of
from duramen.controller.events import Event, PartitionChanged
from duramen.controller.partitions import PartitionId, PartitionState
from duramen.controller.state import ControllerState


class Holders:
    """Who has which part of what was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: dict[PartitionId, int] = {}
        self._has: dict[tuple[PartitionId, int], int] = {}

    def has(self, place: PartitionId, node_id: int) -> int:
        """How many of the acknowledged records, from the first on, a node has."""
        return self._has.get((place, node_id), 0)

    def acknowledge(self, state: ControllerState) -> None:
        """A record comes to every partition, and is acknowledged where enough are in sync."""
        for place, partition in state.partitions:
            least = rules_of(state, place.stream_id).least_in_sync(partition)
            if partition.leader is not None and len(partition.isr) >= least:
                self.acknowledged[place] = self.acknowledged.get(place, 0) + 1
                for member in partition.isr:
                    self._has[place, member] = self.acknowledged[place]

    def lose(self, state: ControllerState, node_id: int, loss: Loss) -> None:
        """A node has lost something; what nobody has any more was destroyed."""
        for place, partition in state.partitions:
            if rules_of(state, place.stream_id).loses(loss):
                self._has.pop((place, node_id), None)
                acknowledged = self.acknowledged.get(place, 0)
                if not any(self.has(place, member) >= acknowledged for member in partition.replicas):
                    self._cut(place, partition.replicas, 0)

    def see(self, state: ControllerState, event: Event) -> None:
        """An event took effect: who is newly in sync has caught up, and an unclean leader's log is all that counts."""
        if not isinstance(event, PartitionChanged):
            return
        place = PartitionId(UUID(event.id), event.partition)
        partition = state.partitions.get(place)
        if partition is None:
            return
        if event.unclean:
            assert partition.leader is not None
            self._cut(place, partition.replicas, self.has(place, partition.leader))
        elif event.leader is not UNSET and event.leader is not None:
            assert self.has(place, event.leader) >= self.acknowledged.get(place, 0), "elected without what it needs"

    def join(self, place: PartitionId, members: Iterable[int]) -> None:
        """The leader has seen these catch up with it."""
        for member in members:
            self._has[place, member] = self.acknowledged.get(place, 0)

    def check(self, place: PartitionId, partition: PartitionState) -> None:
        """Whoever may be elected has everything."""
        for member in (*partition.isr, *partition.elr):
            assert self.has(place, member) >= self.acknowledged.get(place, 0), (member, partition)

    def _cut(self, place: PartitionId, replicas: Iterable[int], to: int) -> None:
        self.acknowledged[place] = to
        for member in replicas:
            self._has[place, member] = min(self.has(place, member), to)
