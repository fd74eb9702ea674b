from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Self

from pyarrow import NativeFile, RecordBatch, Schema, Table

class Statistics:
    has_min_max: bool
    has_null_count: bool
    null_count: int
    num_values: int
    min: Any
    max: Any
    min_raw: Any
    max_raw: Any

class ColumnChunkMetaData:
    path_in_schema: str
    num_values: int
    data_page_offset: int
    dictionary_page_offset: int | None
    has_dictionary_page: bool
    compression: str
    total_compressed_size: int
    total_uncompressed_size: int
    statistics: Statistics | None

class ColumnSchema:
    path: str
    physical_type: str
    max_repetition_level: int

class ParquetSchema:
    def to_arrow_schema(self) -> Schema: ...
    def column(self, index: int) -> ColumnSchema: ...

class RowGroupMetaData:
    num_columns: int
    def column(self, index: int) -> ColumnChunkMetaData: ...

class FileMetaData:
    num_rows: int
    num_columns: int
    num_row_groups: int
    schema: ParquetSchema
    def row_group(self, index: int) -> RowGroupMetaData: ...

class ParquetFile:
    schema_arrow: Schema
    metadata: FileMetaData
    def __init__(self, source: NativeFile | IO[bytes] | str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def iter_batches(self, *, columns: Sequence[str] | None = None) -> Iterator[RecordBatch]: ...

class ParquetWriter:
    def __init__(
        self,
        where: NativeFile,
        schema: Schema,
        *,
        compression: str | Mapping[str, str],
        compression_level: int | Mapping[str, int],
        use_dictionary: Sequence[str],
        write_statistics: bool | Sequence[str] = ...,
        metadata_collector: list[FileMetaData],
        store_schema: bool,
    ) -> None: ...
    def write_table(self, table: Table) -> None: ...
    def close(self) -> None: ...

def write_table(table: Table, where: str | IO[bytes], *, compression: str = ...) -> None: ...
def read_metadata(where: object) -> FileMetaData: ...
def read_table(source: str) -> Table: ...
