"""Splits batches of entries into runs and by shard, and those of operations. Pure except for the native package."""

from collections.abc import Sequence
from itertools import islice
from typing import Final, TypeAlias

from duramen.base.errors import BatchCorrupt
from duramen.base.native import is_installed
from duramen.base.ports import Buffer
from duramen.codec.batch import CONTROL, LARGEST_BASE_OFFSET, BatchInput, encode, header, near, records
from duramen.codec.partitioner import partition_of
from duramen.codec.plain import plain_entries, plain_records
from duramen.codec.queue_entries import KEY_HEADER, RESERVED_PREFIX
from duramen.queues.names import name_problem
from duramen.queues.operations import ChangeKind, change_of
from duramen.queues.runs import Body, body_of, runs

__all__ = [
    "Change",
    "NamedRun",
    "ShardPart",
    "newest_entry",
    "plain_newest_entry",
    "plain_split_changes",
    "plain_split_runs",
    "plain_split_shards",
    "split_changes",
    "split_runs",
    "split_shards",
]

NamedRun: TypeAlias = tuple[bytes, int, bytes]
"""The name of a queue, the last offset of a run, and the run."""
ShardPart: TypeAlias = tuple[int, bytes, list[int]]
"""A shard, a batch of its entries, and their indices among all."""

Change: TypeAlias = tuple[bytes, ChangeKind, int, int, bytes | None]
"""The name of a queue, an operation, the offset of the entry, that of the operation, and its value."""

_NO_TIME: Final = -(1 << 63)


def split_runs(batches: Sequence[bytes], position: int, first: int, limit_bytes: int) -> tuple[int, list[NamedRun]]:
    """Runs of the entries from the offset `first` on in the batches from `position` on, and the number of batches read.

    These are the batches of one leader epoch before the first that has something else than entries without headers, or
    is damaged. Invalid names are skipped.
    """
    if not is_installed():
        return plain_split_runs(batches, position, first, limit_bytes)
    import duramen_native

    return duramen_native.split_runs(batches, position, first, limit_bytes)


def plain_split_runs(
    batches: Sequence[bytes], position: int, first: int, limit_bytes: int
) -> tuple[int, list[NamedRun]]:
    """`split_runs` in plain Python."""
    queues: dict[bytes, list[Body]] = {}
    taken, epoch = 0, 0
    for batch in islice(batches, position, None):
        entries = plain_entries(batch, verify=True)
        if entries is None:
            break
        batch_epoch = header(batch).leader_epoch
        if taken and batch_epoch != epoch:
            break
        taken, epoch = taken + 1, batch_epoch
        for offset, timestamp, name, value in entries:
            if offset >= first:
                bodies = queues.get(name)
                if bodies is None:
                    bodies = queues[name] = []
                bodies.append((offset, body_of(timestamp, value)))
    return taken, [
        (name, last, run)
        for name, bodies in queues.items()
        if not name_problem(name)
        for last, run in runs(bodies, epoch, limit_bytes)
    ]


def split_changes(batches: Sequence[bytes], position: int, first: int) -> tuple[int, list[Change]]:
    """The operations from the offset `first` on in the batches from `position` on, and the number of batches read.

    These are the batches of one leader epoch before the first that has something else than edits, deletions and
    acknowledgements, or is damaged. Invalid names are skipped.
    """
    if not is_installed():
        return plain_split_changes(batches, position, first)
    import duramen_native

    return duramen_native.split_changes(batches, position, first)


def plain_split_changes(batches: Sequence[bytes], position: int, first: int) -> tuple[int, list[Change]]:
    """`split_changes` in plain Python."""
    found = list[Change]()
    taken, epoch = 0, 0
    for batch in islice(batches, position, None):
        some, batch_epoch = _changes_of(batch, first), header(batch).leader_epoch
        if some is None or (taken and batch_epoch != epoch):
            break
        taken, epoch = taken + 1, batch_epoch
        found += some
    return taken, found


def _changes_of(batch: bytes, first: int) -> list[Change] | None:
    found = list[Change]()
    for record in plain_records(batch):
        change = None if record is None or record.key is None else change_of(record)
        if record is None or record.key is None or change is None:
            return None
        if record.offset >= first and not name_problem(record.key):
            found.append((record.key, *change, record.offset, record.value))
    return found


def newest_entry(batch: Buffer, shard: int, shards: int, limit_bytes: int) -> int | None:
    """The largest timestamp of a batch with only entries without headers of a shard's queues; else None.

    It is decompressed up to a limit, and its CRC is not checked.
    """
    if not is_installed():
        return plain_newest_entry(batch, shard, shards, limit_bytes)
    import duramen_native

    return duramen_native.newest_entry(batch, shard, shards, limit_bytes)


def plain_newest_entry(batch: Buffer, shard: int, shards: int, limit_bytes: int) -> int | None:
    """`newest_entry` in plain Python."""
    found = plain_entries(batch, verify=False, limit_bytes=limit_bytes)
    if not found or any(
        name_problem(name) or partition_of(name, shards) != shard for name in {one[2] for one in found}
    ):
        return None
    return max(one[1] for one in found)


def split_shards(batch: Buffer, shards: int, limit_bytes: int) -> list[ShardPart] | None:
    """A batch of entries split by shard, in the order of their first entries; None if a record is not an entry.

    Decompressed as by `newest_entry`.
    """
    if not is_installed():
        return plain_split_shards(batch, shards, limit_bytes)
    import duramen_native

    return duramen_native.split_shards(batch, shards, limit_bytes)


def plain_split_shards(batch: Buffer, shards: int, limit_bytes: int) -> list[ShardPart] | None:
    """`split_shards` in plain Python."""
    parts: dict[int, tuple[list[BatchInput], list[int]]] = {}
    try:
        head = header(batch)
        if head.size != len(batch) or head.attributes & CONTROL or head.records <= 0:
            return None
        if not 0 <= head.base_offset < LARGEST_BASE_OFFSET:
            return None
        for place, record in enumerate(records(batch, verify=False, limit_bytes=limit_bytes)):
            key = record.key
            reserved = any(name.startswith(RESERVED_PREFIX) and name != KEY_HEADER for name, _ in record.headers)
            if key is None or name_problem(key) or reserved or record.timestamp == _NO_TIME:
                return None
            new, places = parts.setdefault(partition_of(key, shards), ([], []))
            new.append(BatchInput(record.timestamp, key, record.value, record.headers))
            if not near(record.timestamp, new[0].timestamp):
                return None
            places.append(place)
    except BatchCorrupt:
        return None
    return [(shard, bytes(encode(new)), places) for shard, (new, places) in parts.items()]
