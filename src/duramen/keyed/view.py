"""The view of one partition: applies its records in counting order and answers snapshot reads. Pure."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import NamedTuple

from duramen.base.ports import Buffer
from duramen.keyed.commit_order import OWN, CountedPiece, Counting
from duramen.keyed.compaction import Dropping
from duramen.keyed.kernel import BACK, FORWARD, KEEP, AppliedBatches, Kernel
from duramen.keyed.latest import Latest
from duramen.keyed.latest_files import FiledTable, Gone, MemoryParts, PartStore, RowBlock, TablePart
from duramen.keyed.live import Live
from duramen.keyed.prev import PAGE_RECORDS, MemoryPages, PageStore, Prev
from duramen.keyed.samples import PositionSample, Samples
from duramen.keyed.snapshots import SnapshotBounds

__all__ = ["KeyedView", "Read", "VisibleRecords", "cut_bits", "next_shown"]

Read = Callable[[int, int], Buffer]
"""Whole batches of the log with the offsets `[first, end)`."""

_FOREVER = (1 << 63) - 1
_STEP = 1 << 16


class VisibleRecords(NamedTuple):
    """Bits from the offset `base` on, set for shown records."""

    base: int
    bits: bytearray

    def offsets(self) -> list[int]:
        """The offsets of shown records."""
        return [
            self.base + 8 * at + bit for at, byte in enumerate(self.bits) if byte for bit in range(8) if byte >> bit & 1
        ]


class _Walk:
    """The state of a walk: everything below the position has been read."""

    def __init__(self, position: int, counting: Counting) -> None:
        self.position = position
        self.counting = counting


class KeyedView:
    """`position` is C: everything below it is applied. Snapshots are positions from `s0` to there.

    With its table in files (`filed`) the view gathers up to `reached`, and advances to it by a round: `step` until that
    is False, then `end_round`.
    """

    def __init__(
        self,
        kernel: Kernel,
        base: int,
        secret: bytes,
        store: PageStore | None = None,
        *,
        page_records: int = PAGE_RECORDS,
        parts: PartStore | None = None,
    ) -> None:
        """An empty view that starts at the offset `base`; `secret` is created for it and lives as long."""
        self._applied = self._walk = _Walk(base, Counting())
        self.s0 = self.horizon = base
        self.kernel = kernel
        self.latest = Latest(kernel, base, secret)
        self.prev = Prev(store or MemoryPages(), page_records)
        self.live = Live(kernel, base)
        self.samples = Samples(base)
        self.tombstones_kept_ms = 0
        self.filed: FiledTable | None = None
        self._parts = parts or MemoryParts()
        self._page_records = page_records

    @property
    def position(self) -> int:
        """C."""
        return self._applied.position

    @position.setter
    def position(self, position: int) -> None:
        self._applied.position = position

    @property
    def counting(self) -> Counting:
        """The open transactions at the position."""
        return self._applied.counting

    @property
    def reached(self) -> int:
        """The next offset to read from the log: records from the position to here are gathered."""
        return self._walk.position

    @property
    def keys(self) -> int:
        """The number of keys in the table."""
        return len(self.latest if self.filed is None else self.filed)

    @property
    def base(self) -> int:
        """The offset at which the view starts."""
        return self.latest.base

    @property
    def bounds(self) -> SnapshotBounds:
        """The bounds of its snapshots."""
        return SnapshotBounds(self.s0, self.position, self.horizon)

    @property
    def memory_bytes(self) -> int:
        """The memory of the view, without pages in the store."""
        table = self.latest.size_bytes if self.filed is None else self.filed.memory_bytes
        return table + self.prev.memory_bytes + self.live.memory_bytes

    # -- applying -----------------------------------------------------------------------------------

    def apply(self, data: Buffer, read: Read | None = None) -> None:
        """Apply, or gather, whole batches of the log from `reached` on; earlier records are skipped.

        `read` returns the batches of an open transaction once it is committed. Raises BatchCorrupt: then the view has
        advanced to the damage, and continues there.
        """
        walk = self._walk
        for piece in walk.counting.pieces(data, walk.position):
            if piece.held:
                self._apply_held(data, piece, read)
            elif piece.start < piece.stop:
                self._apply(data, piece.start, walk.position, _FOREVER, OWN, stop=piece.stop)
            walk.position = max(walk.position, piece.next_offset)

    def pass_over(self, offset: int) -> None:
        """Records before the offset are lost for good: continue there."""
        self._walk.position = max(self._walk.position, offset)

    def _apply(self, data: Buffer, position: int, first: int, end: int, at: int, *, stop: int) -> int:
        view = memoryview(data).toreadonly().cast("B")[:stop]
        while position < stop:
            done = self._take(view, position, first, end, at)
            if at == OWN:
                self._walk.position = max(self._walk.position, done.next_offset)
            if done.next_offset >= end or (done.position == position and done.next_offset == first):
                return done.next_offset
            position, first = done.position, done.next_offset
        return first

    def _take(self, view: memoryview, position: int, first: int, end: int, at: int) -> AppliedBatches:
        if self.filed is not None:
            return self.filed.gather(view, position, first, end, at)
        if self.prev.full():
            self._write_page()
        done = self.latest.apply(view, position, first, end, self.prev.room())
        self.prev.took(done.runs, done.far, at)
        return done

    def _apply_held(self, data: Buffer, piece: CountedPiece, read: Read | None) -> None:
        """Apply the records of a transaction, which are usually in the data in which it ends."""
        held = piece.held
        while held:
            first, end = held[0]
            source, start = data, piece.places.get(first)
            if start is None:
                if read is None:
                    raise AssertionError("transactions are applied with what they wrote")
                source, start = read(first, end), 0
            reached = self._apply(source, start, first, end, piece.at, stop=len(source))
            if reached < end and reached > first:
                held[0] = (reached, end)
            else:
                held.pop(0)

    def _write_page(self) -> None:
        for entries in self.prev.unwritten(0, _FOREVER):
            self.live.advance(entries)
        self.prev.write()

    # -- the table in files ---------------------------------------------------------------------------

    def file_table(self, parts: Sequence[TablePart] = ()) -> None:
        """From now on the table is in files: in these, or in those that the first round writes."""
        self.filed = FiledTable(self.kernel, self.latest, self._parts, self._page_records, parts)
        self.latest = Latest(self.kernel, self.base, self.latest.secret)
        self._fork()

    def unfile_table(self) -> None:
        """Load the table into memory again, before anything is gathered. Raises CheckpointInvalid, OSError."""
        if self.filed is not None:
            for partition, (keys, words) in enumerate(self.filed.in_memory()):
                self.latest.load(partition, keys, words.cast("B"))
            self.filed, self._walk = None, self._applied

    def _fork(self) -> None:
        self._walk = _Walk(self._applied.position, deepcopy(self._applied.counting))

    def step(self) -> bool:
        """Run a part of a round; False once the round can be ended. Nothing is applied meanwhile."""
        return self.filed is not None and self.filed.step()

    def end_round(self) -> None:
        """Apply the gathered records: the position advances to `reached`."""
        if self.filed is None:
            raise AssertionError("the table is in memory")
        blocks, gone = self.filed.end_round()
        while blocks:
            self._enter_block(blocks.pop(0))
        if gone:
            self._write_page()
        for bits, first in gone:
            self.live.clear(bits, first)
        self._applied = self._walk
        self._fork()

    def _enter_block(self, block: RowBlock) -> None:
        if self.prev.full() or block.records > len(self.prev.room()):
            self._write_page()
        self.prev.room()[: block.records] = block.distances
        for runs, at in block.pieces:
            self.prev.took(runs, (), at)
        for far in block.far.values():
            self.prev.took((), far, OWN)

    # -- visible records ----------------------------------------------------------------------------

    def snapshot(self, at: int, first: int, end: int) -> VisibleRecords:
        """The offsets of `[first, end)` in the snapshot at `at`. Raises SnapshotTooOld, SnapshotNotReached."""
        self.bounds.check_snapshot(at)
        return self._as_of(at, first, min(end, at))

    def changes(self, since: int, at: int) -> VisibleRecords:
        """The records that became visible since the snapshot at `since`, and are visible at `at`, deletions included.

        If `since` is before S0, some of them may have been visible before. Raises SnapshotTooOld, SnapshotNotReached,
        SnapshotStartOver.
        """
        self.bounds.check_changes(since, at)
        if since < self.s0:
            return self._as_of(at, self.samples.at(since).floor, at)
        entries = list(self.prev.between(since, at))
        base = min((one.lowest for one in entries), default=at) & ~7
        bits = bytearray(at - base + 7 >> 3)
        for one in entries:
            self.kernel.visible(bits, base, one.runs, one.distances, one.far, FORWARD)
        return VisibleRecords(base, bits)

    def _as_of(self, at: int, first: int, end: int) -> VisibleRecords:
        base = first & ~7
        bits = self.live.copy(base, max(0, end - base + 7 >> 3))
        for one in self.prev.back_to(at):
            self.kernel.visible(bits, base, one.runs, one.distances, one.far, BACK)
        for one in self.prev.unwritten(0, at):
            self.kernel.visible(bits, base, one.runs, one.distances, one.far, FORWARD)
        cut_bits(bits, base, first, end)
        return VisibleRecords(base, bits)

    @property
    def live_end(self) -> int:
        """The last stable offset at the position: everything below it is finally committed or aborted."""
        return self.counting.first_open(self.position)

    def live_records(self, end: int, first: int, stop: int) -> VisibleRecords:
        """The offsets of `[first, stop)` with committed records below `end`, a former `live_end`.

        They include the newest one of each key, by offset. Others belong to transactions that ended after `end`. Raises
        SnapshotTooOld, SnapshotNotReached.
        """
        self.bounds.check_snapshot(end)
        found = self._as_of(end, first, min(stop, end))
        for low, high in self.prev.late(end):
            _set_bits(found.bits, found.base, max(low, first), min(high, stop))
        return found

    # -- droppable offsets --------------------------------------------------------------------------

    def sample(self, now_ms: int) -> None:
        """Record the present position."""
        self.samples.add(PositionSample(now_ms, self.position, self.counting.first_open(self.position)))

    def raise_s0(self, s0: int) -> None:
        """Older snapshots are no longer opened; S0 never decreases."""
        if s0 > self.position:
            raise AssertionError(f"S0 cannot be {s0}: the view has come to {self.position}")
        self.s0 = max(self.s0, s0)
        self.prev.drop_below(self.s0)

    def raise_horizon(self, horizon: int) -> None:
        """Tombstones that count below may be dropped; the horizon never decreases."""
        self.horizon = max(self.horizon, horizon)

    def keep_tombstones(self, kept_ms: int) -> None:
        """Set how long tombstones are kept.

        If that is longer than before, earlier ones are dropped after the shorter time.
        """
        if kept_ms > self.tombstones_kept_ms:
            self.raise_horizon(self.s0)
        self.tombstones_kept_ms = kept_ms

    def dropping(self, first: int, tombstones: PositionSample | None = None, end: int = _FOREVER) -> Dropping:
        """The decision which offsets from `first` to `end` or S0 may go; `tombstones` comes from `tombstone_bound`.

        Once tombstones are dropped, readers that have not reached the sample's position start over.
        """
        base, end = first & ~7, min(end, self.s0)
        bits = self.live.copy(base, max(0, end - base + 7 >> 3))
        for one in self.prev.unwritten(0, _FOREVER):
            self.kernel.visible(bits, base, one.runs, one.distances, one.far, FORWARD)
        for one in self.prev.between(self.s0, _FOREVER):
            self.kernel.visible(bits, base, one.runs, one.distances, one.far, KEEP)
        # A live topic shows its records up to S0 even if a newer record of the key had counted before.
        for low, high in self.prev.late(self.s0):
            _set_bits(bits, base, low, min(high, end))
        for held in self.counting.open.values():
            for low, high in held:
                _set_bits(bits, base, low, min(high, end))
        cut_bits(bits, base, first, end)
        below = 0
        if tombstones is not None and tombstones.position <= self.s0:
            below = tombstones.floor
            self.horizon = max(self.horizon, tombstones.position)
        return Dropping(base, end, bits, below, self.s0)

    def forget(self, gone: Buffer, first: int) -> None:
        """Tombstones were dropped: those whose bits are set in `gone`, from the offset `first` on, a multiple of 8."""
        if self.filed is not None:
            self.filed.forget(Gone(gone, first))
            return
        self._write_page()
        self.latest.forget(gone, first)
        self.live.clear(gone, first)


def _set_bits(bits: bytearray, base: int, first: int, end: int) -> None:
    for offset in range(max(first, base), end):
        bits[offset - base >> 3] |= 1 << (offset - base & 7)


def cut_bits(bits: bytearray, base: int, first: int, end: int) -> None:
    """Clear the bits below `first` and from `end` on, in a window of the smallest possible length."""
    if not bits:
        return
    bits[0] &= 0xFF << (first - base) & 0xFF
    if (end - base) & 7:
        bits[-1] &= (1 << ((end - base) & 7)) - 1


def next_shown(visible: VisibleRecords, offset: int) -> int:
    """The first shown offset from this one on; one after all of them without any."""
    bits, place = visible.bits, max(0, offset - visible.base)
    at = place >> 3
    if at < len(bits) and bits[at] >> (place & 7):
        byte = bits[at] >> (place & 7)
        return visible.base + place + (byte & -byte).bit_length() - 1
    at += 1
    while at < len(bits):
        step = bits[at : at + _STEP]
        skipped = len(step) - len(step.lstrip(b"\0"))
        if skipped < len(step):
            byte = step[skipped]
            return visible.base + 8 * (at + skipped) + (byte & -byte).bit_length() - 1
        at += len(step)
    return visible.base + 8 * len(bits)
