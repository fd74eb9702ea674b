"""The write-ahead log's files at a start: the generation of each, and its sound frames. Blocking."""

from collections.abc import Iterator
from typing import NamedTuple

from duramen.base.ports import File, FileSystem
from duramen.codec.batch import HEADER_BYTES
from duramen.storage.recovery.plan import FileScan, RecoveryVerdict
from duramen.storage.wal.frames import Bad, FrameType, find_generation, position, scan
from duramen.storage.wal.wal import FILE_PAYLOAD_BYTES, WAL_DIRECTORY, wal_path

__all__ = ["FoundFile", "WalDamage", "scan_wal", "wal_damage", "wal_slots"]


class FoundFile(NamedTuple):
    """A file with sound frames, all of one generation."""

    slot: int
    file: File
    generation: int
    scan: FileScan


class WalDamage(NamedTuple):
    """A file without sound frames from the place `first` to `last` (-1: to its end); no `path` if it is missing."""

    path: str | None
    generation: int
    first: int
    last: int


def wal_damage(wal: list[FoundFile], verdict: RecoveryVerdict, *, rescued: bool = False) -> Iterator[WalDamage]:
    """The damage of the files; without a checkpoint (`rescued`) a missing file cannot be known."""
    paths = {file.generation: wal_path(file.slot) for file in wal}
    for start, end in verdict.damage:
        generation = start >> 32
        if generation in paths or not rescued:
            last = end & 0xFFFFFFFF if end >> 32 == generation else -1
            yield WalDamage(paths.get(generation), generation, start & 0xFFFFFFFF, last)


def wal_slots(files: FileSystem) -> list[tuple[int, File]]:
    """Every WAL file, by its slot. Raises OSError."""
    slots = []
    for name in files.names(WAL_DIRECTORY):
        number = name.removesuffix(".wal")
        if number.isdigit():
            slots.append((int(number), files.open(f"{WAL_DIRECTORY}/{name}")))
    return slots


def scan_wal(slots: list[tuple[int, File]], replay: int, salt: int) -> list[FoundFile]:
    """The files that a replay from the position `replay` needs, by generation; all for 0. Raises OSError."""
    found: list[FoundFile] = []
    headless: list[tuple[int, File]] = []
    for slot, file in slots:
        generation = find_generation(file.read(0, HEADER_BYTES + FILE_PAYLOAD_BYTES + 64), salt)
        if generation is None:
            headless.append((slot, file))
        elif generation >= replay >> 32:
            found.append(_scan_file(slot, file, generation, salt, max(replay - position(generation, 0), 0)))
    known = {file.generation for file in found}
    oldest = replay >> 32 or min(known, default=1)
    newest = max(known, default=oldest)
    for slot, file in headless:
        # A file whose first frame is damaged has one of the missing generations, if any frame is sound.
        for generation in range(oldest, newest + 2):
            if generation in known:
                continue
            scanned = _scan_file(slot, file, generation, salt)
            if scanned.scan.end:
                found.append(scanned)
                known.add(generation)
                break
    return sorted(found, key=lambda file: file.generation)


def _scan_file(slot: int, file: File, generation: int, salt: int, start: int = 0) -> FoundFile:
    end = vouched = 0
    previous_end = -1
    bad: list[Bad] = []
    for item in scan(file, generation, salt, start=start):
        if isinstance(item, Bad):
            bad.append(item)
            continue
        end = item.end
        vouched = max(vouched, item.vouched)
        if item.type is FrameType.FILE:
            previous_end = int.from_bytes(item.payload[20:28], "big")
    inner = tuple(gap for gap in bad if gap.end <= end)
    return FoundFile(slot, file, generation, FileScan(generation, end, inner, vouched, previous_end))
