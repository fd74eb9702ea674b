"""A task: reads pieces of a stream from the log, converts them, and writes files of its table.

Nothing reaches the table before the driver commits. An error is returned as a value, so that one stream's error does
not fail the Spark job.
"""

import traceback
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from duramen.base import errors
from duramen.base.errors import BugFound, DuramenError
from duramen.spark.tables.failures import one_line
from duramen.spark.tables.rounds import RoundResult, Work, translate
from duramen.spark.tables.upsert import RowForm
from duramen.spark.translation.log import SourceLog, read
from duramen.spark.translation.plan import RoundPiece

__all__ = ["TaskResult", "TranslationTask", "run"]


class TranslationTask(NamedTuple):
    """Pieces of a stream to translate, in order."""

    log: SourceLog
    work: Work
    pieces: Sequence[RoundPiece]


class TaskResult(NamedTuple):
    """The result of a task: its files, and the bytes of the records read; or the error's class and message."""

    written: Sequence[RoundResult] = ()
    records: int = 0
    read_bytes: int = 0
    error: tuple[str, str] | None = None

    def check(self) -> None:
        """Raise the error that ended the task, if any."""
        if self.error is not None:
            kind, message = self.error
            class_ = getattr(errors, kind, DuramenError)
            raise class_(message)


class _Counted:
    """Counts the batches that pass."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.records = 0
        self.read_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.records += batch.num_rows
            self.read_bytes += batch.nbytes
            yield batch


def _coming(piece: RoundPiece) -> RowForm:
    if piece.increment is None:
        return RowForm.RECORDS
    return RowForm.WHOLE if piece.increment.since is None else RowForm.CHANGES


def run(task: TranslationTask) -> TaskResult:
    """Run the task."""
    written = []
    records = read_bytes = 0
    try:
        for piece in task.pieces:
            counted = _Counted(read(task.log, piece))
            written.append(translate(task.work, piece.span, counted, _coming(piece)))
            records += counted.records
            read_bytes += counted.read_bytes
    except DuramenError as error:
        return TaskResult(error=(type(error).__name__, str(error)))
    except Exception as error:  # noqa: BLE001 -- a bug in one table's task is not the other tables' trouble
        traceback.print_exc()  # into Spark's log
        return TaskResult(error=(BugFound.__name__, f"{task.log.stream}: {type(error).__name__}: {one_line(error)}"))
    return TaskResult(written, records, read_bytes)
