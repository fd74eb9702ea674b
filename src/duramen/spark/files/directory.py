"""A directory of Parquet files on a disk that driver and executors share: tasks write it, other programs read it.

Tasks write below `_temporary`, which no reader reads, and the driver moves the files of the winning attempts to their
place. As in Spark, names that start with `_` or `.` are not data.
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
"""The directory in which Spark's file sink, and ours, record a streaming query's committed files."""

_TEMPORARY: Final = "_temporary"
_SUCCESS: Final = "_SUCCESS"


class ParquetDirectory:
    """The directory, and a temporary one below it for the files of one write.

    Its methods raise TableStorageFailed.
    """

    def __init__(self, location: str) -> None:
        """Raises TableUnsupported for a location that is not a local path."""
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
        """The directory for the tasks' files."""
        return str(self._run)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with storage_errors(str(self.path)):
            yield

    def exists(self) -> bool:
        """Whether the path exists."""
        return os.path.lexists(self.path)

    def check(self) -> None:
        """Check that files may be written there. Raises TableForeign if it is a table's, or inside one."""
        with self._errors():
            TableLocation(Storage(str(self.path))).require_parent()
            table = TableLocation(Storage(str(self.path / _TEMPORARY))).enclosing_table()
        if table is not None:
            raise TableForeign(f"{table} is a table, which says itself what its files are; choose another directory")

    def publish(self, files: Sequence[WrittenFile]) -> list[Path]:
        """Make these files of the write, and no others, visible to readers; durable on return."""
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
        """Like `publish`, but in place of the previous files."""
        with self._errors():
            old = [one for one in self.path.iterdir() if one.name != _TEMPORARY] if self.path.is_dir() else []
        self.publish(files)
        with self._errors():
            for one in old:
                shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()

    def succeed(self) -> None:
        """Mark a batch as complete, like Hadoop's committers."""
        with self._errors():
            (self.path / _SUCCESS).touch()

    def forget(self) -> None:
        """Remove files that were not published."""
        shutil.rmtree(self._run, ignore_errors=True)
        try:
            self._run.parent.rmdir()
        except OSError:
            return  # another write is in progress, or nothing was written
