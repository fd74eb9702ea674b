"""The location of a table's files: a directory, or a prefix of an S3 bucket."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from duramen.base.errors import DuramenError, TableUnsupported
from duramen.spark.tables.failures import failure
from duramen.spark.tables.port import Storage
from duramen.spark.tables.s3 import s3_files

__all__ = ["StoredFile", "TableLocation", "check_location", "reading_errors", "storage_errors", "sync"]

_S3_SCHEMES: Final = ("s3", "s3a")
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]+")


class StoredFile(NamedTuple):
    """An existing file; `path` is relative to the place."""

    path: str
    size_bytes: int
    modified_ms: int


@contextmanager
def storage_errors(location: str) -> Iterator[None]:
    """For calls of libraries that read or write a table: raises our error for theirs (`failure`)."""
    with _failures(location, reading=False):
        yield


@contextmanager
def reading_errors(location: str) -> Iterator[None]:
    """The same for calls that only read files of a table: a file that they cannot decode is damaged."""
    with _failures(location, reading=True):
        yield


@contextmanager
def _failures(location: str, *, reading: bool) -> Iterator[None]:
    try:
        yield
    except (DuramenError, MemoryError):
        raise
    except Exception as error:
        raise failure(location, error, reading=reading) from error


def check_location(location: str) -> None:
    """Raise TableUnsupported unless this location can be accessed."""
    scheme, _, rest = location.rpartition("://")
    scheme = scheme.lower()
    if not location or scheme not in {"", "file", *_S3_SCHEMES}:
        raise TableUnsupported(f"{location!r} is no location for a table: give a path, or s3://BUCKET/PREFIX")
    if scheme in _S3_SCHEMES:
        bucket = rest.partition("/")[0]
        if not bucket:
            raise TableUnsupported(f"{location!r} names no bucket: s3://BUCKET/PREFIX")
        if not _BUCKET.fullmatch(bucket):
            raise TableUnsupported(f"{location!r}: no bucket has the name {bucket!r}")
        if "?" in rest or "#" in rest:
            raise TableUnsupported(f"{location!r}: what is behind ? or # would not be in the prefix; leave them out")
    if scheme == "file" and not rest.startswith("/"):
        raise TableUnsupported(f"{location!r} names a host; a path of this machine is file:///PATH")


def sync(path: str | os.PathLike[str]) -> None:
    """Sync a file's content, or the names in a directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class TableLocation:
    """The files below a location, by their relative paths."""

    def __init__(self, storage: Storage) -> None:
        """Raises TableUnsupported, and OptionInvalid for invalid storage options."""
        check_location(storage.location)
        self.options = dict(storage.options)
        scheme, _, rest = storage.location.rpartition("://")
        self.is_local = scheme.lower() not in _S3_SCHEMES
        if self.is_local:
            path = unquote(rest) if scheme else rest
            self._base = os.path.abspath(path)
            self.uri = self._base
            self._files: fs.FileSystem = fs.LocalFileSystem()
        else:
            self._base = rest.rstrip("/")
            self.uri = f"s3://{self._base}"
            self._files = s3_files(self.options)

    def uri_of(self, path: str) -> str:
        """The URI of a file."""
        return f"{self.uri}/{path}"

    def relative(self, uri: str) -> str:
        """The path of a file from its URI."""
        plain = uri.removeprefix("file://")
        return plain.removeprefix(f"{self.uri}/")

    def create(self, path: str) -> pa.NativeFile:
        """A new file for writing."""
        full = f"{self._base}/{path}"
        if self.is_local:
            os.makedirs(os.path.dirname(full), exist_ok=True)
        return self._files.open_output_stream(full)

    def make_parent(self) -> None:
        """Create the parent directory of the location; nothing on S3."""
        if not self.is_local:
            return
        parent = os.path.dirname(self._base)
        try:
            os.makedirs(parent, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", parent) from error

    def require_parent(self) -> None:
        """Raise OSError if no directory can be created at the location, because of its existing parents."""
        if not self.is_local:
            return
        there = next(one for one in (self._base, *map(str, PurePosixPath(self._base).parents)) if os.path.lexists(one))
        if not os.path.isdir(there):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", there)
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "permission denied", there)

    def enclosing_table(self) -> str | None:
        """The location of a table in a parent directory, which would own all files below; None without one."""
        for parent in PurePosixPath(self._base).parents:
            with suppress(OSError):  # on S3, parents may be inaccessible to this user
                if self._has_table(str(parent).rstrip("/")):
                    return str(parent) if self.is_local else f"s3://{parent}"
        return None

    def _has_table(self, base: str) -> bool:
        return bool(self._in(f"{base}/_delta_log")) or any(
            info.path.endswith(".metadata.json") for info in self._in(f"{base}/metadata")
        )

    def _in(self, base: str) -> list[fs.FileInfo]:
        return self._files.get_file_info(fs.FileSelector(base, allow_not_found=True, recursive=False))

    def open(self, path: str) -> pa.NativeFile:
        """A file for reading."""
        return self._files.open_input_file(f"{self._base}/{path}")

    def sync(self, path: str) -> None:
        """Sync a written file, and its name. S3 does so by itself."""
        if not self.is_local:
            return
        full = f"{self._base}/{path}"
        for name in (full, os.path.dirname(full)):
            sync(name)

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is not an error."""
        try:
            self._files.delete_file(f"{self._base}/{path}")
        except FileNotFoundError:
            return

    def list(self, below: str = "") -> Iterator[StoredFile]:
        """All files, or those below a directory; none if it does not exist."""
        selector = fs.FileSelector(f"{self._base}/{below}".rstrip("/"), allow_not_found=True, recursive=True)
        for info in self._files.get_file_info(selector):
            if info.type == fs.FileType.File:
                path = info.path.removeprefix(f"{self._base}/")
                yield StoredFile(path, info.size or 0, (info.mtime_ns or 0) // 1_000_000)
