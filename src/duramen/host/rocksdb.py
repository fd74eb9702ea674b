"""The ports ViewStore and StateStore on RocksDB. The only module that imports the binding."""

import contextlib
import os
import shutil
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from duramen.base.errors import DuramenError, StateDamaged, StorageFailed

__all__ = ["RocksStateStore", "RocksViewStore"]

_KIB = 1024
_MIB = 1024 * 1024
_FILTER_BITS = 10
_GETS_AT_ONCE = 500
_CHECKPOINT_CACHE_BYTES = 2 * _MIB
_WRITTEN_AT_ONCE_BYTES = _MIB
_UNFINISHED = ".unfinished"
_READY = ".ready"
_NEWEST_KEPT = 2
_NO_WAL = "disable_wal"  # an attribute, although the binding's stub has a method


def _opened(path: str, cache_bytes: int, *, read_only: bool = False) -> Rdict:
    # Small: a node keeps one or a few of these beside everything else, within its memory limit.
    table = BlockBasedOptions()
    table.set_block_cache(Cache(cache_bytes))
    table.set_block_size(4 * _KIB)
    # Filters and indexes are in the cache too, a part at a time, so that they grow within the limit.
    table.set_bloom_filter(_FILTER_BITS, block_based=False)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(4 * _KIB)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_top_level_index_and_filter(True)
    table.set_format_version(5)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.create_if_missing(True)
    options.set_write_buffer_size(4 * _MIB)
    options.set_max_write_buffer_number(2)
    options.set_max_open_files(128)
    options.set_max_background_jobs(1)
    options.set_keep_log_file_num(1)
    access = AccessType.read_write()
    if read_only:
        options.set_paranoid_checks(False)  # else one missing file keeps all others from being read
        access = AccessType.read_only()
    # Without its own options here, the column family of an existing database takes those it was made with.
    return Rdict(path, options, column_families={"default": options}, access_type=access)


def _error(path: str, error: Exception) -> DuramenError:
    """The binding raises Exception itself. A failed read or write of the system may go well the next time."""
    if isinstance(error, DuramenError):
        return error
    text = " ".join(str(error).split())
    if "No such file" in text or ("Corruption" in text and "IO error" not in text):
        return StateDamaged(f"the rows in {path} are damaged: {text}")
    return StorageFailed(f"the rows in {path} cannot be used: {text}")


class _Cursor:
    """Holds the iterator of a scan, so that the store can drop it: a living one keeps the closed database locked."""

    __slots__ = ("__weakref__", "_options", "rows")

    def __init__(self, rows: RdictIter, options: ReadOptions) -> None:
        """RocksDB reads the bound of a scan in `options`, of which the iterator keeps no reference."""
        self.rows: RdictIter | None = rows
        self._options = options


class RocksViewStore:
    """A view in a directory. RocksDB's own log is off: the log from which the view is derived is the truth.

    So a crash leaves the flushed state, which is always that after some batch.
    """

    def __init__(self, path: str, cache_bytes: int = 8 * _MIB, *, read_only: bool = False) -> None:
        """Open or make it, with a block cache of `cache_bytes`.

        Raises StateDamaged if the directory is damaged, StorageFailed if it cannot be opened now.
        """
        self._path = path
        self._cache_bytes = cache_bytes
        self._read_only = read_only
        self._closings = 0
        self._cursors: weakref.WeakSet[_Cursor] = weakref.WeakSet()
        self._write_options = WriteOptions()
        setattr(self._write_options, _NO_WAL, True)
        self._db = self._open()

    def _open(self) -> Rdict:
        try:
            return _opened(self._path, self._cache_bytes, read_only=self._read_only)
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> DuramenError:
        return _error(self._path, error)

    def get(self, key: bytes) -> bytes | None:
        try:
            value = self._db.get(key)
        except Exception as error:
            raise self._failed(error) from error
        return value if isinstance(value, bytes) else None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        try:
            # The binding keeps all other threads waiting while it makes its list.
            for at in range(0, len(keys), _GETS_AT_ONCE):
                found += cast("list[bytes | None]", self._db.get([*keys[at : at + _GETS_AT_ONCE]]))
        except Exception as error:
            raise self._failed(error) from error
        return found

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        # Without the bound RocksDB walks the tombstones behind `end` up to the next row that is there.
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        return self._read(self._cursor(first, options))

    def ceiling(self, key: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        rows = self._db.iter(options)
        try:
            rows.seek(key)
            if rows.valid():
                return bytes(rows.key()), bytes(rows.value())
            rows.status()  # an iterator ends at a damaged block as at the last row
        except Exception as error:
            raise self._failed(error) from error
        finally:
            del rows  # a traceback would keep it, and with it the files
        return None

    def ceilings(self, keys: Sequence[bytes], end: bytes) -> list[tuple[bytes, bytes] | None]:
        # One iterator for all of them: making it takes longer than a seek. In order, because one row is often found for
        # many keys, which then takes one seek.
        if not keys:
            return []
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        rows, found = self._db.iter(options), dict[bytes, tuple[bytes, bytes] | None]()
        row: tuple[bytes, bytes] | None = None
        try:
            for key in sorted(set(keys)):
                if not found or (row is not None and row[0] < key):
                    rows.seek(key)
                    if rows.valid():
                        row = bytes(rows.key()), bytes(rows.value())
                    else:
                        rows.status()  # the next seek forgets it
                        row = None
                found[key] = row
        except Exception as error:
            raise self._failed(error) from error
        finally:
            del rows  # a traceback would keep it, and with it the files
        return [found[key] for key in keys]

    def _cursor(self, first: bytes, options: ReadOptions) -> _Cursor:
        rows = self._db.iter(options)
        rows.seek(first)
        cursor = _Cursor(rows, options)
        self._cursors.add(cursor)
        return cursor

    def _read(self, cursor: _Cursor) -> Iterator[tuple[bytes, bytes]]:
        # No frame keeps the iterator itself: a suspended generator or a traceback would keep it alive.
        while cursor.rows is not None and cursor.rows.valid():
            yield bytes(cursor.rows.key()), bytes(cursor.rows.value())
            if cursor.rows is not None:
                cursor.rows.next()
        if cursor.rows is None:
            raise StorageFailed(f"the rows in {self._path} were closed or replaced during a scan")
        try:
            cursor.rows.status()  # an iterator ends at a damaged block as at the last row
        except Exception as error:
            raise self._failed(error) from error
        finally:
            cursor.rows = None

    def version(self) -> object:
        return self._closings, self._db.latest_sequence_number()

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in puts:
            batch[key] = value
        for key in deletes:
            del batch[key]
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        try:
            self._db.flush(wait=True)
        except Exception as error:
            raise self._failed(error) from error

    def close(self) -> None:
        try:
            if not self._read_only:
                self.flush()
        finally:
            self._close()

    def _close(self) -> None:
        self._closings += 1
        for cursor in list(self._cursors):
            cursor.rows = None
        try:
            self._db.close()
        except Exception as error:
            raise self._failed(error) from error


class RocksStateStore(RocksViewStore):
    """A view with checkpoints beside it: directories of hard links to its files, which RocksDB never changes.

    What is set aside is moved to a directory beside it.
    """

    def __init__(self, path: str, cache_bytes: int = 8 * _MIB) -> None:
        self.problem = ""
        self._beside = f"{path}.checkpoints"
        self._aside = f"{path}.damaged"
        os.makedirs(self._beside, exist_ok=True)
        ready = path + _READY
        if os.path.isdir(path):
            shutil.rmtree(ready, ignore_errors=True)
        elif os.path.isdir(ready):
            os.rename(ready, path)
        super().__init__(path, cache_bytes)

    def _open(self) -> Rdict:
        self.problem, self._read_only = "", False
        try:
            return super()._open()
        except StateDamaged as error:
            self.problem, self._read_only = str(error), True
        try:
            return super()._open()
        except StateDamaged:
            self._read_only = False
            self.problem = f"{self.problem}; they were moved to {self._move(self._path, 'rows')}"
            return super()._open()

    def _checkpoint(self, name: str) -> str:
        return os.path.join(self._beside, name)

    def make_checkpoint(self, name: str) -> None:
        self.flush()
        made = self._checkpoint(name) + _UNFINISHED
        shutil.rmtree(made, ignore_errors=True)
        try:
            Checkpoint(self._db).create_checkpoint(made)
        except Exception as error:
            raise self._failed(error) from error
        os.rename(made, self._checkpoint(name))
        _sync_directory(self._beside)

    def checkpoints(self) -> list[str]:
        return sorted(name for name in os.listdir(self._beside) if not name.endswith(_UNFINISHED))

    def open_checkpoint(self, name: str) -> RocksViewStore:
        path = self._checkpoint(name)
        if not os.path.isdir(path):
            raise StateDamaged(f"there is no checkpoint {path}")
        return RocksViewStore(path, min(self._cache_bytes, _CHECKPOINT_CACHE_BYTES), read_only=True)

    def remove_checkpoint(self, name: str) -> None:
        shutil.rmtree(self._checkpoint(name), ignore_errors=True)

    def set_aside(self, name: str) -> str:
        path = self._checkpoint(name)
        return self._move(path, f"checkpoint-{name}") if os.path.isdir(path) else ""

    def reopen(self) -> None:
        self._drop()
        self._db = self._open()

    def _drop(self) -> None:
        """Close it, although it may be closed, or what is in memory cannot be written."""
        with contextlib.suppress(DuramenError):
            self._close()

    def restore(self, name: str) -> str:
        self.open_checkpoint(name).close()
        made = self._path + _UNFINISHED
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(self._checkpoint(name), made, copy_function=_link)
        return self._use(made)

    def replace(self, rows: Iterable[tuple[bytes, bytes]]) -> str:
        made = self._path + _UNFINISHED
        shutil.rmtree(made, ignore_errors=True)
        store = RocksViewStore(made, _CHECKPOINT_CACHE_BYTES)
        some, size = list[tuple[bytes, bytes]](), 0
        try:
            for key, value in rows:
                some.append((key, value))
                size += len(key) + len(value)
                if size >= _WRITTEN_AT_ONCE_BYTES:
                    store.write(some, ())
                    some, size = [], 0
            store.write(some, ())
        finally:
            store.close()
        return self._use(made)

    def _use(self, made: str) -> str:
        """Put a directory in the place of the rows. A start after a crash finds the one or the other."""
        ready = self._path + _READY
        shutil.rmtree(ready, ignore_errors=True)
        _sync_directory(made)
        os.rename(made, ready)
        self._drop()
        where = self._move(self._path, "rows")
        os.rename(ready, self._path)
        _sync_directory(os.path.dirname(self._path))
        self._db = self._open()
        return where

    def _move(self, path: str, label: str) -> str:
        """Set a directory aside: of all that were, the first one and the newest ones are kept."""
        os.makedirs(self._aside, exist_ok=True)
        names = sorted(name for name in os.listdir(self._aside) if name[:6].isdigit())
        number = 1 + max((int(name[:6]) for name in names), default=0)
        where = os.path.join(self._aside, f"{number:06d}-{label}")
        os.rename(path, where)
        _sync_directory(self._aside)
        for name in names[1 : 1 - _NEWEST_KEPT]:
            shutil.rmtree(os.path.join(self._aside, name), ignore_errors=True)
        return where


def _link(source: str, target: str) -> str:
    """Tables are never changed, and so are shared; the other files are small."""
    if source.endswith(".sst"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)
    return target


def _sync_directory(path: str) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
