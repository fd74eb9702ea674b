"""The loops over records in plain Python: the reference of the native ones, and what runs where there is no package."""

from collections.abc import Sequence
from typing import Final

from duramen.base.errors import BatchCorrupt
from duramen.base.ports import Buffer
from duramen.codec.batch import APPEND_TIME, CONTROL, Header, checked_body
from duramen.codec.varint import read_varint
from duramen.keyed.extract import SMALLEST_RECORD_BYTES, extract, whole
from duramen.keyed.hashing import BLAKE2B, HIGH_BITS, HashKey, blake2b_hash
from duramen.keyed.kernel import (
    BACK,
    DEAD,
    FAR,
    FORWARD,
    KEEP,
    MOST_OFFSETS,
    NO_PARTITION,
    NOTHING,
    OFFSET_BITS,
    AppliedBatches,
    Kernel,
    check_partition,
    check_table,
    most_keys,
)

__all__ = ["PLAIN", "apply_hashed", "checked_entries", "copy", "visible"]

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

_Keys = list[tuple[int, bytes | None]]


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
    """As `Apply` says it, with any hash."""
    check_table(partitions, counts, base)
    view = memoryview(data).toreadonly().cast("B")
    entering = _Entering(partitions, counts, base, hashed, distances)
    next_offset, began = first, position
    for at, head in whole(view, position):
        position = at
        if head.base_offset >= end:
            break
        if head.next_offset <= next_offset:
            position = at + head.size
            continue
        try:
            keys = _wanted(view, at, head, next_offset, end, base)
        except BatchCorrupt:
            if position == began and not entering.records:
                raise
            break
        if not entering.enter(keys):
            next_offset = max(next_offset, entering.next_offset)
            break
        if head.next_offset > end:
            next_offset = max(next_offset, end)
            break
        next_offset = max(next_offset, head.next_offset)
        position = at + head.size
    return AppliedBatches(position, next_offset, entering.full, entering.records, entering.runs, entering.far)


def _wanted(view: memoryview, at: int, head: Header, first: int, end: int, base: int) -> _Keys:
    """The offsets and keys of the records with offsets in `[first, end)`; nothing of a control batch."""
    data, start, stop = checked_body(view, at, head)
    if head.attributes & CONTROL:
        return []
    if head.records > (stop - start) // SMALLEST_RECORD_BYTES:
        raise BatchCorrupt(
            f"a record of the batch at offset {head.base_offset} is damaged: "
            f"{head.records} do not fit into {stop - start} bytes"
        )
    if not head.records:
        return []
    try:
        keys = _keys(bytes(data[start:stop]), head)
    except (ValueError, IndexError):
        raise BatchCorrupt(f"a record of the batch at offset {head.base_offset} is damaged") from None
    if keys[0][0] < first or keys[-1][0] >= end:
        keys = [one for one in keys if first <= one[0] < end]
    if keys and not (base <= keys[0][0] and keys[-1][0] - base < MOST_OFFSETS):
        raise BatchCorrupt(f"the offsets {keys[0][0]} to {keys[-1][0]} are out of a table that counts from {base}")
    return keys


def _keys(data: bytes, head: Header) -> _Keys:
    """Offset and key of each record. Raises ValueError or IndexError where one is damaged."""
    append_time = head.attributes & APPEND_TIME
    base_timestamp = head.max_timestamp if append_time else head.base_timestamp
    base_offset, last_delta = head.base_offset, head.last_offset_delta
    keys: _Keys = []
    position, size = 0, len(data)
    previous = -1
    for _ in range(head.records):
        length, position = read_varint(data, position)
        end = position + length
        timestamp_delta, position = read_varint(data, position + 1)
        low = data[position]
        delta, position = (low >> 1 ^ -(low & 1), position + 1) if low < 0x80 else read_varint(data, position)
        low = data[position]
        length_of_key, position = (low >> 1 ^ -(low & 1), position + 1) if low < 0x80 else read_varint(data, position)
        key = None
        if length_of_key >= 0:
            key = data[position : position + length_of_key]
            position += length_of_key
        length_of_value, position = read_varint(data, position)
        if length_of_value > 0:
            position += length_of_value
        headers, position = read_varint(data, position)
        time = base_timestamp if append_time else base_timestamp + timestamp_delta
        if (
            not position <= end <= size
            or headers < 0
            or (headers == 0 and position != end)
            or not previous < delta <= last_delta
            or not _INT64_MIN < time <= _INT64_MAX
        ):
            raise ValueError("its fields do not fill its length")
        previous = delta
        keys.append((base_offset + delta, key))
        position = end
    if position != size:
        raise ValueError("bytes follow the last record")
    return keys


class _Entering:
    """Enters keys into a table."""

    def __init__(
        self,
        partitions: Sequence[memoryview],
        counts: memoryview,
        base: int,
        hashed: HashKey,
        distances: memoryview,
    ) -> None:
        self._partitions = partitions
        self._counts = counts
        self._base = base
        self._hashed = hashed
        self._distances = distances
        self._shift = HIGH_BITS - (len(partitions).bit_length() - 1)
        self.records = 0
        self.next_offset = 0
        self.full = NO_PARTITION
        self.runs: list[tuple[int, int]] = []
        self.far: list[tuple[int, int]] = []

    def enter(self, keys: _Keys) -> bool:
        """Enter the records; False where there is no room for the next one."""
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
        done = at - self.records
        self.records = at
        if done:
            self._note(keys, done)
        return whole

    def _note(self, keys: _Keys, done: int) -> None:
        first, last = keys[0][0], keys[done - 1][0]
        self.next_offset = last + 1
        if last - first == done - 1:
            self._run(first, done)
            return
        for offset, _ in keys[:done]:
            self._run(offset, 1)

    def _run(self, first: int, count: int) -> None:
        if self.runs and sum(self.runs[-1]) == first:
            first, count = self.runs[-1][0], self.runs[-1][1] + count
            self.runs.pop()
        self.runs.append((first, count))

    def _put(self, key: bytes, offset: int) -> int:
        """The distance to what it supersedes; -1 where there is no room."""
        low, high = self._hashed(key)
        partition = high >> self._shift
        words = self._partitions[partition]
        size = len(words)
        slot = ((low >> 32) * (size >> 1) >> 32) << 1
        relative = offset - self._base + 1
        for _ in range(size >> 1):
            packed = words[slot + 1]
            known = packed & MOST_OFFSETS
            if not known:
                if self._counts[partition] >= most_keys(size >> 1):
                    break
                self._counts[partition] += 1
                words[slot] = low
                words[slot + 1] = high << OFFSET_BITS | relative
                return NOTHING
            if words[slot] == low and packed >> OFFSET_BITS == high:
                if known >= relative:
                    return DEAD
                words[slot + 1] = high << OFFSET_BITS | relative
                if relative - known < DEAD:
                    return relative - known
                self.far.append((offset, known - 1 + self._base))
                return FAR
            slot += 2
            if slot == size:
                slot = 0
        self.full = partition
        return -1


def copy(old: memoryview, new: memoryview, gone: Buffer, first: int, base: int) -> int:
    """As `Copy` says it."""
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
    """First offset and count of each run. Raises ValueError where this does not fit together."""
    pairs = list(zip(runs[::2], runs[1::2], strict=False))
    sound = all(first >= 0 and count >= 0 and first + count <= _INT64_MAX for first, count in pairs)
    if len(runs) % 2 or len(far) % 2 or not sound or sum(count for _, count in pairs) != len(distances):
        raise ValueError("runs do not have as many records as there are distances")
    return pairs


def visible(
    bits: bytearray | memoryview, base: int, runs: memoryview, distances: memoryview, far: memoryview, step: int
) -> None:
    """As `Visible` says it."""
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
    """Set or clear those of the `count` bits from `place` on that there are."""
    start, end = max(0, place), min(place + count, 8 * len(bits))
    if start >= end:
        return
    low, high = start >> 3, (end - 1) >> 3
    mask = (1 << (end - 8 * low)) - (1 << (start - 8 * low))
    present = int.from_bytes(bits[low : high + 1], "little")
    changed = present | mask if set_them else present & ~mask
    bits[low : high + 1] = changed.to_bytes(high + 1 - low, "little")


PLAIN: Final = Kernel("python", BLAKE2B, _apply, copy, visible, extract)
