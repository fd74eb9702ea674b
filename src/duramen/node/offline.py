"""The files of a data directory without a running node, for tools that read or create one."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from duramen.base.errors import DirectoryTooNew, DirectoryUnusable
from duramen.base.ports import FileSystem
from duramen.host.files import HostFileSystem
from duramen.storage.directory import LOCK, is_directory, read_directory_id
from duramen.storage.readonly import ReadOnlyFileSystem

__all__ = ["HeldDirectory", "data_files", "hold", "is_data_dir"]


def data_files(data_dir: Path) -> FileSystem:
    """The directory's files. A writer must take its lock first: `storage.directory.open_directory`."""
    return HostFileSystem(str(data_dir))


def is_data_dir(path: Path) -> bool:
    """Whether a node has ever run on that directory."""
    return (path / LOCK).is_file() and is_directory(ReadOnlyFileSystem(HostFileSystem(str(path))))


class HeldDirectory:
    """A directory on which no node can start meanwhile. `files` only reads; `id` is None if it is lost."""

    def __init__(self, path: Path, files: FileSystem, directory_id: UUID | None, problem: str) -> None:
        self.path = path
        self.files = files
        self.id = directory_id
        self.problem = problem  # why the id is lost; empty if it is not


@contextlib.contextmanager
def hold(path: Path, *, damaged: bool = False) -> Iterator[HeldDirectory]:
    """Lock a directory. With `damaged`, also one whose description is lost.

    Raises DirectoryUnusable if it is not a Duramen directory or a node has locked it, DirectoryTooNew for a newer
    format.
    """
    if not path.is_dir():
        raise DirectoryUnusable(f"{path} is not a directory; name the data directory of a node, as --data-dir does")
    files = ReadOnlyFileSystem(HostFileSystem(str(path)))
    try:
        if not is_directory(files):
            raise DirectoryUnusable(f"{path} is not a data directory of Duramen; name one, as --data-dir does")
        lock = _lock(path)
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        yield _held(path, files, damaged=damaged)
    finally:
        if lock is not None:
            os.close(lock)


def _held(path: Path, files: FileSystem, *, damaged: bool) -> HeldDirectory:
    try:
        return HeldDirectory(path, files, read_directory_id(files, str(path)), "")
    except (DirectoryUnusable, OSError) as error:
        if not damaged or isinstance(error, DirectoryTooNew):
            raise
        return HeldDirectory(path, files, None, str(error))


def _lock(path: Path) -> int | None:
    """The lock of a running node; None if there is no lock file, as in a copy without it."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DirectoryUnusable(
            f"{path} is in use by a running node; stop it, or name a copy of the directory"
        ) from None
    return descriptor
