"""Extracts keys from batches in plain Python, with their table partitions: the reference of the native loops."""

from typing import Final

from duramen.base.errors import BatchCorrupt
from duramen.base.ports import Buffer
from duramen.codec.batch import APPEND_TIME, CONTROL, Header, checked_body
from duramen.codec.varint import read_varint
from duramen.keyed.extract import SMALLEST_RECORD_BYTES, whole
from duramen.keyed.kernel import DEAD, FAR, MOST_OFFSETS, NO_PARTITION, OFFSET_BITS, AppliedBatches, most_keys

__all__ = ["INT64_MAX", "Keys", "TakenKeys", "distance_of", "put", "walk"]

_INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
"""The largest offset and time."""

Keys = list[tuple[int, bytes | None]]
"""Offset and key of records."""


class TakenKeys:
    """Receives keys, and counts the accepted ones."""

    def __init__(self) -> None:
        self.records = 0
        self.next_offset = 0
        self.full = NO_PARTITION
        self.runs: list[tuple[int, int]] = []
        self.far: list[tuple[int, int]] = []

    def enter(self, keys: Keys) -> bool:
        """Add the keys; False if there is no room for the next one."""
        raise NotImplementedError

    def note(self, keys: Keys, done: int) -> None:
        """The first `done` keys were accepted."""
        self.records += done
        if not done:
            return
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


def walk(data: Buffer, position: int, first: int, end: int, base: int, entering: TakenKeys) -> AppliedBatches:
    """Pass the keys of the records with offsets in `[first, end)` to `entering`, batch by batch."""
    view = memoryview(data).toreadonly().cast("B")
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


def _wanted(view: memoryview, at: int, head: Header, first: int, end: int, base: int) -> Keys:
    """The offsets and keys of the records with offsets in `[first, end)`; none of a control batch."""
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


def _keys(data: bytes, head: Header) -> Keys:
    """Offset and key of each record. Raises ValueError or IndexError if one is damaged."""
    append_time = head.attributes & APPEND_TIME
    base_timestamp = head.max_timestamp if append_time else head.base_timestamp
    base_offset, last_delta = head.base_offset, head.last_offset_delta
    keys: Keys = []
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
            or not _INT64_MIN < time <= INT64_MAX
        ):
            raise ValueError("its fields do not fill its length")
        previous = delta
        keys.append((base_offset + delta, key))
        position = end
    if position != size:
        raise ValueError("bytes follow the last record")
    return keys


def put(words: memoryview, keys: int, low: int, new: int) -> int:
    """Make a record the newest of its key in a partition with that many keys: the words are its slot's.

    Returns the previous newest offset, as in the slot; 0 if the key is new, -1 without room.
    """
    size = len(words)
    slot = ((low >> 32) * (size >> 1) >> 32) << 1
    for _ in range(size >> 1):
        packed = words[slot + 1]
        known = packed & MOST_OFFSETS
        if not known:
            if keys >= most_keys(size >> 1):
                return -1
            words[slot] = low
            words[slot + 1] = new
            return 0
        if words[slot] == low and packed >> OFFSET_BITS == new >> OFFSET_BITS:
            if known < new & MOST_OFFSETS:
                words[slot + 1] = new
            return known
        slot += 2
        if slot == size:
            slot = 0
    return -1


def distance_of(relative: int, known: int, base: int, far: list[tuple[int, int]]) -> int:
    """The distance to the superseded record; if it does not fit, it is added to `far`."""
    if known >= relative:
        return DEAD
    if relative - known < DEAD:
        return relative - known
    far.append((relative - 1 + base, known - 1 + base))
    return FAR
