"""One round of one stream: planned, converted by tasks, and committed with its offsets in one step.

The table's own metadata is the only truth. A round that ends before its commit leaves files that no table names; one
that ends after it is complete. So the next round needs no knowledge of it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from duramen.base.errors import TableConflict, UnsupportedFeature
from duramen.client import BrokerCluster, TopicPartition
from duramen.client.transaction_states import MarkedUpTo
from duramen.spark.read.markers import Marks
from duramen.spark.tables.port import Declaration, LakeTable
from duramen.spark.tables.rounds import commit_round, plan_round
from duramen.spark.translation.increments import Increments
from duramen.spark.translation.log import SourceLog, bounds, record_bytes
from duramen.spark.translation.plan import Filled, RoundPlan, needed_from, piece_records, plan, plan_increment
from duramen.spark.translation.task import TaskResult, TranslationTask

__all__ = ["Round", "RoundOutcome", "Runner"]

Runner = Callable[[Sequence[TranslationTask]], Sequence[TaskResult]]
"""Runs tasks, concurrently if possible: on Spark, or locally in a test."""

_ATTEMPTS: Final = 5


class RoundOutcome(NamedTuple):
    """The result of a round, and whether there is more already; `committed` is False if nothing was new.

    `lost` counts offsets that the log no longer had.
    """

    committed: bool
    behind: bool
    records: int = 0
    bad: int = 0
    read_bytes: int = 0
    lost: int = 0


class Round:
    """Rounds of one stream, one after another."""

    def __init__(
        self,
        declaration: Declaration,
        log: SourceLog,
        open_tables: Callable[[Declaration], tuple[LakeTable, LakeTable]],
        runner: Runner,
        slots: int,
    ) -> None:
        """`open_tables` returns the table and that of its dead letters; `slots` tasks run concurrently.

        After a round, `needed_from` has the offsets before which the log may delete everything.
        """
        self._declaration = declaration
        self._log = log
        self._open_tables = open_tables
        self._runner = runner
        self._slots = slots
        self._record_bytes: float | None = None
        self._marks = Marks(wanted=True)
        self._increments = Increments(log) if log.server else None
        self.needed_from: Mapping[int, int] = {}

    def run(self, cluster: BrokerCluster, upto: Mapping[int, int] | None = None) -> RoundOutcome:
        """Run one round; no partition goes beyond `upto`, if given.

        A faster concurrent writer is not an error: the round then does what is left. Raises RecordsLost,
        StreamNotFound, ServerUnreachable, TableForeign, TableStorageFailed …
        """
        table, dead = self._open_tables(self._declaration)
        for attempt in range(_ATTEMPTS):
            try:
                outcome = self._attempt(cluster, table, dead, upto)
            except TableConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            if outcome is not None:
                return outcome
        # Each attempt added columns to the table: a round with fewer new ones comes next.
        return RoundOutcome(committed=False, behind=True)

    def _attempt(
        self, cluster: BrokerCluster, table: LakeTable, dead: LakeTable, upto: Mapping[int, int] | None
    ) -> RoundOutcome | None:
        """None if it has to be repeated, with the columns that the table has by now."""
        try:
            return self._planned(table, dead, *self._plan(cluster, table, upto))
        finally:
            if self._increments is not None:
                self._increments.release()

    def _planned(
        self, table: LakeTable, dead: LakeTable, next_: RoundPlan, needed: Mapping[int, int]
    ) -> RoundOutcome | None:
        if not next_.spans:
            self.needed_from = needed
            return RoundOutcome(committed=False, behind=False)
        work = plan_round(table, dead)
        done = self._runner([TranslationTask(self._log, work, pieces) for pieces in next_.tasks]) if next_.tasks else []
        for one in done:
            one.check()
        written = [one for each in done for one in each.written]
        if not commit_round(table, dead, work, written, next_.spans, next_.newest):
            return None
        self.needed_from = needed
        read, read_bytes = sum(one.records for one in done), sum(one.read_bytes for one in done)
        if read:
            self._record_bytes = read_bytes / read
        return RoundOutcome(
            committed=True,
            behind=next_.behind,
            records=sum(one.rows for one in written),
            bad=sum(one.bad for one in written),
            read_bytes=read_bytes,
            lost=sum(one.end - one.begin for one in next_.lost),
        )

    def _plan(
        self, cluster: BrokerCluster, table: LakeTable, upto: Mapping[int, int] | None
    ) -> tuple[RoundPlan, Mapping[int, int]]:
        """The next plan, and the offsets from which the log is needed after it."""
        state, there = table.state(), bounds(cluster, self._log)
        if upto is not None:
            # Partitions at their end stay included: a transaction may be in them, too.
            begins = {at: state.ends.get(at, first) for at, (first, _) in there.items()}
            there = {at: (first, min(end, max(upto.get(at, 0), begins[at]))) for at, (first, end) in there.items()}
        starts = {at: min(max(state.ends.get(at, 0), first), end) for at, (first, end) in there.items()}
        held = None if self._increments is None else self._increments.hold(state.ends, upto)
        marked = self._marked(cluster, starts)
        if self._record_bytes is None:
            self._record_bytes = record_bytes(cluster, self._log, starts)
        piece = piece_records(self._record_bytes)
        # An increment does not tell where the records of a transaction count, which the table must know.
        if held is not None and not any(one.ended or one.open for one in marked.values()):
            next_ = plan_increment(there, state.ends, held.at, held.horizons, piece=piece, slots=self._slots)
        else:
            next_ = plan(
                Filled(state.ends, state.begins, state.floors),
                there,
                marked,
                piece=piece,
                slots=self._slots,
                whole=self._declaration.upsert,
                skip_lost=self._log.skip_lost,
            )
        return next_, needed_from({**starts, **{span.partition: span.end for span in next_.spans}}, marked)

    def _marked(self, cluster: BrokerCluster, starts: Mapping[int, int]) -> dict[int, MarkedUpTo]:
        """The known transactions; requested after the bounds, as `transaction_boundaries` requires."""
        stream = self._log.stream
        begin = {TopicPartition(stream, partition): offset for partition, offset in starts.items()}
        marked = self._marks.look(cluster, begin, {stream: self._log.stream_id})
        if marked is None:
            self._marks = Marks(wanted=True)
            raise UnsupportedFeature(
                f"a broker of {stream} does not say which transactions ended where: it is outdated"
            )
        return {at.partition: found for at, found in marked.items()}
