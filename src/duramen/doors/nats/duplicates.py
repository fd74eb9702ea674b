"""The known message ids of a stream in compact form: 24 bytes each, in sorted blocks. Pure.

An id is kept as a keyed 64-bit fingerprint, so that nobody can choose colliding ids; among the millions that fit, a
false match has a probability of about one in 10^13. A lookup is two binary searches, an insertion moves a few
kilobytes, a full block is split in two: no step takes long, unlike the growth of one table.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

__all__ = ["ENTRY_BYTES", "Allowance", "DuplicateTable", "fingerprint"]

ENTRY_BYTES: Final = 28
"""The memory of an id: three numbers of eight bytes, and its share of blocks and growing arrays."""

_BLOCK_ENTRIES: Final = 1024
_PARTITION_BITS: Final = 17  # a stream has up to 100,000 partitions
_PRINT_MASK: Final = (1 << 64) - 1
_PARTITION_MASK: Final = (1 << _PARTITION_BITS) - 1


def fingerprint(key: bytes, message_id: bytes) -> int:
    """64 bits that stand for an id in this process; `key` is secret.

    Python's hash of bytes is SipHash-1-3 with a secret of the process (PEP 456); `key` stands for that secret where
    PYTHONHASHSEED has made it known.
    """
    return hash(key + message_id) & _PRINT_MASK


class Allowance:
    """The number of ids that all tables together may still add."""

    __slots__ = ("left",)

    def __init__(self, entries: int) -> None:
        self.left = entries


class _Block:
    """Entries in the order of their fingerprints. A stamp is the time in ms, then the partition."""

    __slots__ = ("offsets", "prints", "stamps")

    def __init__(self, prints: "array[int]", stamps: "array[int]", offsets: "array[int]") -> None:
        self.prints = prints
        self.stamps = stamps
        self.offsets = offsets


class DuplicateTable:
    """Fingerprints of one stream's ids with partition, offset and time of each."""

    def __init__(self, allowance: Allowance, *, block_entries: int = _BLOCK_ENTRIES) -> None:
        self._block_entries = block_entries
        self._allowance = allowance
        self._starts = [0]  # the smallest fingerprint that each block may hold
        self._blocks = [_Block(array("Q"), array("Q"), array("q"))]
        self._next_purged = 0
        self._round_blocks = self._round_left = 0  # of the purges' round: all of its blocks, and those still to come
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def reserve(self, *, always: bool = False) -> bool:
        """Reserve room for an id that is added later; False if there is none, unless it is `always` accepted."""
        if self._allowance.left <= 0 and not always:
            return False
        self._allowance.left -= 1
        return True

    def give_back(self) -> None:
        """Return a reservation that is not needed."""
        self._allowance.left += 1

    def find(self, print_: int, since_ms: int) -> tuple[int, int] | None:
        """(Partition, offset) of an id that was added at `since_ms` or later."""
        block = self._blocks[bisect_right(self._starts, print_) - 1]
        at = bisect_left(block.prints, print_)
        if at == len(block.prints) or block.prints[at] != print_:
            return None
        stamp = block.stamps[at]
        return (stamp & _PARTITION_MASK, block.offsets[at]) if stamp >> _PARTITION_BITS >= since_ms else None

    def add(self, print_: int, partition: int, offset: int, time_ms: int) -> None:
        """Add an id with a reservation; an existing one is replaced."""
        number = bisect_right(self._starts, print_) - 1
        block = self._blocks[number]
        at = bisect_left(block.prints, print_)
        stamp = time_ms << _PARTITION_BITS | partition
        if at < len(block.prints) and block.prints[at] == print_:
            block.stamps[at] = stamp
            block.offsets[at] = offset
            self.give_back()
            return
        block.prints.insert(at, print_)
        block.stamps.insert(at, stamp)
        block.offsets.insert(at, offset)
        self._count += 1
        if len(block.prints) > self._block_entries:
            self._split(number)

    def _split(self, number: int) -> None:
        block = self._blocks[number]
        half = len(block.prints) // 2
        self._starts.insert(number + 1, block.prints[half])
        self._blocks.insert(number + 1, _Block(block.prints[half:], block.stamps[half:], block.offsets[half:]))
        # Slices, because an array that shrinks keeps its memory.
        self._blocks[number] = _Block(block.prints[:half], block.stamps[:half], block.offsets[:half])

    def purge(self, since_ms: int, share: int = 1) -> None:
        """Forget ids added before `since_ms`, in a `share`-th of the blocks; the next call continues from there."""
        limit = since_ms << _PARTITION_BITS
        if not self._round_left:
            self._round_blocks = self._round_left = len(self._blocks)
        for _ in range(min(-(-self._round_blocks // share), self._round_left)):
            self._round_left -= 1
            number = self._next_purged if self._next_purged < len(self._blocks) else 0
            block = self._blocks[number]
            kept = [at for at, stamp in enumerate(block.stamps) if stamp >= limit]
            gone = len(block.prints) - len(kept)
            self._next_purged = number + 1
            if gone:
                self._count -= gone
                self._allowance.left += gone
                self._blocks[number] = _Block(
                    array("Q", [block.prints[at] for at in kept]),
                    array("Q", [block.stamps[at] for at in kept]),
                    array("q", [block.offsets[at] for at in kept]),
                )
            if not kept and len(self._blocks) > 1:
                del self._blocks[number], self._starts[number]
                self._starts[0] = 0
                self._next_purged = number

    def clear(self) -> None:
        """Forget everything."""
        self._allowance.left += self._count
        self._count = 0
        self._round_left = 0
        self._starts = [0]
        self._blocks = [_Block(array("Q"), array("Q"), array("q"))]
