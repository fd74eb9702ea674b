"""`live`, one bit per offset at a position: the record counts below it and nothing below it supersedes it. Pure.

Pieces of 8 Mi offsets; a piece without live records is omitted.
"""

from collections.abc import Iterator
from typing import Final

from duramen.base.ports import Buffer
from duramen.keyed.kernel import FORWARD, Kernel
from duramen.keyed.prev import Entries

__all__ = ["Live"]

_PIECE_BITS: Final = 23
_PIECE_BYTES: Final = 1 << (_PIECE_BITS - 3)


class Live:
    """The bits at `position`."""

    def __init__(self, kernel: Kernel, position: int) -> None:
        self.position = position
        self._kernel = kernel
        self._pieces: dict[int, bytearray] = {}

    @property
    def memory_bytes(self) -> int:
        """Memory of the bits."""
        return sum(map(len, self._pieces.values()))

    def advance(self, entries: Entries) -> None:
        """Apply the changes by these records, which count next."""
        known = len(self._pieces)
        for first, count in zip(entries.runs[::2], entries.runs[1::2], strict=True):
            for number in range(first >> _PIECE_BITS, (first + count - 1 >> _PIECE_BITS) + 1):
                if number not in self._pieces:
                    self._pieces[number] = bytearray(_PIECE_BYTES)
        for number, bits in self._pieces.items():
            base = number << _PIECE_BITS
            self._kernel.visible(bits, base, entries.runs, entries.distances, entries.far, FORWARD)
        if len(self._pieces) > known:
            self.trim()

    def trim(self) -> None:
        """Remove the pieces without live records."""
        self._pieces = {number: bits for number, bits in self._pieces.items() if bits.count(0) < len(bits)}

    def clear(self, gone: Buffer, first: int) -> None:
        """Clear dropped records: those whose bits are set in `gone`, from the offset `first` on, a multiple of 8."""
        for at in range(0, len(gone), _PIECE_BYTES):
            part = gone[at : at + _PIECE_BYTES]
            for number, base, bits in self._window(first + 8 * at, 8 * len(part)):
                low = max(first + 8 * at, base) - base >> 3
                high = min(first + 8 * (at + len(part)), base + 8 * _PIECE_BYTES) - base >> 3
                begin = base + 8 * low - first - 8 * at >> 3
                dropped = int.from_bytes(part[begin : begin + high - low], "little")
                left = int.from_bytes(bits[low:high], "little") & ~dropped
                self._pieces[number][low:high] = left.to_bytes(high - low, "little")

    def copy(self, first: int, size: int) -> bytearray:
        """`size` bytes of bits from the offset `first` on, a multiple of 8."""
        found = bytearray(size)
        for _, base, bits in self._window(first, 8 * size):
            low, high = max(first, base), min(first + 8 * size, base + 8 * _PIECE_BYTES)
            found[low - first >> 3 : high - first >> 3] = bits[low - base >> 3 : high - base >> 3]
        return found

    def pieces(self) -> list[tuple[int, bytearray]]:
        """The pieces with their numbers, for a checkpoint."""
        self.trim()
        return sorted(self._pieces.items())

    def load(self, number: int, content: Buffer) -> None:
        """Load a piece from `pieces`."""
        self._pieces[number] = bytearray(content)

    def _window(self, first: int, count: int) -> Iterator[tuple[int, int, bytearray]]:
        for number in range(first >> _PIECE_BITS, (first + count - 1 >> _PIECE_BITS) + 1):
            if number in self._pieces:
                yield number, number << _PIECE_BITS, self._pieces[number]
