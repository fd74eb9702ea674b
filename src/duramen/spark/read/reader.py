"""The Spark task: reads one range of one partition and yields Arrow batches. Runs on executors."""

import gc
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from duramen.base.errors import BatchCorrupt, DuramenError, OptionInvalid, RecordsLost, RequestTimedOut, StreamNotFound
from duramen.client import BrokerCluster, Consumer, Isolation, TopicPartition
from duramen.client.transaction_states import MarkedUpTo
from duramen.spark.batches.decoding import decode, warn_if_slow
from duramen.spark.columns import COLUMNS, INVENTORY_COLUMNS, QUEUE_COLUMNS, PartitionColumns, choose_columns
from duramen.spark.options import OPTIONS, Options
from duramen.spark.plainly import without_traceback
from duramen.spark.read.committed import CommittedRecords, CountedRecords
from duramen.spark.read.losses import cut_off, not_there
from duramen.spark.read.plan import split
from duramen.spark.read.splits import NEVER, Ends, Floors, ReadSplit, passed_over, share

__all__ = [
    "OffsetSpan",
    "PartitionReader",
    "SpanPartition",
    "cluster_of",
    "columns_of",
    "commit_to_group",
    "consumer_of",
    "reads_committed",
    "report_lost",
    "shared",
    "tasks",
]  # fmt: skip

_NO_ENDS: Final[Ends] = {}
_log = logging.getLogger("duramen.spark")

_clusters: dict[tuple[object, ...], BrokerCluster] = {}


def cluster_of(options: Options) -> BrokerCluster:
    """A cluster client; consecutive tasks in a process share its connections."""
    servers, client_id = options.text("kafka.bootstrap.servers"), options.text("kafka.client.id")
    timeout_ms = options.number("kafka.request.timeout.ms") or 0
    key = (os.getpid(), servers, client_id, timeout_ms)
    cluster = _clusters.get(key)
    if cluster is None:
        _leave_out_imported("to connect")
        for other in _clusters.values():
            other.close()
        _clusters.clear()
        cluster = _clusters[key] = BrokerCluster(servers, client_id=client_id, timeout_s=timeout_ms / 1000)
    return cluster


def reads_committed(options: Options) -> bool:
    """Whether only committed records are read. Raises OptionInvalid."""
    level = options.one_of("kafka.isolation.level", ("read_uncommitted", "read_committed"))
    return level == "read_committed"


@cache
def _leave_out_imported(why: str) -> None:
    """Exclude late-imported modules from garbage collection, once per process and reason `why`.

    Spark's daemon runs a full collection after every task.
    """
    del why
    gc.collect()
    gc.freeze()


def consumer_of(options: Options, *, committed: bool = False) -> Consumer:
    """A consumer of that cluster; `committed`: brokers filter committed records."""
    return Consumer(
        cluster_of(options),
        isolation=Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED,
        max_bytes=_bytes(options, "kafka.fetch.max.bytes"),
        partition_max_bytes=_bytes(options, "kafka.max.partition.fetch.bytes"),
    )


def _bytes(options: Options, name: str) -> int:
    """At most our default for a whole response: an executor has many tasks."""
    most = int(OPTIONS["kafka.fetch.max.bytes"].default)
    return min(most, options.number(name) or most)


def commit_to_group(options: Options, at: Mapping[TopicPartition, int]) -> None:
    """Commit these offsets as processed to the consumer group `kafka.group.id`, if it is set.

    Only Kafka's tools read them, so a failure is logged and does not stop the query.
    """
    group = options.text("kafka.group.id")
    if not group:
        return
    try:
        consumer_of(options).commit(group, at)
    except DuramenError as error:
        _log.warning("group %s: the offsets could not be committed: %s", group, error)


def columns_of(options: Options) -> tuple[str, ...]:
    """The columns of the options, in their order. Raises OptionInvalid."""
    every: Sequence[str] = COLUMNS
    if options.given("queues"):
        every = QUEUE_COLUMNS
    elif options.given("inventory"):
        every = INVENTORY_COLUMNS[options.one_of("inventory", INVENTORY_COLUMNS)]
    try:
        return choose_columns(options.text("columns"), headers=options.flag("includeHeaders"), every=every)
    except ValueError as error:
        raise OptionInvalid(f"columns: {error}") from None


def report_lost(what: str, *, fail: bool) -> None:
    """Records of the read are lost: raise RecordsLost if `fail`, else log it."""
    if fail:
        raise RecordsLost(f"{what}; with failOnDataLoss=false the query continues")
    _log.warning("%s; the query continues because of failOnDataLoss=false", what)


class OffsetSpan:
    """Offsets `[first, end)` of a partition of the stream with that id; `topic_id` is empty if it has none.

    `share` says how to read transactional records; `committed`: brokers filter committed records.
    """

    def __init__(
        self,
        at: TopicPartition,
        topic_id: str,
        first: int,
        end: int,
        share: ReadSplit | None = None,
        *,
        committed: bool = False,
    ) -> None:
        self.at = at
        self.topic_id = topic_id
        self.first = first
        self.end = end
        self.share = share
        self.committed = committed

    @property
    def upto(self) -> int:
        """The end of the read: after the last marker that releases records."""
        return self.end if self.share is None else max(self.end, *(marker + 1 for marker in self.share.behind), 0)

    @property
    def records(self) -> int:
        """The maximum number of records read."""
        return self.upto - (self.first if self.share is None else self.share.base)

    def from_base(self) -> "OffsetSpan":
        """The span extended to the oldest record that counts in it, with everything newer."""
        if self.share is None:
            return self
        return OffsetSpan(self.at, self.topic_id, self.share.base, self.end, self.share, committed=self.committed)


class SpanPartition(InputPartition):
    """The input of one task for Spark: spans that are read one after another."""

    def __init__(self, *spans: OffsetSpan) -> None:
        super().__init__(spans)
        self.spans = spans


def tasks(
    options: Options,
    spans: Sequence[tuple[TopicPartition, int, int]],
    ids: Mapping[str, str],
    marked: Mapping[TopicPartition, MarkedUpTo] | None,
    floors: Floors,
    *,
    committed: bool,
    unfiltered: Sequence[tuple[TopicPartition, int, int]] | None = None,
    ends: Ends = _NO_ENDS,
) -> list[SpanPartition]:
    """The tasks for ranges of partitions (each with its first offset and its end).

    `unfiltered` are the ranges before filters, and `ends` are the named ends.
    """
    pieces = split(spans, options.number("minPartitions"), options.number("maxRecordsPerPartition"))
    whole = spans if unfiltered is None else unfiltered
    # A range may be empty, but transactions that started before it may still count there.
    pieces += [(at, first, end) for at, first, end in spans if first == end and at in ends]
    made = shared(pieces, whole, ids, marked, floors, committed=committed, ends=ends)
    return [SpanPartition(one) for one in made if one.first < one.upto]


def shared(
    pieces: Sequence[tuple[TopicPartition, int, int]],
    whole: Sequence[tuple[TopicPartition, int, int]],
    ids: Mapping[str, str],
    marked: Mapping[TopicPartition, MarkedUpTo] | None,
    floors: Floors,
    *,
    committed: bool,
    ends: Ends = _NO_ENDS,
) -> list[OffsetSpan]:
    """The pieces of `whole` ranges, each with the transactions that its task needs."""
    if marked is None:
        return [OffsetSpan(at, ids[at.topic], low, high, committed=committed) for at, low, high in pieces]
    upto = {at: NEVER if at in ends else end for at, _, end in whole}
    over = passed_over(floors, {at: first for at, first, _ in whole}, upto, marked)
    found: list[OffsetSpan] = []
    for at, low, high in pieces:
        end, late_from = ends.get(at, (NEVER, NEVER))
        late_from = late_from if high == end else NEVER
        floor = floors.named.get(at, 0)
        one = share(low, high, marked[at], floor, over.get(at, ()), late_from=late_from)
        found.append(OffsetSpan(at, ids[at.topic], low, high, one))
    return found


class PartitionReader:
    """Reads spans according to the options. It is pickled and sent to the executors."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid."""
        self._options = options
        self.fail = options.flag("failOnDataLoss")
        self.columns = columns_of(options)
        warn_if_slow()

    def read(self, span: OffsetSpan) -> Iterator[pa.RecordBatch]:
        """The span's records. Raises RecordsLost, ServerUnreachable, BatchCorrupt …"""
        at, gone = span.at, 0  # the offset before which records are lost

        def on_gap(wanted: int, there: int) -> int:
            nonlocal gone
            upto = min(there, span.upto)
            report_lost(cut_off(consumer, at, wanted, upto), fail=self.fail)
            # The batch there may have lost records as well.
            gone = max(gone, upto)
            return upto

        part = PartitionColumns(*at, self.columns)
        topic_id = UUID(span.topic_id) if span.topic_id else None
        first = span.first if span.share is None else span.share.base
        committed = None if span.share is None else CommittedRecords(span.first, span.end, span.share)
        with without_traceback():
            consumer = consumer_of(self._options, committed=span.committed)
            pieces = consumer.read(at, first, span.upto, topic_id=topic_id, on_gap=on_gap)
            try:
                for piece in pieces:
                    # The response is complete: nothing writes to it any more.
                    whole = CountedRecords(piece.toreadonly(), span.first)
                    for data, low, _ in [whole] if committed is None else committed.pass_on(piece):
                        for records in decode(data, max(low, gone), span.end, part.columns):
                            yield part.batch(records)
                _leave_out_imported("to read")
            except (StreamNotFound, RequestTimedOut) as error:
                why = not_there(consumer, at.topic, topic_id, error)
                report_lost(f"{at}: records before {span.end} are gone: {why}", fail=self.fail)
            except BatchCorrupt as error:
                raise BatchCorrupt(f"{at}: {error}") from None
