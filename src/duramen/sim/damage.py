"""Damage that the disk does to what was synced: a bit flips in a batch of the write-ahead log.

The process that finds it is not interrupted while it starts: a loss of power in the middle of a recovery from damage
can lose more than the damage did, because what it wrote and did not sync is read as evidence.
"""

import random
from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from duramen.codec.batch import header
from duramen.sim.disk import MemoryFileSystem
from duramen.storage.checkpoint import Checkpoint, checkpoint_numbers, read_checkpoint
from duramen.storage.frames import FRAME_HEADER_BYTES, Frame, FrameType, find_generation, position, scan
from duramen.storage.recovery import wal_salt
from duramen.storage.wal import wal_path
from duramen.storage.walfiles import wal_slots

__all__ = ["DamagedBatch", "flip_bit"]

_HEAD_BYTES = 200
_OF_LOG = (FrameType.APPEND, FrameType.TRUNCATE, FrameType.CHECKPOINT_ENTRY, FrameType.LOG_DELETED)


class DamagedBatch(NamedTuple):
    """Which batch it was, and where the bit is."""

    log_id: int
    base_offset: int
    next_offset: int
    path: str
    place: int


def flip_bit(disk: MemoryFileSystem, chance: random.Random, log_ids: Collection[int]) -> DamagedBatch | None:
    """Flip a bit of a batch of one of these logs that the next start replays; None where there is none.

    A later frame vouches for the batch, and for a later batch of the same log: so its loss must be noticed and named,
    and is no reason to lose anything else.
    """
    numbers = checkpoint_numbers(disk)
    checkpoint = read_checkpoint(disk, numbers[0]) if numbers else None
    if checkpoint is None or checkpoint.clean:
        return None
    frames = _frames(disk, checkpoint)
    vouched, behind = 0, dict.fromkeys(log_ids, False)
    found: list[tuple[str, Frame]] = []
    for path, frame in reversed(frames):
        end = position(frame.generation, frame.end)
        if frame.log_id in behind and frame.type in _OF_LOG and end <= vouched:
            if behind[frame.log_id]:
                found.append((path, frame))
            behind[frame.log_id] = True
            if frame.type is not FrameType.APPEND:
                del behind[frame.log_id]  # what lies before it may be of no matter
        vouched = max(vouched, frame.vouched)
    found = [(path, frame) for path, frame in found if frame.type is FrameType.APPEND]
    if not found:
        return None
    path, frame = chance.choice(found)
    batch = header(frame.payload)
    place = chance.randrange(frame.place + FRAME_HEADER_BYTES, frame.end)
    disk.corrupt(path, place, 1 << chance.randrange(8))
    return DamagedBatch(frame.log_id, batch.base_offset, batch.next_offset, path, place)


def _frames(disk: MemoryFileSystem, checkpoint: Checkpoint) -> list[tuple[str, Frame]]:
    """The sound frames from where the checkpoint stands, in their order, each with the file that has it."""
    salt = wal_salt(UUID(bytes=checkpoint.directory_id))
    found: list[tuple[str, Frame]] = []
    for slot, file in wal_slots(disk):
        generation = find_generation(file.read(0, _HEAD_BYTES), salt)
        if generation is not None and generation >= checkpoint.replay >> 32:
            found += [(wal_path(slot), item) for item in scan(file, generation, salt) if isinstance(item, Frame)]
    found.sort(key=lambda item: position(item[1].generation, item[1].place))
    return [item for item in found if position(item[1].generation, item[1].place) >= checkpoint.replay]
