"""Damage to files at rest: bits of synced bytes flip, files are truncated or replaced by an older copy.

For a segment, the batches of the bytes are known: only those may fail from then on. An index or one generation of the
checkpoint may be damaged without loss. A file is damaged once, and a segment never together with its index, because
only the index has a CRC of a batch's offset and epoch.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from duramen.codec.batch import batches
from duramen.sim.machine.aims import CLOSED
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.sim.machine.stages import DAMAGES
from duramen.storage.checkpoint import checkpoint_name, checkpoint_numbers, read_checkpoint
from duramen.storage.log.log import Log
from duramen.storage.log.state import LogState
from duramen.storage.segment.index import BLOCK_BYTES
from duramen.storage.segment.segment import Segment

__all__ = ["Decay", "Decayed"]

_KINDS: Final = ("segment", "segment", "segment", "index", "checkpoint")
_IDENTITY_BYTES: Final = 16  # of a batch: offset, length and epoch, which its own CRC does not cover


class Decayed(NamedTuple):
    """The damage of a file; `ranges` are the offsets that may be lost with it, of the log `log_id`.

    `unchecked` if no checkpoint is left that has the positions.
    """

    damage: str
    path: str
    place: int
    log_id: int = -1
    ranges: Sequence[tuple[int, int]] = ()
    unchecked: bool = False


class _Copy(NamedTuple):
    """The content of a file, and its incarnation."""

    file: object
    content: bytes


class _Batch(NamedTuple):
    """Where a batch lies, and the offsets that are lost with it: with gaps beside it that compaction has left."""

    start: int
    end: int
    lost_from: int
    lost_to: int


class Decay:
    """Damages files of a disk, each once."""

    def __init__(self, disk: MemoryFileSystem, chance: random.Random) -> None:
        self._disk = disk
        self._chance = chance
        self._damaged: set[str] = set()  # paths, of segments without their endings
        self._copies: dict[str, _Copy] = {}
        self._checkpoint_of_old = b""

    def remember(self) -> None:
        """Keep copies of some files as they are, to put in their place later."""
        for path in self._disk.paths():
            if path.endswith((".log", ".index")) and (path not in self._copies or self._chance.random() < 0.2):
                self._copy(path)
        numbers = checkpoint_numbers(self._disk)
        if numbers and (not self._checkpoint_of_old or self._chance.random() < 0.3):
            self._checkpoint_of_old = self._disk.content(checkpoint_name(numbers[0]))

    def at_rest(self, logs: Iterable[Log], *, checkpoints: bool) -> Decayed | None:
        """No process runs: damage one file, one of these logs' where it has records; with `checkpoints` perhaps all."""
        kind = self._chance.choice(_KINDS)
        if kind == "segment":
            return self._segment(logs, cold=False)
        if kind == "checkpoint":
            whole = checkpoints and not self._damaged  # an index says whose log it is
            return self._checkpoints() if whole and self._chance.random() < 0.5 else self._checkpoint()
        return self._index([path for path in self._disk.paths() if path.endswith(".index")])

    def at_work(self, logs: Iterable[Log], damage: str = "") -> Decayed | None:
        """A process runs: damage a segment of these logs that nothing is written to any more, or its index.

        `damage` is the kind of it, where one is wanted.
        """
        logs = list(logs)
        found = self._segment(logs, cold=True, damage=damage) if self._chance.random() < 0.8 else None
        if found is None:
            segments = [segment for log in logs for segment in log.segments if self._is_cold(segment)]
            found = self._index([segment.path + ".index" for segment in segments], damage)
        if found is None and damage == "older copy":
            self._remember_growing(logs)
        return found

    def _remember_growing(self, logs: Iterable[Log]) -> None:
        """Copy files that still grow: by the time they are cold they have changed."""
        growing = (segment.path for log in logs for segment in log.segments if not segment.closed)
        for path in (path + ending for path in growing for ending in (".log", ".index")):
            if path not in self._copies and self._disk.exists(path):
                self._copy(path)

    def _copy(self, path: str) -> None:
        self._copies[path] = _Copy(self._disk.identity(path), self._disk.content(path))

    def _older(self, path: str) -> bytes | None:
        """The copy that is kept of a file; of an index none of another file: nothing else would tell them apart."""
        copy = self._copies.get(path)
        if copy is None or (path.endswith(".index") and copy.file is not self._disk.identity(path)):
            return None
        return copy.content

    def no_indexes(self, of: str) -> Iterator[Decayed]:
        """No process runs: the indexes of most segments that are appended to are gone, or of most that are `CLOSED`."""
        paths = [path for path in self._disk.paths() if path.endswith(".index")]
        newest = {path.rpartition("/")[0]: path for path in paths}.values()
        for path in (path for path in paths if (path in newest) != (of == CLOSED)):
            if path.removesuffix(".index") not in self._damaged and self._chance.random() < 0.8:
                self._damaged.add(path.removesuffix(".index"))
                self._disk.lose(path)
                yield Decayed("cut", path, 0)

    # -- segments -----------------------------------------------------------------------------------

    def _is_cold(self, segment: Segment) -> bool:
        return segment.closed and segment.synced == segment.size and not segment.suspect

    def _segment(self, logs: Iterable[Log], *, cold: bool, damage: str = "") -> Decayed | None:
        found = [
            (log, segment)
            for log in logs
            for segment in log.segments
            if segment.synced and not segment.in_memory and (self._is_cold(segment) or not cold)
            and segment.path not in self._damaged and self._disk.exists(segment.path + ".log")
            and (damage != "older copy" or self._was_other(segment.path + ".log"))
        ]  # fmt: skip
        if not found:
            return None
        log, segment = self._chance.choice(found)
        path = segment.path + ".log"
        synced = segment.synced if cold else max(segment.synced, self._checkpointed(log, segment))
        content = self._disk.content(path)[:synced]
        sound = _batches(content, segment)
        if not sound or sound[-1].end < len(content):
            return None
        damage, start, end = self._change(path, content, self._place(sound), damage)
        if start < 0:
            return None
        self._damaged.add(segment.path)
        hit = [batch for batch in sound if start < batch.end and batch.start < end]
        return Decayed(damage, path, start, log.id, [(batch.lost_from, batch.lost_to) for batch in hit])

    def _checkpointed(self, log: Log, segment: Segment) -> int:
        """The number of its bytes that a checkpoint calls synced: the process may have ended before it learned that."""
        place, size = (segment.base_offset, segment.generation), 0
        for number in checkpoint_numbers(self._disk):
            checkpoint = read_checkpoint(self._disk, number)
            for raw in checkpoint.logs if checkpoint is not None else ():
                state = msgspec.msgpack.decode(raw, type=LogState)
                for known in state.segments if state.id == log.id else ():
                    if (known.base_offset, known.generation) == place:
                        size = max(size, known.size)
        return size

    def _place(self, sound: list[_Batch]) -> int:
        batch = self._chance.choice(sound)
        bytes_ = _IDENTITY_BYTES if self._chance.random() < 0.3 else batch.end - batch.start
        return batch.start + self._chance.randrange(bytes_)

    def _was_other(self, path: str) -> bool:
        """Whether an older copy is kept of a file that is more than a longer one of the same."""
        older = self._older(path)
        return older is not None and not older.startswith(self._disk.content(path))

    def _change(self, path: str, content: bytes, place: int, damage: str = "") -> tuple[str, int, int]:
        """The damage of a file, and the first byte that it changed; -1: none.

        `damage` selects a kind.
        """
        kept = self._older(path)
        older = content if kept is None else kept
        damage = damage or self._chance.choice(DAMAGES)
        if damage == "bit flip":
            self._disk.corrupt(path, place, 1 << self._chance.randrange(8))
            return damage, place, place + 1
        if damage == "older copy":
            if older[: len(content)] == content:
                return damage, -1, -1
            place = next((at for at, (one, other) in enumerate(zip(older, content, strict=False)) if one != other),
                         min(len(older), len(content)))  # fmt: skip
            if place < len(older):
                place &= -BLOCK_BYTES  # where all of its batches are sound nothing says which are the old ones
        self._disk.replace(path, older if damage == "older copy" else content[:place])
        return damage, place, len(content)

    # -- other state --------------------------------------------------------------------------------

    def _index(self, paths: list[str], damage: str = "") -> Decayed | None:
        whole = [path for path in paths if path.removesuffix(".index") not in self._damaged]
        if damage == "older copy":
            whole = [path for path in whole if self._disk.exists(path) and self._was_other(path)]
        path = self._chance.choice(whole) if whole else ""
        content = self._disk.content(path) if path and self._disk.exists(path) else b""
        if not content:
            return None
        damage, place, _ = self._change(path, content, self._chance.randrange(len(content)), damage)
        self._damaged.add(path.removesuffix(".index"))
        return Decayed(damage, path, place) if place >= 0 else None

    def _checkpoint(self) -> Decayed | None:
        numbers = [number for number in checkpoint_numbers(self._disk) if read_checkpoint(self._disk, number)]
        if len(numbers) < 2:
            return None
        path = checkpoint_name(self._chance.choice(numbers))
        content, old = self._disk.content(path), self._checkpoint_of_old
        if old not in (b"", content) and self._chance.random() < 0.3:
            self._disk.replace(path, old)
            return Decayed("older copy", path, 0)
        damage, place, _ = self._change(path, content, self._chance.randrange(len(content)))
        return Decayed(damage, path, place) if place >= 0 else None

    def _checkpoints(self) -> Decayed | None:
        """All generations are damaged."""
        paths = [checkpoint_name(number) for number in checkpoint_numbers(self._disk)]
        for path in paths:
            place = self._chance.randrange(len(self._disk.content(path)))
            if self._chance.random() < 0.5:
                self._disk.corrupt(path, place, 1 << self._chance.randrange(8))
            else:
                self._disk.replace(path, self._disk.content(path)[:place])
        return Decayed("bit flip", paths[0], 0, unchecked=True) if paths else None


def _batches(content: bytes, segment: Segment) -> list[_Batch]:
    """The whole batches at the beginning of a segment that is sound."""
    found: list[_Batch] = []
    follows = segment.base_offset
    for start, head in batches(content):
        if found and segment.generation:
            found[-1] = found[-1]._replace(lost_to=head.base_offset)
        first = follows if segment.generation else head.base_offset
        found.append(_Batch(start, start + head.size, first, head.next_offset))
        follows = head.next_offset
    return found
