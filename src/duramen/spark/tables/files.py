"""Data files: rows of one stream partition, as Parquet of a bounded size. Runs in tasks."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from duramen.spark.tables.columns import HEADERS, OFFSET, VALUE
from duramen.spark.tables.parquet import ParquetFile
from duramen.spark.tables.partition_values import texts_of, usable
from duramen.spark.tables.port import DataFile
from duramen.spark.tables.reader import counted_at
from duramen.spark.tables.storage import TableLocation, storage_errors

__all__ = ["DataFileWriter", "FileLayout", "write_rows"]

_MOST_OPEN: Final = 64
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.-]+")
_PLAIN: Final = (VALUE, HEADERS, OFFSET)

Values = tuple[tuple[str, str | None], ...]


class FileLayout:
    """The form of data files: sizes, the table's partition columns, and whether files have these too."""

    def __init__(
        self, partition_by: Sequence[str] = (), *, keep_columns: bool = False, target_bytes: int = 128 << 20
    ) -> None:
        self.partition_by = tuple(partition_by)
        self.keep_columns = keep_columns
        self.target_bytes = target_bytes


class DataFileWriter:
    """Writes rows of `partition`, batch by batch; the files are durable, and nothing refers to them yet.

    One file is open for each combination of the table's partition values. As a context manager it removes its files on
    an error. Its methods raise TableStorageFailed.
    """

    def __init__(self, place: TableLocation, layout: FileLayout, partition: int) -> None:
        self._place = place
        self._layout = layout
        self._partition = partition
        self._open: dict[Values, _File] = {}
        self._done: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.abandon()

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch; its schema may have more columns than the previous one's."""
        with storage_errors(self._place.uri):
            for values, rows in _split(batch, self._layout):
                self._add(values, rows)
            while len(self._open) > _MOST_OPEN:
                self._end(next(iter(self._open)))

    def _add(self, values: Values, rows: pa.RecordBatch) -> None:
        if values in self._open and not self._open[values].schema.equals(rows.schema):
            self._end(values)
        if values not in self._open:
            folders = [f"{_safe(name)}={_safe(value)}" for name, value in values]
            path = "/".join([*folders, f"part-{self._partition:05d}-{uuid4().hex}.parquet"])
            self._open[values] = _File(self._place, path, self._partition, values, rows.schema)
        file = self._open[values]
        file.add(rows)
        if file.size_bytes >= self._layout.target_bytes:
            self._end(values)

    def _end(self, values: Values) -> None:
        self._done.append(self._open[values].close())
        del self._open[values]

    def finish(self) -> list[DataFile]:
        """The files, by their first offsets; nothing may be added afterwards."""
        with storage_errors(self._place.uri):
            for values in list(self._open):
                self._end(values)
        return sorted(self._done, key=lambda file: (file.first_offset, file.path))


def write_rows(
    place: TableLocation, layout: FileLayout, partition: int, batches: Iterable[pa.RecordBatch]
) -> list[DataFile]:
    """Write all `batches` with a `DataFileWriter`. Raises TableStorageFailed."""
    with DataFileWriter(place, layout, partition) as writer:
        for batch in batches:
            writer.add(batch)
        return writer.finish()


def _safe(value: str | None) -> str:
    # Only for people: the values are in the table's log.
    return "__null__" if value is None else _UNSAFE.sub("_", value)[:60]


def _split(batch: pa.RecordBatch, layout: FileLayout) -> Iterator[tuple[Values, pa.RecordBatch]]:
    if not layout.partition_by:
        if batch.num_rows:
            yield (), batch
        return
    codes = np.zeros(batch.num_rows, np.int64)
    texts: list[list[str | None]] = []
    for name in layout.partition_by:
        index = batch.schema.get_field_index(name)
        column = usable(batch.column(index), in_delta=not layout.keep_columns)
        batch = batch.set_column(index, batch.schema.field(index), column)
        encoded = column.dictionary_encode(null_encoding="encode")
        texts.append(texts_of(encoded.dictionary))
        codes = codes * len(texts[-1]) + encoded.indices.to_numpy()
    rest = batch if layout.keep_columns else batch.drop_columns(list(layout.partition_by))
    for code in np.unique(codes).tolist():
        values: list[tuple[str, str | None]] = []
        left = code
        for name, choices in zip(reversed(layout.partition_by), reversed(texts), strict=True):
            left, index = divmod(left, len(choices))
            values.insert(0, (name, choices[index]))
        yield tuple(values), rest.filter(pa.array(codes == code))


class _File:
    """One file, and its offsets."""

    def __init__(self, place: TableLocation, path: str, partition: int, values: Values, schema: pa.Schema) -> None:
        self._partition = partition
        self._values = values
        self.schema = schema
        self._file = ParquetFile(place, path, schema, plain=_PLAIN)
        self._rows = 0
        self._first = 0
        self._last = -1
        self._last_counted = -1

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        found = pc.min_max(rows.column(OFFSET)).as_py()
        self._first = min(self._first, found["min"]) if self._rows else found["min"]
        self._last = max(self._last, found["max"])
        self._last_counted = max(self._last_counted, pc.max(counted_at(rows)).as_py())
        self._rows += rows.num_rows
        self._file.add(rows)

    def close(self) -> DataFile:
        written = self._file.close()
        return DataFile(
            written.path, written.size_bytes, self._rows, self._partition, self._first, self._last,
            self._last_counted, self._values, written.statistics, self.schema.serialize().to_pybytes(),
            time.time_ns() // 1_000_000,
        )  # fmt: skip

    def abandon(self) -> None:
        self._file.abandon()
