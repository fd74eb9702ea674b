"""Entries of a queue as record batches, as clients send and receive them. Pure except for the native package.

A record's key is the queue's name. The header `duramen-queue-key` is the entry's own key; in responses
`duramen-queue-version` is the version of an edited entry.
"""

import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from duramen.base.errors import BatchCorrupt
from duramen.base.native import is_installed
from duramen.base.ports import Buffer
from duramen.codec.batch import LARGEST_BASE_OFFSET, Headers, batches, encode_record, records, seal

__all__ = [
    "KEY_HEADER",
    "LONGEST_DELAY_MS",
    "LONGEST_LEASE_MS",
    "LONGEST_NAME_BYTES",
    "MOST_QUEUES",
    "NEXT_HEADER",
    "OWNER_HEADER",
    "RESERVED_PREFIX",
    "VERSION_HEADER",
    "EntryFields",
    "encode_entries",
    "entry_fields",
    "plain_encode_entries",
    "plain_entry_fields",
    "reserved_header",
]

RESERVED_PREFIX: Final = b"duramen-queue-"
KEY_HEADER: Final = RESERVED_PREFIX + b"key"
VERSION_HEADER: Final = RESERVED_PREFIX + b"version"
OWNER_HEADER: Final = RESERVED_PREFIX + b"owner"
LONGEST_NAME_BYTES: Final = 255
LONGEST_LEASE_MS: Final = 12 * 3_600_000
LONGEST_DELAY_MS: Final = 366 * 24 * 3_600_000
MOST_QUEUES: Final = 1000
"""Of one request."""
NEXT_HEADER: Final = "Duramen-Next"
"""Of an HTTP answer that is no JSON document: the position to go on at."""

_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,100}")
_NO_TIME: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


def reserved_header(headers: Headers, allowed: Collection[bytes] = ()) -> str:
    """The problem of a header that is reserved for operations, and not `allowed`; empty without one."""
    for name, _ in headers:
        if name.startswith(RESERVED_PREFIX) and name not in allowed:
            return f"the header {name[:40].decode(errors='replace')} is reserved for operations on queues"
    return ""


class EntryFields(NamedTuple):
    """Entries field by field: a list of each, as long as the others."""

    positions: list[str]
    versions: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[tuple[bytes, bytes | None], ...]]


def encode_entries(entries: list[tuple[str, Any]], now_ms: int) -> bytes | None:
    """Entries, each the name of a queue and a value, as a batch; None where one is more than bytes, text or None.

    Also where no queue can be called that.
    """
    if not is_installed():
        return plain_encode_entries(entries, now_ms)
    import duramen_native

    return duramen_native.encode_entries(entries, now_ms)


def plain_encode_entries(entries: list[tuple[str, Any]], now_ms: int) -> bytes | None:
    """`encode_entries` in plain Python."""
    parts, names = list[bytes](), dict[str, bytes]()
    try:
        for place, (queue, value) in enumerate(entries):
            name = names.get(queue)
            if name is None:
                name = names[queue] = queue.encode()
                if not 1 <= len(name) <= LONGEST_NAME_BYTES:
                    return None
            if isinstance(value, str):
                parts.append(encode_record(0, place, name, value.encode()))
            elif value is None or isinstance(value, bytes):
                parts.append(encode_record(0, place, name, value))
            else:
                return None
    except (AttributeError, TypeError, ValueError):
        return None
    return bytes(seal(b"".join(parts), len(parts), now_ms, now_ms)) if parts else b""


def entry_fields(data: Buffer) -> EntryFields:
    """The entries in the batches of an answer. Raises BatchCorrupt."""
    if not is_installed():
        return plain_entry_fields(data)
    import duramen_native

    try:
        return EntryFields(*duramen_native.entry_fields(data))
    except ValueError as error:
        raise BatchCorrupt(str(error)) from None


def plain_entry_fields(data: Buffer) -> EntryFields:
    """`entry_fields` in plain Python."""
    found, view, end = EntryFields([], [], [], [], [], []), memoryview(data), 0
    positions, versions, timestamps, keys, values, headers = found
    for at, head in batches(view):
        end = at + head.size
        if head.records < 0 or not 0 <= head.base_offset < LARGEST_BASE_OFFSET:
            raise BatchCorrupt(f"the record batch at offset {head.base_offset} has {head.records} records")
        for record in records(view[at:end]):
            if record.timestamp == _NO_TIME:
                raise BatchCorrupt(f"a record has the timestamp {record.timestamp}")
            positions.append(f"{head.leader_epoch}.{record.offset}")
            timestamps.append(record.timestamp)
            values.append(record.value)
            version, key, own = record.offset, None, record.headers
            if own:
                for name, content in own:
                    if name == VERSION_HEADER:
                        said = _NUMBER.fullmatch(content or b"")
                        version = int(said[0]) if said and _NO_TIME <= int(said[0]) <= _INT64_MAX else version
                    elif name == KEY_HEADER:
                        key = content
                own = tuple(one for one in own if not one[0].startswith(RESERVED_PREFIX))
            versions.append(version)
            keys.append(key)
            headers.append(own)
    if end != len(view):
        raise BatchCorrupt("an answer is cut off")
    return found
