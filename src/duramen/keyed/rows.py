"""The table of keys in files, in plain Python: rows from batches, entered later, partition by partition."""

from array import array
from collections.abc import Sequence

from duramen.base.ports import Buffer
from duramen.keyed.hashing import HashKey, blake2b_hash
from duramen.keyed.kernel import (
    MOST_OFFSETS,
    NOTHING,
    OFFSET_BITS,
    AppliedBatches,
    Entered,
    check_count,
    check_partition,
)
from duramen.keyed.scan import INT64_MAX, Keys, TakenKeys, distance_of, put, walk

__all__ = ["enter", "gather", "gather_hashed", "order"]


def gather(
    data: Buffer, position: int, first: int, end: int, base: int, secret: bytes, rows: memoryview
) -> AppliedBatches:
    """See `Gather`."""
    return gather_hashed(data, position, first, end, base, blake2b_hash(secret), rows)


def gather_hashed(
    data: Buffer, position: int, first: int, end: int, base: int, hashed: HashKey, rows: memoryview
) -> AppliedBatches:
    """See `Gather`; with any hash."""
    if base < 0:
        raise ValueError("a table counts from an offset")
    return walk(data, position, first, end, base, _Rows(rows, base, hashed))


class _Rows(TakenKeys):
    """Makes rows of keys."""

    def __init__(self, rows: memoryview, base: int, hashed: HashKey) -> None:
        super().__init__()
        self._rows = rows
        self._base = base
        self._hashed = hashed

    def enter(self, keys: Keys) -> bool:
        """Make a row of each; False if there is no room for the next one."""
        rows, hashed = self._rows, self._hashed
        taken = keys[: len(rows) // 2 - self.records]
        at = 2 * self.records
        for offset, key in taken:
            low = new = 0
            if key is not None:
                low, high = hashed(key)
                new = high << OFFSET_BITS | offset - self._base + 1
            rows[at], rows[at + 1] = low, new
            at += 2
        self.note(taken, len(taken))
        return len(taken) == len(keys)


def order(rows: memoryview, order: memoryview, partitions: int) -> Sequence[int]:
    """See `Order`."""
    check_count(partitions)
    if len(order) < len(rows) // 2:
        raise ValueError("there is no room for the numbers of the rows")
    shift = 65 - partitions.bit_length()
    numbers: list[list[int]] = [[] for _ in range(partitions)]
    for number, new in enumerate(rows[1::2].tolist()):
        if new & MOST_OFFSETS:
            numbers[new >> shift].append(number)
    starts = [0]
    for some in numbers:
        order[starts[-1] : starts[-1] + len(some)] = memoryview(array("I", some))
        starts.append(starts[-1] + len(some))
    return starts


def enter(
    words: memoryview, keys: int, rows: memoryview, order: memoryview, base: int, distances: memoryview
) -> Entered:
    """See `Enter`."""
    check_partition(words)
    if not 0 <= base <= INT64_MAX - MOST_OFFSETS:
        raise ValueError("a table counts from an offset")
    numbers, there = order.tolist(), min(len(rows) // 2, len(distances))
    if any(number >= there or not rows[2 * number + 1] & MOST_OFFSETS for number in numbers):
        raise ValueError("a row that is to be entered is not there")
    far: list[tuple[int, int]] = []
    for at, number in enumerate(numbers):
        new = rows[2 * number + 1]
        known = put(words, keys, rows[2 * number], new)
        if known < 0:
            return Entered(at, keys, far)
        if known:
            distances[number] = distance_of(new & MOST_OFFSETS, known, base, far)
        else:
            keys += 1
            distances[number] = NOTHING
    return Entered(len(numbers), keys, far)
