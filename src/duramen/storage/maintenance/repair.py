"""Overwrites damaged bytes of a segment with the right ones from another replica.

Only the damaged ranges are written, so that a crash in the middle leaves no additional damage. The segment's index has
CRCs of its blocks from the time of the append; they prove that the bytes are right.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.metrics import Metrics
from duramen.base.ports import Buffer, FileSystem
from duramen.codec.crc import crc32c
from duramen.storage.io import write_all
from duramen.storage.log.log import Log
from duramen.storage.maintenance.copier import Copier
from duramen.storage.maintenance.segment_rewrite import holds
from duramen.storage.segment.checks import read_index
from duramen.storage.segment.damage import Damage, DamageCause
from duramen.storage.segment.index import BLOCK_BYTES, BLOCK_SHIFT, closed_entries
from duramen.storage.segment.quarantine import Quarantine
from duramen.storage.segment.segment import Segment

__all__ = ["LARGEST_PATCH_BYTES", "Patch", "Repairer", "can_patch"]

LARGEST_PATCH_BYTES: Final = 64 << 20
"""A larger range is not patched: the log is fetched again from there on."""


class Patch(NamedTuple):
    """The right bytes for a damaged range."""

    damage: Damage
    data: Buffer


def can_patch(damage: Damage) -> bool:
    """Whether the damage is a range of a file, and small enough."""
    return damage.cause is not DamageCause.MISSING_FILE and 0 < damage.end - damage.start <= LARGEST_PATCH_BYTES


class Repairer:
    """Patches segments while nothing is copied to them."""

    def __init__(self, files: FileSystem, copier: Copier, quarantine: Quarantine, metrics: Metrics) -> None:
        self._files = files
        self._copier = copier
        self._quarantine = quarantine
        self._repaired = metrics.counter("duramen_repaired_ranges_total")

    def repair(self, log: Log, segment: Segment, patches: Sequence[Patch], done: Callable[[bool], None]) -> None:
        """Patch all damage of a segment; `done` gets whether every block matches its index, durably."""

        def plan() -> Callable[[], bool]:
            fits = (
                holds(log, segment)
                and not segment.suspect
                and segment.damage == [patch.damage for patch in patches]
                and all(len(patch.data) == patch.damage.end - patch.damage.start for patch in patches)
            )
            return partial(_patch, self._files, segment.path, patches, _crcs(segment, patches)) if fits else _never

        def patched(result: bool | BaseException) -> None:
            if result is True and holds(log, segment):
                self._repaired.value += len(patches)
                segment.repaired()
                log.forget_hints()
                self._quarantine.forget(segment)
            done(result is True)

        self._copier.alone(plan, patched)


class _Crcs(NamedTuple):
    """The expected CRCs of blocks: from an index in memory, or else from its file; `size` is its extent."""

    known: dict[int, int] | None
    blocks: list[int]
    base_offset: int
    size: int


def _crcs(segment: Segment, patches: Sequence[Patch]) -> _Crcs:
    blocks = sorted(
        {
            block
            for damage, _ in patches
            for block in range(damage.start >> BLOCK_SHIFT, (damage.end + BLOCK_BYTES - 1) >> BLOCK_SHIFT)
        }
    )
    index = segment.index
    known = None if index is None or index.first > blocks[0] else {block: index.crc(block) for block in blocks}
    return _Crcs(known, blocks, segment.base_offset, segment.copied)


def _never() -> bool:
    return False


def _patch(files: FileSystem, path: str, patches: Sequence[Patch], crcs: _Crcs) -> bool:
    known = crcs.known
    if known is None:
        entries = closed_entries(crcs.size)
        index = read_index(files, path, crcs.base_offset, entries, entries - 1)
        if index is None:
            return False  # nothing would prove that the bytes are right
        known = {block: index.crc(block) for block in crcs.blocks}
    file = files.open(path + ".log")
    for damage, data in patches:
        write_all(file, [data], damage.start)
    file.sync()
    for block in crcs.blocks:
        low = block << BLOCK_SHIFT
        if crc32c(file.read(low, min(BLOCK_BYTES, crcs.size - low))) != known[block]:
            return False
    return True
