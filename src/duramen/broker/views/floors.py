"""S0 of a replica at run time: raised by the leader, stored on disk by every replica that receives it."""

from collections.abc import Callable

from duramen.broker.partition import Partition
from duramen.broker.views.floorfile import FloorFile
from duramen.keyed.checkpoint import LogPositions
from duramen.keyed.compaction import next_s0
from duramen.keyed.floors import KeptFloor, SnapshotFloor
from duramen.keyed.snapshots import SnapshotBounds
from duramen.keyed.view import KeyedView

__all__ = ["ReplicaFloor"]

_Do = Callable[[Callable[[], KeptFloor], Callable[[KeptFloor | BaseException], None]], None]


class ReplicaFloor:
    """The floor of one partition of a cluster, beside its view."""

    def __init__(self, partition: Partition, file: FloorFile, oldest_held: Callable[[], int | None]) -> None:
        self._partition = partition
        self._file = file
        self._oldest_held = oldest_held
        if partition.snapshots is None:
            partition.snapshots = SnapshotFloor()
        self.floor = partition.snapshots
        self._restored = False

    def load(self, view: KeyedView, log: LogPositions) -> KeptFloor:
        """The stored S0. Blocking: a job of the view, after its loading.

        Without a file the replica is new, or was no replica of a keyed stream before: then the S0 at which others have
        compacted its log is unknown.
        """
        kept = self._file.read(log.end_offset)
        if kept is None:
            begins = view.position == log.start_offset
            kept = KeptFloor(log.end_offset, log.end_offset) if begins else KeptFloor(view.s0, view.s0)
            self._file.write(kept)
        return kept

    def restored(self, kept: KeptFloor) -> None:
        """It was loaded."""
        if not self._restored:
            self._restored = True
            self.floor.restore(kept)
        self._partition.log.supersede(self.floor.copied)
        self.floor.moved()

    def bounds(self, bounds: SnapshotBounds) -> SnapshotBounds:
        """The snapshots of its view that this replica opens.

        After a start the view may be above the known high watermark, and only offsets below that can be read.
        """
        position = min(bounds.position, self._partition.log.high_watermark)
        return bounds._replace(s0=max(bounds.s0, self.floor.oldest), position=position)

    def look(self, position: int, unheld: int, do: _Do) -> None:
        """Time has passed: a leader raises S0 as far as no snapshot holds it. A new value is written to disk.

        The view is at `position`, and S0 would be `unheld` if no snapshot were held open.
        """
        floor = self.floor
        news = False
        if self._partition.leads:
            before = floor.oldest
            floor.unite()
            floor.raise_oldest(next_s0(floor.oldest, unheld, self._oldest_held(), position))
            news = floor.agree() or floor.oldest != before
        self.save(do)
        if news:
            floor.moved()

    def save(self, do: _Do) -> None:
        """Write the values that are not on disk."""
        floor = self.floor
        wanted = floor.write() if self._restored else None
        if wanted is None:
            return

        def write() -> KeptFloor:
            self._file.write(wanted)
            return wanted

        def written(result: KeptFloor | BaseException) -> None:
            floor.written(result if isinstance(result, KeptFloor) else None)
            floor.moved()
            if isinstance(result, KeptFloor):
                self.save(do)

        do(write, written)

    @property
    def agreed(self) -> int:
        """The position up to which the view discards the state of old snapshots."""
        return self.floor.agreed

    def remove(self) -> None:
        """Remove the files. Blocking."""
        self._file.remove()
