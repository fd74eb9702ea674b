"""A queue as a topic of one partition, whose offsets are those of the shard's log, with gaps. Pure.

A record is the present state of an entry: with its own key, and with `duramen-queue-version` if it was edited. If no
entry remains before the end of the queue, an empty batch moves readers forward, as after compaction.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.errors import OffsetOutOfRange
from duramen.base.ports import StateRows
from duramen.codec.batch import CRC_START, encode_record, near, seal
from duramen.codec.crc import crc32c
from duramen.codec.queue_entries import VERSION_HEADER
from duramen.queues.answers import entry_size
from duramen.queues.reading import entries_from
from duramen.queues.rows import name_key, number_of, position_of, queue_end, run_key, state_of
from duramen.queues.runs import QueueEntry, leader_epoch_of

__all__ = [
    "Searched",
    "SharedRead",
    "TopicBounds",
    "TopicRead",
    "behind",
    "bounds",
    "end_of",
    "head_of",
    "lag",
    "left_of",
    "name_of",
    "newest",
    "read_shared",
    "read_topic",
    "search",
    "space_number",
    "topic_id",
]

_HASH_BITS: Final = 108
_CUT_BITS: Final = 128 - _HASH_BITS
_LARGEST_NUMBER: Final = (1 << _CUT_BITS) - 1
_LARGEST_DELTA: Final = (1 << 31) - 1
_MOST_PASSED: Final = 64
"""Unwanted entries that are read one after the other before a seek."""


class TopicRead(NamedTuple):
    """Record batches; the end of the queue, or the read's start if that is later; the head of the queue."""

    batches: bytes
    end: int
    head: int


class SharedRead(NamedTuple):
    """Record batches of the wanted entries, their offsets, and the offset before which no other entry is wanted."""

    batches: bytes
    offsets: Sequence[int]
    end: int


class Searched(NamedTuple):
    """The found entry, -1: none so far; the offset at which the search continues, -1: it has ended."""

    offset: int
    timestamp: int
    next: int


class TopicBounds(NamedTuple):
    """The start and the end of a queue, and the offset of the requested entry; -1: there is none.

    `next` is the offset at which the search for it continues, -1: it has ended.
    """

    start: int
    end: int
    found: int
    next: int


def space_number(assigned: int, space: UUID) -> int:
    """The number of a space: the assigned one, or one of its own if an older version created it. 0 is no space."""
    if assigned:
        return assigned
    digest = blake2b(b"topics", digest_size=4, key=space.bytes).digest()
    return 1 + int.from_bytes(digest, "big") % _LARGEST_NUMBER


def topic_id(number: int, queue: bytes) -> UUID:
    """The id of a queue's topic: the number of the space, and 108 bits of the queue's keyed hash."""
    return UUID(int=(number << _HASH_BITS) | (int.from_bytes(queue, "big") >> _CUT_BITS))


def name_of(rows: StateRows, found: UUID) -> bytes | None:
    """The name of the queue in these rows whose topic has that id."""
    first = (found.int & ((1 << _HASH_BITS) - 1)) << _CUT_BITS
    end = name_key((first + _LARGEST_NUMBER).to_bytes(16, "big")) + b"\0"
    row = next(rows.scan(name_key(first.to_bytes(16, "big")), end), None)
    return None if row is None else row[1]


def _shown(rows: StateRows, queue: bytes, start: int, now_ms: int) -> Iterator[QueueEntry]:
    """Existing entries from an offset on. Delays apply to leases and reads of the queue, not to topics."""
    return (entry for entry in entries_from(rows, queue, state_of(rows, queue), start) if not entry.expired(now_ms))


def end_of(rows: StateRows, queue: bytes, start: int = 0) -> int:
    """The offset after the newest entry of a queue, deleted or not; `start` if that is later."""
    return max(start, _last_run(rows, queue, max(start, state_of(rows, queue).head))[0])


def _last_run(rows: StateRows, queue: bytes, low: int) -> tuple[int, int]:
    """The end of a queue's runs and the leader epoch of the last one; `low` and -1 without any from there on."""
    stop, high, epoch = queue_end(b"r", queue), position_of(rows).offset, -1
    middle = low
    while low < high:
        row = next(rows.scan(run_key(queue, middle), stop), None)
        if row is None:
            high = middle
        else:
            low, epoch = number_of(row[0]) + 1, leader_epoch_of(row[1])
        middle = (low + high) // 2 if epoch >= 0 else low
    return low, epoch


def head_of(rows: StateRows, queue: bytes, now_ms: int) -> int:
    """The offset of the first entry of a queue; its end without entries."""
    first = next(_shown(rows, queue, 0, now_ms), None)
    return end_of(rows, queue) if first is None else first.position.offset


def behind(rows: StateRows, queue: bytes, offset: int, most: int, now_ms: int) -> tuple[int, int]:
    """The number of entries from an offset on, up to a maximum, and the timestamp of the first one, or -1."""
    count, first_ms = 0, -1
    for count, entry in enumerate(_shown(rows, queue, offset, now_ms), 1):
        first_ms = entry.timestamp if count == 1 else first_ms
        if count == most:
            break
    return count, first_ms


def lag(rows: StateRows, queue: bytes, offset: int, most: int, now_ms: int) -> tuple[int, int, int, int]:
    """The start and the end of a queue, and its entries `behind` an offset."""
    return head_of(rows, queue, now_ms), end_of(rows, queue), *behind(rows, queue, offset, most, now_ms)


def read_topic(rows: StateRows, queue: bytes, offset: int, max_bytes: int, now_ms: int) -> TopicRead:
    """The entries from an offset on, up to a size except for the first one. Raises OffsetOutOfRange."""
    shard_end = position_of(rows).offset
    if not 0 <= offset <= shard_end:
        raise OffsetOutOfRange(f"offset {offset} is not in 0 to {shard_end}, where the queue's shard ends")
    state = state_of(rows, queue)
    found, size, more = list[QueueEntry](), 0, False
    for entry in _shown(rows, queue, offset, now_ms):
        size += entry_size(entry)
        if found and size > max_bytes:
            more = True
            break
        found.append(entry)
    following = found[-1].position.offset + 1 if found else max(offset, state.head)
    end, epoch = _last_run(rows, queue, following)
    batches = list(_batches(found))
    if not more and end > (following if found else offset):
        epoch = epoch if epoch >= 0 else found[-1].position.leader_epoch if found else position_of(rows).leader_epoch
        batches.append(_hole(following if found else offset, end, epoch))
    return TopicRead(b"".join(batches), end, state.head)


def read_shared(
    rows: StateRows, queue: bytes, offset: int, wanted: Callable[[int], int | None], most: int, max_bytes: int,
    now_ms: int,
) -> SharedRead:  # fmt: skip
    """The wanted entries from an offset on, up to a number and, except for the first one, a size.

    `wanted` returns the first wanted offset from one on, None: there is none.
    """
    found, size = list[QueueEntry](), 0

    def read(end: int) -> SharedRead:
        return SharedRead(b"".join(_batches(found)), [entry.position.offset for entry in found], end)

    end, at = offset, wanted(offset)
    while at is not None:
        passed = 0
        for entry in _shown(rows, queue, at, now_ms):
            end = entry.position.offset
            at = wanted(end)
            if at is None or passed > _MOST_PASSED:
                break
            if at > end:
                passed += 1
                continue
            size += entry_size(entry)
            if found and size > max_bytes:
                return read(end)
            found.append(entry)
            if len(found) >= most:
                return read(end + 1)
        else:
            return read(end_of(rows, queue, at))
    return read(end)


def left_of(
    rows: StateRows, queue: bytes, start: int, is_over: Callable[[int], bool], most: int, now_ms: int
) -> tuple[int, int]:
    """The first entry from an offset on that is not over, else the end; and the number of such entries, bounded."""
    first, count = -1, 0
    for entry in _shown(rows, queue, start, now_ms):
        if not is_over(entry.position.offset):
            first, count = (first if count else entry.position.offset), count + 1
            if count == most:
                break
    return (first if count else end_of(rows, queue, start)), count


def search(rows: StateRows, queue: bytes, start: int, timestamp: int, most: int, now_ms: int) -> Searched:
    """The first entry from an offset on at or after a timestamp, within a number of entries."""
    for number, entry in enumerate(_shown(rows, queue, start, now_ms)):
        if number >= most:
            return Searched(-1, -1, entry.position.offset)
        if entry.timestamp >= timestamp:
            return Searched(entry.position.offset, entry.timestamp, -1)
    return Searched(-1, -1, -1)


def bounds(
    rows: StateRows, queue: bytes, since_ms: int, last: int, start: int, most: int, now_ms: int
) -> TopicBounds:  # fmt: skip
    """The bounds of a queue, and the first entry at or after a time, or the first of the last ones; -1: neither.

    A time is searched from an offset on, within a number of entries.
    """
    head, end, found = head_of(rows, queue, now_ms), end_of(rows, queue), Searched(-1, -1, -1)
    if since_ms >= 0:
        found = search(rows, queue, start, since_ms, most, now_ms)
    elif last >= 0:
        found = Searched(_last_from(rows, queue, head, end, last, now_ms), -1, -1)
    return TopicBounds(head, end, found.offset, found.next)


def _last_from(rows: StateRows, queue: bytes, start: int, end: int, last: int, now_ms: int) -> int:
    """The offset of the first of the last records of a topic, its end for none of them: its offsets have gaps."""
    stop = end
    while start < end:
        middle = (start + end) // 2
        if behind(rows, queue, middle, last + 1, now_ms)[0] <= last:
            end = middle
        else:
            start = middle + 1
    first = next(_shown(rows, queue, start, now_ms), None) if start < stop else None
    return stop if first is None else first.position.offset


def newest(rows: StateRows, queue: bytes, start: int, best: tuple[int, int], most: int, now_ms: int) -> Searched:
    """Like `search`, for the newest timestamp; `best` is the offset and the timestamp of the newest one so far."""
    for number, entry in enumerate(_shown(rows, queue, start, now_ms)):
        if number >= most:
            return Searched(*best, entry.position.offset)
        if best[0] < 0 or entry.timestamp > best[1]:
            best = (entry.position.offset, entry.timestamp)
    return Searched(*best, -1)


def _batches(found: Sequence[QueueEntry]) -> Iterator[bytes]:
    """Entries as batches, as few as possible."""
    first = 0
    for at, entry in enumerate(found):
        base = found[first]
        delta = entry.position.offset - base.position.offset
        apart = entry.position.leader_epoch != base.position.leader_epoch or not near(entry.timestamp, base.timestamp)
        if apart or delta > _LARGEST_DELTA:
            yield _batch(found[first:at])
            first = at
    if found:
        yield _batch(found[first:])


def _batch(found: Sequence[QueueEntry]) -> bytes:
    (epoch, base), base_ms = found[0].position, found[0].timestamp
    encoded = [
        encode_record(entry.timestamp - base_ms, entry.position.offset - base, entry.key, entry.value, _headers(entry))
        for entry in found
    ]
    newest = max(entry.timestamp for entry in found)
    batch = seal(b"".join(encoded), len(found), base_ms, newest, base_offset=base, leader_epoch=epoch)
    return _reaching(batch, found[-1].position.offset - base)


def _hole(first: int, end: int, leader_epoch: int) -> bytes:
    """A batch without records from one offset up to another."""
    return _reaching(
        seal(b"", 0, -1, -1, base_offset=first, leader_epoch=leader_epoch), min(end - first - 1, _LARGEST_DELTA)
    )


def _reaching(batch: bytearray, last_delta: int) -> bytes:
    """The batch with its last offset that far after its first."""
    batch[23:27] = last_delta.to_bytes(4, "big")
    batch[17:21] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return bytes(batch)


def _headers(entry: QueueEntry) -> Sequence[tuple[bytes, bytes | None]]:
    if entry.version == entry.position.offset:
        return entry.headers
    return [(VERSION_HEADER, b"%d" % entry.version), *entry.headers]
