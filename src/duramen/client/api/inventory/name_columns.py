"""Names of topics from Arrow data, and from Arrow and Parquet files; pyarrow is imported on demand."""

from collections.abc import Iterator
from typing import IO, Any, Final, NamedTuple, Protocol, TypeAlias

from duramen.base.errors import DependencyMissing, DuramenError, InputInvalid, RequestInvalid
from duramen.client.api.arguments import refused
from duramen.codec.bulk_names import ROWS_AT_ONCE, names_of_column, place_of_names

__all__ = ["FILE_SUFFIXES", "ArrowColumns", "ArrowFile", "arrow_file", "has_columns", "names_in_columns"]

FILE_SUFFIXES: Final = (".arrow", ".arrows", ".feather", ".ipc", ".parquet")
_PARQUET: Final = ".parquet"
_ARROW_FILE: Final = b"ARROW1"


class ArrowStream(Protocol):
    """Arrow data as a stream: https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class ArrowArray(Protocol):
    """Arrow data as an array, or as one record batch."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object: ...


ArrowColumns: TypeAlias = ArrowStream | ArrowArray


class ArrowFile(NamedTuple):
    """A file's record batches, as a pyarrow reader, and the number of rows; None if that is unknown."""

    reader: Any
    rows: int | None


def has_columns(names: object) -> bool:
    """Whether names are Arrow data, such as a table or an array of pyarrow."""
    return hasattr(names, "__arrow_c_stream__") or hasattr(names, "__arrow_c_array__")


def _need_pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise DependencyMissing("names in Arrow data need pyarrow: pip install 'duramen[spark]'") from None
    return pa


def names_in_columns(names: Any, failed: dict[str, DuramenError]) -> Iterator[str]:
    """The names in Arrow data: a table, batches, or an array. Rows without a name are added to `failed`.

    They are in the column `name`. Raises DependencyMissing, RequestInvalid.
    """
    before = 0
    for column in _columns(_need_pyarrow(), names):
        for at in range(0, len(column), ROWS_AT_ONCE):
            try:
                rows = names_of_column(column.slice(at, ROWS_AT_ONCE), before)
            except UnicodeDecodeError as error:
                raise RequestInvalid(f"a name after row {before} is not UTF-8: {error.reason}") from None
            before += rows.rows
            failed |= {f"row {row}": InputInvalid(why) for row, why in rows.problems}
            yield from rows.found


def _columns(pa: Any, names: Any) -> Iterator[Any]:
    try:
        if isinstance(names, pa.Array | pa.ChunkedArray):
            names = pa.table({"name": names})
        elif not isinstance(names, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
            names = _table(pa, names)
        place = place_of_names(names.schema)
        batches = names if isinstance(names, pa.RecordBatchReader) else pa.table(names).to_batches()
        for batch in batches:
            yield batch.column(place)
    except (pa.ArrowException, TypeError, ValueError, InputInvalid) as error:
        why = " ".join(str(error)[:200].splitlines())
        raise refused("names", names, f"str, or Arrow data with the column `name` ({why})") from None


def _table(pa: Any, names: Any) -> Any:
    """A data frame, or a column of one."""
    try:
        return pa.table(names)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.table({"name": pa.chunked_array(names)})


def arrow_file(file: IO[bytes], suffix: str) -> ArrowFile:
    """The content of an Arrow or Parquet file. Raises DependencyMissing, InputInvalid."""
    pa = _need_pyarrow()
    try:
        if suffix == _PARQUET:
            import pyarrow.parquet as pq

            content = pq.ParquetFile(file)
            schema, rows = content.schema_arrow, content.metadata.num_rows
            batches: Iterator[Any] = content.iter_batches(columns=[schema.names[place_of_names(schema)]])
            schema = pa.schema([schema.field(place_of_names(schema))])
        elif file.read(len(_ARROW_FILE)) == _ARROW_FILE:
            content = pa.ipc.open_file(file)
            schema, rows = content.schema, None
            batches = (content.get_batch(at) for at in range(content.num_record_batches))
        else:
            file.seek(0)
            content = pa.ipc.open_stream(file)
            schema, rows, batches = content.schema, None, iter(content)
        place_of_names(schema)
        return ArrowFile(pa.RecordBatchReader.from_batches(schema, batches), rows)
    except (pa.ArrowException, OSError) as error:
        raise InputInvalid(f"{getattr(file, 'name', 'the file')} cannot be read: {str(error)[:200]}") from None
