"""The incarnations of a directory, on disk before the cluster learns of one: detects restored older copies.

`quorum/incarnations`, "DURTRIED": a MessagePack array of the last registered incarnation that the node knows of, and of
the newest ones that it tried to register. If the cluster has a registration that this file lacks, it was made from a
newer state of the directory.

The size of the file is bounded. It drops attempts between the registered one and the newest hundred: a dropped one is
the cluster's last only if a hundred later processes got no response.
"""

from typing import Final

import msgspec

from duramen.base.errors import DirectoryUnusable
from duramen.base.ports import FileSystem
from duramen.controller.quorum.small_file import WholeFile

__all__ = ["IncarnationFile"]

_MOST: Final = 100


class _Row(msgspec.Struct, array_like=True, frozen=True):
    registered: str
    tried: tuple[str, ...]


class IncarnationFile:
    """Reads and writes the file. All methods block, and raise OSError, or DirectoryUnusable if it is damaged."""

    def __init__(self, files: FileSystem) -> None:
        self._file = WholeFile(files, "incarnations", b"DURTRIED")

    def begin(self, incarnation_id: str) -> tuple[str, ...]:
        """Record that a process is about to register with this incarnation; returns the earlier ones.

        Durable on return.
        """
        row = self._read()
        known = (row.registered, *row.tried) if row.registered else row.tried
        self._write(_Row(row.registered, (*row.tried, incarnation_id)[-_MOST:]))
        return known

    def registered(self, incarnation_id: str) -> None:
        """Record that the cluster has accepted it."""
        row = self._read()
        if row.registered != incarnation_id:
            self._write(_Row(incarnation_id, row.tried))

    def _read(self) -> _Row:
        try:
            content = self._file.read()
            return _Row("", ()) if content is None else msgspec.msgpack.decode(content, type=_Row)
        except (ValueError, msgspec.MsgspecError) as error:
            raise DirectoryUnusable(
                f"the file {self._file.path} {error}: it no longer shows whether this directory is an older copy."
                " Restore the file from a backup of this state, or start the node with an empty directory"
            ) from None

    def _write(self, row: _Row) -> None:
        self._file.write(msgspec.msgpack.encode(row))
