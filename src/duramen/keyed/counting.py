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
"""First and next offsets of batches, those that follow one another as one."""


class CountedPiece(NamedTuple):
    """Records that count one after another: of `data[start:stop]` at their own offsets, or those `held`, at `at`.

    `next_offset` is behind everything that has been looked at. What is taken of `held` is removed from it, so that a
    walk that begins again goes on there. `places` says by first offset where in `data` batches of transactions lie.
    """

    start: int
    stop: int
    held: Held
    at: int
    next_offset: int
    places: Mapping[int, int]


class Counting:
    """Walks over batches in the order of the log; what open transactions wrote is held by their producers' ids."""

    def __init__(self) -> None:
        self.open: dict[int, Held] = {}

    def first_open(self, position: int) -> int:
        """Everything that counts at or behind `position`, which is where this stands, is at or behind this offset."""
        return min((held[0][0] for held in self.open.values()), default=position)

    def pieces(self, data: Buffer, position: int) -> Iterator[CountedPiece]:
        """What counts of the whole batches in `data`, from the offset `position` on, in the order in which it counts.

        Each batch that changes what is open is followed by a piece, which may be empty: whoever could not take a piece
        begins again behind the one before. Raises BatchCorrupt.
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
