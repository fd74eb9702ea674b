"""One query on rows of other nodes: fetched rows, and missing ones.

A query is a function of local rows. It runs on rows in which missing ones count as absent, so that one run finds all
missing rows of all shards. They are fetched, and the query runs again until nothing is missing.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from duramen.base.ports import StateRows
from duramen.coordinators.inventory.cluster.requests import ReadInventory, RowsRead
from duramen.inventory.directory_history import DirectoryState

__all__ = ["FetchedRows", "RoundOfReads"]

_ROWS_AT_ONCE: Final = 300
_ROWS_FIRST: Final = 2
_Scan = tuple[bytes, bytes]


class RoundOfReads:
    """Rows fetched for one query."""

    def __init__(self) -> None:
        self.has_directory = False
        self.wants_directory = False
        self.places: dict[int, tuple[int, int]] = {}
        """The positions of shards at their first response: later reads return no older rows."""

        self._values: dict[tuple[int, bytes], bytes | None] = {}
        self._pages: dict[tuple[int, bytes, bytes], tuple[Sequence[tuple[bytes, bytes]], bool]] = {}
        self._keys: dict[int, dict[bytes, None]] = {}
        self._scans: dict[int, dict[_Scan, int]] = {}

    @property
    def is_whole(self) -> bool:
        """Whether the query had all rows that it read."""
        return not (self._keys or self._scans or (self.wants_directory and not self.has_directory))

    def rows(self, shard: int) -> "FetchedRows":
        """The rows of a shard."""
        return FetchedRows(self, shard)

    def values(self, shard: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values by their keys, None if not fetched yet."""
        lacking = [key for key in keys if (shard, key) not in self._values]
        if lacking:
            self._keys.setdefault(shard, {}).update(dict.fromkeys(lacking))
        return [self._values.get((shard, key)) for key in keys]

    def page(self, shard: int, first: bytes, end: bytes, most: int) -> tuple[Sequence[tuple[bytes, bytes]], bool]:
        """Rows from a key on, and whether more follow; none if not fetched yet."""
        found = self._pages.get((shard, first, end))
        if found is None:
            self._scans.setdefault(shard, {})[first, end] = most
            return (), False
        return found

    def requests(self, directory_shard: int, known: DirectoryState) -> list[ReadInventory]:
        """Requests for the missing rows, one per shard. `known` is the known state of the directory."""
        asks = self.wants_directory and not self.has_directory
        shards = {*self._keys, *self._scans, *([directory_shard] if asks else [])}
        found = [
            ReadInventory(
                shard, -1, 0, list(self._keys.get(shard, ())),
                [(first, end, most) for (first, end), most in self._scans.get(shard, {}).items()],
                known if asks and shard == directory_shard else None,
            )
            for shard in sorted(shards)
        ]  # fmt: skip
        self._keys, self._scans = {}, {}
        return found

    def take(self, request: ReadInventory, answer: RowsRead) -> None:
        """Add a shard's response."""
        shard = request.shard
        self.places.setdefault(shard, (answer.epoch, answer.offset))
        self._values.update(((shard, key), value) for key, value in zip(request.keys, answer.values, strict=True))
        for (first, end, _), (rows, more) in zip(request.scans, answer.scans, strict=True):
            self._pages[shard, first, end] = rows, more


class FetchedRows(StateRows):
    """The rows of one shard as a query sees them."""

    def __init__(self, fetched: RoundOfReads, shard: int) -> None:
        self._round = fetched
        self._shard = shard

    def get(self, key: bytes) -> bytes | None:
        """See `StateRows`."""
        return self._round.values(self._shard, [key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `StateRows`."""
        return self._round.values(self._shard, keys)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See `StateRows`."""
        more, most = True, _ROWS_FIRST  # most scans read a single row
        while more:
            rows, more = self._round.page(self._shard, first, end, most)
            most = _ROWS_AT_ONCE
            yield from rows
            if more:
                first = rows[-1][0] + b"\x00"
