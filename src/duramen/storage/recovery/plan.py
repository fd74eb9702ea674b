"""The end of the write-ahead log, and its damage. Pure.

A bad range below the highest position that a sound frame proves synced is *damage*, and the frames after it are kept. A
bad range above that position is a *torn tail*: the log ends where it begins.
"""

from collections.abc import Sequence
from typing import NamedTuple

from duramen.storage.wal.frames import Bad, position

__all__ = ["FileScan", "RecoveryVerdict", "judge"]


class FileScan(NamedTuple):
    """The scan of one generation's WAL file, from the start of its replay."""

    generation: int
    end: int  # place after the last sound frame
    bad: tuple[Bad, ...]  # between sound frames
    vouched: int  # the highest position that a frame of it vouches for
    previous_end: int  # the end of the previous file, according to its first frame; -1 if that was not read


class RecoveryVerdict(NamedTuple):
    """`end` is the WAL position of the end of history; `damage` are ranges of positions before it."""

    end: int
    damage: tuple[tuple[int, int], ...]


def judge(scans: Sequence[FileScan], replay: int) -> RecoveryVerdict:
    """Judge the files that a replay from the position `replay` needs, in the order of generations."""
    needed = [scan for scan in scans if scan.generation >= replay >> 32]
    if not needed:
        return RecoveryVerdict(replay, ())
    vouched = max(replay, *(scan.vouched for scan in needed))
    damage: list[tuple[int, int]] = []
    for start, end in _bad_ranges(needed, replay):
        if end <= replay:
            continue
        begin = max(start, replay)  # the checkpoint may be after the synced end: its segments were synced
        if end > vouched:
            if begin < vouched:
                damage.append((begin, vouched))
            return RecoveryVerdict(max(begin, vouched), tuple(damage))
        damage.append((begin, end))
    last = needed[-1]
    return RecoveryVerdict(max(vouched, position(last.generation, last.end)), tuple(damage))


def _bad_ranges(scans: Sequence[FileScan], replay: int) -> list[tuple[int, int]]:
    """Ranges of positions without a sound frame although there was one.

    A later file, or a vouching frame, proves that.
    """
    ranges: list[tuple[int, int]] = []
    expected = replay  # everything before it is accounted for
    for scan in scans:
        if scan.generation > expected >> 32:
            stop = scan.previous_end
            if stop < 0 and scan.generation > (expected >> 32) + 1:
                stop = position(scan.generation, 0)
            if stop > expected:
                ranges.append((expected, stop))
        ranges += [(position(scan.generation, bad.place), position(scan.generation, bad.end)) for bad in scan.bad]
        expected = max(expected, position(scan.generation, scan.end))
    vouched = max(scan.vouched for scan in scans)
    if vouched > expected:
        ranges.append((expected, vouched))
    return ranges
