"""Counts of a cluster's partitions, updated with each metadata event, so that reading them costs nothing. Pure.

The counts are those of Apache Kafka's metrics of the same names.
"""

from collections.abc import Iterable

from duramen.base.ids import StreamId
from duramen.metadata.partitions import PartitionId, PartitionState, without

__all__ = ["PartitionCounters"]


class PartitionCounters:
    """The counters of all partitions known to this node, since `restart`.

    `offline` have no leader; `under_replicated` are led here and not all their replicas are in sync. `elections` counts
    those of all partitions, `unclean_elections` those by which records may be lost; `isr_shrinks` and `isr_expands`
    count those of partitions that are led here.
    """

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._known: dict[StreamId, dict[int, PartitionState]] = {}
        self.offline: dict[PartitionId, None] = {}
        self.under_replicated: dict[PartitionId, None] = {}
        self.elections = 0
        self.unclean_elections = 0
        self.isr_shrinks = 0
        self.isr_expands = 0

    def restart(self, partitions: Iterable[tuple[PartitionId, PartitionState]]) -> None:
        """Start with these partitions; earlier changes are not counted."""
        self._known.clear()
        self.offline.clear()
        self.under_replicated.clear()
        for place, state in partitions:
            self._take(place, state)

    def update(self, place: PartitionId, after: PartitionState, *, unclean: bool = False) -> PartitionState | None:
        """A partition has changed; returns its previous state, None for a new one.

        `unclean`: its leader may lack records.
        """
        before = self._take(place, after)
        if before is None:
            return None
        if after.leader is not None and after.leader_epoch != before.leader_epoch:
            self.elections += 1
            self.unclean_elections += unclean
        if after.leader == self._node_id:
            self.isr_shrinks += bool(without(before.isr, after.isr))
            self.isr_expands += bool(without(after.isr, before.isr))
        return before

    def removed(self, stream_id: StreamId) -> None:
        """The stream is deleted."""
        for partition in self._known.pop(stream_id, {}):
            place = PartitionId(stream_id, partition)
            self.offline.pop(place, None)
            self.under_replicated.pop(place, None)

    def _take(self, place: PartitionId, state: PartitionState) -> PartitionState | None:
        """Set the present state; returns the previous one."""
        known = self._known.get(place.stream_id)
        if known is None:
            known = self._known[place.stream_id] = {}
        before = known.get(place.partition)
        known[place.partition] = state
        _mark(self.offline, place, is_so=state.leader is None)
        # Replicas that a reassignment adds do not count as missing before they are in sync.
        leads = state.leader == self._node_id
        lacks = leads and bool(without(without(state.replicas, state.adding), state.isr))
        _mark(self.under_replicated, place, is_so=lacks)
        return before


def _mark(places: dict[PartitionId, None], place: PartitionId, *, is_so: bool) -> None:
    if is_so:
        places[place] = None
    elif places:  # usually there are none
        places.pop(place, None)
