"""The ports ViewStore and StateStore on RocksDB. The only module that imports the binding."""

import os
import shutil
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from rocksdict import (
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

from duramen.base.errors import StorageFailed

__all__ = ["RocksStateStore", "RocksViewStore"]

_KIB = 1024
_MIB = 1024 * 1024
_FILTER_BITS = 10
_GETS_AT_ONCE = 500
_UNFINISHED = ".unfinished"
_NO_WAL = "disable_wal"  # an attribute, although the binding's stub has a method


def _opened(path: str, cache_bytes: int) -> Rdict:
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
    # Without its own options here, the column family of an existing database takes those it was made with.
    return Rdict(path, options, column_families={"default": options})


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

    def __init__(self, path: str, cache_bytes: int = 8 * _MIB) -> None:
        """Open or make it, with a block cache of `cache_bytes`.

        Raises StorageFailed where the directory is damaged; then remove it.
        """
        self._path = path
        self._cache_bytes = cache_bytes
        self._closings = 0
        self._cursors: weakref.WeakSet[_Cursor] = weakref.WeakSet()
        self._write_options = WriteOptions()
        setattr(self._write_options, _NO_WAL, True)
        try:
            self._db = _opened(path, cache_bytes)
        except Exception as error:
            raise self._damaged(error) from error

    @staticmethod
    def destroy(path: str) -> None:
        """Remove a view that cannot be opened."""
        shutil.rmtree(path, ignore_errors=True)

    def _damaged(self, error: Exception) -> StorageFailed:
        # The binding raises Exception itself.
        return StorageFailed(f"the view in {self._path} is damaged: {error}")

    def get(self, key: bytes) -> bytes | None:
        try:
            value = self._db.get(key)
        except Exception as error:
            raise self._damaged(error) from error
        return value if isinstance(value, bytes) else None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        try:
            # The binding keeps all other threads waiting while it makes its list.
            for at in range(0, len(keys), _GETS_AT_ONCE):
                found += cast("list[bytes | None]", self._db.get([*keys[at : at + _GETS_AT_ONCE]]))
        except Exception as error:
            raise self._damaged(error) from error
        return found

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        # Without the bound RocksDB walks the tombstones behind `end` up to the next row that is there.
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        return self._read(self._cursor(first, options))

    def ceilings(self, keys: Sequence[bytes], end: bytes) -> list[tuple[bytes, bytes] | None]:
        # One iterator for all of them: making it takes longer than a seek.
        if not keys:
            return []
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        rows, found = self._db.iter(options), list[tuple[bytes, bytes] | None]()
        for key in keys:
            rows.seek(key)
            found.append((bytes(rows.key()), bytes(rows.value())) if rows.valid() else None)
        try:
            rows.status()
        except Exception as error:
            raise self._damaged(error) from error
        finally:
            del rows  # a traceback would keep it, and with it the files
        return found

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
            raise StorageFailed(f"the view in {self._path} was closed or cleared during a scan")
        try:
            cursor.rows.status()  # an iterator ends at a damaged block as at the last row
        except Exception as error:
            raise self._damaged(error) from error
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
        self._db.write(batch, self._write_options)

    def flush(self) -> None:
        self._db.flush(wait=True)

    def clear(self) -> None:
        self._close()
        shutil.rmtree(self._path)
        self._db = _opened(self._path, self._cache_bytes)

    def close(self) -> None:
        self._db.flush(wait=True)
        self._close()

    def _close(self) -> None:
        self._closings += 1
        for cursor in list(self._cursors):
            cursor.rows = None
        self._db.close()


class RocksStateStore(RocksViewStore):
    """A view with checkpoints beside it: directories of hard links to its files, which RocksDB never changes."""

    def __init__(self, path: str, cache_bytes: int = 8 * _MIB) -> None:
        super().__init__(path, cache_bytes)
        self._beside = f"{path}.checkpoints"
        os.makedirs(self._beside, exist_ok=True)

    def _checkpoint(self, name: str) -> str:
        return os.path.join(self._beside, name)

    def make_checkpoint(self, name: str) -> None:
        self.flush()
        made = self._checkpoint(name) + _UNFINISHED
        shutil.rmtree(made, ignore_errors=True)
        Checkpoint(self._db).create_checkpoint(made)
        os.rename(made, self._checkpoint(name))
        _sync_directory(self._beside)

    def checkpoints(self) -> list[str]:
        return sorted(name for name in os.listdir(self._beside) if not name.endswith(_UNFINISHED))

    def open_checkpoint(self, name: str) -> RocksViewStore:
        path = self._checkpoint(name)
        if not os.path.isdir(path):
            raise StorageFailed(f"there is no checkpoint {path}")
        return RocksViewStore(path, self._cache_bytes)

    def remove_checkpoint(self, name: str) -> None:
        shutil.rmtree(self._checkpoint(name), ignore_errors=True)

    def restore(self, name: str) -> None:
        self.open_checkpoint(name).close()
        restored = self._path + _UNFINISHED
        shutil.rmtree(restored, ignore_errors=True)
        shutil.copytree(self._checkpoint(name), restored, copy_function=_link)
        self._close()
        shutil.rmtree(self._path)
        os.rename(restored, self._path)
        _sync_directory(os.path.dirname(self._path))
        self._db = _opened(self._path, self._cache_bytes)


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
