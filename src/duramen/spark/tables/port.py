"""The table port, for code that fills and reads tables of any format: Delta and Iceberg implement it.

The contract: `commit` adds files and advances the end offsets of their partitions in one atomic step, and only from
their expected values. So each offset is in the table exactly once, despite kills and retries.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

__all__ = ["Cleaned", "DataFile", "Declaration", "LakeTable", "Statistics", "Storage", "TableSnapshot", "TableSpan"]


class Storage(NamedTuple):
    """The location of a table: a path or an s3:// URI, and its options.

    `options` are those of `catalogue_tables.STORAGE_OPTIONS`: without those of S3, both libraries use the environment
    (AWS_…); `catalog.…` are properties of an Iceberg catalog.
    """

    location: str
    options: Mapping[str, str] = {}


class Declaration(NamedTuple):
    """The declaration of a stream's table.

    `partition_by` are names of columns: of decoded ones, or `_date`, or `_stream_partition`. `decode` is none, json or
    avro. `schema`, if given, is an Avro schema in JSON, or a `saved` Arrow schema of JSON's columns. `registry` is the
    URL of a schema registry for Avro. `made`: the table has existed.
    """

    format: str
    storage: Storage
    stream: str
    stream_id: str
    decode: str = "none"
    partition_by: tuple[str, ...] = ()
    upsert: bool = False
    schema: bytes = b""
    registry: str = ""
    made: bool = False


class TableSpan(NamedTuple):
    """Offsets `[begin, end)` of a partition: of the records that count there.

    A record counts at its own offset, or at that of the commit marker of its transaction.
    """

    partition: int
    begin: int
    end: int


class DataFile(NamedTuple):
    """A Parquet file with rows of one partition of the stream, in a table or ready for it.

    `path` is relative to the table's location. The offsets are those of its rows; `last_counted` is the last one at
    which one of them counts. `values` are its values of the table's partition columns, as text. `statistics` is JSON in
    Delta's notation. `schema` is serialised Arrow; empty if the table has it.
    """

    path: str
    size_bytes: int
    rows: int
    partition: int
    first_offset: int
    last_offset: int
    last_counted: int
    values: tuple[tuple[str, str | None], ...] = ()
    statistics: str = ""
    schema: bytes = b""
    modified_ms: int = 0


class Statistics(NamedTuple):
    """The content of a table; `last_commit_ms` is when offsets were last committed, None before."""

    files: int
    rows: int
    size_bytes: int
    last_commit_ms: int | None


class TableSnapshot(NamedTuple):
    """A table at one moment, by partition.

    `begins` and `ends` are the table's bounds. `rounds` are earlier ends, oldest first, and the present ones: at each
    of them the table had only whole transactions. Rows of a version that did not know where records count use their own
    offsets: they are below `floors`, which newer tables do not have. `newest` is the last commit sequence in a table
    with one row per key, in which rows may be gone; -1 without one.
    """

    begins: Mapping[int, int]
    ends: Mapping[int, int]
    floors: Mapping[int, int]
    rounds: Sequence[Mapping[int, int]]
    files: Sequence[DataFile]
    newest: int = -1


class Cleaned(NamedTuple):
    """The result of maintenance: files that it read, wrote and removed from storage."""

    read: int = 0
    written: int = 0
    removed: int = 0


class LakeTable(Protocol):
    """A table of ours. Its methods raise TableStorageFailed on storage errors."""

    declaration: Declaration

    @property
    def keeps_columns(self) -> bool:
        """Whether data files have the table's partition columns."""
        ...

    def ends(self) -> Mapping[int, int]:
        """The end offset of each partition that has one: records below it are in the table. Reads the newest state."""

    def state(self) -> TableSnapshot:
        """The newest state, with files by partition and offset."""
        ...

    def earlier(self, *, since_ms: int) -> Iterator[TableSnapshot]:
        """The states at earlier ends, newest first, as far as they were the newest at `since_ms` or later.

        Empty if the format cannot tell.
        """
        ...

    def schema(self) -> pa.Schema:
        """All columns of the newest state."""

    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns that only `schema` has, and widen those that are wider in it."""

    def commit(
        self, files: Sequence[DataFile], spans: Sequence[TableSpan], removed: Collection[str] = (), newest: int = -1
    ) -> None:
        """Add `files`, remove those with the paths `removed`, and move the ends along `spans`: one atomic step.

        At the end of all `spans` the table has only whole transactions; `newest` is the last commit sequence of those
        that count there, which a table with one row per key stores.

        Raises TableConflict, without a change, if a span does not start at its partition's end (without an end any
        offset is allowed: a stream's first record may have any), or a removed file is gone: another writer won.
        """

    def scan(self, spans: Sequence[TableSpan] | None = None) -> list[DataFile]:
        """The files of the newest state, all or those with rows that count in `spans`, by partition and offset."""

    def statistics(self) -> Statistics:
        """Counted from the newest state."""

    def compact(self, *, target_bytes: int = 128 << 20) -> Cleaned:
        """Join small files, up to about `target_bytes`. Rows and ends stay. A concurrent commit wins."""

    def expire(self, *, older_than_ms: int) -> Cleaned:
        """Forget states of the table from before `older_than_ms` (since 1970); never the newest."""

    def vacuum(self, *, older_than_ms: int) -> Cleaned:
        """Remove files from storage that no remembered state has and that are older than `older_than_ms`.

        They may belong to a commit in progress: choose a time before the start of every active writer.
        """
