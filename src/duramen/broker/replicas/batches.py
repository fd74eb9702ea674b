"""Record batches from other replicas, as the state machine needs them: whole, in order, without holes. Pure.

A compacted log lacks offsets, also between batches. A follower's log has no such holes: empty batches fill them, with
the leader epochs that the leader-epoch cache of the leader gives.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from duramen.base.errors import BatchCorrupt
from duramen.base.ids import Position
from duramen.base.leader_epochs import LeaderEpochCache, Takeover
from duramen.base.ports import Buffer
from duramen.codec.batch import CRC_START, HEADER_BYTES, Header, batches
from duramen.codec.batch_filter import rebuild
from duramen.codec.crc import crc32c
from duramen.replication.messages import ReplicaBatch

__all__ = ["NO_EPOCH", "bytes_of", "empty", "follow_up"]

NO_EPOCH: Final = -1
_LARGEST_OFFSETS: Final = 1 << 30
_NOTHING: Final = Header(0, 0, NO_EPOCH, 2, 0, 0, -1, -1, -1, -1, -1, -1, 0)


def follow_up(end: Position, takeovers: Iterable[Takeover], records: Buffer) -> tuple[ReplicaBatch, ...]:
    """The batches after `end` in the bytes of a response; `takeovers`: the leader epochs after it. Raises BatchCorrupt.

    A batch that is cut off at the end of the bytes is left out.
    """
    epochs = LeaderEpochCache([(end.leader_epoch, -1, end.offset), *takeovers])
    whole = memoryview(records)
    found: list[ReplicaBatch] = []
    offset = end.offset
    for position, head in batches(records):
        data = whole[position : position + head.size]
        _check(data, head, offset)
        found += _holes(epochs, offset, head.base_offset)
        found.append(ReplicaBatch(head.leader_epoch, head.base_offset, head.last_offset_delta + 1, data))
        offset = head.next_offset
    return tuple(found)


def bytes_of(batch: ReplicaBatch) -> memoryview:
    """The record batch of one that `follow_up` or `empty` made."""
    if not isinstance(batch.payload, memoryview):
        raise TypeError(f"{batch} has no bytes")
    return batch.payload


def empty(first_offset: int, end_offset: int, epoch: int) -> Iterator[ReplicaBatch]:
    """Batches without records in the place of these offsets; more than one where they are very many."""
    while first_offset < end_offset:
        offsets = min(end_offset - first_offset, _LARGEST_OFFSETS)
        head = _NOTHING._replace(base_offset=first_offset, leader_epoch=epoch, last_offset_delta=offsets - 1)
        yield ReplicaBatch(epoch, first_offset, offsets, memoryview(rebuild(head, b"", ())))
        first_offset += offsets


def _check(data: memoryview, head: Header, offset: int) -> None:
    if head.magic != 2 or head.size < HEADER_BYTES or head.last_offset_delta < 0:
        raise BatchCorrupt(f"what came for offset {offset} is no record batch")
    if head.base_offset < offset:
        raise BatchCorrupt(f"a batch at offset {head.base_offset} came for offset {offset}")
    if crc32c(data[CRC_START:]) != head.crc:
        raise BatchCorrupt(f"the batch at offset {head.base_offset} does not match its CRC")


def _holes(epochs: LeaderEpochCache, offset: int, end_offset: int) -> Iterator[ReplicaBatch]:
    if offset == end_offset:
        return
    parts = [offset, *(row.first_offset for row in epochs if offset < row.first_offset < end_offset), end_offset]
    for at, first_offset in enumerate(parts[:-1]):
        yield from empty(first_offset, parts[at + 1], epochs.epoch_at(first_offset))
