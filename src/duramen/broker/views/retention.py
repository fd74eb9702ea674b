"""How far back a view supports snapshots: S0, and the horizon of tombstones."""

from collections.abc import Callable

from duramen.base.ports import Clock
from duramen.broker.views.floors import ReplicaFloor
from duramen.broker.views.parts import ViewTimes
from duramen.broker.views.state import ViewState
from duramen.keyed.compaction import next_s0
from duramen.keyed.floors import KeptFloor
from duramen.keyed.snapshots import SnapshotBounds
from duramen.keyed.view import KeyedView

__all__ = ["SnapshotRetention"]

_Do = Callable[[Callable[[], KeptFloor], Callable[[KeptFloor | BaseException], None]], None]


class SnapshotRetention:
    """S0 rises with time as far as no snapshot holds it; on a cluster, as far as the replicas have agreed."""

    def __init__(
        self,
        state: ViewState,
        clock: Clock,
        times: ViewTimes,
        oldest_held: Callable[[], int | None],
        floor: ReplicaFloor | None,
        oldest_reader: Callable[[], int | None],
    ) -> None:
        self._state = state
        self._clock = clock
        self.times = times
        self.oldest_held = oldest_held
        self.oldest_reader = oldest_reader
        self._floor = floor
        self._unheld = -1

    @property
    def bounds(self) -> SnapshotBounds:
        """Which snapshots there are, as of the facts."""
        facts, whole_from = self._state.facts, self._state.partition.log.whole_from
        horizon = facts.horizon if facts.s0 >= whole_from else whole_from
        position = facts.position if self._state.loaded_once else -1
        return self.opened(SnapshotBounds(max(facts.s0, whole_from), position, horizon))

    def opened(self, bounds: SnapshotBounds) -> SnapshotBounds:
        """Which of these snapshots this replica opens."""
        return bounds if self._floor is None else self._floor.bounds(bounds)

    def unheld_s0(self, view: KeyedView) -> int:
        """The S0 that would hold if no snapshot were held open."""
        oldest_ms = self._clock.wall_ms() - self.times.snapshot_retention_ms
        found = view.samples.as_of(oldest_ms).position
        # A pass of a live topic ends at the last stable offset, which has to be a snapshot that there is.
        return min(found, view.live_end) if self.times.live else found

    def advance(self, view: KeyedView, oldest_held: int | None, oldest_reader: int | None, now_ms: int) -> None:
        """Raise S0 and the horizon as far as they may be now."""
        self._unheld = self.unheld_s0(view)
        if self._floor is None:
            view.raise_s0(next_s0(view.s0, self._unheld, oldest_held, view.position))
        else:
            view.raise_s0(min(self._floor.agreed, view.position))
        self.raise_horizon(view, now_ms, oldest_reader)
        view.samples.drop_before(now_ms - max(self.times[:2]))

    def raise_horizon(self, view: KeyedView, now_ms: int, oldest_reader: int | None) -> None:
        """Compaction drops a tombstone below where the view stood `delete.retention.ms` ago, and below S0."""
        bound = min(view.s0, view.samples.as_of(now_ms - self.times.delete_retention_ms).position)
        view.raise_horizon(bound if oldest_reader is None else min(bound, oldest_reader))

    def restored(self, view: KeyedView) -> None:
        """The view was loaded. Compaction may have gone by samples that are not in its checkpoint."""
        if view.samples.after(self._clock.wall_ms() - self.times.delete_retention_ms) is None:
            view.raise_horizon(view.s0)

    def keep_tombstones(self) -> None:
        """Keep tombstones for the time that the stream's config gives. A job."""
        if self._state.view is not None:
            self._state.view.keep_tombstones(self.times.delete_retention_ms)

    def look(self, do: _Do) -> None:
        """A new sample: report to the replicas the value to which this one would raise S0."""
        if self._floor is not None:
            self._floor.look(self._state.facts.position, self._unheld, do)
