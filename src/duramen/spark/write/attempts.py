"""Exactly-once writes of Spark's sink: a transaction per task attempt, and one decision per batch.

An attempt writes in a transaction of its own and leaves it open. The driver's commit asks the coordinator of the query
to store the winning attempts; then their transactions are committed and all others aborted. A decided batch is not
written again: its tasks write nothing, and its commit completes the first decision (docs/adr/batches-in-one-record.md).
"""

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from duramen.base.errors import DuramenError, QueryFenced, UnsupportedFeature
from duramen.client import BrokerCluster
from duramen.client.batches import Batches, CommittedAttempt, are_offered
from duramen.client.producer import OpenTransaction
from duramen.codec.attempts import TaskAttempt

__all__ = [
    "WriteResult",
    "WriteTask",
    "abandon",
    "batch_task",
    "commit",
    "digest_of",
    "give_up",
    "is_exactly_once",
    "stream_task",
    "write",
]

_log = logging.getLogger("duramen.spark")

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_RUN: Final = "spark.jobGroup.id"
_ONLY_BATCH: Final = 0  # of a `df.write`
_HEAD_LINES: Final = 2  # the version of the offset log, and the batch's metadata besides its offsets


class WriteTask(NamedTuple):
    """An attempt of a task: its partition, batch and run, and the query's id."""

    query: str
    run: str
    batch: int
    partition: int
    attempt: int


class WriteResult(WriterCommitMessage):
    """The result of one task: the number of records written, and its attempt; None for an at-least-once write."""

    def __init__(
        self, records: int, attempt: TaskAttempt | None = None, winner: CommittedAttempt | None = None
    ) -> None:
        """`winner` identifies the writer; None if the attempt has written nothing."""
        self.records = records
        self.attempt = attempt
        self.winner = winner


def stream_task() -> WriteTask:
    """The task of a streaming query in this process. Raises UnsupportedFeature."""
    context = TaskContext.get()
    names = [None if context is None else context.getLocalProperty(name) for name in (_QUERY, _RUN, _BATCH)]
    query, run, batch = names
    if context is None or query is None or run is None or batch is None:
        raise UnsupportedFeature(
            "Spark does not say which query and batch a task belongs to, without which the sink cannot write exactly"
            " once; exactlyOnce=false writes at least once"
        )
    return WriteTask(query, run, int(batch), context.partitionId(), context.taskAttemptId())


def batch_task(query: str) -> WriteTask:
    """The task of one `df.write`, which is a query with one batch and one run."""
    context = TaskContext.get()
    if context is None:
        raise UnsupportedFeature("rows are written by tasks of Spark only")
    return WriteTask(query, query, _ONLY_BATCH, context.partitionId(), context.taskAttemptId())


def is_exactly_once(cluster: BrokerCluster, option: str) -> bool:
    """Whether to write exactly once; `option` is the option's value. Raises UnsupportedFeature, ServerUnreachable."""
    if option == "false" or are_offered(cluster):
        return option != "false"
    if option == "true":
        raise UnsupportedFeature(
            "these brokers do not decide about batches, as Duramen's do, and exactlyOnce=true asks for that;"
            " exactlyOnce=false writes at least once"
        )
    _say_at_least_once()
    return False


@cache
def _say_at_least_once() -> None:
    _log.warning("these brokers do not decide about batches: what a failure repeats is written again (at least once)")


def write(
    cluster: BrokerCluster,
    task: WriteTask,
    timeout_ms: int,
    rows: Iterator[pa.RecordBatch],
    write_rows: Callable[[OpenTransaction, Iterator[pa.RecordBatch]], int],
) -> WriteResult:
    """Write a task's rows in a transaction, and leave it open. Raises QueryFenced and the errors of `write_rows`.

    `write_rows` returns the number of written records once all are acknowledged. A task without rows opens nothing.
    """
    batches = Batches(cluster, task.query)
    begun = batches.begin(task.run, task.batch)
    attempt = TaskAttempt(task.query, begun.run, task.batch, task.partition, task.attempt)
    filled = (batch for batch in rows if batch.num_rows)
    first = next(filled, None)
    if begun.decided or first is None:
        for _ in filled:
            """Spark's worker continues with its next task if its rows were accepted."""
        return WriteResult(0, attempt)
    transaction = batches.open(attempt.id, timeout_ms)
    try:
        records = write_rows(transaction, _behind(first, filled))
    except BaseException:
        with contextlib.suppress(DuramenError):
            batches.abort(transaction)
        raise
    winner = CommittedAttempt(task.partition, task.attempt, transaction.producer_id, transaction.producer_epoch)
    return WriteResult(records, attempt, winner)


def _behind(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


# -- the driver ---------------------------------------------------------------------------------------


def commit(cluster: BrokerCluster, messages: Sequence[WriterCommitMessage | None], digest: bytes) -> None:
    """Decide for the attempts in these messages. Raises QueryFenced, BatchDiffers, AttemptLost."""
    written = _attempts(messages)
    if written:
        winners = [one.winner for one in written if one.winner is not None]
        attempt = _attempt(written)
        Batches(cluster, attempt.query).decide(attempt.run, attempt.batch, digest, winners)


def abandon(cluster: BrokerCluster, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abandon a batch, if its messages identify it: else the next run aborts it, or the timeout."""
    written = _attempts(messages)
    if written:
        attempt = _attempt(written)
        Batches(cluster, attempt.query).abandon(attempt.run, attempt.batch)


def give_up(cluster: BrokerCluster, query: str) -> None:
    """Abort all open attempts of a `df.write`, and fence its tasks: Spark may have left some running.

    No other write has this query's name, so a newer run of it, which writes nothing, fences them.
    """
    batches = Batches(cluster, query)
    with contextlib.suppress(QueryFenced):
        batches.begin(query, _ONLY_BATCH)  # an older run is known by its name, even if none of its tasks has started
        batches.begin(f"{query}-given-up", _ONLY_BATCH)


def _attempts(messages: Sequence[WriterCommitMessage | None]) -> list[WriteResult]:
    return [one for one in messages if isinstance(one, WriteResult) and one.attempt is not None]


def _attempt(written: Sequence[WriteResult]) -> TaskAttempt:
    found = [one.attempt for one in written if one.attempt is not None]
    return found[0]


def digest_of(checkpoint: str, batch: int) -> bytes:
    """A digest of a batch's offsets in a checkpoint's offset log; empty if that cannot be read here."""
    where = urlparse(checkpoint)
    if not checkpoint or where.scheme not in ("", "file"):
        return b""
    directory = Path(unquote(where.path) if where.scheme else checkpoint)
    try:
        entry = (directory / "offsets" / str(batch)).read_bytes()
    except OSError:
        return b""
    return hashlib.sha256(b"\n".join(entry.splitlines()[_HEAD_LINES:])).digest()
