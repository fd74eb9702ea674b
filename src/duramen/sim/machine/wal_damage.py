"""Damage to synced data: bits flip in batches of the write-ahead log.

The process that finds it is not interrupted during its start: a power loss during recovery from damage can lose more
than the damage did, because unsynced writes of the recovery are read as evidence.
"""

import random
from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from duramen.codec.batch import header
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.storage.checkpoint import checkpoint_numbers, read_checkpoint
from duramen.storage.recovery.recovery import wal_salt
from duramen.storage.recovery.wal_files import wal_slots
from duramen.storage.wal.frames import FRAME_HEADER_BYTES, Frame, FrameType, find_generation, position, scan
from duramen.storage.wal.wal import wal_path

__all__ = ["DamagedBatch", "flip_bit", "flip_last"]

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
    frames = _frames(disk)
    vouched, behind = 0, dict.fromkeys(log_ids, False)
    found: list[tuple[str, Frame]] = []
    for path, frame in reversed(frames):
        end = position(frame.generation, frame.end)
        if frame.log_id in behind and frame.type in _OF_LOG and end <= vouched:
            if behind[frame.log_id]:
                found.append((path, frame))
            behind[frame.log_id] = True
            if frame.type is not FrameType.APPEND:
                del behind[frame.log_id]  # damage before it may be irrelevant
        vouched = max(vouched, frame.vouched)
    found = [(path, frame) for path, frame in found if frame.type is FrameType.APPEND]
    if not found:
        return None
    return _flip(disk, chance, *chance.choice(found))


def flip_last(disk: MemoryFileSystem, chance: random.Random, log_ids: Collection[int], most: int) -> list[DamagedBatch]:
    """Flip a bit in each of the last batches, up to a number, of one of these logs that the next start replays.

    A later frame vouches for them, of whichever log: so the start must notice that synced records may be lost. Batches
    after them that no frame vouches for stay.
    """
    vouched = 0
    found: dict[int, list[tuple[str, Frame]]] = {}
    ended: set[int] = set()
    for path, frame in reversed(_frames(disk)):
        if frame.log_id in log_ids and frame.log_id not in ended and position(frame.generation, frame.end) <= vouched:
            if frame.type is FrameType.APPEND:
                found.setdefault(frame.log_id, []).append((path, frame))
            elif frame.type in _OF_LOG:
                ended.add(frame.log_id)
        vouched = max(vouched, frame.vouched)
    if not found:
        return []
    batches = found[chance.choice(sorted(found))]
    return [_flip(disk, chance, *one) for one in batches[: chance.randrange(1, most + 1)]]


def _flip(disk: MemoryFileSystem, chance: random.Random, path: str, frame: Frame) -> DamagedBatch:
    batch = header(frame.payload)
    place = chance.randrange(frame.place + FRAME_HEADER_BYTES, frame.end)
    disk.corrupt(path, place, 1 << chance.randrange(8))
    return DamagedBatch(frame.log_id, batch.base_offset, batch.next_offset, path, place)


def _frames(disk: MemoryFileSystem) -> list[tuple[str, Frame]]:
    """The sound frames that the next start replays, in their order, each with the file that has it."""
    numbers = checkpoint_numbers(disk)
    checkpoint = read_checkpoint(disk, numbers[0]) if numbers else None
    if checkpoint is None or checkpoint.clean:
        return []
    salt = wal_salt(UUID(bytes=checkpoint.directory_id))
    found: list[tuple[str, Frame]] = []
    for slot, file in wal_slots(disk):
        generation = find_generation(file.read(0, _HEAD_BYTES), salt)
        if generation is not None and generation >= checkpoint.replay >> 32:
            found += [(wal_path(slot), item) for item in scan(file, generation, salt) if isinstance(item, Frame)]
    found.sort(key=lambda item: position(item[1].generation, item[1].place))
    return [item for item in found if position(item[1].generation, item[1].place) >= checkpoint.replay]
