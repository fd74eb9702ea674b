"""Passes of readers over a partition of a live topic: the end of each, and the tombstones kept for it. Pure."""

from collections.abc import Hashable
from typing import Final, NamedTuple
from weakref import ref

from duramen.base.errors import OffsetOutOfRange
from duramen.keyed.snapshots import SnapshotBounds
from duramen.keyed.view import VisibleRecords

__all__ = ["LivePage", "LivePass", "LivePasses", "LiveWindow"]

_NONE: Final = -1
_MOST_PASSES: Final = 1000


class LiveWindow(NamedTuple):
    """The shown offsets of `[first, stop)` in a pass that ends at `end`."""

    end: int
    first: int
    visible: VisibleRecords
    stop: int


class LivePage(NamedTuple):
    """Batches for the reader at `first`, which continues at `next_offset`."""

    first: int
    next_offset: int
    batches: bytes


class LivePass:
    """The state of a reader: what it was sent, and its position. A new pass starts at the end of the one before."""

    __slots__ = (
        "_connection", "_first_end", "_from_start", "_page_first", "_reached", "at", "client_id", "end", "page",
        "reaching", "seen", "told", "used_ms", "window",
    )  # fmt: skip

    def __init__(self, offset: int, *, from_start: bool, client_id: str = "") -> None:
        """A reader that starts at the log's start has nothing that a tombstone below its first end would delete."""
        self.at = self._page_first = self._reached = offset
        self.client_id = client_id
        self.end = self.seen = self.reaching = _NONE
        self.told = False
        """Whether the reader knows that it has reached the end."""
        self.used_ms = 0
        self.page: LivePage | None = None
        self.window: LiveWindow | None = None
        self._from_start = from_start
        self._first_end = _NONE
        self._connection: ref[object] | None = None

    @property
    def needs(self) -> int:
        """The offset from which on tombstones must be kept for the reader; -1: all."""
        if self._from_start and self._first_end == _NONE:
            return _NONE
        return max(self._first_end, self._reached)

    def check(self, bounds: SnapshotBounds, start_offset: int) -> None:
        """Raise OffsetOutOfRange if deletions that the reader needs may be missing.

        A reader at the log's start starts over.
        """
        if _NONE < self.needs < bounds.horizon:
            if self.at <= start_offset:
                self._begin_anew()
                return
            raise OffsetOutOfRange(
                f"tombstones are kept from {bounds.horizon} on, and the reader is at {self.at}: read from the start"
            )

    def _begin_anew(self) -> None:
        self._page_first = self._reached = self.at
        self._first_end = _NONE
        self._from_start, self.told = True, False
        self.lose_end()
        self.reaching = _NONE

    def fetched(self, offset: int) -> None:
        """The reader requests this offset: it has read the records before."""
        if offset < self.end:
            self.told = False
        self.at = self._page_first = offset
        self._reached = max(self._reached, offset)
        if self.page is not None and self.page.first != offset:
            self.page = None

    def served(self, page: LivePage) -> None:
        """The reader is sent a page."""
        self.page = None
        self.at = page.next_offset

    def ends(self, end: int, seen: int) -> None:
        """Set the end of the pass, known at the view's position `seen`."""
        if end != self.end:
            self.told = False
        self.end, self.seen, self.reaching = end, seen, _NONE
        self.window = None
        if self._first_end == _NONE and self._from_start:
            self._first_end = end

    def lose_end(self) -> None:
        """Compaction has passed the end: a newer end is chosen, which is correct too."""
        self.end = self.seen = _NONE
        self.window = self.page = None

    def stands_at(self, offset: int) -> bool:
        """Whether its reader, which may have lost the last page, continues at this offset."""
        return offset in (self.at, self._page_first)

    def is_of(self, connection: object) -> bool:
        """Whether it was last used on this connection."""
        return self._connection is not None and self._connection() is connection

    def bind(self, connection: object) -> "LivePass":
        """Use it on this connection from now on."""
        self._connection = ref(connection)
        return self

    def copy(self) -> "LivePass":
        """A copy for another reader at the same position."""
        other = LivePass(self._reached, from_start=self._from_start, client_id=self.client_id)
        other._first_end = self._first_end
        other.end, other.seen = self.end, self.seen
        return other


class LivePasses:
    """The passes of a node, by partition. One that is unused for the time of a lease is forgotten."""

    def __init__(self) -> None:
        self._by_place: dict[Hashable, dict[int, LivePass]] = {}

    def find(
        self, place: Hashable, connection: object, client_id: str, offset: int, start_offset: int, now_ms: int,
        lease_ms: int,
    ) -> LivePass:  # fmt: skip
        """The pass of a connection; for a new reader, that of the same client at the offset."""
        passes = self._by_place.setdefault(place, {})
        self._forget(place, now_ms - lease_ms)
        found = passes.pop(id(connection), None)
        if found is None or not found.is_of(connection):
            found = self._adopted(passes, client_id, offset)
            if found is None or offset <= start_offset:
                found = LivePass(offset, from_start=offset <= start_offset, client_id=client_id)
            found.bind(connection)
            if len(passes) >= _MOST_PASSES:
                del passes[next(iter(passes))]
        found.used_ms = now_ms
        self._by_place[place][id(connection)] = found
        return found

    @staticmethod
    def _adopted(passes: dict[int, LivePass], client_id: str, offset: int) -> LivePass | None:
        for one in reversed(passes.values()):
            if one.client_id == client_id and one.stands_at(offset):
                return one.copy()
        return None

    def _forget(self, place: Hashable, until_ms: int) -> None:
        passes = self._by_place.get(place, {})
        while passes and next(iter(passes.values())).used_ms < until_ms:
            del passes[next(iter(passes))]

    def oldest(self, place: Hashable, now_ms: int, lease_ms: int) -> int | None:
        """The offset from which on tombstones are kept for readers; None without readers."""
        self._forget(place, now_ms - lease_ms)
        return min((one.needs for one in self._by_place.get(place, {}).values()), default=None)

    def forget(self, place: Hashable) -> None:
        """The partition no longer belongs to a live topic."""
        self._by_place.pop(place, None)
