"""A small file in `quorum/`, replaced as a whole, for promises that a node must not forget.

8 bytes that identify the file, uint32 CRC-32C of everything after it, uint32 format (1), and the content. A new version
is written beside the old one, synced, renamed, and its name synced. Everything here blocks and raises OSError.
"""

import struct
from typing import Final

from duramen.base.ports import FileSystem
from duramen.codec.crc import crc32c
from duramen.storage.io import write_all

__all__ = ["QUORUM_DIRECTORY", "WholeFile"]

QUORUM_DIRECTORY: Final = "quorum"

_FORMAT: Final = 1
_HEADER = struct.Struct(">8sII")
_CRC = struct.Struct(">I")
_COVERED_FROM: Final = 12


class WholeFile:
    """The file `path`, which starts with `magic`, 8 bytes."""

    def __init__(self, files: FileSystem, name: str, magic: bytes) -> None:
        self.path = f"{QUORUM_DIRECTORY}/{name}"
        self.files = files
        self._magic = magic

    def read(self) -> memoryview | None:
        """Its content, durable including the file's name; None if it was never written.

        Raises ValueError if it is damaged.
        """
        files = self.files
        if not files.exists(QUORUM_DIRECTORY):
            files.make_directory(QUORUM_DIRECTORY)
        files.sync_directory("")
        files.sync_directory(QUORUM_DIRECTORY)  # a crash may have come between the rename and its sync
        if not files.exists(self.path):
            return None
        file = files.open(self.path, read_only=True)
        data = memoryview(bytes(file.read(0, file.size())))
        file.close()
        if len(data) < _HEADER.size:
            raise ValueError("is cut off")
        magic, crc, format_ = _HEADER.unpack_from(data)
        if magic != self._magic or crc != crc32c(data[_COVERED_FROM:]):
            raise ValueError("is damaged")
        if format_ != _FORMAT:
            raise ValueError(f"has the format {format_}; this version knows {_FORMAT}")
        return data[_HEADER.size :]

    def write(self, content: bytes) -> None:
        """Replace the content; durable on return."""
        files, new = self.files, f"{self.path}.new"
        covered = _CRC.pack(_FORMAT) + content
        files.unlink(new)
        file = files.open(new, create=True)
        write_all(file, [self._magic, _CRC.pack(crc32c(covered)), covered], 0)
        file.sync()
        file.close()
        files.rename(new, self.path)
        files.sync_directory(QUORUM_DIRECTORY)
