"""The data directory itself: whose it is, which format it has, and that one node at a time holds it.

`duramen.json` names the format and the directory's id; `lock` is held while a node runs.
"""

import errno
from typing import Final
from uuid import UUID

import msgspec

from duramen.base.errors import DirectoryUnusable
from duramen.base.ids import new_directory_id
from duramen.base.ports import FileSystem, Lock, Randomness
from duramen.storage.io import write_all
from duramen.storage.log import LOGS_DIRECTORY
from duramen.storage.wal import WAL_DIRECTORY

__all__ = ["FORMAT", "Directory", "make_directories", "open_directory"]

FORMAT: Final = 1

_META = "duramen.json"
_LOCK = "lock"


class _Meta(msgspec.Struct):
    format: int
    directory_id: str


class Directory(msgspec.Struct, frozen=True):
    """A data directory that this process holds."""

    id: UUID
    lock: Lock


def open_directory(files: FileSystem, randomness: Randomness, where: str) -> Directory:
    """Take the directory, making it a data directory where it is empty. Blocking.

    `where` names it in messages. Raises DirectoryUnusable where it is held, not ours, too new, or not writable.
    """
    try:
        return _open(files, randomness, where)
    except OSError as error:
        hint = {
            errno.EROFS: "; the file system is read-only",
            errno.EACCES: "; give this user the right to write there",
            errno.ENOSPC: "; the disk is full",
        }.get(error.errno or 0, "")
        raise DirectoryUnusable(f"{where} cannot be used: {error.strerror or error}{hint}") from None


def _open(files: FileSystem, randomness: Randomness, where: str) -> Directory:
    files.make_directory("")
    known = files.exists(_META)
    if not known:
        strange = [name for name in files.names("") if name not in (_LOCK, "run", "duramen.json.new", "lost+found")]
        if strange:
            raise DirectoryUnusable(
                f"{where} holds {strange[0]!r} and no {_META}: it is not a data directory of Duramen;"
                " name an empty or a new one"
            )
    lock = files.lock(_LOCK)
    if lock is None:
        raise DirectoryUnusable(f"{where} is in use by another node; stop it, or give this one another --data-dir")
    try:
        if not known:
            return Directory(_create(files, randomness), lock)
        return Directory(_read(files, where), lock)
    except BaseException:
        lock.release()
        raise


def _read(files: FileSystem, where: str) -> UUID:
    file = files.open(_META, read_only=True)
    try:
        meta = msgspec.json.decode(bytes(file.read(0, file.size())), type=_Meta)
        directory_id = UUID(meta.directory_id)
    except (msgspec.MsgspecError, ValueError):
        raise DirectoryUnusable(
            f"{where}/{_META} is damaged; it should name the format and the directory's id"
        ) from None
    if meta.format != FORMAT:
        raise DirectoryUnusable(
            f"{where} has the storage format {meta.format}; this version of Duramen knows {FORMAT}: use a newer one"
        )
    return directory_id


def make_directories(files: FileSystem) -> None:
    """Make the parts that are missing. Plain. Raises OSError."""
    for name in (WAL_DIRECTORY, LOGS_DIRECTORY):
        files.make_directory(name)


def _create(files: FileSystem, randomness: Randomness) -> UUID:
    # Nothing else is made before this: what a crash left here would be taken for somebody else's.
    directory_id = new_directory_id(randomness.token(16))
    file = files.open(_META + ".new", create=True)
    file.truncate(0)
    write_all(file, [msgspec.json.encode(_Meta(FORMAT, str(directory_id)))], 0)
    file.sync()
    file.close()
    files.rename(_META + ".new", _META)
    files.sync_directory("")
    return directory_id
