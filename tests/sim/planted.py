"""Bugs to be planted in the real storage, one at a time: the simulator has to find each of them.

A bug is a few wrong lines in the place of a function or a method. What it takes the place of has to be there still
with the same parameters: where it has changed, planting fails, and whoever changed it says what the bug is now.
"""

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from duramen.base.errors import DuramenError
from duramen.base.ports import Buffer, File, FileSystem
from duramen.broker.views import files as view_files
from duramen.broker.views.applier import ViewApplier
from duramen.broker.views.running import RunningView
from duramen.broker.views.state import ViewState
from duramen.broker.views.vectors import SnapshotVectors
from duramen.codec.batch import Header, batches
from duramen.codec.batch_filter import RecordSpan
from duramen.coordinators.runtime.write_behind import WriteBehind
from duramen.keyed import checkpoint as view_checkpoint
from duramen.keyed.checkpoint import LogPositions, ViewCheckpoint
from duramen.keyed.counting import OWN, CountedPiece, Counting
from duramen.keyed.dropping import Dropping
from duramen.keyed.filed import PartStore
from duramen.keyed.kernel import Kernel
from duramen.keyed.prev import PageStore
from duramen.keyed.samples import PositionSample
from duramen.keyed.snapshots import SnapshotBounds
from duramen.keyed.view import KeyedView, VisibleRecords
from duramen.storage import checkpoint
from duramen.storage.checkpoint import NodeCheckpoint
from duramen.storage.log import sync as syncing
from duramen.storage.log.log import Log
from duramen.storage.log.producers import ProducerTable
from duramen.storage.log.refused_batches import Refusals
from duramen.storage.log.transactions import TransactionTable
from duramen.storage.maintenance import checkpointer, copier
from duramen.storage.maintenance import segment_rewrite as rewriting
from duramen.storage.maintenance.closed_segment import Target
from duramen.storage.maintenance.copier import CopiedBytes, SegmentWrite
from duramen.storage.maintenance.scheduler import Upkeep
from duramen.storage.planning.compaction import Cleaner
from duramen.storage.recovery import logs as recovering_logs
from duramen.storage.recovery import recovery
from duramen.storage.recovery.logs import LogsFound
from duramen.storage.recovery.plan import FileScan, RecoveryVerdict
from duramen.storage.recovery.recovery import Recovered
from duramen.storage.recovery.replay import Replay
from duramen.storage.recovery.trim import Trimming
from duramen.storage.wal import frames, wal
from duramen.storage.wal.frames import Frame
from duramen.storage.wal.wal import Synced, Wal

__all__ = ["BUGS", "Bug", "Place", "planted"]

Original = Callable[..., Any]


class Place(NamedTuple):
    """Where a bug is planted: the attribute `name` of a class or a module, and what makes the wrong one of it."""

    owner: Any
    name: str
    wrong: Callable[[Original], Original]


class Bug(NamedTuple):
    """`words` are those of issue 5, and ours for transactions; `planted` says what is done, where they do not."""

    name: str
    words: str
    places: tuple[Place, ...]
    planted: str = ""


def _replace(place: Place) -> Callable[[], None]:
    """Plant one wrong function; returns what puts the right one back. Raises ValueError where it is another now."""
    found = inspect.getattr_static(place.owner, place.name, None)
    right = found.fget if isinstance(found, property) else found
    where = f"{place.owner.__name__}.{place.name}"
    if not inspect.isfunction(right):
        raise ValueError(f"{where} is no function any more: plant the bug where its work is done now")
    wrong = place.wrong(right)
    known, planned = (list(inspect.signature(function).parameters) for function in (right, wrong))
    if known != planned:
        raise ValueError(f"{where} has the parameters {known}, and the bug was made for {planned}")
    # The simulator knows by its name what a job is about.
    wrong.__module__, wrong.__qualname__ = right.__module__, right.__qualname__
    setattr(place.owner, place.name, property(wrong) if isinstance(found, property) else wrong)
    return lambda: setattr(place.owner, place.name, found)


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """Run with a bug planted; with none, as it is."""
    with ExitStack() as undo:
        for place in bug.places if bug is not None else ():
            undo.callback(_replace(place))
        yield


class _Behind:
    """A port that does everything as the one behind it; made for one call that is to be left out."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


class _NamesUnsynced(_Behind):
    def sync_directory(self, path: str) -> None:
        """Left out."""


class _Unsynced(_Behind):
    def sync(self) -> None:
        """Left out."""


class _FilesUnsynced(_Behind):
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        """A file that is not synced."""
        return _Unsynced(self._behind.open(path, create=create, read_only=read_only))


class _LogAhead(_Behind):
    def plan_read(self, offset: int, max_bytes: int) -> Any:
        """What is written, committed or not."""
        return self._behind.plan_written(offset, max_bytes)

    @property
    def high_watermark(self) -> int:
        """The end."""
        end: int = self._behind.end_offset
        return end


class _PartitionAhead(_Behind):
    @property
    def log(self) -> Any:
        """The log, read to its end."""
        return _LogAhead(self._behind.log)


class _Deaf(_Behind):
    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Left out."""
        del position
        return sum(map(len, buffers))


# -- the write-ahead log ----------------------------------------------------------------------------


def _acknowledge_written(right: Original) -> Original:
    def flush(self: Wal) -> None:
        right(self)
        synced, self.synced = self.synced, self._written
        self._release_waiting(None)
        self.synced = synced

    return flush


def _capture_late(right: Original) -> Original:
    def _sync_done(self: Wal, result: Synced | BaseException) -> None:
        right(self, result if isinstance(result, BaseException) else result._replace(until=self._written))

    return _sync_done


def _sync_again(right: Original) -> Original:
    def _sync_job(self: Wal) -> Synced:
        try:
            found: Synced = right(self)
        except OSError:
            found = right(self)
        return found

    return _sync_job


def _release_copied(right: Original) -> Original:
    def _copied(self: Upkeep) -> None:
        if not self.copier.pending_bytes:
            self._wal.release(self._wal.end)
        right(self)

    return _copied


def _no_rest(right: Original) -> Original:
    def rest_of_page(end: int, capacity: int) -> Buffer:
        nothing: Buffer = right(end, capacity)[:0]
        return nothing

    return rest_of_page


def _any_generation(right: Original) -> Original:
    def frame(self: frames._Windows, place: int, generation: int, salt: int) -> Frame | None:
        written = int.from_bytes(self.at(place, frames.FRAME_HEADER_BYTES)[8:12], "big")
        found: Frame | None = right(self, place, written, salt)
        return None if found is None else found._replace(generation=generation)

    return frame


def _write_once(_: Original) -> Original:
    def write_all(file: File, buffers: Sequence[Buffer], position: int) -> None:
        file.write([b"".join(buffers)], position)

    return write_all


# -- recovery ---------------------------------------------------------------------------------------


def _untrimmed(_: Original) -> Original:
    def trim(self: Any) -> None:
        """Bytes beyond the checkpointed position stay."""

    return trim


def _bytes_believed(right: Original) -> Original:
    def write_segment(files: FileSystem, write: SegmentWrite) -> CopiedBytes:
        path, end = write.path, write.position + sum(map(len, write.buffers))
        if not files.exists(path + ".log") or files.open(path + ".log").size() < end:
            written: CopiedBytes = right(files, write)
            return written
        file, index_file = files.open(path + ".log"), files.open(path + ".index", create=True)
        believed: CopiedBytes = right(files, write._replace(file=_Deaf(file), index_file=index_file))
        return believed._replace(file=file)

    return write_segment


def _end_at_first_bad(right: Original) -> Original:
    def judge(scans: Sequence[FileScan], replay: int) -> RecoveryVerdict:
        verdict: RecoveryVerdict = right(scans, replay)
        return RecoveryVerdict(verdict.damage[0][0], ()) if verdict.damage else verdict

    return judge


def _forget_producers(right: Original) -> Original:
    def run(self: Any) -> Recovered:
        recovered: Recovered = right(self)
        for log in recovered.logs.values():
            log.producers = ProducerTable()
        return recovered

    return run


def _take_any_first_sequence(right: Original) -> Original:
    del right

    def _check_unknown(self: ProducerTable, batch: Header) -> None:
        """Whatever the first sequence of a producer is, that is not known."""

    return _check_unknown


def _remember_no_refusal(right: Original) -> Original:
    del right

    def note(self: Refusals, place: Hashable, head: Header, error: DuramenError | None = None) -> None:
        """Nothing is kept of it."""

    return note


def _same_epoch(right: Original) -> Original:
    def run(self: Any) -> Recovered:
        recovered: Recovered = right(self)
        used = [log.takeovers.latest_epoch for log in recovered.logs.values()]
        return recovered._replace(node_epoch=max(used, default=recovered.node_epoch))

    return run


def _leave_uncut(_: Original) -> Original:
    def _cut(self: Any, log: Log, end_offset: int) -> None:
        """The batches behind `end_offset` stay."""

    return _cut


def _leave_undeleted(_: Original) -> Original:
    def delete(self: Any, log: Log) -> None:
        """The log stays, with everything in it."""

    return delete


# -- checkpoints and views --------------------------------------------------------------------------


def _name_unsynced(right: Original) -> Original:
    def write_checkpoint(files: FileSystem, number: int, checkpoint: NodeCheckpoint) -> None:
        right(_NamesUnsynced(files), number, checkpoint)

    return write_checkpoint


def _finish_unsynced(right: Original) -> Original:
    def finish(self: Target) -> None:
        files, file = self._files, self._file
        self._files, self._file = _as_port(_FilesUnsynced(files)), _as_port(_Unsynced(file))
        try:
            right(self)
        finally:
            self._files, self._file = files, file

    return finish


def _as_port(behind: Any) -> Any:
    return behind


def _position_first(right: Original) -> Original:
    def put(self: WriteBehind, changes: Mapping[bytes, bytes | None]) -> None:
        right(self, {key: value for key, value in changes.items() if key[:1] == b"\0"})
        right(self, changes)

    return put


# -- transactions -----------------------------------------------------------------------------------


def _forget_open(right: Original) -> Original:
    def run(self: Any) -> Recovered:
        recovered: Recovered = right(self)
        for log in recovered.logs.values():
            log.transactions = TransactionTable((), log.transactions.aborted)
        return recovered

    return run


def _forget_aborted(right: Original) -> Original:
    def run(self: Any) -> Recovered:
        recovered: Recovered = right(self)
        for log in recovered.logs.values():
            log.transactions = TransactionTable(log.transactions.opened())
        return recovered

    return run


# -- views of keyed streams -------------------------------------------------------------------------


def _go_beyond(right: Original) -> Original:
    def go_on(self: ViewApplier) -> None:
        partition = self._partition
        self._partition = _as_port(_PartitionAhead(partition))
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


BUGS: Final = (
    Bug(
        "acknowledge-before-sync",
        "acknowledge before sync",
        (Place(Wal, "flush", _acknowledge_written),),
    ),
    Bug(
        "acknowledge-later-writes",
        "acknowledge what was written after the sync began",
        (Place(Wal, "_sync_done", _capture_late),),
        "what is covered is noted when the sync has ended, not before it begins",
    ),
    Bug(
        "retry-sync",
        "retry a failed sync",
        (Place(Wal, "_sync_job", _sync_again),),
    ),
    Bug(
        "skip-directory-sync",
        "skip the directory's sync after a rename",
        (Place(checkpointer, "write_checkpoint", _name_unsynced), Place(recovery, "write_checkpoint", _name_unsynced)),
    ),
    Bug(
        "recycle-before-sync",
        "recycle a WAL file before its segments are synced",
        (Place(Upkeep, "_copied", _release_copied),),
        "files of the WAL are free once everything in them is copied",
    ),
    Bug(
        "old-frames",
        "take a recycled file's old frames for new",
        (Place(frames._Windows, "frame", _any_generation), Place(wal, "_rest_of_page", _no_rest)),
        "nor are there zeros behind the last frame, which would hide nearly all of them",
    ),
    Bug(
        "believe-unsynced-bytes",
        "believe bytes of a segment beyond its synced position",
        (
            Place(Trimming, "trim", _untrimmed),
            Place(recovering_logs, "write_segment", _bytes_believed),
        ),
        "recovery does not write again what a segment's file is long enough for",
    ),
    Bug(
        "cut-at-first-bad",
        "cut at the first bad CRC",
        (Place(recovery, "judge", _end_at_first_bad),),
    ),
    Bug(
        "drop-producers",
        "drop producer state on restart",
        (Place(recovery._Recovery, "run", _forget_producers),),
    ),
    Bug(
        "take-any-first-sequence",
        "take the first batch of a producer that is not known with any sequence",
        (
            Place(ProducerTable, "_check_unknown", _take_any_first_sequence),
            Place(Refusals, "note", _remember_no_refusal),
        ),
    ),
    Bug(
        "reuse-epoch",
        "reuse an epoch after a restart",
        (Place(recovery._Recovery, "run", _same_epoch),),
    ),
    Bug(
        "replay-truncated",
        "replay a batch of a truncated log",
        (Place(Replay, "_cut", _leave_uncut),),
    ),
    Bug(
        "replay-deleted",
        "replay a batch of a deleted log",
        (Place(LogsFound, "delete", _leave_undeleted),),
    ),
    Bug(
        "swap-unsynced",
        "swap a compacted segment without a sync",
        (Place(Target, "finish", _finish_unsynced),),
    ),
    Bug(
        "position-before-rows",
        "advance a view's position before its rows",
        (Place(WriteBehind, "put", _position_first),),
        "two batches where there is one: the position, then the rows",
    ),
    Bug(
        "ignore-short-write",
        "ignore a short write",
        tuple(Place(module, "write_all", _write_once) for module in (checkpoint, copier, rewriting, syncing, wal)),
    ),
    Bug(
        "forget-open-transactions",
        "forget on restart which transactions are open",
        (Place(recovery._Recovery, "run", _forget_open),),
        "the last stable offset is the high watermark then",
    ),
    Bug(
        "drop-aborted",
        "drop the list of aborted transactions on restart",
        (Place(recovery._Recovery, "run", _forget_aborted),),
    ),
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
