"""The table port, for code that fills and reads tables of any format: Delta and Iceberg implement it.

The one promise: `commit` adds files and advances the end offsets of their partitions in one atomic step, and only from
their expected values. So each offset is in the table exactly once, despite kills and retries.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

__all__ = ["Cleaned", "DataFile", "Declaration", "LakeTable", "Statistics", "Storage", "TableSnapshot", "TableSpan"]


class Storage(NamedTuple):
    """Where a table is: a path or an s3:// URI, and how to get there.

    `options` are those of `catalogue_tables.STORAGE_OPTIONS`: where those of S3 are not given, both libraries look
    into the environment (AWS_…); `catalog.…` are properties of an Iceberg catalog.
    """

    location: str
    options: Mapping[str, str] = {}


class Declaration(NamedTuple):
    """A stream's table, as it was declared.

    `partition_by` are names of columns: of decoded ones, or `_date`, or `_stream_partition`. `decode` is none, json or
    avro. `schema`, where there is one, is an Avro schema in JSON, or a `saved` Arrow schema of what JSON has.
    `registry` is the URL of a schema registry for Avro. `made`: the table has been there.
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

    `path` is relative to the table's location. The offsets are those of its rows; `last_counted` is the last at which
    one of them counts. `values` are its values of the table's partition columns, as text.
    `statistics` is JSON as Delta has it. `schema` is serialised Arrow; empty where the table says it.
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
    """What a table has; `last_commit_ms` is when offsets were last committed, None before."""

    files: int
    rows: int
    size_bytes: int
    last_commit_ms: int | None


class TableSnapshot(NamedTuple):
    """A table at one moment, by partition.

    `begins` and `ends` are as the table has them. `rounds` are ends that it had before, oldest first, and the present
    ones: it was whole at each of them, no transaction in part. What a version wrote that did not know where records
    count goes by their own offsets: it lies below `floors`, which tables made since then do not have. `newest` is the
    last commit sequence in a table with one row for each key, of which rows may be gone; -1 where there is none.
    """

    begins: Mapping[int, int]
    ends: Mapping[int, int]
    floors: Mapping[int, int]
    rounds: Sequence[Mapping[int, int]]
    files: Sequence[DataFile]
    newest: int = -1


class Cleaned(NamedTuple):
    """What maintenance did: files that it read, wrote and removed from storage."""

    read: int = 0
    written: int = 0
    removed: int = 0


class LakeTable(Protocol):
    """A table that is ours. Its methods raise TableStorageFailed where the storage does not do its part."""

    declaration: Declaration

    @property
    def keeps_columns(self) -> bool:
        """Whether data files have the columns that the table is partitioned by."""
        ...

    def ends(self) -> Mapping[int, int]:
        """The end offset of each partition that has one: what lies below is in the table. Reads the newest state."""

    def state(self) -> TableSnapshot:
        """All of the newest state, its files by partition and offset."""
        ...

    def earlier(self, *, since_ms: int) -> Iterator[TableSnapshot]:
        """The states at ends that it had before, newest first, as far as they were the newest at `since_ms` or later.

        None where the format does not tell.
        """
        ...

    def schema(self) -> pa.Schema:
        """All columns as of the newest state."""

    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns that `schema` has and the table has not, and widen those that it has wider."""

    def commit(
        self, files: Sequence[DataFile], spans: Sequence[TableSpan], removed: Collection[str] = (), newest: int = -1
    ) -> None:
        """Add `files`, remove those with the paths `removed`, and move the ends along `spans`: one atomic step.

        All of `spans` together end where no transaction is in the table in part; `newest` is the last commit sequence
        of those that count there, which a table with one row for each key keeps.

        Raises TableConflict, and changes nothing, where a span does not begin at its partition's end (0 where there is
        none yet, or any offset: a stream's first record may be at any), or a removed file is gone: another writer won.
        """

    def scan(self, spans: Sequence[TableSpan] | None = None) -> list[DataFile]:
        """The files of the newest state, all or those with rows that count in `spans`, by partition and offset."""

    def statistics(self) -> Statistics:
        """Counted from the newest state."""

    def compact(self, *, target_bytes: int = 128 << 20) -> Cleaned:
        """Put small files together, up to about `target_bytes`. Rows and ends stay. A writer that commits wins."""

    def expire(self, *, older_than_ms: int) -> Cleaned:
        """Forget states of the table from before `older_than_ms` (since 1970); never the newest."""

    def vacuum(self, *, older_than_ms: int) -> Cleaned:
        """Remove files from storage that no remembered state has and that are older than `older_than_ms`.

        That may include files of a commit that is being made: choose a time before which no writer can have begun.
        """
