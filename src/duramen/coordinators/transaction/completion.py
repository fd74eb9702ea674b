"""The end of transactions: records and markers in one step; and completion of interrupted ones at a start.

*Prepared*, a marker for every partition and *complete* go into the write-ahead log one after the other, in this order,
under one sync. A crash leaves a prefix of them, so a start that finds a transaction prepared but not complete writes
the missing markers (docs/adr/transactions-in-one-step.md).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from duramen.base.countdown import Countdown, ErrorCountdown
from duramen.base.errors import DuramenError
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.broker.membership import NodeMembership
from duramen.broker.streams import BrokerStreams
from duramen.codec.batch import Header, header
from duramen.codec.markers import encode_marker
from duramen.coordinators.group.offsets import GroupOffsets
from duramen.coordinators.transaction.log import TransactionLog
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.coordinators.transaction.shard import Step
from duramen.coordinators.transaction.store import Changed, TransactionStore
from duramen.storage.log.log import Log
from duramen.storage.store import Store
from duramen.transactions import machine
from duramen.transactions.values import (
    NO_SEQUENCE,
    PREPARED,
    PartitionName,
    ProducerIdentity,
    TransactionalId,
    TransactionState,
)

__all__ = ["Endings", "TransactionDependencies"]

Batch = tuple[Log, bytearray, Header]


class TransactionDependencies(NamedTuple):
    """The places where transactions write: their own log, streams, group offsets; and the membership."""

    log: TransactionLog
    streams: BrokerStreams
    offsets: GroupOffsets
    store: Store
    membership: NodeMembership


class Endings:
    """Ends the `known` transactions on a standalone node. `store` stores them."""

    def __init__(
        self,
        known: KnownTransactions,
        places: TransactionDependencies,
        clock: Clock,
        metrics: Metrics,
        report: Callable[[str], None],
    ) -> None:
        """`report` receives messages for the operator."""
        self.store: TransactionStore
        self._committed = metrics.counter("duramen_transactions_total", "committed")
        self._aborted = metrics.counter("duramen_transactions_total", "aborted")
        self._later: dict[str, Sequence[Batch]] = {}  # markers written after the end is durable, by id
        self._unmarked: dict[str, list[Log]] = {}  # by id: logs without a marker while other logs may have theirs
        self._waiting: list[tuple[Collection[Log], Callable[[], None]]] = []
        self._known = known
        self._log = places.log
        self._streams = places.streams
        self._offsets = places.offsets
        self._store = places.store
        self._clock = clock
        self._report = report

    def step(self, prepared: TransactionalId, *, stored: bool) -> Step:
        """The markers of a prepared transaction, and its state after them.

        If it is `stored`, only markers for logs with an open transaction: a start does not know which markers exist.
        """
        markers, later = self._markers(prepared, missing_only=stored)
        if later:
            self._later[prepared.id] = later
        marked = partial(self._marked, prepared, markers, complete=not later)
        return Step(machine.complete(prepared, self._clock.wall_ms()), markers, bool(later), marked)

    def _marked(
        self, prepared: TransactionalId, markers: Sequence[Batch], offsets: Sequence[int], *, complete: bool
    ) -> None:
        self._count_offsets(markers, offsets, commit=_commits(prepared))
        if complete:
            self._ended(prepared)
        else:
            self._unmarked[prepared.id] = [log for log, *_ in self._later.get(prepared.id, ())]

    def _count_offsets(self, markers: Sequence[Batch], offsets: Sequence[int], *, commit: bool) -> None:
        for (log, _, head), offset in zip(markers, offsets, strict=True):
            if offset >= 0 and self._offsets.keeps(log):
                self._offsets.ended(log, offset, head.producer_id, commit=commit)

    def _ended(self, prepared: TransactionalId) -> None:
        (self._committed if _commits(prepared) else self._aborted).value += 1

    def begin(self, index: int, epoch: int, prepared: TransactionalId, done: Changed) -> None:
        """Write the markers of logs outside the WAL: only now the outcome of the transaction is durable."""
        del index, epoch
        later = self._later.pop(prepared.id, ())
        self._unmarked[prepared.id] = unmarked = [log for log, *_ in later]

        def appended(log: Log, _: int, error: DuramenError | None) -> None:
            # A log that takes no writes until the next start gets its marker then.
            if error is None or log.deleted:
                unmarked.remove(log)
            parts.count_down()

        def all_appended() -> None:
            if not unmarked:
                del self._unmarked[prepared.id]
                self._tell_whole()
            self.store.change(prepared.id, partial(machine.completed, prepared, self._clock.wall_ms()), stored)

        def stored(_: TransactionalId | None, __: DuramenError | None) -> None:
            # If that cannot be stored, the next start finds the prepared transaction, and all its markers.
            self._ended(prepared)
            done(machine.complete(prepared, self._clock.wall_ms()), None)

        parts = Countdown(all_appended, len(later))
        for log, batch, head in later:
            self._store.append(log, batch, head, self._store.node_epoch, partial(appended, log))

    def when_whole(self, logs: Collection[Log], done: Callable[[], None]) -> Callable[[], None]:
        """Call `done` at a moment when no transaction has its marker in only some of these logs; it may be now.

        The result cancels the call.
        """
        if self._is_whole(logs):
            done()
            return lambda: None
        entry = logs, done
        self._waiting.append(entry)
        return lambda: self._waiting.remove(entry) if entry in self._waiting else None

    def _is_whole(self, logs: Collection[Log]) -> bool:
        return not any(log in logs for unmarked in self._unmarked.values() for log in unmarked)

    def _tell_whole(self) -> None:
        for entry in [entry for entry in self._waiting if self._is_whole(entry[0])]:
            self._waiting.remove(entry)
            entry[1]()

    def _markers(self, prepared: TransactionalId, *, missing_only: bool) -> tuple[list[Batch], list[Batch]]:
        """A transaction's markers: those for logs in the WAL, and the others."""
        commit = _commits(prepared)
        identity = ProducerIdentity(prepared.producer_id, prepared.epoch)
        together: list[Batch] = []
        later: list[Batch] = []
        for log in self._logs(prepared):
            if missing_only and log.transactions.first_offset(prepared.producer_id) is None:
                continue
            marker = self._marker(log, identity, commit=commit, sequence=prepared.sequence)
            (together if log.config.durability == "sync" else later).append(marker)
        return together, later

    def _logs(self, one: TransactionalId) -> Iterator[Log]:
        for topic, index in sorted(one.partitions):
            stream = self._streams.find(topic)
            if stream is not None and index < len(stream.partitions):
                yield stream.partitions[index].log

    def _marker(self, log: Log, identity: ProducerIdentity, *, commit: bool, sequence: int) -> Batch:
        batch = encode_marker(
            identity.producer_id, identity.epoch,
            commit=commit, coordinator_epoch=self._store.node_epoch, now_ms=self._clock.wall_ms(),
            sequence=sequence, first_offset=log.transactions.first_offset(identity.producer_id),
        )  # fmt: skip
        return log, batch, header(batch)

    # -- at a start ---------------------------------------------------------------------------------

    def end_left(self, done: Callable[[DuramenError | None], None]) -> None:
        parts = ErrorCountdown(done)

        def marked(markers: Sequence[Batch], offsets: list[int], error: DuramenError | None) -> None:
            if error is None:
                self._count_offsets(markers, offsets, commit=False)
            parts.count_down(error)

        abandoned = self._abandoned()
        for prepared in [one for one in self._known.open() if one.state in PREPARED]:
            parts.add()
            self.store.finish_left(prepared.id, lambda _, error: parts.count_down(error))
        if abandoned:
            parts.add()
            self._store.append_together(abandoned, self._store.node_epoch, partial(marked, abandoned))
        parts.count_down()

    def left(self, index: int, epoch: int) -> None:
        """Continue prepared transactions of a partition that was reloaded."""
        del epoch
        for prepared in self._known.open():
            if prepared.state in PREPARED and self._log.partition_of(prepared.id) == index:
                self.store.finish_left(prepared.id, _nothing)

    def _abandoned(self) -> list[Batch]:
        """Markers that abort open transactions in a log that have no transactional id."""
        writers = {one.producer_id: one for one in self._known.values()}
        found: list[Batch] = []
        for stream in self._streams:
            for index, partition in enumerate(stream.partitions):
                for producer_id, _ in partition.log.transactions.opened():
                    one = writers.get(producer_id)
                    if one is not None and PartitionName(stream.name, index) in one.partitions:
                        continue
                    self._report(
                        f"partition {index} of {stream.name} holds a transaction of producer {producer_id} without a "
                        "known transactional id: it is aborted"
                    )
                    epoch = partition.log.producers.epoch(producer_id)
                    identity = ProducerIdentity(producer_id, epoch)
                    found.append(self._marker(partition.log, identity, commit=False, sequence=NO_SEQUENCE))
        return found


def _commits(prepared: TransactionalId) -> bool:
    return prepared.state is TransactionState.PREPARE_COMMIT


def _nothing(_: TransactionalId | None, __: DuramenError | None) -> None:
    """A callback without a waiting caller."""
