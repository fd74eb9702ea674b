"""Damage: the bytes of a segment without a sound batch, the offsets lost with them, and the cause. Plain data."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

__all__ = ["Damage", "DamageCause", "merged"]


class DamageCause(Enum):
    """The cause of damage: its name for programs, and its description for people."""

    BLOCK_CRC = "block-crc", "the block does not match its CRC in the index"
    BATCH_CRC = "batch-crc", "the record batch does not match its CRC"
    HEADER = "header", "no record batch begins there"
    OFFSET = "offset", "the record batch's offset does not follow"
    EPOCH = "epoch", "the record batch's leader epoch is not that of its offset"
    CUT_SHORT = "cut-short", "the file ends before"
    MISSING = "missing", "records are missing"
    MISSING_FILE = "missing-file", "the file is missing"
    UNREADABLE = "unreadable", "the disk cannot read the bytes"

    def __init__(self, id_: str, words: str) -> None:
        self.id = id_
        self.words = words


class Damage(NamedTuple):
    """Bytes `start` up to `end` of a segment's file without a sound batch, and the offsets lost with them.

    `last_offset` is -1 if the end is unknown. If records are missing but no bytes, `start` equals `end`.
    """

    start: int
    end: int
    first_offset: int
    last_offset: int
    cause: DamageCause

    def __str__(self) -> str:
        offsets = f"{self.first_offset} to {self.last_offset}" if self.last_offset >= 0 else f"{self.first_offset} on"
        return f"bytes {self.start} to {self.end} (offsets {offsets}) are damaged: {self.cause.words}"

    def holds(self, offset: int) -> bool:
        """Whether `offset` is lost with it."""
        return self.first_offset <= offset and (self.last_offset < 0 or offset <= self.last_offset)


def merged(found: Iterable[Damage]) -> list[Damage]:
    """The same ranges in order of position, overlapping ones merged."""
    kept: list[Damage] = []
    for damage in sorted(set(found), key=_order):
        before = kept[-1] if kept else None
        if before is None or not _is_one(before, damage):
            kept.append(damage)
            continue
        stronger = damage if damage.cause is DamageCause.CUT_SHORT or before.cause is DamageCause.MISSING else before
        last = damage.last_offset if damage.end >= before.end else before.last_offset
        kept[-1] = Damage(before.start, max(before.end, damage.end), before.first_offset, last, stronger.cause)
    return kept


def _order(damage: Damage) -> tuple[int, int, bool, str]:
    # Of two causes the more specific one comes first: a block's CRC fails with every other.
    return damage.start, damage.end, damage.cause is DamageCause.BLOCK_CRC, damage.cause.id


def _is_one(before: Damage, damage: Damage) -> bool:
    goes_on = before.last_offset < 0 and damage.start == before.end
    return damage.start < before.end or damage.start == before.start or goes_on
