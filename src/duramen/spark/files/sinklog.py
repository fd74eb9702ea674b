"""The log in which Spark's file sink records the files that a streaming query has committed.

`_spark_metadata/N` lists the files of micro-batch N: a line `v1`, and a line of JSON per file. Every tenth one is
`N.compact` and also lists those of all earlier ones. (Spark's `FileStreamSinkLog`; a reader that finds the directory
reads the listed files and no others.) Beside it `duramen.json`, which Spark ignores, names the owner of the log.
"""

import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from duramen.base.errors import TableConflict, TableForeign
from duramen.spark.files.directory import SINK_LOG
from duramen.spark.tables.storage import storage_errors, sync

__all__ = ["NOTHING_YET", "SinkLog"]

NOTHING_YET: Final = -1
"""The number of the last micro-batch in an empty log."""

_VERSION: Final = b"v1"
_COMPACT: Final = ".compact"
_EVERY: Final = 10  # the default of spark.sql.streaming.fileSink.log.compactInterval
_BLOCK_BYTES: Final = 32 << 20  # Hadoop's value for a local disk
_OWNER: Final = "duramen.json"


class _Owner(msgspec.Struct, frozen=True):
    query: str


class SinkLog:
    """The log of one directory. Its methods raise TableStorageFailed."""

    def __init__(self, directory: Path) -> None:
        self._where = str(directory)
        self._log = directory / SINK_LOG

    def owner(self) -> str | None:
        """The id of the query that created it; None if it does not exist. Raises TableForeign for one of Spark's."""
        with storage_errors(self._where):
            try:
                said = (self._log / _OWNER).read_bytes()
            except FileNotFoundError:
                if self._log.exists():
                    raise TableForeign(
                        f"{self._where} was written by Spark's own file sink; choose another directory"
                    ) from None
                return None
            return msgspec.json.decode(said, type=_Owner).query

    def begin(self, query: str) -> None:
        """Create the log for that query."""
        with storage_errors(self._where):
            made = self._log.parent / f".{uuid.uuid4().hex}"
            made.mkdir(parents=True)
            _write(made / _OWNER, msgspec.json.encode(_Owner(query)))
            sync(made)
            try:
                os.rename(made, self._log)  # atomically with the owner in it
            except OSError:
                (made / _OWNER).unlink()
                made.rmdir()
                raise
            sync(self._log.parent)

    def last(self) -> int:
        """The number of the last committed micro-batch."""
        with storage_errors(self._where):
            return max(self._names(), default=NOTHING_YET)

    def _names(self) -> dict[int, str]:
        """The entries by their numbers."""
        names = os.listdir(self._log) if self._log.is_dir() else []
        numbers = ((name.removesuffix(_COMPACT), name) for name in names)
        return {int(number): name for number, name in numbers if number.isascii() and number.isdigit()}

    def add(self, batch_id: int, files: Sequence[Path]) -> None:
        """Commit a micro-batch. Raises TableConflict if another writer was first."""
        with storage_errors(self._where):
            lines = [_line(file) for file in files]
            name, compacted = str(batch_id), (batch_id + 1) % _EVERY == 0
            if compacted:
                name, lines = name + _COMPACT, self._before(batch_id) + lines
            made = self._log / f".{uuid.uuid4().hex}"
            _write(made, b"\n".join([_VERSION, *lines]))
            try:
                os.link(made, self._log / name)
            except FileExistsError:
                raise TableConflict(
                    f"{self._where} has micro-batch {batch_id} of another run of this query: two write there at once"
                ) from None
            finally:
                made.unlink()
            sync(self._log)
            if compacted:
                for number, old in self._names().items():
                    if number < batch_id - _EVERY:
                        (self._log / old).unlink()

    def _before(self, batch_id: int) -> list[bytes]:
        """The lines of all files committed before a micro-batch whose entry is compacted."""
        names = self._names()
        since = max(0, batch_id - _EVERY)
        found: list[bytes] = []
        for number in range(since, batch_id):
            found += (self._log / names[number]).read_bytes().split(b"\n")[1:]
        return found


def _line(file: Path) -> bytes:
    stat = file.stat()
    return msgspec.json.encode(
        {
            "path": file.as_uri(), "size": stat.st_size, "isDir": False,
            "modificationTime": time.time_ns() // 1_000_000, "blockReplication": 1, "blockSize": _BLOCK_BYTES,
            "action": "add",
        }
    )  # fmt: skip


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
