"""Bugs of views of keyed streams: what they apply, what they keep, what they show."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.sim.planted import Behind, Bug, Original, Place, as_port

from duramen.base.ports import Buffer
from duramen.broker.views import files as view_files
from duramen.broker.views.applier import ViewApplier
from duramen.broker.views.running_view import RunningView
from duramen.broker.views.state import ViewState
from duramen.broker.views.vectors import SnapshotVectors
from duramen.codec.batch import Header, batches
from duramen.codec.batch_filter import RecordSpan
from duramen.keyed import checkpoint as view_checkpoint
from duramen.keyed.checkpoint import LogPositions, ViewCheckpoint
from duramen.keyed.commit_order import OWN, CountedPiece, Counting
from duramen.keyed.compaction import Dropping
from duramen.keyed.kernel import Kernel
from duramen.keyed.latest_files import PartStore
from duramen.keyed.prev import PageStore
from duramen.keyed.samples import PositionSample
from duramen.keyed.snapshots import SnapshotBounds
from duramen.keyed.view import KeyedView, VisibleRecords
from duramen.storage.planning.compaction import Cleaner

__all__ = ["VIEW_BUGS"]


class _LogAhead(Behind):
    def plan_read(self, offset: int, max_bytes: int) -> Any:
        """What is written, committed or not."""
        return self._behind.plan_written(offset, max_bytes)

    @property
    def high_watermark(self) -> int:
        """The end."""
        end: int = self._behind.end_offset
        return end


class _PartitionAhead(Behind):
    @property
    def log(self) -> Any:
        """The log, read to its end."""
        return _LogAhead(self._behind.log)


def _go_beyond(right: Original) -> Original:
    def go_on(self: ViewApplier) -> None:
        partition = self._partition
        self._partition = as_port(_PartitionAhead(partition))
        try:
            right(self)
        finally:
            self._partition = partition

    return go_on


def _free_all(right: Original) -> Original:
    def note(self: ViewState) -> None:
        right(self)
        if self.partition.log.view_floor is not None:
            self.partition.log.view_floor = self.facts.position

    return note


def _drop_all(right: Original) -> Original:
    def dropping(self: KeyedView, first: int, tombstones: PositionSample | None = None, end: int = 1 << 60) -> Dropping:
        s0, self.s0 = self.s0, self.position
        try:
            found: Dropping = right(self, first, tombstones, end)
        finally:
            self.s0 = s0
        return found

    return dropping


def _expire_at_once(right: Original) -> Original:
    def _kept(self: Cleaner, head: Header, records: Sequence[RecordSpan], *, expired: bool) -> Iterator[RecordSpan]:
        del expired
        kept: Iterator[RecordSpan] = right(self, head, records, expired=True)
        return kept

    return _kept


def _drop_tombstones(right: Original) -> Original:
    def stays(self: Dropping, offset: int, *, tombstone: bool) -> bool:
        known = self.base <= offset < self.end
        return not (tombstone and known) and bool(right(self, offset, tombstone=tombstone))

    return stays


def _end_early(right: Original) -> Original:
    def changes(self: KeyedView, since: int, at: int) -> VisibleRecords:
        found: VisibleRecords = right(self, since, at)
        last = max(found.offsets(), default=-1)
        if last >= 0:
            found.bits[last - found.base >> 3] &= ~(1 << (last - found.base & 7))
        return found

    return changes


def _use_any(right: Original) -> Original:
    def problem(found: ViewCheckpoint, log: LogPositions, hash_id: int) -> str:
        reason: str = right(found, log._replace(end_offset=max(log.end_offset, found.position),
                                                epoch_at=lambda _: found.epoch), hash_id)  # fmt: skip
        return reason

    return problem


def _fall_back(right: Original) -> Original:
    def restore(
        found: ViewCheckpoint, kernel: Kernel, store: PageStore, *, page_records: int, parts: PartStore
    ) -> KeyedView:
        view: KeyedView = right(found, kernel, store, page_records=page_records, parts=parts)
        view.s0 = view.horizon = view.base
        return view

    return restore


def _ignore_compaction(right: Original) -> Original:
    del right

    def _follow_compaction(self: ViewApplier, view: KeyedView) -> None:
        """S0 stays what the checkpoint says."""

    return _follow_compaction


def _tell_fallen(right: Original) -> Original:
    def bounds(self: RunningView) -> SnapshotBounds:
        found: SnapshotBounds = right(self)
        return found._replace(s0=self.facts.s0, horizon=self.facts.horizon)

    return bounds


def _aim_anywhere(right: Original) -> Original:
    del right

    def newest(self: SnapshotVectors, views: Sequence[RunningView], aimed: Sequence[int] | None) -> list[int]:
        del self, aimed
        return [view.bounds.position for view in views]

    return newest


def _count_at_once(right: Original) -> Original:
    del right

    def pieces(self: Counting, data: Buffer, position: int) -> Iterator[CountedPiece]:
        del self
        stop = 0
        for at, head in batches(data):
            stop, position = at + head.size, max(position, head.next_offset)
        if stop:
            yield CountedPiece(0, stop, [], OWN, position, {})

    return pieces


VIEW_BUGS: Final = (
    Bug(
        "supersede-uncommitted",
        "superseding above what is committed",
        (Place(ViewApplier, "go_on", _go_beyond),),
    ),
    Bug(
        "drop-shown",
        "a record dropped that a readable snapshot sees",
        (Place(ViewState, "note", _free_all), Place(KeyedView, "dropping", _drop_all)),
        "compaction goes up to where the view stands",
    ),
    Bug(
        "drop-tombstone",
        "a tombstone dropped too early",
        (Place(Cleaner, "_kept", _expire_at_once), Place(Dropping, "stays", _drop_tombstones)),
    ),
    Bug(
        "end-increment-early",
        "the end of an increment told before its last record",
        (Place(KeyedView, "changes", _end_early),),
    ),
    Bug(
        "view-ahead",
        "a view ahead of its log after a crash",
        (Place(view_checkpoint, "problem", _use_any),),
    ),
    Bug(
        "s0-falls",
        "S0 falling after a restart",
        (
            Place(view_files, "restore", _fall_back),
            Place(ViewApplier, "_follow_compaction", _ignore_compaction),
            Place(RunningView, "bounds", _tell_fallen),
        ),
        "nor does anybody ask how far compaction has come",
    ),
    Bug(
        "cut-transaction",
        "a transaction cut in two",
        (Place(SnapshotVectors, "newest", _aim_anywhere),),
        "a snapshot over several partitions is where their views happen to be",
    ),
    Bug(
        "count-before-marker",
        "a record counted before its marker",
        (Place(Counting, "pieces", _count_at_once),),
    ),
)
