"""S0 of a replica on disk, beside the view and independent of it: a lost view must not lose it. Blocking.

8 bytes magic, uint32 CRC-32C of the rest, int64 S0, int64 the position as of which the log was copied
"""

import struct
from typing import Final

from duramen.base.ports import FileSystem
from duramen.codec.crc import crc32c
from duramen.keyed.floors import KeptFloor
from duramen.storage.io import write_all

__all__ = ["FLOORS_DIRECTORY", "FloorFile"]

FLOORS_DIRECTORY: Final = "keyed-s0"

_MAGIC: Final = b"DURS0F01"
_HEAD: Final = struct.Struct("<8sI")
_BODY: Final = struct.Struct("<qq")


class FloorFile:
    """The file of one replica."""

    def __init__(self, files: FileSystem, name: str) -> None:
        self._files = files
        self._path = f"{FLOORS_DIRECTORY}/{name}"

    def read(self, end_offset: int) -> KeptFloor | None:
        """The stored S0; None if there is no file. Of a damaged file nothing before `end_offset` is known."""
        try:
            file = self._files.open(self._path, read_only=True)
        except FileNotFoundError:
            return None
        content = bytes(file.read(0, _HEAD.size + _BODY.size))
        file.close()
        if len(content) == _HEAD.size + _BODY.size:
            magic, crc = _HEAD.unpack_from(content)
            if magic == _MAGIC and crc == crc32c(content[_HEAD.size :]):
                return KeptFloor(*_BODY.unpack_from(content, _HEAD.size))
        return KeptFloor(end_offset, end_offset)

    def write(self, kept: KeptFloor) -> None:
        """Have this on disk."""
        files, body = self._files, _BODY.pack(*kept)
        named = files.exists(FLOORS_DIRECTORY)
        if not named:
            files.make_directory(FLOORS_DIRECTORY)
        files.unlink(f"{self._path}.new")
        file = files.open(f"{self._path}.new", create=True)
        write_all(file, [_HEAD.pack(_MAGIC, crc32c(body)), body], 0)
        file.sync()
        file.close()
        files.rename(f"{self._path}.new", self._path)
        files.sync_directory(FLOORS_DIRECTORY)
        if not named:
            files.sync_directory("")

    def remove(self) -> None:
        """Remove it; where it comes back after a loss of power, older snapshots are refused that could be read."""
        self._files.unlink(self._path)
