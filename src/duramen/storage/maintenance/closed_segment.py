"""Reads a closed segment from its start, checking every block, and writes the segment that replaces it.

Both are for jobs: blocking, with a bounded number of bytes at a time. They touch only files.
"""

from contextlib import suppress
from typing import Final

from duramen.base.errors import LogDamaged
from duramen.base.ports import File, FileSystem
from duramen.codec.batch import HEADER_BYTES, Header, header
from duramen.codec.crc import crc32c
from duramen.storage.io import write_all
from duramen.storage.maintenance.segment_rewrite import NEW_ENDING
from duramen.storage.segment.index import BLOCK_BYTES, BLOCK_SHIFT, IndexHeader, SegmentIndex, cover
from duramen.storage.segment.segment import Segment

__all__ = ["SegmentSource", "Target"]

_READ_BYTES: Final = 4 * BLOCK_BYTES
_WRITE_BYTES: Final = 256 * 1024
_SYNC_BYTES: Final = 4 * 1024 * 1024  # so that the final sync has little left
_ENDINGS: Final = (".index", ".log")


class SegmentSource:
    """A segment's batches in order. `left` is the number of bytes not returned yet."""

    def __init__(self, segment: Segment, file: File, index: SegmentIndex) -> None:
        """The segment is completely in `file`, and its whole index in `index`."""
        self.segment = segment
        self.left = segment.size
        self._file = file
        self._index = index
        self._position = 0  # of the next read
        self._ready = b""  # read and not returned yet

    def take(self, size: int) -> list[tuple[Header, bytes]]:
        """The next batches: about `size` bytes, at least one batch. Raises LogDamaged, OSError."""
        found: list[tuple[Header, bytes]] = []
        taken = 0
        while self.left and (taken < size or not found):
            head = header(self._fill(HEADER_BYTES))
            if head.magic != 2 or not HEADER_BYTES <= head.size <= self.left:
                raise LogDamaged(f"{self.segment.path}.log: no record batch where one should be")
            whole = self._fill(head.size)[: head.size]
            self._ready = self._ready[head.size :]
            self.left -= head.size
            taken += head.size
            found.append((head, whole))
        return found

    def _fill(self, size: int) -> bytes:
        missing = size - len(self._ready)
        if missing > 0:
            self._ready += self._read(missing)
        return self._ready

    def _read(self, missing: int) -> bytes:
        path, start = self.segment.path, self._position
        whole_blocks = (max(missing, _READ_BYTES) + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1)
        wanted = min(whole_blocks, self.segment.size - start)
        data = bytes(self._file.read(start, wanted))
        if len(data) < max(wanted, missing):
            raise LogDamaged(f"{path}.log ends at byte {start + len(data)}: the rest is missing")
        view = memoryview(data)
        for at in range(0, wanted, BLOCK_BYTES):
            if crc32c(view[at : at + BLOCK_BYTES]) != self._index.crc((start + at) >> BLOCK_SHIFT):
                raise LogDamaged(f"{path}.log: the block at byte {start + at} is damaged")
        self._position = start + wanted
        return data


class Target:
    """A segment being written, under temporary names until `publish`. `segment` is the new segment."""

    def __init__(self, files: FileSystem, path: str, head: IndexHeader, generation: int) -> None:
        self.segment = Segment(path, head.base_offset, generation)
        self._files = files
        self._head = head
        self._index = SegmentIndex()
        self._file: File | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._unsynced = 0
        self._position = 0  # everything before it is in the file
        self._next_offset = head.base_offset

    def open(self) -> None:
        """Create the file."""
        self._files.unlink(self.segment.path + ".log" + NEW_ENDING)
        self._file = self._files.open(self.segment.path + ".log" + NEW_ENDING, create=True)

    def add(self, batch: bytes, head: Header) -> None:
        """Append a batch."""
        segment, start = self.segment, self.segment.size
        if start == 0:
            segment.first_timestamp = head.max_timestamp
        if head.records:
            segment.max_timestamp = max(segment.max_timestamp, head.max_timestamp)
        segment.size = start + len(batch)
        self._next_offset = head.next_offset
        self._index.add(start, segment.size, head.next_offset - segment.base_offset, segment.max_timestamp)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        file = self._opened()
        piece = b"".join(self._waiting)
        write_all(file, [piece], self._position)
        self._index.cover(*cover(self._index.tail_crc, self._position, [piece]))
        self._position += len(piece)
        self._unsynced += len(piece)
        self._waiting, self._waiting_bytes = [], 0
        if self._unsynced >= _SYNC_BYTES:
            file.sync()
            self._unsynced = 0

    def _opened(self) -> File:
        if self._file is None:
            raise AssertionError("a target is opened first")
        return self._file

    def finish(self) -> None:
        """Sync everything, still under temporary names; `segment` is the result."""
        segment, file = self.segment, self._opened()
        if self._waiting:
            self._write()
        self._index.close(segment.size, self._next_offset - segment.base_offset, segment.max_timestamp)
        path = segment.path + ".index" + NEW_ENDING
        self._files.unlink(path)
        index_file = self._files.open(path, create=True)
        write_all(index_file, [self._head.encode(), self._index.encode(0, self._index.entries)], 0)
        for written in (index_file, file):
            written.sync()
            written.close()
        segment.copied = segment.synced = segment.size
        segment.closed = True
        segment.index = None

    def publish(self, directory: str) -> None:
        """Rename the files; durable on return."""
        for ending in _ENDINGS:
            self._files.rename(self.segment.path + ending + NEW_ENDING, self.segment.path + ending)
        self._files.sync_directory(directory)

    def abandon(self, *, published: bool = False) -> None:
        """Remove the written files."""
        if self._file is not None:
            self._file.close()
        for ending in _ENDINGS:
            with suppress(OSError):
                self._files.unlink(self.segment.path + ending + NEW_ENDING)
            if published:
                with suppress(OSError):
                    self._files.unlink(self.segment.path + ending)
