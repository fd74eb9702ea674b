"""The rows of the coordinators on a node, stored under the data directory once there are any.

RocksDB is imported with the first rows: a node without them saves 8 MiB and a part of its start.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duramen.base.errors import StorageFailed

if TYPE_CHECKING:
    from duramen.host.rocksdb import RocksStateStore

__all__ = ["CoordinatorRows"]

_DIRECTORY: Final = "coordinators"
_ROWS: Final = "rows"


class CoordinatorRows:
    """One store for all kinds, which is opened for the first shard with rows."""

    def __init__(self, data_dir: Path, report: Callable[[str], None], cache_bytes: int) -> None:
        """Blocks of rows, and their indexes, are cached in memory up to `cache_bytes`."""
        self._directory = data_dir / _DIRECTORY
        self._report = report
        self._cache_bytes = cache_bytes
        self._rows: RocksStateStore | None = None

    def open(self) -> "RocksStateStore":
        """Blocking: rows that cannot be opened are removed, and restored from a checkpoint or their logs."""
        from duramen.host.rocksdb import RocksStateStore

        self._directory.mkdir(exist_ok=True)
        path = str(self._directory / _ROWS)
        try:
            self._rows = RocksStateStore(path, self._cache_bytes)
        except StorageFailed as error:
            self._report(f"{error}; its rows come from a checkpoint or from their logs")
            RocksStateStore.destroy(path)
            self._rows = RocksStateStore(path, self._cache_bytes)
        return self._rows

    def close(self) -> None:
        """Close the store; nothing uses it any more."""
        if self._rows is not None:
            self._rows.close()
