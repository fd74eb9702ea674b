"""`prev`: for each record, in counting order, the distance back to the record that it supersedes. Pure.

It is stored in pages of 65,536 distances, each written once. A page also has runs of consecutive records with the
offset at which they count, and the distances that do not fit.

    page:  uint32 CRC-32C of what follows, uint32 counts of runs, distances, far ones
           runs: int64 first offset, count, offset of the marker at which they count or -1
           far:  int64 offset, superseded offset
           uint32 distances
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from duramen.base.errors import CheckpointInvalid
from duramen.base.ports import Buffer
from duramen.codec.crc import crc32c
from duramen.keyed.commit_order import OWN
from duramen.keyed.kernel import NOTHING

__all__ = ["PAGE_CRC_END", "PAGE_RECORDS", "Entries", "MemoryPages", "PageFacts", "PageStore", "Prev"]

PAGE_RECORDS: Final = 1 << 16
PAGE_CRC_END: Final = 4
"""The end of a page's checksum, which covers everything after it."""

_FOREVER: Final = (1 << 63) - 1
_HEAD: Final = struct.Struct("<IIII")


class Entries(NamedTuple):
    """Records in counting order, in the form for `Visible`; `lowest` is their smallest offset."""

    runs: memoryview
    distances: memoryview
    far: memoryview
    lowest: int


class PageFacts(NamedTuple):
    """The known facts about a written page; its records count at `first` to `last`.

    `superseding` is the number of its records that supersede one.
    """

    number: int
    first: int
    last: int
    lowest: int
    records: int
    superseding: int = 0


class PageStore(Protocol):
    """The store of written pages."""

    def put(self, number: int, content: bytes) -> None:
        """Store a page; numbers increase by one."""

    def get(self, number: int) -> Buffer:
        """A stored page."""

    def drop_below(self, number: int) -> None:
        """Pages with smaller numbers are no longer read."""


class MemoryPages:
    """Pages in memory."""

    def __init__(self) -> None:
        self._pages: dict[int, bytes] = {}

    def put(self, number: int, content: bytes) -> None:
        """Store a page."""
        self._pages[number] = content

    def get(self, number: int) -> Buffer:
        """A stored page."""
        return self._pages[number]

    def drop_below(self, number: int) -> None:
        """Forget pages with smaller numbers."""
        for old in [one for one in self._pages if one < number]:
            del self._pages[old]


class _Run(NamedTuple):
    first: int
    records: int
    at: int

    @property
    def counts_first(self) -> int:
        return self.first if self.at == OWN else self.at

    @property
    def counts_last(self) -> int:
        return self.first + self.records - 1 if self.at == OWN else self.at


class _Page:
    """A page that is in memory."""

    def __init__(self, records: int) -> None:
        self.runs: list[_Run] = []
        self.far: list[tuple[int, int]] = []
        self.room = memoryview(bytearray(4 * records)).cast("I")
        self.records = 0

    def took(self, runs: Sequence[tuple[int, int]], far: Sequence[tuple[int, int]], at: int) -> None:
        for first, count in runs:
            last = self.runs[-1] if self.runs else None
            if last is not None and last.at == at and last.first + last.records == first:
                self.runs[-1] = _Run(last.first, last.records + count, at)
            else:
                self.runs.append(_Run(first, count, at))
            self.records += count
        self.far += far

    def facts(self, number: int) -> PageFacts:
        lowest = min(run.first for run in self.runs)
        first, last = self.runs[0].counts_first, self.runs[-1].counts_last
        return PageFacts(number, first, last, lowest, self.records, self.superseding())

    def superseding(self) -> int:
        return self.records - self.room[: self.records].tolist().count(NOTHING)

    def encode(self) -> bytes:
        runs = array("q", [field for run in self.runs for field in run])
        far = array("q", [field for pair in self.far for field in pair])
        head = _HEAD.pack(0, len(self.runs), self.records, len(self.far))[4:]
        content = b"".join((head, runs.tobytes(), far.tobytes(), self.room[: self.records].tobytes()))
        return crc32c(content).to_bytes(4, "little") + content


def _decode(content: Buffer, room: int) -> _Page:
    """Decode a page. Raises CheckpointInvalid."""
    view = memoryview(content).toreadonly().cast("B")
    if len(view) < _HEAD.size or crc32c(view[4:]) != int.from_bytes(view[:4], "little"):
        raise CheckpointInvalid("a page of a view does not match its checksum")
    _, runs, records, far = _HEAD.unpack_from(view)
    split = _HEAD.size + 24 * runs
    end = split + 16 * far
    page = _Page(room)
    if len(view) != end + 4 * records or records > room:
        raise CheckpointInvalid("a page of a view has not the size that it says")
    page.runs = [_Run(*fields) for fields in struct.iter_unpack("<qqq", view[_HEAD.size : split])]
    page.far = [(offset, previous) for offset, previous in struct.iter_unpack("<qq", view[split:end])]
    page.room[:records] = view[end:].cast("I")
    page.records = records
    if sum(run.records for run in page.runs) != records:
        raise CheckpointInvalid("a page of a view has not the records that it says")
    return page


class Prev:
    """Distances of records that count from S0 on; pages are dropped as S0 rises."""

    def __init__(self, store: PageStore, page_records: int) -> None:
        self._store = store
        self._page_records = page_records
        self._written: list[PageFacts] = []
        self._next = 0
        self._page = _Page(page_records)

    @property
    def records(self) -> int:
        """The number of its records."""
        return self._page.records + sum(page.records for page in self._written)

    def superseding(self) -> int:
        """The number of records that supersede one: as many superseded ones are kept for snapshots."""
        return self._page.superseding() + sum(page.superseding for page in self._written)

    @property
    def memory_bytes(self) -> int:
        """The bytes in memory, without those of the store."""
        return 4 * self._page_records + 56 * len(self._page.runs) + 64 * len(self._written)

    def room(self) -> memoryview:
        """The space for new distances; `took` reports the written ones."""
        if self._page.records == self._page_records:
            raise AssertionError("a full page was not written")
        return self._page.room[self._page.records :]

    def took(self, runs: Sequence[tuple[int, int]], far: Sequence[tuple[int, int]], at: int) -> None:
        """Add the records whose distances were written, in order; they count at the offset `at`, or at their own."""
        self._page.took(runs, far, at)

    def full(self) -> bool:
        """Whether the page is full."""
        return self._page.records == self._page_records

    def write(self) -> None:
        """Pass the page, however full, to the store, and start another one."""
        if self._page.records:
            self._store.put(self._next, self._page.encode())
            self._written.append(self._page.facts(self._next))
            self._next += 1
            self._page = _Page(self._page_records)

    def between(self, first: int, end: int) -> Iterator[Entries]:
        """The records that count in `[first, end)`, page by page."""
        yield from self._read([page for page in self._written if page.last >= first and page.first < end], first, end)
        yield from self.unwritten(first, end)

    def unwritten(self, first: int, end: int) -> Iterator[Entries]:
        """The records of the unwritten page that count in `[first, end)`."""
        found = _within(self._page, first, end)
        if found is not None:
            yield found

    def back_to(self, first: int) -> Iterator[Entries]:
        """The written records that count from `first` on; the page with the newest comes first."""
        return self._read([page for page in reversed(self._written) if page.last >= first], first, _FOREVER)

    def late(self, end: int) -> Iterator[tuple[int, int]]:
        """Records that count from `end` on with offsets below it: first and next offsets."""
        pages = [page for page in self._written if page.last >= end and page.lowest < end]
        for entries in (*self._read(pages, end, _FOREVER), *self.unwritten(end, _FOREVER)):
            for first, count in zip(entries.runs[::2], entries.runs[1::2], strict=True):
                if first < end:
                    yield first, min(first + count, end)

    def _read(self, pages: Sequence[PageFacts], first: int, end: int) -> Iterator[Entries]:
        for facts in pages:
            found = _within(_decode(self._store.get(facts.number), self._page_records), first, end)
            if found is not None:
                yield found

    def superseding_from(self, positions: Sequence[int], end: int) -> list[int]:
        """The approximate number of records that count from each position on and before `end` and supersede one.

        Within a page they are assumed to be spread evenly.
        """
        pages = [*self._written, *([self._page.facts(self._next)] if self._page.records else [])]
        found = [0] * len(positions)
        for page in pages:
            behind = min(end, page.last + 1)
            for at, position in enumerate(positions):
                first = max(position, page.first)
                if first < behind:
                    found[at] += page.superseding * (behind - first) // (page.last + 1 - page.first)
        return found

    def drop_below(self, offset: int) -> None:
        """Records that count below the offset are no longer read."""
        kept = [page for page in self._written if page.last >= offset]
        if len(kept) < len(self._written):
            self._written = kept
            self._store.drop_below(kept[0].number if kept else self._next)

    def state(self) -> tuple[int, list[PageFacts], bytes]:
        """The number of the next page, the written ones, and the unwritten one, for a checkpoint."""
        return self._next, list(self._written), self._page.encode()

    def load(self, state: tuple[int, list[PageFacts], bytes]) -> None:
        """Continue from a `state`. Raises CheckpointInvalid."""
        page = _decode(state[2], self._page_records)
        self._next, self._written, self._page = state[0], list(state[1]), page


def _within(page: _Page, first: int, end: int) -> Entries | None:
    """The records of a page that count in `[first, end)`."""
    kept: list[int] = []
    start = stop = at = 0
    lowest = -1
    for run in page.runs:
        low, high = 0, run.records
        if run.at == OWN:
            low, high = max(0, first - run.first), min(run.records, end - run.first)
        elif not first <= run.at < end:
            high = 0
        if low < high:
            if not kept:
                start = at + low
            stop = at + high
            kept += (run.first + low, high - low)
            lowest = run.first + low if lowest < 0 else min(lowest, run.first + low)
        at += run.records
    if not kept:
        return None
    far = array("q", [field for pair in sorted(page.far) for field in pair])
    return Entries(memoryview(array("q", kept)), page.room[start:stop], memoryview(far), lowest)
