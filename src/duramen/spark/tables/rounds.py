"""A round of a table's job: tasks write spans of the log to files, and the driver commits.

The order of a commit makes it repeatable after any interruption: first the columns, so that bad records are bad again;
then the dead letters, each once by the ends of their own table; last the rows with their offsets.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from duramen.base.errors import OptionInvalid
from duramen.spark.columns import COMMIT_COLUMNS, HEADERS_TYPE
from duramen.spark.tables.columns import (
    COMMIT_FIELDS,
    DATE,
    DEAD_LETTER_SCHEMA,
    ERROR,
    KEY,
    RAW_NAMES,
    ROW_FIELDS,
    TIMESTAMP,
    VALUE,
)  # fmt: skip
from duramen.spark.tables.files import DataFileWriter, FileLayout
from duramen.spark.tables.port import DataFile, Declaration, LakeTable, TableSpan
from duramen.spark.tables.reader import counted_at
from duramen.spark.tables.schemas import OWN_NAMES, decoded_fields, loaded, merged, saved
from duramen.spark.tables.storage import TableLocation
from duramen.spark.tables.upsert import RowForm, upsert
from duramen.spark.values.decoded import Decoder

__all__ = ["RoundResult", "Work", "commit_round", "decoder_of", "plan_round", "translate"]

_MOST_LETTERS: Final = 500
_MAY_LACK: Final = (("headers", HEADERS_TYPE), *((name, pa.int64()) for name in COMMIT_COLUMNS))
_NO_KEY: Final = "no key: the table has one row for each key"


class Work(NamedTuple):
    """The input of a round's tasks; it can be pickled."""

    declaration: Declaration
    schema: bytes
    keeps_columns: bool
    dead_location: str = ""
    dead_ends: tuple[tuple[int, int], ...] = ()
    live: tuple[DataFile, ...] = ()
    target_bytes: int = 128 << 20


class RoundResult(NamedTuple):
    """The result of a task: files for the table and for its dead letters, and the files that they replace."""

    files: tuple[DataFile, ...]
    dead_files: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    schema: bytes = b""
    rows: int = 0
    bad: int = 0


def plan_round(table: LakeTable, dead: LakeTable | None = None, *, target_bytes: int = 128 << 20) -> Work:
    """The state of a table at the start of a round. Raises TableStorageFailed."""
    declaration = table.declaration
    return Work(
        declaration,
        saved(table.schema()),
        table.keeps_columns,
        dead.declaration.storage.location if dead is not None else "",
        tuple(dead.ends().items()) if dead is not None else (),
        tuple(table.scan()) if declaration.upsert else (),
        target_bytes,
    )


def translate(
    work: Work, span: TableSpan, batches: Iterable[pa.RecordBatch], coming: RowForm = RowForm.RECORDS
) -> RoundResult:
    """Write the records that count in a span, from the source: `batches` of its columns.

    Records of a transaction have `COMMIT_COLUMNS`: the offset of its marker, its commit sequence and its producer,
    others have nulls. In a table with one row per key, `batches` must include all records that counted earlier and are
    after the first of them, unless `coming` is a snapshot's form.

    Raises TableStorageFailed, ServerUnreachable if a schema registry is needed and unreachable, OptionInvalid.
    """
    declaration = work.declaration
    place = TableLocation(declaration.storage)
    layout = FileLayout(declaration.partition_by, keep_columns=work.keeps_columns, target_bytes=work.target_bytes)
    rows = _Rows(work, span)
    if declaration.upsert:
        files, removed = upsert(place, layout, span, work.live, loaded(work.schema), rows.of(batches), coming)
    else:
        removed = []
        with DataFileWriter(place, layout, span.partition) as writer:
            for batch in rows.of(batches):
                writer.add(batch)
            files = writer.finish()
    dead_files = rows.close()
    return RoundResult(
        tuple(files), tuple(dead_files), tuple(removed), saved(pa.schema(rows.fields)), rows.count, rows.bad
    )


class _Rows:
    """Converts records to rows of the table; bad ones are also written to the dead letters."""

    def __init__(self, work: Work, span: TableSpan) -> None:
        self._declaration = work.declaration
        self._span = span
        self._fields = [field for field in loaded(work.schema) if field.name not in OWN_NAMES]
        self._decoder = decoder_of(work.declaration, self._fields)
        self._dead_begin = max(span.begin, dict(work.dead_ends).get(span.partition, 0))
        self._dead: DataFileWriter | None = None
        if work.dead_location:
            storage = work.declaration.storage._replace(location=work.dead_location)
            self._dead = DataFileWriter(
                TableLocation(storage), FileLayout(target_bytes=work.target_bytes), span.partition
            )
        self.count = self.bad = 0

    @property
    def fields(self) -> Sequence[pa.Field]:
        """The decoded columns."""
        return self._fields if self._decoder is None else self._decoder.fields

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of records. If iteration ends early, the dead letters so far are discarded."""
        try:
            for records in batches:
                if records.num_rows:
                    yield self._row_batch(records)
        except BaseException:
            if self._dead is not None:
                self._dead.__exit__()
            raise

    def close(self) -> list[DataFile]:
        """The files of the dead letters."""
        return [] if self._dead is None else self._dead.finish()

    def _row_batch(self, records: pa.RecordBatch) -> pa.RecordBatch:
        rows = _raw(records, self._span.partition)
        self.count += pc.sum(self._counts_from(rows, self._span.begin)).as_py()
        errors = pa.nulls(rows.num_rows, pa.string())
        if self._decoder is not None:
            decoded = self._decoder.decode(rows.column(VALUE))
            errors = pc.utf8_slice_codeunits(decoded.errors, 0, _MOST_LETTERS)
            rows = rows.append_column(ERROR, errors)
            for field, column in zip(decoded.columns.schema, decoded.columns.columns, strict=True):
                rows = rows.append_column(field.name, column)
        if DATE in self._declaration.partition_by:
            rows = rows.append_column(DATE, rows.column(TIMESTAMP).cast(pa.date32()))
        if self._declaration.upsert:
            has_key = pc.is_valid(rows.column(KEY))
            errors = pc.if_else(has_key, errors, _NO_KEY)
            self._bury(rows, errors)
            return rows.filter(has_key)
        self._bury(rows, errors)
        return rows

    def _bury(self, rows: pa.RecordBatch, errors: pa.Array) -> None:
        is_bad = pc.is_valid(errors)
        self.bad += pc.sum(pc.and_(is_bad, self._counts_from(rows, self._span.begin))).as_py() or 0
        if self._dead is None:
            return
        chosen = pc.and_(is_bad, self._counts_from(rows, self._dead_begin))
        letters = rows.filter(chosen)
        if letters.num_rows:
            topic = pa.array([self._declaration.stream] * letters.num_rows, pa.string())
            columns = [errors.filter(chosen), topic, *(letters.column(name) for name in RAW_NAMES)]
            self._dead.add(pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTER_SCHEMA))

    @staticmethod
    def _counts_from(rows: pa.RecordBatch, offset: int) -> pa.Array:
        return pc.greater_equal(counted_at(rows), offset)


def _raw(records: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    count = records.num_rows
    found = {name: records.column(name) for name in records.schema.names}
    arrays = [
        found["key"],
        found["value"],
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        found["offset"],
        found["timestamp"],
        found["timestampType"],
        *(found.get(name, pa.nulls(count, kind)) for name, kind in _MAY_LACK),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(ROW_FIELDS)))


def decoder_of(declaration: Declaration, fields: Sequence[pa.Field]) -> Decoder | None:
    """The decoder of values into these columns; None without decoding. Raises OptionInvalid."""
    if declaration.decode == "none":
        return None
    if declaration.decode == "json":
        from duramen.spark.values.json import JsonDecoder

        return JsonDecoder(fields, grows=not declaration.schema, taken=OWN_NAMES)
    if declaration.decode == "avro":
        from duramen.spark.values.avro import AvroDecoder
        from duramen.spark.values.registry import SchemaRegistry

        registry = SchemaRegistry(declaration.registry) if declaration.registry else None
        return AvroDecoder(fields, schema=declaration.schema.decode(), registry=registry, taken=OWN_NAMES)
    raise OptionInvalid(f"values cannot be decoded as {declaration.decode!r}: take json, avro or none")


def commit_round(
    table: LakeTable,
    dead: LakeTable | None,
    work: Work,
    written: Sequence[RoundResult],
    spans: Sequence[TableSpan],
    newest: int = -1,
) -> bool:
    """Commit the results of a round for `spans`, with the `newest` commit sequence in these.

    False if their files disagree on new columns: then only the columns are in the table; repeat the round. Raises
    TableConflict if another writer won, TableStorageFailed.
    """
    known = table.schema()
    schema, agreed = merged(known, [loaded(one.schema) for one in written])
    lacks = any(field.name not in known.names for field in COMMIT_FIELDS)
    if decoded_fields(schema) != decoded_fields(known) or lacks:
        table.evolve(merged(schema, [pa.schema(COMMIT_FIELDS)])[0])
    if not agreed:
        return False
    if dead is not None:
        ends = dict(work.dead_ends)
        rest = [span._replace(begin=ends.get(span.partition, span.begin)) for span in spans]
        dead.commit([file for one in written for file in one.dead_files], [s for s in rest if s.end > s.begin])
    files = [file for one in written for file in one.files]
    table.commit(files, spans, [path for one in written for path in one.removed], newest=newest)
    return True
