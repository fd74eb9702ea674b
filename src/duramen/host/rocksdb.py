"""The ViewStore port on RocksDB. The only module that knows the binding."""

import shutil
from collections.abc import Iterable, Iterator

from rocksdict import Options, Rdict, RdictIter, WriteBatch, WriteOptions

from duramen.base.errors import StorageFailed

__all__ = ["RocksViewStore"]

_MIB = 1024 * 1024
_NO_WAL = "disable_wal"  # an attribute, although the binding's stub says that it is a method


def _options() -> Options:
    # Small: a node keeps one or a few of these beside everything else, within its memory limit.
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(4 * _MIB)
    options.set_max_write_buffer_number(2)
    options.set_max_open_files(128)
    options.set_max_background_jobs(1)
    options.set_keep_log_file_num(1)
    return options


class RocksViewStore:
    """A view in a directory. RocksDB's own log is off: the log that the view is derived from is the truth.

    So a crash leaves what was flushed, which is always the state after some batch.
    """

    def __init__(self, path: str) -> None:
        """Open or make it. Raises StorageFailed where the directory is damaged; then remove it."""
        self._path = path
        self._write_options = WriteOptions()
        setattr(self._write_options, _NO_WAL, True)
        try:
            self._db = Rdict(path, _options())
        except Exception as error:
            raise self._damaged(error) from error

    @staticmethod
    def destroy(path: str) -> None:
        """Remove a view that cannot be opened."""
        shutil.rmtree(path, ignore_errors=True)

    def problem(self) -> str:
        """What is damaged in it, all of it read; empty where nothing is. Not every damage shows when it is opened."""
        rows = self._db.iter()
        rows.seek_to_first()
        while rows.valid():
            rows.next()
        try:
            self._check(rows)
        except StorageFailed as error:
            return str(error)
        return ""

    def _check(self, rows: RdictIter) -> None:
        # An iterator ends at a damaged block as at the last row.
        try:
            rows.status()
        except Exception as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> StorageFailed:
        # The binding raises Exception itself.
        return StorageFailed(f"the view in {self._path} is damaged: {error}")

    def get(self, key: bytes) -> bytes | None:
        try:
            value = self._db.get(key)
        except Exception as error:
            raise self._damaged(error) from error
        return value if isinstance(value, bytes) else None

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        rows = self._db.iter()
        rows.seek(first)
        while rows.valid():
            key, value = rows.key(), rows.value()
            if not isinstance(key, bytes) or key >= end:
                return
            yield key, bytes(value)
            rows.next()
        self._check(rows)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in puts:
            batch[key] = value
        for key in deletes:
            del batch[key]
        self._db.write(batch, self._write_options)

    def flush(self) -> None:
        self._db.flush(wait=True)

    def clear(self) -> None:
        self._db.close()
        shutil.rmtree(self._path)
        self._db = Rdict(self._path, _options())

    def close(self) -> None:
        self._db.flush(wait=True)
        self._db.close()
