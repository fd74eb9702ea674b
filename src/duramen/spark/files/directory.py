"""A directory of Parquet files on a disk that driver and executors share: written by tasks, read by others.

Tasks write below `_temporary`, where no reader looks, and the driver moves the files of the winning attempts to their
place. As in Spark, names that begin with `_` or `.` are not data.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from duramen.base.errors import TableForeign, TableUnsupported
from duramen.spark.tables.port import Storage
from duramen.spark.tables.storage import TableLocation, storage_errors, sync
from duramen.spark.tables.written import WrittenFile

__all__ = ["SINK_LOG", "ParquetDirectory"]

SINK_LOG: Final = "_spark_metadata"
"""Where Spark's file sink, and ours, say which files a streaming query has committed."""

_TEMPORARY: Final = "_temporary"
_SUCCESS: Final = "_SUCCESS"


class ParquetDirectory:
    """The directory, and a place of its own below it for the files of one writing.

    Its methods raise TableStorageFailed.
    """

    def __init__(self, location: str) -> None:
        """Raises TableUnsupported for a location that is no local path."""
        scheme, _, rest = location.rpartition("://")
        if not location or scheme.lower() not in {"", "file"} or (scheme and not rest.startswith("/")):
            raise TableUnsupported(
                f"{location!r} is no path: Parquet files are put into a directory that driver and executors share;"
                " `duramen table enable` makes tables on S3"
            )
        self.path = Path(os.path.abspath(unquote(rest) if scheme else rest))
        self._run = self.path / _TEMPORARY / uuid.uuid4().hex

    @property
    def run(self) -> str:
        """Where the tasks are to write."""
        return str(self._run)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with storage_errors(str(self.path)):
            yield

    def exists(self) -> bool:
        """Whether there is something at the path."""
        return os.path.lexists(self.path)

    def check(self) -> None:
        """Have it be possible to write there. Raises TableForeign where it is a table's, or lies in one."""
        with self._errors():
            TableLocation(Storage(str(self.path))).require_parent()
            table = TableLocation(Storage(str(self.path / _TEMPORARY))).enclosing_table()
        if table is not None:
            raise TableForeign(f"{table} is a table, which says itself what its files are; choose another directory")

    def publish(self, files: Sequence[WrittenFile]) -> list[Path]:
        """Let readers find these files, and no other of this writing; they survive a loss of power."""
        found = []
        with self._errors():
            self.path.mkdir(parents=True, exist_ok=True)
            for file in files:
                to = self.path / Path(file.path).name
                os.rename(self._run / file.path, to)
                found.append(to)
            sync(self.path)
        return found

    def replace(self, files: Sequence[WrittenFile]) -> None:
        """The same in the place of all that was there."""
        with self._errors():
            old = [one for one in self.path.iterdir() if one.name != _TEMPORARY] if self.path.is_dir() else []
        self.publish(files)
        with self._errors():
            for one in old:
                shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()

    def succeed(self) -> None:
        """Say as Hadoop's committers do that a batch is whole."""
        with self._errors():
            (self.path / _SUCCESS).touch()

    def forget(self) -> None:
        """Remove what the tasks wrote and nobody has published."""
        shutil.rmtree(self._run, ignore_errors=True)
        try:
            self._run.parent.rmdir()
        except OSError:
            return  # another writing goes on, or nothing was written
