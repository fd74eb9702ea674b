"""Bugs of files that take the place of others: checkpoints, compacted segments, rows of internal streams."""

from collections.abc import Mapping
from typing import Any, Final

from tests.sim.planted import Behind, Bug, Original, Place, as_port

from duramen.base.ports import FileSystem
from duramen.coordinators.runtime.write_behind import WriteBehind
from duramen.storage.checkpoint import NodeCheckpoint
from duramen.storage.maintenance import checkpointer
from duramen.storage.maintenance.closed_segment import Target
from duramen.storage.recovery import recovery

__all__ = ["CHECKPOINT_BUGS"]


class _NamesUnsynced(Behind):
    def sync_directory(self, path: str) -> None:
        """Left out."""


class _Unsynced(Behind):
    def sync(self) -> None:
        """Left out."""


class _FilesUnsynced(Behind):
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        """A file that is not synced."""
        return _Unsynced(self._behind.open(path, create=create, read_only=read_only))


def _name_unsynced(right: Original) -> Original:
    def write_checkpoint(files: FileSystem, number: int, checkpoint: NodeCheckpoint) -> None:
        right(_NamesUnsynced(files), number, checkpoint)

    return write_checkpoint


def _finish_unsynced(right: Original) -> Original:
    def finish(self: Target) -> None:
        files, file = self._files, self._file
        self._files, self._file = as_port(_FilesUnsynced(files)), as_port(_Unsynced(file))
        try:
            right(self)
        finally:
            self._files, self._file = files, file

    return finish


def _position_first(right: Original) -> Original:
    def put(self: WriteBehind, changes: Mapping[bytes, bytes | None]) -> None:
        right(self, {key: value for key, value in changes.items() if key[:1] == b"\0"})
        right(self, changes)

    return put


CHECKPOINT_BUGS: Final = (
    Bug(
        "skip-directory-sync",
        "skip the directory's sync after a rename",
        (Place(checkpointer, "write_checkpoint", _name_unsynced), Place(recovery, "write_checkpoint", _name_unsynced)),
    ),
    Bug(
        "swap-unsynced",
        "swap a compacted segment without a sync",
        (Place(Target, "finish", _finish_unsynced),),
    ),
    Bug(
        "position-before-rows",
        "advance a view's position before its rows",
        (Place(WriteBehind, "put", _position_first),),
        "two batches where there is one: the position, then the rows",
    ),
)
