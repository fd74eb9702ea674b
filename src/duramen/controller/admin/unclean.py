"""Unclean elections that a stream's config enables: the most complete live replica leads, as if an operator asked.

The controller knows which nodes are live, not what their logs have. So its node asks them once a partition has had no
leader for a while, and requests the election of the best one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.ids import StreamId, stream_id_of
from duramen.base.ports import Clock
from duramen.controller.admin.cluster import AdministeredMembership
from duramen.controller.admin.completeness import Completeness
from duramen.controller.admin.replica_survey import Survey
from duramen.metadata.events import Event, NodeConfigured, PartitionChanged, StreamConfigured
from duramen.metadata.partitions import PartitionId
from duramen.metadata.stream_rules import RulesOf

__all__ = ["UncleanElections"]

_WAIT_MS: Final = 1_000
"""The period in which a replica with all records may return first."""


class UncleanElections:
    """Elects leaders for partitions without one, on the active controller's node."""

    def __init__(
        self,
        node_id: int,
        membership: Callable[[], AdministeredMembership],
        completeness: Completeness,
        clock: Clock,
        deadlines: Deadlines,
    ) -> None:
        self._node_id = node_id
        self._membership = membership
        self._completeness = completeness
        self._clock = clock
        self._deadlines = deadlines
        self._before: frozenset[PartitionId] = frozenset()  # partitions without a leader at the last look
        self._armed = False

    def on_event(self, event: Event | None) -> None:
        """The metadata has changed: partitions may have lost their leader, or their config may allow another one."""
        if not self._armed and self._electable(self._touched(event)):
            self._later()

    def _touched(self, event: Event | None) -> Iterable[StreamId]:
        """The streams whose partitions may need an election after an event; None: the whole state was replaced."""
        match event:
            case PartitionChanged(leader=None) | StreamConfigured():
                return (stream_id_of(event.id),)
            case None | NodeConfigured():
                return self._all()
        return ()

    def _all(self) -> Iterable[StreamId]:
        return (stream.id for stream in self._membership().state.streams.values())

    def _electable(self, stream_ids: Iterable[StreamId]) -> frozenset[PartitionId]:
        """The partitions without a leader whose config allows an unclean election."""
        state = self._membership().state
        rules = RulesOf(state)
        return frozenset(
            PartitionId(stream_id, index)
            for stream_id in stream_ids
            if state.stream_by_id(stream_id) is not None and rules[stream_id].may_lose
            for index, partition in state.partitions.of_stream(stream_id).items()
            if partition.leader is None
        )

    def _later(self) -> None:
        self._armed = True
        self._deadlines.at(self._clock.monotonic_ms() + _WAIT_MS, self._look)

    def _look(self) -> None:
        self._armed = False
        electable = self._electable(self._all())
        waiting, self._before = electable & self._before, electable
        if electable:
            self._later()
        if waiting and self._membership().controller_id == self._node_id:
            self._completeness.survey(sorted(waiting), self._surveyed)

    def _surveyed(self, surveys: Sequence[Survey]) -> None:
        found = [one for one in surveys if one.best is not None]
        if found:
            self._membership().cluster_admin.elect_unclean(found, lambda _: None)
