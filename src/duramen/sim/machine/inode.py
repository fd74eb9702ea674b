"""A file in memory: its bytes as the operating system shows them and as the disk has them, by page."""

import random
from typing import Final

__all__ = ["PAGE_BYTES", "Inode"]

PAGE_BYTES: Final = 4096


class Inode:
    """A file's bytes as the operating system shows them, and as the disk has them."""

    __slots__ = ("data", "dirty", "disk", "forgotten")

    def __init__(self) -> None:
        self.data = bytearray()
        self.disk = bytearray()
        self.dirty: set[int] = set()  # pages that the next sync writes
        self.forgotten = False  # whether pages that differ from the disk's pass for clean

    def write(self, data: bytes, position: int) -> None:
        """The system has these bytes."""
        first, end = min(position, len(self.data)), position + len(data)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self.data[position:end] = data
        self.dirty.update(range(first // PAGE_BYTES, (end + PAGE_BYTES - 1) // PAGE_BYTES))

    def resize(self, size: int) -> None:
        """The system has so many bytes."""
        first = min(size, len(self.data))
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.dirty.update(range(first // PAGE_BYTES, size // PAGE_BYTES + 1))

    def sync(self) -> None:
        """The disk has the system's content, except for pages that wrongly count as clean."""
        for page in sorted(self.dirty):
            self._write_back(page)
        self.dirty.clear()
        size = len(self.data)
        del self.disk[size:]
        self.disk.extend(bytes(size - len(self.disk)))

    def _write_back(self, page: int) -> None:
        start = page * PAGE_BYTES
        piece = self.data[start : start + PAGE_BYTES]
        if len(self.disk) < start:
            self.disk.extend(bytes(start - len(self.disk)))
        self.disk[start : start + len(piece)] = piece

    def forget(self) -> None:
        """Unsynced pages are given up, but read as they were for as long as the machine runs."""
        self.forgotten = True
        self.dirty.clear()

    def drop(self) -> None:
        """Unsynced pages are given up: they read as the disk has them, and as zeros where it has nothing."""
        for page in self.dirty:
            start = page * PAGE_BYTES
            size = len(self.data[start : start + PAGE_BYTES])
            self.data[start : start + size] = self.disk[start : start + size].ljust(size, b"\0")
        self.dirty.clear()

    def crash(self, seed: random.Random | None, share: float, torn: tuple[int, int] | None) -> None:
        """Only synced pages survive, and that share of the others; of the range `torn` only a beginning."""
        disk, size = self.disk, len(self.data)
        if not self.dirty and not self.forgotten and len(disk) == size:
            return
        if seed is None or share == 0.0:
            size = len(disk)
        else:
            before = bytes(disk)
            for page in sorted(self.dirty):
                if share == 1.0 or seed.random() < share:
                    self._write_back(page)
            if torn is not None:
                cut = seed.randint(*torn)
                old = before[cut : torn[1]].ljust(torn[1] - cut, b"\0")
                disk[cut : torn[1]] = old[: max(0, len(disk) - cut)]
            size = self._surviving_size(seed, len(before), size, share)
        del disk[size:]
        disk.extend(bytes(size - len(disk)))
        self.data, self.forgotten = bytearray(disk), False
        self.dirty.clear()

    @staticmethod
    def _surviving_size(seed: random.Random, synced: int, last: int, share: float) -> int:
        if synced == last or share == 1.0:
            return last
        fate = seed.random()
        if last < synced or fate < 0.7:
            return last if fate < 0.4 else synced
        return seed.randint(synced, last)
