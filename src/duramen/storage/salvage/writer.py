"""Writes a new directory from salvaged data: segments with unchanged batches, and a checkpoint. Blocking.

The new directory looks like that of a node after a clean stop: it needs no write-ahead log. Until `finish` it is marked
unfinished, and no node uses it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from duramen.base.ids import LogId
from duramen.base.leader_epochs import Takeover
from duramen.base.ports import FileSystem
from duramen.codec.batch import Header
from duramen.storage.checkpoint import NodeCheckpoint, write_checkpoint
from duramen.storage.log.log import Log, LogConfig, LogKey
from duramen.storage.log.producers import ANY_ID
from duramen.storage.log.sync import plan_sync, sync_segments, synced, write_index
from duramen.storage.log.transactions import enter
from duramen.storage.maintenance.copier import plan_writes, take_over, write_segment
from duramen.storage.planning.salvage import SalvageGaps
from duramen.storage.salvage.left import LeftLog
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.segment import Segment, segment_name

__all__ = ["NewDirectory", "NewLog", "SalvagePlan", "plan_of"]

_WRITE_BYTES: Final = 8 * 1024 * 1024
_SEGMENT_BYTES: Final = LogConfig().segment_bytes
_OPEN_SEGMENTS: Final = 16


class SalvagePlan(NamedTuple):
    """The description of a new log: `end_offset` is its end, whether its last batches exist or not.

    `bases` are base offsets of segments, in order; `takeovers` the known leaderships, by epoch. A gap that ends below
    `cleaned_offset` comes from compaction, unless a range of `suspect` touches it.
    """

    id: LogId
    key: LogKey
    durability: str
    start_offset: int
    end_offset: int
    bases: Sequence[int]
    takeovers: Sequence[Takeover]
    cleaned_offset: int = 0
    dirty_offset: int = 0
    suspect: Sequence[tuple[int, int]] = ()
    superseded_offset: int = 0


def plan_of(log: LeftLog) -> SalvagePlan:
    """The plan of a log from its remains; its key must be known."""
    if log.key is None:
        raise AssertionError("a log that is kept has a key")
    return SalvagePlan(
        log.id,
        log.key,
        log.durability,
        max(log.start_offset, 0),
        log.end_offset,
        log.bases,
        tuple(log.takeovers.values()),
        log.cleaned_offset,
        log.dirty_offset,
        log.suspect,
        log.superseded_offset,
    )


class NewLog(NamedTuple):
    """The written log. `lost` are ranges of offsets, by first and last."""

    log: Log
    batches: int
    size_bytes: int
    lost: list[tuple[int, int]]
    largest_producer_id: int


class NewDirectory:
    """A directory being written; `advance` gets the number of bytes written."""

    def __init__(self, files: FileSystem, directory_id: UUID, advance: Callable[[int], None]) -> None:
        self._files = files
        self._directory_id = directory_id
        self._advance = advance
        self._handles = Handles(files, _OPEN_SEGMENTS)
        self._logs: list[bytes] = []

    def add(self, plan: SalvagePlan, batches: Iterable[tuple[Header, memoryview]]) -> NewLog:
        """Write a log with these batches, at their own offsets. Raises OSError."""
        writing = _LogWriting(self._files, self._handles, plan, self._advance)
        for found, whole in batches:
            writing.take(found, whole)
        written = writing.finish()
        self._logs.append(msgspec.msgpack.encode(written.log.state()))
        return written

    def finish(self, node_epoch: int, next_log_id: int) -> None:
        """Write the checkpoint, in both generations. Raises OSError."""
        logs = [msgspec.Raw(log) for log in self._logs]
        checkpoint = NodeCheckpoint(self._directory_id.bytes, node_epoch, next_log_id, 0, 0, clean=True, logs=logs)
        for number in (1, 2):
            write_checkpoint(self._files, number, checkpoint)


class _LogWriting:
    def __init__(self, files: FileSystem, handles: Handles, plan: SalvagePlan, advance: Callable[[int], None]) -> None:
        self._files = files
        self._handles = handles
        self._plan = plan
        self._advance = advance
        first_durability = "os" if plan.durability == "os" else "sync"
        self._log = Log(plan.id, plan.key, LogConfig(durability=first_durability), handles)
        self._log.written = True
        self._log.producers.forget_up_to(ANY_ID)
        self._log.cleaned_offset, self._log.dirty_offset = plan.cleaned_offset, plan.dirty_offset
        self._log.superseded_offset = plan.superseded_offset
        self._log.start_offset = self._log.end_offset = self._log.synced_offset = plan.start_offset
        self._bases = list(plan.bases)[::-1]
        self._takeovers = sorted(plan.takeovers)[::-1]
        self._gaps = SalvageGaps(plan.start_offset, plan.cleaned_offset, plan.suspect)
        self._batches = self._size = self._waiting = 0
        self._largest_producer_id = -1

    def take(self, found: Header, whole: memoryview) -> None:
        """Write the next batch."""
        log = self._log
        # A segment starts before a gap of compaction: every offset that is not lost is in a segment.
        base, known = log.end_offset, len(self._gaps.lost)
        self._reach(found.base_offset)
        base = min(base, found.base_offset) if len(self._gaps.lost) == known else found.base_offset
        if not self._batches:
            self._begin_segment(base)
        begins = False
        while self._bases and self._bases[-1] <= found.base_offset:
            begins = self._bases.pop() >= 0
        if log.active.size and (
            begins or len(self._gaps.lost) > known or not log.active.fits(len(whole), found.next_offset, _SEGMENT_BYTES)
        ):
            log.roll()
            self._begin_segment(base)
        self._introduce(found.leader_epoch, found.base_offset)
        log.active.append(bytes(whole), found.base_offset, found.next_offset, found.max_timestamp)
        log.end_offset = log.synced_offset = found.next_offset
        self._gaps.add(found.base_offset, found.next_offset)
        enter(log, found, whole, found.base_offset, found.max_timestamp)
        self._largest_producer_id = max(self._largest_producer_id, found.producer_id)
        self._batches += 1
        self._size += len(whole)
        self._waiting += len(whole)
        if self._waiting >= _WRITE_BYTES:
            self._write()

    def _begin_segment(self, base: int) -> None:
        """Start the last, empty segment at `base`: with a generation if compaction has left gaps."""
        generation = 1 if base < self._plan.cleaned_offset else 0
        path = f"{self._log.directory}/{segment_name(base, generation)}"
        self._log.segments[-1] = Segment(path, base, generation)

    def _reach(self, offset: int) -> None:
        self._gaps.reach(offset)
        self._log.end_offset = self._log.synced_offset = max(offset, self._log.end_offset)

    def _introduce(self, epoch: int, offset: int) -> None:
        """Add the leaderships up to that of the batch at `offset`."""
        table = self._log.takeovers
        while self._takeovers and self._takeovers[-1].epoch <= epoch:
            takeover = self._takeovers.pop()
            if takeover.epoch > table.latest_epoch and takeover.first_offset <= offset:
                table.add(takeover)
        if epoch > table.latest_epoch:
            table.add(Takeover(epoch, -1, offset))

    def _write(self) -> None:
        for write in plan_writes(self._log):
            take_over(self._handles, write_segment(self._files, write))
        self._advance(self._waiting)
        self._waiting = 0

    def finish(self) -> NewLog:
        """Write the rest and sync everything."""
        log, plan = self._log, self._plan
        if log.end_offset < plan.end_offset:
            self._reach(plan.end_offset)
            if log.active.size:
                log.roll()
        if not self._batches:
            self._begin_segment(plan.end_offset)
        log.damage = self._gaps.lost
        if self._takeovers:
            self._introduce(self._takeovers[0].epoch, log.end_offset)
        log.takeovers.cut(log.end_offset + 1)
        log.set_durability(plan.durability)
        self._write()
        syncs = [plan_sync(log, segment) for segment in log.segments if segment.copied]
        for sync in syncs:
            write_index(self._files, sync)
        failures = sync_segments(self._files, syncs)
        if failures:
            raise failures[0][1]
        for sync in syncs:
            synced(sync)
        return NewLog(log, self._batches, self._size, list(log.damage), self._largest_producer_id)
