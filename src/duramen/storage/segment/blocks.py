"""Blocks of a segment's file, checked before any of their bytes is used.

A block that does not match the index's CRC is examined batch by batch when it is read, and its damage is noted in the
segment. An examined block is known by its CRC; if that changes, the block is examined again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from duramen.base.ports import Buffer, File
from duramen.codec.crc import crc32c
from duramen.storage.segment.checks import BlockBounds, block_bounds, examine_block
from duramen.storage.segment.continuity import ExpectedSegment
from duramen.storage.segment.damage import Damage, DamageCause
from duramen.storage.segment.index import BLOCK_BYTES, BLOCK_SHIFT, SegmentIndex
from duramen.storage.segment.segment import Segment

__all__ = ["ANY_OFFSET", "Blocked", "are_sound", "read_blocks"]

ANY_OFFSET: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Blocked:
    """Run `job` in the worker's `read` lane, pass its result to `apply`, then call again."""

    job: Callable[[], Any]
    apply: Callable[[Any], None]


class _Read(NamedTuple):
    data: Buffer
    damage: list[Damage]
    examined: dict[int, int]


def are_sound(segment: Segment, index: SegmentIndex, low: int, data: Buffer) -> bool:
    """Whether these blocks, from the one at `low` on, match the index or were examined."""
    view = memoryview(data)
    for block, at in enumerate(range(0, len(view), BLOCK_BYTES), low >> BLOCK_SHIFT):
        crc = crc32c(view[at : at + BLOCK_BYTES])
        if crc != index.crc(block) and segment.examined.get(block) != crc:
            return False
    return True


def read_blocks(
    segment: Segment,
    file: File,
    index: SegmentIndex,
    low: int,
    high: int,
    put: Callable[[Buffer], None],
    ahead_bytes: int = 0,
) -> Blocked:
    """Read whole blocks, from `low` to `high` or the copied end, note their damage, then `put` them.

    The bytes are short at the end of the file. `index` starts at or before `low`. With `ahead_bytes` the disk is asked
    to read that many bytes ahead.
    """
    expected = ExpectedSegment(
        segment.copied, segment.base_offset, segment.copied_offset(), ANY_OFFSET, epoch_at=segment.epoch_at
    )
    blocks = range(low >> BLOCK_SHIFT, (high + BLOCK_BYTES - 1) >> BLOCK_SHIFT)
    bounds_of_blocks = [block_bounds(index, block, expected) for block in blocks]
    known = {block: segment.examined[block] for block in blocks if block in segment.examined}
    replaced = segment.replaced

    def apply(read: _Read) -> None:
        if segment.replaced == replaced:
            segment.examined.update(read.examined)
            segment.add_damage(read.damage)
        put(read.data)

    ahead = min(high + ahead_bytes, segment.copied) if ahead_bytes else low
    return Blocked(partial(_read, file, low, high, ahead, bounds_of_blocks, known, expected), apply)


def _read(
    file: File,
    low: int,
    high: int,
    ahead: int,
    bounds_of_blocks: Sequence[BlockBounds],
    known: dict[int, int],
    expected: ExpectedSegment,
) -> _Read:
    if ahead > low:
        file.read_ahead(low, ahead - low)
    data = file.read(low, high - low)
    view = memoryview(data)
    damage: list[Damage] = []
    examined: dict[int, int] = {}
    for bounds in bounds_of_blocks:
        part = view[bounds.low - low : bounds.stop - low]
        crc = crc32c(part)
        if crc == bounds.crc or known.get(bounds.low >> BLOCK_SHIFT) == crc:
            continue
        found = examine_block(file, bounds, expected)
        if found:
            examined[bounds.low >> BLOCK_SHIFT] = crc
        if found and found[-1].cause is DamageCause.CUT_SHORT:
            last_offset = max(expected.end_offset - 1, -1)
            damage += [*found[:-1], found[-1]._replace(end=expected.size, last_offset=last_offset)]
            break
        damage += found
    return _Read(data, damage, examined)
