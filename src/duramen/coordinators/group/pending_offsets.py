"""Offsets that were committed in transactions which are still open: rows of the view beside those that count.

Row of the view: byte 9, partition of `__consumer_offsets`, producer id, key of the offset's row -> offset of the record
in its log, then the row's value. At the marker of a commit the rows become what counts, at that of an abort they go.
Of two records of a key the one further on in the log counts, whichever transaction ended first: compaction keeps that
one too.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from duramen.storage.view.view import Change, View

__all__ = ["HeldOffset", "PendingOffsets"]

_ROW: Final = b"\x09"
_END: Final = b"\x0a"
_HEAD = struct.Struct(">iq")  # partition, producer id
_PARTITION = struct.Struct(">i")
_OFFSET = struct.Struct(">q")


class HeldOffset(NamedTuple):
    """What a record of a transaction would make of a row: `offset` is the record's own in its log."""

    offset: int
    row: bytes
    value: bytes


class PendingOffsets:
    """What is held, by writer and by row; each call returns the changes of the view that make it durable."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._by_writer: dict[tuple[int, int], set[bytes]] = {}  # (partition, producer id)
        self._by_row: dict[bytes, set[tuple[int, int]]] = {}
        self._opened: set[int] = set()

    def load(self) -> None:
        """Take in the rows of the view."""
        self._by_writer.clear()
        self._by_row.clear()
        self._load(_ROW, _END)

    def open(self, partition: int) -> None:
        """Take in those of one partition, unless that is done."""
        if partition not in self._opened:
            self._opened.add(partition)
            self._load(*_span(partition))

    def _load(self, first: bytes, end: bytes) -> None:
        for key, _ in self._view.scan(first, end):
            partition, producer_id = _HEAD.unpack_from(key, 1)
            self._note((partition, producer_id), key[1 + _HEAD.size :])

    def close(self, partition: int) -> None:
        """Have nothing of a partition in memory."""
        self._opened.discard(partition)
        for writer in [writer for writer in self._by_writer if writer[0] == partition]:
            for row in list(self._by_writer[writer]):
                self._drop(writer, row)

    def rows(self, partition: int) -> list[bytes]:
        """The keys of all rows of a partition."""
        return [key for key, _ in self._view.scan(*_span(partition))]

    def __contains__(self, row: bytes) -> bool:
        """Whether a transaction that is open has a record for the row."""
        return row in self._by_row

    def hold(self, partition: int, producer_id: int, held: Iterable[HeldOffset]) -> list[Change]:
        """Records of an open transaction, in the order of the log."""
        writer = (partition, producer_id)
        changes: list[Change] = []
        for one in held:
            self._note(writer, one.row)
            changes.append((_key(writer, one.row), _OFFSET.pack(one.offset) + one.value))
        return changes

    def end(self, partition: int, producer_id: int, *, commit: bool) -> list[Change]:
        """A marker: what its transaction has held counts now, or goes."""
        writer = (partition, producer_id)
        changes: list[Change] = []
        for row in sorted(self._by_writer.get(writer, ())):
            held = self._view.get(_key(writer, row))
            changes += self._drop(writer, row)
            if commit and held is not None:
                changes.append((row, held[_OFFSET.size :]))
                changes += self._drop_older(row, int(_OFFSET.unpack_from(held)[0]))
        return changes

    def supersede(self, rows: Sequence[Change]) -> list[Change]:
        """Records outside of transactions count more than what was held for their rows before."""
        changes: list[Change] = []
        for row, _ in rows if self._by_row else ():
            for writer in sorted(self._by_row.get(row, ())):
                changes += self._drop(writer, row)
        return changes

    def _drop_older(self, row: bytes, offset: int) -> list[Change]:
        changes: list[Change] = []
        for writer in sorted(self._by_row.get(row, ())):
            held = self._view.get(_key(writer, row))
            if held is not None and _OFFSET.unpack_from(held)[0] < offset:
                changes += self._drop(writer, row)
        return changes

    def _note(self, writer: tuple[int, int], row: bytes) -> None:
        self._by_writer.setdefault(writer, set()).add(row)
        self._by_row.setdefault(row, set()).add(writer)

    def _drop(self, writer: tuple[int, int], row: bytes) -> list[Change]:
        rows, writers = self._by_writer[writer], self._by_row[row]
        rows.discard(row)
        writers.discard(writer)
        if not rows:
            del self._by_writer[writer]
        if not writers:
            del self._by_row[row]
        return [(_key(writer, row), None)]


def _span(partition: int) -> tuple[bytes, bytes]:
    return _ROW + _PARTITION.pack(partition), _ROW + _PARTITION.pack(partition + 1)


def _key(writer: tuple[int, int], row: bytes) -> bytes:
    return _ROW + _HEAD.pack(*writer) + row
