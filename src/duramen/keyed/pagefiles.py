"""A view's files on disk: pages of `prev`, and two generations of its checkpoint.

    prev-00000000000000000012   a page, written once, synced before the checkpoint that names it
    table-00000000000000000034  a partition of a table in files: uint32 CRC-32C of what follows, its words
    view.0, view.1              checkpoints, written in turn: the older one is replaced

Every call blocks, except `get` of a page that was just put: they are made in jobs.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from duramen.base.errors import CheckpointInvalid
from duramen.base.ports import Buffer, File, FileSystem
from duramen.codec.crc import crc32c
from duramen.keyed.checkpoint import CRC_END, HEAD_BYTES, generation_of
from duramen.keyed.prev import PAGE_CRC_END
from duramen.storage.io import write_all

__all__ = [
    "GENERATIONS",
    "CheckedPart",
    "PageFiles",
    "TableFiles",
    "begin_checkpoint",
    "check_files",
    "end_checkpoint",
    "read_checkpoints",
    "remove_checkpoints",
]

_PREFIX: Final = "prev-"
_TABLE_PREFIX: Final = "table-"
_TABLE_CRC_END: Final = 4
_TABLE_PIECE_BYTES: Final = 1 << 20
_CHECKPOINTS: Final = ("view.0", "view.1")
_NEW: Final = ".new"
_LARGEST_PAGE_BYTES: Final = 64 << 20
_CHECK_BYTES: Final = 256 << 10

GENERATIONS: Final = len(_CHECKPOINTS)
"""The number of saves that replace every existing checkpoint."""


class CheckedPart(NamedTuple):
    """A checked part of a file, of that size; `damaged` is its path if it does not match its checksum."""

    size: int
    damaged: str = ""
    in_page: bool = False


class PageFiles:
    """Pages in files of a directory; those that no checkpoint names yet are in memory."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        """Creates the directory if it is missing."""
        self._files = files
        self._directory = directory
        self._new: dict[int, bytes] = {}
        self._below = 0
        files.make_directory(directory)

    def put(self, number: int, content: bytes) -> None:
        """Keep a page, in memory until `write`."""
        self._new[number] = content

    def get(self, number: int) -> Buffer:
        """A page. Raises CheckpointInvalid if its file is missing."""
        found = self._new.get(number)
        if found is not None:
            return found
        try:
            file = self._files.open(self._path(number), read_only=True)
        except FileNotFoundError:
            raise CheckpointInvalid(f"the page {number} of a view is gone") from None
        size = file.size()
        if size > _LARGEST_PAGE_BYTES:
            raise CheckpointInvalid(f"the page {number} of a view has {size} bytes")
        return file.read(0, size)

    def require(self, numbers: Iterable[int]) -> None:
        """Raise CheckpointInvalid if one of these pages is missing."""
        there = set(self._files.names(self._directory))
        for number in numbers:
            if f"{_PREFIX}{number:020}" not in there:
                raise CheckpointInvalid(f"the page {number} of a view is gone")

    def drop_below(self, number: int) -> None:
        """Let `sweep` remove pages with smaller numbers, once no checkpoint needs them."""
        self._below = max(self._below, number)

    def write(self, end: int = 1 << 63) -> None:
        """Write and sync new pages with smaller numbers than `end`, before a checkpoint names them.

        Meanwhile pages may be put and read.
        """
        found = sorted(number for number in list(self._new) if number < end)
        for number in found:
            _write(self._files, self._path(number), self._new[number])
        if found:
            self._files.sync_directory(self._directory)
        for number in found:
            del self._new[number]

    def sweep(self, below: int, end: int) -> None:
        """Remove the pages below `below`, and those from `end` on, which no checkpoint names."""
        for name in self._files.names(self._directory):
            if name.startswith(_PREFIX) and not below <= int(name.removeprefix(_PREFIX)) < end:
                self._files.unlink(f"{self._directory}/{name}")

    def _path(self, number: int) -> str:
        return f"{self._directory}/{_PREFIX}{number:020}"


class TableFiles:
    """Partitions of a table in files of a directory; rounds read and write all of them: they are not cached."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._named = True
        self._unsettled: File | None = None

    def write_part(self, number: int, crc: int, words: memoryview) -> None:
        """Start to write a partition; `sync` its name before a checkpoint names it."""
        content = words.cast("B")
        self._named = False
        self._files.unlink(self._path(number))
        file = self._files.open(self._path(number), create=True)
        write_all(file, [crc.to_bytes(_TABLE_CRC_END, "little"), content], 0)
        file.write_back(0, _TABLE_CRC_END + len(content))
        self._unsettled = file

    def settle_part(self) -> None:
        """Sync the content of the last write."""
        file, self._unsettled = self._unsettled, None
        if file is not None:
            file.sync()
            file.forget(0, file.size())
            file.close()

    def read_part(self, number: int, size: int) -> memoryview:
        """The words of a partition. Raises CheckpointInvalid if the size differs, or the file is missing."""
        try:
            file = self._files.open(self._path(number), read_only=True)
        except FileNotFoundError:
            raise CheckpointInvalid(_gone(number)) from None
        if file.size() != _TABLE_CRC_END + size:
            raise CheckpointInvalid(f"the file {number} of a view's table has {file.size()} bytes")
        content = memoryview(bytearray(size))
        for at in range(0, size, _TABLE_PIECE_BYTES):
            piece = file.read(_TABLE_CRC_END + at, min(_TABLE_PIECE_BYTES, size - at))
            content[at : at + len(piece)] = piece
        file.forget(0, _TABLE_CRC_END + size)
        return content.cast("Q")

    def require(self, numbers: Iterable[int]) -> None:
        """Raise CheckpointInvalid if one of these partitions is missing."""
        there = set(self._files.names(self._directory))
        for number in numbers:
            if f"{_TABLE_PREFIX}{number:020}" not in there:
                raise CheckpointInvalid(_gone(number))

    def sync(self) -> None:
        """Sync the names of written files."""
        if not self._named:
            self._named = True  # later writes need another sync
            try:
                self._files.sync_directory(self._directory)
            except OSError:
                self._named = False
                raise

    def sweep(self, named: Collection[int], end: int) -> None:
        """Remove the partitions with smaller numbers than `end` except the named ones."""
        for name in self._files.names(self._directory):
            number = int(name.removeprefix(_TABLE_PREFIX)) if name.startswith(_TABLE_PREFIX) else end
            if number < end and number not in named:
                self._files.unlink(f"{self._directory}/{name}")

    def _path(self, number: int) -> str:
        return f"{self._directory}/{_TABLE_PREFIX}{number:020}"


def _gone(number: int) -> str:
    return f"the file {number} of a view's table is gone"


def read_checkpoints(files: FileSystem, directory: str) -> Iterator[Buffer]:
    """The existing checkpoints, the newer one first, each read on demand."""
    found = list[tuple[int, File]]()
    for name in _CHECKPOINTS:
        try:
            file = files.open(f"{directory}/{name}", read_only=True)
        except FileNotFoundError:
            continue
        found.append((generation_of(file.read(0, HEAD_BYTES)), file))
    for _, file in sorted(found, key=itemgetter(0), reverse=True):
        yield file.read(0, file.size())


def check_files(files: FileSystem, directory: str) -> Iterator[CheckedPart]:
    """Verify all checksums, in steps. Files removed meanwhile are skipped."""
    for name in files.names(directory) if files.exists(directory) else ():
        if name in _CHECKPOINTS:
            yield from _check(files, f"{directory}/{name}", CRC_END, in_page=False)
        elif name.startswith(_PREFIX):
            yield from _check(files, f"{directory}/{name}", PAGE_CRC_END, in_page=True)
        elif name.startswith(_TABLE_PREFIX):
            yield from _check(files, f"{directory}/{name}", _TABLE_CRC_END, in_page=True)


def _check(files: FileSystem, path: str, start: int, *, in_page: bool) -> Iterator[CheckedPart]:
    """The checksum is before `start`, and covers everything after it."""
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return
    size = file.size()
    head, crc = bytes(file.read(0, start)), 0
    for position in range(start, size, _CHECK_BYTES):
        crc = crc32c(file.read(position, min(_CHECK_BYTES, size - position)), crc)
        file.forget(position, _CHECK_BYTES)
        yield CheckedPart(min(_CHECK_BYTES, size - position))
    if size <= start or crc != int.from_bytes(head[start - 4 :], "little"):
        yield CheckedPart(start, path, in_page)


def remove_checkpoints(files: FileSystem, directory: str) -> None:
    """Remove both generations; durable on return."""
    there = files.names(directory) if files.exists(directory) else ()
    found = [name for name in _CHECKPOINTS if name in there]
    for name in found:
        files.unlink(f"{directory}/{name}")
    if found:
        files.sync_directory(directory)


def begin_checkpoint(files: FileSystem, directory: str, content: Sequence[Buffer], generation: int) -> File:
    """Write a checkpoint under a temporary name; `end_checkpoint` completes it."""
    path = _new_checkpoint(directory, generation)
    files.unlink(path)
    file, position = files.open(path, create=True), 0
    for piece in content:
        write_all(file, [piece], position)
        position += len(piece)
    return file


def end_checkpoint(files: FileSystem, directory: str, file: File, generation: int) -> None:
    """Replace the older checkpoint; the other one stays intact."""
    file.sync()
    file.close()
    name = _new_checkpoint(directory, generation)
    files.rename(name, name.removesuffix(_NEW))
    files.sync_directory(directory)


def _new_checkpoint(directory: str, generation: int) -> str:
    return f"{directory}/{_CHECKPOINTS[generation % GENERATIONS]}{_NEW}"


def _write(files: FileSystem, path: str, content: bytes) -> None:
    files.unlink(path)
    file = files.open(path, create=True)
    write_all(file, [content], 0)
    file.sync()
    file.close()
