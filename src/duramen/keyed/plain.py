"""The loops over records in plain Python: the reference of the native ones, and the fallback without the package."""

from collections.abc import Sequence
from typing import Final

from duramen.base.ports import Buffer
from duramen.keyed.extract import extract
from duramen.keyed.hashing import BLAKE2B, HIGH_BITS, HashKey, blake2b_hash
from duramen.keyed.kernel import (
    BACK,
    DEAD,
    FORWARD,
    KEEP,
    MOST_OFFSETS,
    NOTHING,
    OFFSET_BITS,
    AppliedBatches,
    Kernel,
    check_partition,
    check_table,
    most_keys,
)
from duramen.keyed.rows import enter, gather, order
from duramen.keyed.scan import INT64_MAX, Keys, TakenKeys, distance_of, put, walk

__all__ = ["PLAIN", "apply_hashed", "checked_entries", "copy", "visible"]


def _apply(
    data: Buffer,
    position: int,
    first: int,
    end: int,
    partitions: Sequence[memoryview],
    counts: memoryview,
    base: int,
    secret: bytes,
    distances: memoryview,
) -> AppliedBatches:
    hashed = blake2b_hash(secret)
    return apply_hashed(data, position, first, end, partitions, counts, base, hashed, distances)


def apply_hashed(
    data: Buffer,
    position: int,
    first: int,
    end: int,
    partitions: Sequence[memoryview],
    counts: memoryview,
    base: int,
    hashed: HashKey,
    distances: memoryview,
) -> AppliedBatches:
    """See `Apply`; with any hash."""
    check_table(partitions, counts, base)
    return walk(data, position, first, end, base, _Entering(partitions, counts, base, hashed, distances))


class _Entering(TakenKeys):
    """Enters keys into a table."""

    def __init__(
        self,
        partitions: Sequence[memoryview],
        counts: memoryview,
        base: int,
        hashed: HashKey,
        distances: memoryview,
    ) -> None:
        super().__init__()
        self._partitions = partitions
        self._counts = counts
        self._base = base
        self._hashed = hashed
        self._distances = distances
        self._shift = HIGH_BITS - (len(partitions).bit_length() - 1)

    def enter(self, keys: Keys) -> bool:
        """Enter the records; False if there is no room for the next one."""
        distances, put, room = self._distances, self._put, len(self._distances)
        at, whole = self.records, True
        for offset, key in keys:
            if at >= room:
                whole = False
                break
            if key is None:
                distances[at] = NOTHING
            else:
                distance = put(key, offset)
                if distance < 0:
                    whole = False
                    break
                distances[at] = distance
            at += 1
        self.note(keys, at - self.records)
        return whole

    def _put(self, key: bytes, offset: int) -> int:
        """The distance to the superseded record; -1 without room."""
        low, high = self._hashed(key)
        partition = high >> self._shift
        relative = offset - self._base + 1
        known = put(self._partitions[partition], self._counts[partition], low, high << OFFSET_BITS | relative)
        if known > 0:
            return distance_of(relative, known, self._base, self.far)
        if known < 0:
            self.full = partition
            return -1
        self._counts[partition] += 1
        return NOTHING


def copy(old: memoryview, new: memoryview, gone: Buffer, first: int, base: int) -> int:
    """See `Copy`."""
    check_partition(old)
    check_partition(new)
    new.cast("B")[:] = bytes(8 * len(new))
    size, count, most, bits = len(new), 0, most_keys(len(new) // 2), 8 * len(gone)
    for at in range(0, len(old), 2):
        packed = old[at + 1]
        relative = packed & MOST_OFFSETS
        place = relative - 1 + base - first
        if not relative or (0 <= place < bits and gone[place >> 3] >> (place & 7) & 1):
            continue
        if count == most:
            raise ValueError("the keys do not fit into the partition")
        slot = ((old[at] >> 32) * (size >> 1) >> 32) << 1
        while new[slot + 1] & MOST_OFFSETS:
            slot = slot + 2 if slot + 2 < size else 0
        new[slot], new[slot + 1] = old[at], packed
        count += 1
    return count


def checked_entries(runs: memoryview, distances: memoryview, far: memoryview) -> list[tuple[int, int]]:
    """First offset and count of each run. Raises ValueError if the arguments do not fit together."""
    pairs = list(zip(runs[::2], runs[1::2], strict=False))
    sound = all(first >= 0 and count >= 0 and first + count <= INT64_MAX for first, count in pairs)
    if len(runs) % 2 or len(far) % 2 or not sound or sum(count for _, count in pairs) != len(distances):
        raise ValueError("runs do not have as many records as there are distances")
    return pairs


def visible(
    bits: bytearray | memoryview, base: int, runs: memoryview, distances: memoryview, far: memoryview, step: int
) -> None:
    """See `Visible`."""
    if step not in (FORWARD, BACK, KEEP):
        raise ValueError("a step is 0 forward, 1 back or 2 keep")
    pairs = checked_entries(runs, distances, far)
    distant = dict(zip(far[::2], far[1::2], strict=True))
    size, at = 8 * len(bits), 0
    for first, count in pairs:
        if step == FORWARD:
            _fill(bits, first - base, count, set_them=True)
        for offset, distance in enumerate(distances[at : at + count].tolist(), first):
            if distance == NOTHING:
                continue
            if distance >= DEAD:
                if distance == DEAD and step != FORWARD:
                    continue
                previous = offset if distance == DEAD else _far(distant, offset)
            else:
                previous = offset - distance
            place = previous - base
            if 0 <= place < size:
                if step == FORWARD:
                    bits[place >> 3] &= ~(1 << (place & 7))
                else:
                    bits[place >> 3] |= 1 << (place & 7)
        at += count
    if step == BACK:
        for first, count in pairs:
            _fill(bits, first - base, count, set_them=False)


def _far(distant: dict[int, int], offset: int) -> int:
    if offset not in distant:
        raise ValueError(f"nothing says what the record at offset {offset} supersedes")
    return distant[offset]


def _fill(bits: bytearray | memoryview, place: int, count: int, *, set_them: bool) -> None:
    """Set or clear the existing ones of the `count` bits from `place` on."""
    start, end = max(0, place), min(place + count, 8 * len(bits))
    if start >= end:
        return
    low, high = start >> 3, (end - 1) >> 3
    mask = (1 << (end - 8 * low)) - (1 << (start - 8 * low))
    present = int.from_bytes(bits[low : high + 1], "little")
    changed = present | mask if set_them else present & ~mask
    bits[low : high + 1] = changed.to_bytes(high + 1 - low, "little")


PLAIN: Final = Kernel("python", BLAKE2B, _apply, copy, gather, order, enter, visible, extract)
