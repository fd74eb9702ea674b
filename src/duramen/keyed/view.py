"""The view of one partition: its records applied in the order in which they count, and what snapshots show. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from duramen.base.ports import Buffer
from duramen.keyed.counting import OWN, CountedPiece, Counting
from duramen.keyed.dropping import Dropping
from duramen.keyed.kernel import BACK, FORWARD, KEEP, Kernel
from duramen.keyed.latest import Latest
from duramen.keyed.live import Live
from duramen.keyed.prev import PAGE_RECORDS, MemoryPages, PageStore, Prev
from duramen.keyed.samples import PositionSample, Samples
from duramen.keyed.snapshots import SnapshotBounds

__all__ = ["KeyedView", "Read", "VisibleRecords", "cut_bits"]

Read = Callable[[int, int], Buffer]
"""Whole batches of the log that hold the offsets `[first, end)`."""

_FOREVER = (1 << 63) - 1


class VisibleRecords(NamedTuple):
    """Bits from the offset `base` on, of those that a reader is shown."""

    base: int
    bits: bytearray

    def offsets(self) -> list[int]:
        """The offsets that are shown."""
        return [
            self.base + 8 * at + bit for at, byte in enumerate(self.bits) if byte for bit in range(8) if byte >> bit & 1
        ]


class KeyedView:
    """`position` is C: everything below it has been applied. Snapshots are positions from `s0` to there."""

    def __init__(
        self,
        kernel: Kernel,
        base: int,
        secret: bytes,
        store: PageStore | None = None,
        *,
        page_records: int = PAGE_RECORDS,
    ) -> None:
        """An empty view that begins at the offset `base`; `secret` is made for it and lives as long as it does."""
        self.position = self.s0 = self.horizon = base
        self.kernel = kernel
        self.latest = Latest(kernel, base, secret)
        self.prev = Prev(store or MemoryPages(), page_records)
        self.live = Live(kernel, base)
        self.counting = Counting()
        self.samples = Samples(base)
        self.tombstones_kept_ms = 0

    @property
    def base(self) -> int:
        """The offset that the view begins at."""
        return self.latest.base

    @property
    def bounds(self) -> SnapshotBounds:
        """Which snapshots there are."""
        return SnapshotBounds(self.s0, self.position, self.horizon)

    @property
    def memory_bytes(self) -> int:
        """What the view takes of memory, but for pages that the store keeps there."""
        return self.latest.size_bytes + self.prev.memory_bytes + self.live.memory_bytes

    # -- applying -----------------------------------------------------------------------------------

    def apply(self, data: Buffer, read: Read | None = None) -> None:
        """Apply whole batches of the log, which reach on from the position; what is before that is passed over.

        `read` gives what an open transaction wrote, once it is committed. Raises BatchCorrupt: then the view has come
        as far as the damage, and goes on there.
        """
        for piece in self.counting.pieces(data, self.position):
            if piece.held:
                self._apply_held(data, piece, read)
            elif piece.start < piece.stop:
                self._apply(data, piece.start, self.position, _FOREVER, OWN, stop=piece.stop)
            self.position = max(self.position, piece.next_offset)

    def pass_over(self, offset: int) -> None:
        """What is left before the offset is lost for good: the view goes on there."""
        self.position = max(self.position, offset)

    def _apply(self, data: Buffer, position: int, first: int, end: int, at: int, *, stop: int) -> int:
        view = memoryview(data).toreadonly().cast("B")[:stop]
        while position < stop:
            if self.prev.full():
                self._write_page()
            done = self.latest.apply(view, position, first, end, self.prev.room())
            self.prev.took(done.runs, done.far, at)
            if at == OWN:
                self.position = max(self.position, done.next_offset)
            if done.next_offset >= end or (done.position == position and done.next_offset == first):
                return done.next_offset
            position, first = done.position, done.next_offset
        return first

    def _apply_held(self, data: Buffer, piece: CountedPiece, read: Read | None) -> None:
        """What a transaction wrote: as a rule it lies in the data in which it ends."""
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

    # -- what is shown ------------------------------------------------------------------------------

    def snapshot(self, at: int, first: int, end: int) -> VisibleRecords:
        """Which of the offsets `[first, end)` the snapshot at `at` has. Raises SnapshotTooOld, SnapshotNotReached."""
        self.bounds.check_snapshot(at)
        return self._as_of(at, first, min(end, at))

    def changes(self, since: int, at: int) -> VisibleRecords:
        """What became visible since the snapshot at `since`, and is visible at `at`, deletions among it.

        Where `since` is before S0, some of it may have been visible before. Raises SnapshotTooOld, SnapshotNotReached,
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

    # -- what may go --------------------------------------------------------------------------------

    def sample(self, now_ms: int) -> None:
        """Remember where the view stands."""
        self.samples.add(PositionSample(now_ms, self.position, self.counting.first_open(self.position)))

    def raise_s0(self, s0: int) -> None:
        """Older snapshots are not opened any more; S0 never falls."""
        if s0 > self.position:
            raise AssertionError(f"S0 cannot be {s0}: the view has come to {self.position}")
        self.s0 = max(self.s0, s0)
        self.prev.drop_below(self.s0)

    def raise_horizon(self, horizon: int) -> None:
        """Tombstones of what counts below may be gone; the horizon never falls."""
        self.horizon = max(self.horizon, horizon)

    def keep_tombstones(self, kept_ms: int) -> None:
        """They are kept for so long from now on. Where that is longer, those of before go after the shorter time."""
        if kept_ms > self.tombstones_kept_ms:
            self.raise_horizon(self.s0)
        self.tombstones_kept_ms = kept_ms

    def dropping(self, first: int, tombstones: PositionSample | None = None, end: int = _FOREVER) -> Dropping:
        """What of the offsets from `first` to `end` or S0 may go; `tombstones` is what `tombstone_bound` says.

        From when tombstones are dropped, readers that have not come to the sample's position start over.
        """
        base, end = first & ~7, min(end, self.s0)
        bits = self.live.copy(base, max(0, end - base + 7 >> 3))
        for one in self.prev.unwritten(0, _FOREVER):
            self.kernel.visible(bits, base, one.runs, one.distances, one.far, FORWARD)
        for one in self.prev.between(self.s0, _FOREVER):
            self.kernel.visible(bits, base, one.runs, one.distances, one.far, KEEP)
        for held in self.counting.open.values():
            for low, high in held:
                for offset in range(max(low, base), min(high, end)):
                    bits[offset - base >> 3] |= 1 << (offset - base & 7)
        cut_bits(bits, base, first, end)
        below = 0
        if tombstones is not None and tombstones.position <= self.s0:
            below = tombstones.floor
            self.horizon = max(self.horizon, tombstones.position)
        return Dropping(base, end, bits, below, self.s0)

    def forget(self, gone: Buffer, first: int) -> None:
        """Tombstones were dropped: those whose bits are set in `gone`, from the offset `first` on, a multiple of 8."""
        self._write_page()
        self.latest.forget(gone, first)
        self.live.clear(gone, first)


def cut_bits(bits: bytearray, base: int, first: int, end: int) -> None:
    """Clear the bits below `first` and from `end` on, in a window that is no longer than it has to be."""
    if not bits:
        return
    bits[0] &= 0xFF << (first - base) & 0xFF
    if (end - base) & 7:
        bits[-1] &= (1 << ((end - base) & 7)) - 1
