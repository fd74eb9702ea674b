"""Reports of nodes: that a partition's leader does not respond to a follower, or that a replica is damaged. Pure.

Enough followers that report in a short time depose a leader. Reports are not in the log: a new active controller has
none.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from duramen.metadata.events import PartitionChanged
from duramen.metadata.leader_election import change, settle
from duramen.metadata.partitions import PartitionId, PartitionState, difference, without
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import rules_of

__all__ = ["WINDOW_MS", "Reports", "depose", "lose_records", "watchers"]

WINDOW_MS: Final = 1_000


class Reports:
    """The reports of the last `window_ms`, by partition; those of one leader epoch do not count for another."""

    __slots__ = ("_by_place", "_window_ms")

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._by_place: dict[PartitionId, tuple[int, dict[int, int]]] = {}

    def report(
        self,
        place: PartitionId,
        partition: PartitionState,
        reporter: int,
        leader_epoch: int,
        now_ms: int,
        fetching: Collection[int] | None = None,
    ) -> bool:
        """A node cannot reach the leader of that epoch; returns whether there are enough reports.

        `fetching` are the in-sync nodes that fetch from the leader, if those are not all: in a chain it is one. Reports
        of other nodes do not count.
        """
        if leader_epoch != partition.leader_epoch or partition.leader is None:
            return False
        counting = watchers(partition) if fetching is None else tuple(fetching)
        epoch, heard = self._by_place.get(place, (leader_epoch, {}))
        if epoch != leader_epoch:
            heard = {}
        heard = {node_id: at_ms for node_id, at_ms in heard.items() if now_ms - at_ms < self._window_ms}
        if reporter in counting:
            heard[reporter] = now_ms
        self._by_place[place] = (leader_epoch, heard)
        enough = 2 * sum(node_id in counting for node_id in heard) > len(counting)
        if enough or not heard:
            del self._by_place[place]
        return enough

    def forget(self, now_ms: int) -> None:
        """Drop reports that are too old to count."""
        self._by_place = {
            place: (epoch, heard)
            for place, (epoch, heard) in self._by_place.items()
            if any(now_ms - at_ms < self._window_ms for at_ms in heard.values())
        }

    def __len__(self) -> int:
        return len(self._by_place)


def watchers(partition: PartitionState) -> tuple[int, ...]:
    """The in-sync nodes that fetch from the leader, if all of them do."""
    return tuple(member for member in partition.isr if member != partition.leader)


def depose(state: ControllerState, place: PartitionId) -> list[PartitionChanged]:
    """Make another in-sync node the leader, and remove the old one from the in-sync set; none without another live one.

    The node itself is not fenced: it may be unreachable only for its followers, and is in sync again once it has caught
    up with the new leader.
    """
    partition = state.partitions.get(place)
    if partition is None or partition.leader is None:
        return []
    others = without(partition.isr, (partition.leader,))
    if state.registrations.live.isdisjoint(others):
        return []
    wanted = msgspec.structs.replace(partition, isr=others, leader=None)
    return change(place, partition, wanted, state.registrations, rules_of(state, place.stream_id))


def lose_records(state: ControllerState, place: PartitionId, node_id: int) -> list[PartitionChanged]:
    """Damage has cost a running node's replica records that it acknowledged: the replica does not count for them.

    It leaves the in-sync set if another replica is in sync or eligible; else it has most records, and stays. In either
    case a new leader epoch starts: the leader's knowledge of this replica's progress is invalid.
    """
    partition = state.partitions.get(place)
    if partition is None:
        return []
    others = without((*partition.isr, *partition.elr), (node_id,))
    rules = rules_of(state, place.stream_id)
    after, unclean = settle(partition, partition, state.registrations, rules, lost=node_id if others else None)
    epochs = partition.leader_epoch + 1, partition.partition_epoch + 1
    after = msgspec.structs.replace(after, leader_epoch=epochs[0], partition_epoch=epochs[1])
    return [difference(place, partition, after, unclean=unclean)]
