"""Bugs of the write-ahead log."""

from collections.abc import Sequence
from typing import Final

from tests.sim.planted import Bug, Original, Place

from duramen.base.ports import Buffer, File
from duramen.storage import checkpoint
from duramen.storage.log import sync as syncing
from duramen.storage.maintenance import copier
from duramen.storage.maintenance import segment_rewrite as rewriting
from duramen.storage.maintenance.scheduler import Upkeep
from duramen.storage.wal import frames, wal
from duramen.storage.wal.frames import Frame
from duramen.storage.wal.wal import Synced, Wal

__all__ = ["WAL_BUGS"]


def _acknowledge_written(right: Original) -> Original:
    def flush(self: Wal) -> None:
        right(self)
        synced, self.synced = self.synced, self._written
        self._release_waiting(None)
        self.synced = synced

    return flush


def _capture_late(right: Original) -> Original:
    def _sync_done(self: Wal, result: Synced | BaseException) -> None:
        right(self, result if isinstance(result, BaseException) else result._replace(until=self._written))

    return _sync_done


def _sync_again(right: Original) -> Original:
    def _sync_job(self: Wal) -> Synced:
        try:
            found: Synced = right(self)
        except OSError:
            found = right(self)
        return found

    return _sync_job


def _release_copied(right: Original) -> Original:
    def _copied(self: Upkeep) -> None:
        if not self.copier.pending_bytes:
            self._wal.release(self._wal.end)
        right(self)

    return _copied


def _no_rest(right: Original) -> Original:
    def rest_of_page(end: int, capacity: int) -> Buffer:
        nothing: Buffer = right(end, capacity)[:0]
        return nothing

    return rest_of_page


def _any_generation(right: Original) -> Original:
    def frame(self: frames._Windows, place: int, generation: int, salt: int) -> Frame | None:
        written = int.from_bytes(self.at(place, frames.FRAME_HEADER_BYTES)[8:12], "big")
        found: Frame | None = right(self, place, written, salt)
        return None if found is None else found._replace(generation=generation)

    return frame


def _write_once(_: Original) -> Original:
    def write_all(file: File, buffers: Sequence[Buffer], position: int) -> None:
        file.write([b"".join(buffers)], position)

    return write_all


WAL_BUGS: Final = (
    Bug(
        "acknowledge-before-sync",
        "acknowledge before sync",
        (Place(Wal, "flush", _acknowledge_written),),
    ),
    Bug(
        "acknowledge-later-writes",
        "acknowledge what was written after the sync began",
        (Place(Wal, "_sync_done", _capture_late),),
        "what is covered is noted when the sync has ended, not before it begins",
    ),
    Bug(
        "retry-sync",
        "retry a failed sync",
        (Place(Wal, "_sync_job", _sync_again),),
    ),
    Bug(
        "recycle-before-sync",
        "recycle a WAL file before its segments are synced",
        (Place(Upkeep, "_copied", _release_copied),),
        "files of the WAL are free once everything in them is copied",
    ),
    Bug(
        "old-frames",
        "take a recycled file's old frames for new",
        (Place(frames._Windows, "frame", _any_generation), Place(wal, "_rest_of_page", _no_rest)),
        "nor are there zeros behind the last frame, which would hide nearly all of them",
    ),
    Bug(
        "ignore-short-write",
        "ignore a short write",
        tuple(Place(module, "write_all", _write_once) for module in (checkpoint, copier, rewriting, syncing, wal)),
    ),
)
