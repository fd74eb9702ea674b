"""Rows with changes that are not written yet. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from duramen.base.ports import StateRows
from duramen.queues.names import HASH_BYTES

__all__ = ["PendingRows"]

_GROUP: Final = 1 + HASH_BYTES
_TIMES: Final = b"t"


def _group(key: bytes) -> bytes:
    """The rows within which a scan stays: those of a kind and a queue, or the whole time index."""
    return _TIMES if key[:1] == _TIMES else key[:_GROUP]


class PendingRows(StateRows):
    """Rows with pending changes on top. A scan stays within the rows of a kind and a queue."""

    def __init__(self, rows: StateRows) -> None:
        self.changes: dict[bytes, bytes | None] = {}
        self._rows = rows
        self._groups: dict[bytes, set[bytes]] | None = None  # of the changes, after the first scan

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`."""
        return self.changes[key] if key in self.changes else self._rows.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys`."""
        return [self.get(key) for key in keys]

    def put(self, key: bytes, value: bytes | None) -> None:
        """A row and its new value; None removes it."""
        self.changes[key] = value
        if self._groups is not None:
            self._groups.setdefault(_group(key), set()).add(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with `first <= key < end` in order, at the time of this call."""
        if self._groups is None:
            self._groups = {}
            for key in self.changes:
                self._groups.setdefault(_group(key), set()).add(key)
        pending = sorted(key for key in self._groups.get(_group(first), ()) if first <= key < end)
        at = 0
        for key, value in self._rows.scan(first, end):
            while at < len(pending) and pending[at] < key:
                yield from self._changed(pending[at])
                at += 1
            if key not in self.changes:
                yield key, value
        for changed in pending[at:]:
            yield from self._changed(changed)

    def _changed(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        value = self.changes[key]
        if value is not None:
            yield key, value
