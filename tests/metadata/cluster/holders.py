"""What the disks of a cluster hold, beside what its controller believes: the witness of the property tests.

Of each partition it counts the records that were acknowledged, and how many of them each replica surely has. Replicas
that are not in sync get nothing more: the worst that can be.

A node knows the metadata as of when it last caught up with it, leads and follows by that, and so may lead for a while
after another was elected. A leader waits for all that are in sync as it knows it, and for whom it has proposed since.
"""

from collections.abc import Iterable
from uuid import UUID

from msgspec import UNSET

from duramen.metadata.events import Event, PartitionChanged
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import Loss, rules_of

_View = dict[PartitionId, tuple[PartitionState, int]]


class Holders:
    """Who has which part of what was acknowledged, and what each node knows of the metadata."""

    def __init__(self) -> None:
        self.acknowledged: dict[PartitionId, int] = {}
        self._has: dict[tuple[PartitionId, int], int] = {}
        self._views: dict[int, _View] = {}
        self._proposed: dict[tuple[PartitionId, int], set[int]] = {}

    def has(self, place: PartitionId, node_id: int) -> int:
        """How many of the acknowledged records, from the first on, a node has."""
        return self._has.get((place, node_id), 0)

    def knows(self, place: PartitionId, node_id: int) -> PartitionState | None:
        """A partition as a node knows it."""
        known = self._views.get(node_id, {}).get(place)
        return None if known is None else known[0]

    def catch_up(self, state: ControllerState, node_id: int) -> None:
        """A node has applied all of the metadata."""
        self._views[node_id] = {
            place: (partition, rules_of(state, place.stream_id).least_in_sync(partition))
            for place, partition in state.partitions
        }
        self._proposed = {key: members for key, members in self._proposed.items() if key[1] != node_id}

    def acknowledge(self) -> None:
        """A record comes to every leader, and is acknowledged where enough are in sync and all of them follow it."""
        for node_id, view in self._views.items():
            for place, (partition, least) in view.items():
                waits_for = {*partition.isr, *self._proposed.get((place, node_id), ())}
                if partition.leader != node_id or len(partition.isr) < least:
                    continue
                if all(self._follows(place, member, partition) for member in waits_for - {node_id}):
                    assert self.has(place, node_id) >= self.acknowledged.get(place, 0), "two leaders acknowledge"
                    self.acknowledged[place] = self.acknowledged.get(place, 0) + 1
                    for member in waits_for:
                        self._has[place, member] = self.acknowledged[place]

    def _follows(self, place: PartitionId, member: int, partition: PartitionState) -> bool:
        known = self.knows(place, member)
        return known is not None and (known.leader, known.leader_epoch) == (partition.leader, partition.leader_epoch)

    def propose(self, place: PartitionId, leader: int, members: Iterable[int]) -> tuple[int, ...]:
        """Whom of these a leader can propose: those that follow it. They have caught up with it then."""
        partition = self.knows(place, leader)
        assert partition is not None
        following = tuple(member for member in members if member == leader or self._follows(place, member, partition))
        for member in following:
            self._has[place, member] = max(self.has(place, member), self.has(place, leader))
        self._proposed.setdefault((place, leader), set()).update(following)
        return following

    def lose(self, state: ControllerState, node_id: int, loss: Loss) -> None:
        """A node has lost something; what nobody has any more was destroyed. Its new process knows nothing yet."""
        self._views[node_id] = {}
        self._proposed = {key: members for key, members in self._proposed.items() if key[1] != node_id}
        for place, partition in state.partitions:
            if rules_of(state, place.stream_id).loses(loss):
                self._has.pop((place, node_id), None)
                acknowledged = self.acknowledged.get(place, 0)
                if not any(self.has(place, member) >= acknowledged for member in partition.replicas):
                    self._cut(place, partition.replicas, 0)

    def see(self, state: ControllerState, event: Event) -> None:
        """An event took effect: an unclean leader's log is all that counts from there on."""
        if not isinstance(event, PartitionChanged):
            return
        place = PartitionId(UUID(event.id), event.partition)
        partition = state.partitions.get(place)
        if partition is None:
            return
        if event.unclean:
            assert partition.leader is not None
            self._cut(place, partition.replicas, self.has(place, partition.leader))
            for view in self._views.values():
                view.pop(place, None)
        elif event.leader is not UNSET and event.leader is not None:
            assert self.has(place, event.leader) >= self.acknowledged.get(place, 0), "elected without what it needs"

    def check(self, place: PartitionId, partition: PartitionState) -> None:
        """Whoever may be elected has everything."""
        for member in (*partition.isr, *partition.elr):
            assert self.has(place, member) >= self.acknowledged.get(place, 0), (member, partition)

    def _cut(self, place: PartitionId, replicas: Iterable[int], to: int) -> None:
        self.acknowledged[place] = to
        for member in replicas:
            self._has[place, member] = min(self.has(place, member), to)
