"""The order in which records count: those of transactions at their commit marker. Pure."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from duramen.base.errors import BatchCorrupt
from duramen.base.ports import Buffer
from duramen.codec.batch import CONTROL, TRANSACTIONAL, Header, batches, checked_body
from duramen.codec.batch_filter import marker_type
from duramen.codec.markers import COMMIT

__all__ = ["OWN", "CountedPiece", "Counting", "Held"]

OWN = -1
"""Records count at their own offsets."""

Held = list[tuple[int, int]]
"""First and next offsets of batches, adjacent ones merged."""


class CountedPiece(NamedTuple):
    """Records that count one after another: of `data[start:stop]` at their own offsets, or those `held`, at `at`.

    `next_offset` is after everything that has been read. Processed offsets of `held` are removed from it, so that a
    repeated walk continues there. `places` has, by first offset, the places in `data` of batches of transactions.
    """

    start: int
    stop: int
    held: Held
    at: int
    next_offset: int
    places: Mapping[int, int]


class Counting:
    """Walks over batches in log order; batches of open transactions are held by producer id."""

    def __init__(self) -> None:
        self.open: dict[int, Held] = {}

    def first_open(self, position: int) -> int:
        """The offset from which on everything is that counts at or after `position`, the present position."""
        return min((held[0][0] for held in self.open.values()), default=position)

    def pieces(self, data: Buffer, position: int) -> Iterator[CountedPiece]:
        """The records of the whole batches in `data` from the offset `position` on, in counting order.

        Each batch that changes the open transactions is followed by a piece, which may be empty: a caller that could
        not process a piece starts again after the one before. Raises BatchCorrupt.
        """
        view = memoryview(data).toreadonly().cast("B")
        start = stop = 0
        places: dict[int, int] = {}
        for at, head in batches(view):
            stop = at + head.size
            if not head.attributes & (CONTROL | TRANSACTIONAL):
                position = max(position, head.next_offset)
                continue
            places[head.base_offset] = at
            if head.next_offset <= position:
                continue
            if at > start:
                yield CountedPiece(start, at, [], OWN, head.base_offset, places)
            start, position = stop, head.next_offset
            if head.attributes & CONTROL:
                held = self.open.get(head.producer_id, [])
                if held and _commits(view, at, head):
                    yield CountedPiece(stop, stop, held, head.base_offset, position, places)
                self.open.pop(head.producer_id, None)
            else:
                _hold(self.open.setdefault(head.producer_id, []), head.base_offset, head.next_offset)
            yield CountedPiece(stop, stop, [], OWN, position, places)
        if stop:
            yield CountedPiece(start, stop, [], OWN, position, places)


def _commits(view: memoryview, at: int, head: Header) -> bool:
    content, start, stop = checked_body(view, at, head)
    kind = marker_type(bytes(content[start:stop]))
    if kind is None:
        raise BatchCorrupt(f"the control batch at offset {head.base_offset} has no marker")
    return kind == COMMIT


def _hold(held: Held, first: int, end: int) -> None:
    if held and held[-1][1] == first:
        held[-1] = (held[-1][0], end)
    else:
        held.append((first, end))
