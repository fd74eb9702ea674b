"""The data directory: its owner, its format, and the lock that lets one node at a time use it.

`duramen.json` has the format and the directory's id; `lock` is held while a node runs. A directory that a tool creates
has a file `unfinished` until it is complete.
"""

import errno
from typing import Final
from uuid import UUID

import msgspec

from duramen.base.errors import DirectoryTooNew, DirectoryUnusable
from duramen.base.ids import new_directory_id
from duramen.base.ports import FileSystem, Lock, Randomness
from duramen.storage.io import write_all
from duramen.storage.log.log import LOGS_DIRECTORY
from duramen.storage.wal.wal import WAL_DIRECTORY

__all__ = [
    "FORMAT",
    "LOCK",
    "DataDirectory",
    "begin_directory",
    "finish_directory",
    "is_directory",
    "make_directories",
    "open_directory",
    "read_directory_id",
]

FORMAT: Final = 1

LOCK: Final = "lock"

_META: Final = "duramen.json"
_UNFINISHED: Final = "unfinished"


class _Meta(msgspec.Struct):
    format: int
    directory_id: str


class DataDirectory(msgspec.Struct, frozen=True):
    """A data directory locked by this process."""

    id: UUID
    lock: Lock


def open_directory(files: FileSystem, randomness: Randomness, where: str) -> DataDirectory:
    """Lock the directory, and create a data directory in an empty one. Blocking.

    `where` names it in messages. Raises DirectoryUnusable if it is locked, of another format, or not writable;
    DirectoryTooNew.
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


def _open(files: FileSystem, randomness: Randomness, where: str) -> DataDirectory:
    files.make_directory("")
    _check_finished(files, where)
    known = files.exists(_META)
    if not known:
        strange = [name for name in files.names("") if name not in (LOCK, "run", "duramen.json.new", "lost+found")]
        if strange:
            raise DirectoryUnusable(
                f"{where} holds {strange[0]!r} and no {_META}: it is not a data directory of Duramen;"
                " name an empty or a new one"
            )
    lock = files.lock(LOCK)
    if lock is None:
        raise DirectoryUnusable(f"{where} is in use by another node; stop it, or give this one another --data-dir")
    try:
        if not known:
            return DataDirectory(_create(files, randomness), lock)
        if not files.exists(LOGS_DIRECTORY):
            files.sync_directory("")  # a first start was interrupted before the name was durable
        return DataDirectory(read_directory_id(files, where), lock)
    except BaseException:
        lock.release()
        raise


def _check_finished(files: FileSystem, where: str) -> None:
    if files.exists(_UNFINISHED):
        file = files.open(_UNFINISHED, read_only=True)
        maker = bytes(file.read(0, file.size())).decode(errors="replace")
        raise DirectoryUnusable(
            f"{where} is unfinished: `{maker}` was interrupted while writing it; remove the directory and run the "
            "command again"
        )


def is_directory(files: FileSystem) -> bool:
    """Whether the directory has any file of a data directory. Blocking."""
    return any(
        name in (_META, LOGS_DIRECTORY, WAL_DIRECTORY) or name.startswith("checkpoint-") for name in files.names("")
    )


def begin_directory(files: FileSystem, randomness: Randomness, where: str, maker: str) -> DataDirectory:
    """Create an unfinished data directory in a missing or empty one; `maker` is the command.

    Blocking. Raises DirectoryUnusable if it has files, or OSError.
    """
    files.make_directory("")
    _check_finished(files, where)
    if files.names(""):
        raise DirectoryUnusable(f"{where} is not empty; name a new directory, or an empty one")
    file = files.open(_UNFINISHED, create=True)
    write_all(file, [maker.encode()], 0)
    file.sync()
    files.sync_directory("")
    lock = files.lock(LOCK)
    if lock is None:
        raise DirectoryUnusable(f"{where} is in use by another process")
    return DataDirectory(_create(files, randomness), lock)


def finish_directory(files: FileSystem) -> None:
    """Everything is written and synced: nodes may use the directory from here on. Blocking. Raises OSError."""
    files.sync_directory("")
    files.unlink(_UNFINISHED)
    files.sync_directory("")


def read_directory_id(files: FileSystem, where: str) -> UUID:
    """The directory's id. Blocking. Raises DirectoryUnusable if it is damaged, DirectoryTooNew, or OSError."""
    file = files.open(_META, read_only=True)
    try:
        meta = msgspec.json.decode(bytes(file.read(0, file.size())), type=_Meta)
        directory_id = UUID(meta.directory_id)
    except (msgspec.MsgspecError, ValueError):
        raise DirectoryUnusable(
            f"{where}/{_META} is damaged; it should name the format and the directory's id"
        ) from None
    if meta.format > FORMAT:
        raise DirectoryTooNew(
            f"{where} has the storage format {meta.format}; this version of Duramen knows {FORMAT}: use a newer one"
        )
    return directory_id


def make_directories(files: FileSystem) -> None:
    """Create missing subdirectories. Plain. Raises OSError."""
    for name in (WAL_DIRECTORY, LOGS_DIRECTORY):
        files.make_directory(name)


def _create(files: FileSystem, randomness: Randomness) -> UUID:
    # The id file comes first: an interrupted start must not leave a directory without an owner.
    directory_id = new_directory_id(randomness.token(16))
    file = files.open(_META + ".new", create=True)
    file.truncate(0)
    write_all(file, [msgspec.json.encode(_Meta(FORMAT, str(directory_id)))], 0)
    file.sync()
    file.close()
    files.rename(_META + ".new", _META)
    files.sync_directory("")
    return directory_id
