"""Entries of a run as a record batch, for responses to readers. Pure except for the native package.

Each is the entry's record in the log; an edited one also has `duramen-queue-version`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from duramen.base.errors import QueueEntryTooLarge
from duramen.base.ids import Position
from duramen.base.native import is_installed
from duramen.codec.batch import CRC_START, encode_record, near, seal
from duramen.codec.crc import crc32c
from duramen.codec.jsonbytes import json_size
from duramen.codec.queue_entries import KEY_HEADER, VERSION_HEADER
from duramen.queues.positions import position_text
from duramen.queues.runs import ENTRY_OVERHEAD_BYTES, QueueEntry, Run, entry_of

__all__ = ["RunRecords", "entry_json_size", "entry_size", "plain_run_records", "run_records", "too_large"]

_JSON_OVERHEAD: Final = 300
"""The names of fields, numbers, positions and a lease, each as long as it can be."""
_LARGEST_DELTA: Final = (1 << 31) - 1


class RunRecords(NamedTuple):
    """A batch, empty without entries; the size of its entries; the offset of the last one; whether there is more."""

    batch: bytes
    entries: int
    size: int
    last: int
    more: bool


class EntryContent(Protocol):
    """What an entry has besides its place."""

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes | None]]: ...


def entry_size(entry: EntryContent) -> int:
    """The size of an entry: its key, value and headers, and an overhead."""
    headers = sum(len(name) + len(value or b"") for name, value in entry.headers)
    return ENTRY_OVERHEAD_BYTES + len(entry.key or b"") + len(entry.value or b"") + headers


def entry_json_size(queue: bytes, entry: QueueEntry) -> int:
    """The largest size of an entry in a JSON response; of a leased one with its queue."""
    headers = sum(4 + json_size(name) + json_size(value) for name, value in entry.headers)
    return _JSON_OVERHEAD + json_size(queue) + json_size(entry.key) + json_size(entry.value) + headers


def too_large(entry: QueueEntry, size: int, most: int) -> QueueEntryTooLarge:
    """The error for an entry that a JSON response of at most `most` bytes cannot have."""
    at = position_text(entry.position)
    return QueueEntryTooLarge(f"the entry at {at} takes up to {size} bytes as JSON, and a response has {most} at most")


def run_records(run: bytes, name: bytes, start: int, most: int, most_bytes: int, *, any_first: bool) -> RunRecords:
    """The entries of a run from the offset `start` on, up to a number and a size.

    With `any_first` the first one is included whatever its size. There are fewer if one batch cannot have them all.
    """
    if is_installed():
        import duramen_native

        made = duramen_native.run_records(run, name, start, most, max(0, most_bytes), any_first)
        if made is not None:
            return RunRecords(*made)
    return plain_run_records(run, name, start, most, most_bytes, any_first=any_first)


def plain_run_records(
    run: bytes, name: bytes, start: int, most: int, most_bytes: int, *, any_first: bool
) -> RunRecords:
    """`run_records` in plain Python."""
    found, size, more, read = list[QueueEntry](), 0, False, Run(run)
    for offset, body in read.bodies():
        if offset < start or not body:
            continue
        entry = entry_of(Position(read.leader_epoch, offset), body)
        counts = entry_size(entry)
        full = len(found) >= most or (size + counts > most_bytes and (bool(found) or not any_first))
        base = found[0] if found else entry
        delta = offset - base.position.offset
        if full or delta > _LARGEST_DELTA or not near(entry.timestamp, base.timestamp):
            more = True
            break
        found.append(entry)
        size += counts
    if not found:
        return RunRecords(b"", 0, 0, -1, more)
    return RunRecords(_batch(found, name), len(found), size, found[-1].position.offset, more)


def _batch(found: list[QueueEntry], name: bytes) -> bytes:
    (epoch, base), base_ms = found[0].position, found[0].timestamp
    encoded = [
        encode_record(entry.timestamp - base_ms, entry.position.offset - base, name, entry.value, _headers(entry))
        for entry in found
    ]
    newest = max(entry.timestamp for entry in found)
    batch = seal(b"".join(encoded), len(found), base_ms, newest, base_offset=base, leader_epoch=epoch)
    batch[23:27] = (found[-1].position.offset - base).to_bytes(4, "big")
    batch[17:21] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return bytes(batch)


def _headers(entry: QueueEntry) -> list[tuple[bytes, bytes | None]]:
    headers = list[tuple[bytes, bytes | None]]()
    if entry.version != entry.position.offset:
        headers.append((VERSION_HEADER, b"%d" % entry.version))
    if entry.key is not None:
        headers.append((KEY_HEADER, entry.key))
    return [*headers, *entry.headers]
