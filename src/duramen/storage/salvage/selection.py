"""The sound batches of a segment's file and the bytes between them, without other evidence for either. Blocking.

A batch's CRC covers neither its base offset nor its epoch. These are accepted if the block matches the CRC in the
segment's index; otherwise only if they fit the neighbours: consecutive offsets, epochs that never decrease, and a next
batch that agrees. If the leader-epoch cache has the epoch of an offset, no other epoch is accepted. After damage,
batches continue at the next batch according to the damaged header, otherwise at sound batches that lead to a start in
the index.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from duramen.base.ports import File
from duramen.codec.batch import CRC_START, HEADER_BYTES, Header, header
from duramen.codec.crc import crc32c
from duramen.storage.segment.index import BLOCK_BYTES, BLOCK_SHIFT, SoundEntries

__all__ = ["DamagedBytes", "ExpectedBatches", "FileWindow", "FoundBatch", "sift"]

_WINDOW_BYTES: Final = 1024 * 1024
_MAGIC_AT: Final = 16
_CHAIN: Final = 3  # that many sound batches with dense offsets are no accident
_LARGEST: Final = (1 << 63) - 1


class FoundBatch(NamedTuple):
    """A sound batch at a position of the file."""

    position: int
    header: Header


class DamagedBytes(NamedTuple):
    """Bytes that belong to no sound batch."""

    start: int
    end: int


class FileWindow:
    """The bytes of a file, about 1 MiB in memory at a time. Raises OSError."""

    def __init__(self, file: File, size: int) -> None:
        self.size = size
        self._file = file
        self._start = 0
        self._data: memoryview = memoryview(b"")

    def view(self, position: int, length: int) -> memoryview:
        """The bytes at `position`; fewer at the end of the file."""
        length = max(0, min(length, self.size - position))
        at = position - self._start
        if at < 0 or at + length > len(self._data):
            wanted = min(max(length, _WINDOW_BYTES), self.size - position)
            self._data = memoryview(self._file.read(position, wanted))
            self._start, at = position, 0
        return self._data[at : at + length]


class ExpectedBatches(NamedTuple):
    """The limits of a segment's offsets and epochs.

    Offsets are from `base_offset` to below `limit_offset`, epochs up to `newest_epoch`. Gaps between batches are
    accepted if they are among `gaps` (first and last offset) or end at or below `cleaned_offset`. `epoch_at` returns
    the leader epoch of an offset, -1 if unknown.
    """

    base_offset: int
    limit_offset: int = _LARGEST
    newest_epoch: int = _LARGEST
    gaps: Sequence[tuple[int, int]] = ()
    cleaned_offset: int = 0
    epoch_at: Callable[[int], int] | None = None


_NO_ENTRIES: Final = SoundEntries({}, [])


def sift(
    file: File, size: int, expected: ExpectedBatches, entries: SoundEntries = _NO_ENTRIES
) -> Iterator[FoundBatch | DamagedBytes]:
    """The content of the first `size` bytes of a segment's file, in order; `entries` are those of its index."""
    return _Sieve(FileWindow(file, size), expected, entries).run()


class _Sieve:
    def __init__(self, window: FileWindow, expected: ExpectedBatches, entries: SoundEntries) -> None:
        self._window = window
        self._limit = expected.limit_offset
        self._newest_epoch = expected.newest_epoch
        self._gaps = {first: last + 1 for first, last in expected.gaps}
        self._cleaned = expected.cleaned_offset
        self._epoch_at = expected.epoch_at
        self._starts = [start for start in entries.starts if start < window.size]
        self._crcs = entries.crcs
        self._proven: dict[int, bool] = {}
        self._expected = expected.base_offset
        self._epoch = 0

    def run(self) -> Iterator[FoundBatch | DamagedBytes]:
        position, damaged = 0, -1
        while position < self._window.size:
            found = self._believed(position)
            if found is None:
                damaged = position if damaged < 0 else damaged
                position = self._resume(position)
                continue
            if damaged >= 0:
                yield DamagedBytes(damaged, position)
                damaged = -1
            yield FoundBatch(position, found)
            position += found.size
            self._expected, self._epoch = found.next_offset, found.leader_epoch
        if damaged >= 0:
            yield DamagedBytes(damaged, self._window.size)

    def _header(self, position: int) -> Header | None:
        """The header at `position`, if a batch of its size fits there."""
        data = self._window.view(position, HEADER_BYTES)
        found = header(data) if len(data) == HEADER_BYTES else None
        if found is None or found.magic != 2 or not HEADER_BYTES <= found.size <= self._window.size - position:
            return None
        return found

    def _whole(self, position: int) -> Header | None:
        """The header of the batch at `position`, if the batch matches its CRC."""
        found = self._header(position)
        if found is None or crc32c(self._window.view(position, found.size)[CRC_START:]) != found.crc:
            return None
        return found

    def _right_epoch(self, found: Header) -> int:
        return self._epoch_at(found.base_offset) if self._epoch_at is not None else -1

    def _fits(self, found: Header, expected: int, epoch: int) -> bool:
        right = self._right_epoch(found)
        epochs = (epoch, self._newest_epoch) if right < 0 else (right, right)
        return (
            found.base_offset >= expected
            and found.last_offset_delta >= 0
            and found.next_offset <= self._limit
            and epochs[0] <= found.leader_epoch <= epochs[1]
        )

    def _sound(self, position: int, expected: int, epoch: int) -> Header | None:
        found = self._header(position)
        return self._whole(position) if found is not None and self._fits(found, expected, epoch) else None

    def _believed(self, position: int) -> Header | None:
        found = self._sound(position, self._expected, self._epoch)
        if found is None:
            return None
        follows = found.base_offset in (self._expected, self._gaps.get(self._expected))
        if (follows and found.leader_epoch == self._epoch) or self._is_proven(position):
            return found
        following = self._whole(position + found.size)
        if following is None:
            return found
        if following.leader_epoch < found.leader_epoch and self._right_epoch(found) < 0:
            return None
        ends = (found.next_offset, self._gaps.get(found.next_offset))
        sparse = found.base_offset <= self._cleaned and following.base_offset >= found.next_offset
        return found if follows or sparse or following.base_offset in ends else None

    def _is_proven(self, position: int) -> bool:
        """Whether the header there lies in blocks that match their CRCs; no batch CRC covers the whole header."""
        first, last = position >> BLOCK_SHIFT, position + CRC_START - 1 >> BLOCK_SHIFT
        for block in range(first, last + 1):
            if block not in self._proven:
                data = self._window.view(block << BLOCK_SHIFT, BLOCK_BYTES)
                self._proven[block] = self._crcs.get(block) == crc32c(data)
            if not self._proven[block]:
                return False
        return True

    # -- behind damage ------------------------------------------------------------------------------

    def _resume(self, position: int) -> int:
        """The position to continue at, after invalid bytes at `position`."""
        found = self._header(position)
        if found is not None:
            following = position + found.size
            if following == self._window.size or self._sound(following, self._expected, self._epoch) is not None:
                return following
            if self._whole(position) is not None:
                return following  # batch of another history: bytes in it that look like batches are none
        at = bisect_right(self._starts, position)
        home = self._starts[at] if at < len(self._starts) else self._window.size
        return next((start for start in self._candidates(position + 1, home) if self._leads(start, home)), home)

    def _candidates(self, position: int, end: int) -> Iterator[int]:
        """Positions before `end` at which a batch may start, judged by the magic byte."""
        while position < end:
            data = bytes(self._window.view(position, min(_WINDOW_BYTES, end - position) + _MAGIC_AT))
            at = data.find(2, _MAGIC_AT)
            while at >= 0:
                yield position + at - _MAGIC_AT
                at = data.find(2, at + 1)
            position += _WINDOW_BYTES

    def _leads(self, position: int, home: int) -> bool:
        """Whether a sound batch starts there and others follow, up to `home` or long enough."""
        expected, epoch = self._expected, self._epoch
        for count in range(_CHAIN):
            found = self._sound(position, expected, epoch)
            if found is None or (count and found.base_offset != expected):
                return False
            position += found.size
            if position == home:
                return True
            expected, epoch = found.next_offset, found.leader_epoch
        return position < home
