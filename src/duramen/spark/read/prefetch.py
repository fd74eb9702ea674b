"""Small micro-batches are read during planning: their rows go to Spark with the plan, without a worker process.

A worker process for each task would cost more than the few records, so their rows are passed in the way that PySpark
has for its simple readers. Spark keeps them as a block, which its one task reads. If that block is lost, or the same
offsets are planned again after a restart, the records are read again, by offsets.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import datasource_internal
from pyspark.sql.datasource import DataSourceStreamReader

from duramen.base.errors import DuramenError

__all__ = ["HandingOver", "PieceReader", "Prefetching"]

_Simple: Final[type | None] = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)
"""An internal class of Spark's runner; in a version without it, tasks read everything."""

_MOST_RECORDS: Final = 2_000
_MOST_BYTES: Final = 1024 * 1024


class _Piece(Protocol):
    @property
    def records(self) -> int: ...


_Each = TypeVar("_Each", bound=_Piece)
_Each_contra = TypeVar("_Each_contra", bound=_Piece, contravariant=True)


class PieceReader(Protocol[_Each_contra]):
    """Reads a task's pieces; a piece has the maximum number of its records."""

    def read(self, piece: _Each_contra, /) -> Iterator[pa.RecordBatch]: ...


class Prefetching(Generic[_Each]):
    """Reads small micro-batches ahead. Lives on the driver as long as a query."""

    def __init__(self, reading: PieceReader[_Each], most_records: int | None = None) -> None:
        """`most_records` is the limit of one task."""
        self._reading = reading
        self._most_records = min(_MOST_RECORDS, most_records or _MOST_RECORDS)
        self._bytes_each = 0.0  # bytes per record in the last read

    def read(self, pieces: Sequence[_Each]) -> list[pa.RecordBatch] | None:
        """All records of these pieces, or None if a task should read them: they are many, or cannot be read."""
        there = sum(piece.records for piece in pieces)
        if _Simple is None or not 0 < there <= self._most_records or there * self._bytes_each > _MOST_BYTES:
            return None
        found: list[pa.RecordBatch] = []
        rows = size = 0
        try:
            for piece in pieces:
                for batch in self._reading.read(piece):
                    found.append(batch)
                    rows, size = rows + batch.num_rows, size + batch.nbytes
                    self._bytes_each = size / max(rows, 1)
                    if size > _MOST_BYTES:
                        return None
        except DuramenError:
            return None  # the task that reads them retries, and reports the error
        return found


class HandingOver(DataSourceStreamReader):
    """A reader that may pass rows with the single partition of its plan."""

    _handed: list[pa.RecordBatch] | None = None

    @property
    def __class__(self) -> type:
        # Spark's runner asks for rows only from this class. Otherwise a reader's own class can do more.
        return type(self) if self._handed is None or _Simple is None else _Simple

    @__class__.setter
    def __class__(self, other: type) -> None:
        raise TypeError(f"a reader stays what it is, and does not become {other}")

    def getCache(self, start: object, end: object) -> Iterator[pa.RecordBatch] | None:
        """Called by PySpark for its simple readers, right after `partitions`: the rows of that plan."""
        del start, end
        handed, self._handed = self._handed, None
        return None if handed is None else iter(handed)
