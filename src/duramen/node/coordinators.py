"""The rows of the coordinators on a node, stored under the data directory once there are any.

RocksDB is imported with the first rows: a node without them saves 8 MiB and a part of its start.
"""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duramen.base.errors import DuramenError

if TYPE_CHECKING:
    from duramen.host.rocksdb import RocksStateStore

__all__ = ["CoordinatorRows"]

_DIRECTORY: Final = "coordinators"
_ROWS: Final = "rows"


class CoordinatorRows:
    """One store for all kinds, which is opened for the first shard with rows."""

    def __init__(self, data_dir: Path, cache_bytes: int) -> None:
        """Blocks of rows, and their indexes, are cached in memory up to `cache_bytes`."""
        self._directory = data_dir / _DIRECTORY
        self._cache_bytes = cache_bytes
        self._rows: RocksStateStore | None = None

    def open(self) -> "RocksStateStore":
        """Blocking."""
        from duramen.host.rocksdb import RocksStateStore

        self._directory.mkdir(exist_ok=True)
        self._rows = RocksStateStore(str(self._directory / _ROWS), self._cache_bytes)
        return self._rows

    def close(self) -> None:
        """Close the store; nothing uses it any more. What cannot be written is applied again after the next start."""
        if self._rows is not None:
            with suppress(DuramenError):
                self._rows.close()
