"""Completes prepared transactions: sends markers to the leaders of their partitions until each has its own."""

from collections.abc import Iterable
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import DuramenError
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.coordinators.transaction.cluster.holds import CommitHolds
from duramen.coordinators.transaction.cluster.requests import WRITE_MARKERS, WriteMarkers, WriteMarkersResponse
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.coordinators.transaction.store import Changed, TransactionStore
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller
from duramen.transactions import machine
from duramen.transactions.values import PREPARED, PartitionName, TransactionalId, TransactionState

__all__ = ["Finishing"]

_COMPLETE_AGAIN_MS: Final = 100
_AGAIN_MS: Final = 50
_AGAIN_MOST_MS: Final = 1_000
_AT_ONCE: Final = 1_000  # markers per request


class _Ending:
    """A prepared transaction; `left` are the partitions without a confirmed marker.

    `index` is the partition of `__transaction_state` with its record, which this node leads in `epoch`.
    """

    __slots__ = ("epoch", "index", "left", "one")

    def __init__(self, index: int, epoch: int, one: TransactionalId) -> None:
        self.index = index
        self.epoch = epoch
        self.one = one
        self.left: set[PartitionName] | None = set(one.partitions)  # None: all have it


class Finishing:
    """Ends the `known` transactions, which this node coordinates."""

    def __init__(
        self,
        places: TransactionDependencies,
        known: KnownTransactions,
        store: TransactionStore,
        caller: Caller,
        clock: Clock,
        deadlines: Deadlines,
        metrics: Metrics,
        holds: CommitHolds,
    ) -> None:
        self._committed = metrics.counter("duramen_transactions_total", "committed")
        self._aborted = metrics.counter("duramen_transactions_total", "aborted")
        self._places = places
        self._known = known
        self._store = store
        self._caller = caller
        self._clock = clock
        self._deadlines = deadlines
        self._holds = holds
        self._endings: dict[str, _Ending] = {}  # the newest of each id
        self._held: list[_Ending] = []
        self._again: dict[_Ending, set[PartitionName]] = {}
        self._again_ms = _AGAIN_MS
        self._timer: Deadline | None = None
        holds.resume = self._resume

    def begin(self, index: int, epoch: int, prepared: TransactionalId, done: Changed) -> None:
        """Start the end of a transaction that is stored as prepared."""
        # The decision is durable, so respond now, as Apache Kafka does: the markers follow in any case.
        done(machine.complete(prepared, prepared.updated_ms), None)
        ending = self._endings[prepared.id] = _Ending(index, epoch, prepared)
        if self._holds.holds(prepared):
            self._held.append(ending)
        else:
            self._send(ending, prepared.partitions)
            self._look(ending)

    def _resume(self) -> None:
        """Fewer commits are held back."""
        held, self._held = self._held, []
        for ending in held:
            if self._holds.holds(ending.one):
                self._held.append(ending)
            elif self._leads(ending):
                self._send(ending, ending.one.partitions)
                self._look(ending)

    def left(self, index: int, epoch: int) -> None:
        """Continue prepared transactions of a partition: an earlier coordinator left them, or this node reloaded it."""
        for id_, ending in list(self._endings.items()):
            if ending.index == index and ending.epoch != epoch:
                del self._endings[id_]
        for one in self._known.open():
            if one.state in PREPARED and self._places.log.partition_of(one.id) == index:
                known = self._endings.get(one.id)
                if known is None or known.one.identity != one.identity:
                    self.begin(index, epoch, one, _nothing)
        self._holds.look()

    def _look(self, ending: _Ending) -> None:
        if ending.left is not None and not ending.left:
            ending.left = None
            self._complete(ending)

    def _complete(self, ending: _Ending) -> None:
        """Every marker is written: store the completion, until it is stored or another node leads."""
        prepared = ending.one

        def stored(_: TransactionalId | None, error: DuramenError | None) -> None:
            if error is None:
                if self._endings.get(prepared.id) is ending:
                    del self._endings[prepared.id]
                self._ended(commit=prepared.state is TransactionState.PREPARE_COMMIT)
                self._holds.look()
            elif self._leads(ending):
                at_ms = self._clock.monotonic_ms() + _COMPLETE_AGAIN_MS
                self._deadlines.at(at_ms, partial(self._complete, ending))

        if self._leads(ending):
            self._store.change(prepared.id, partial(machine.completed, prepared, self._clock.wall_ms()), stored)

    def _leads(self, ending: _Ending) -> bool:
        return self._store.leads(ending.index, ending.epoch)

    def _ended(self, *, commit: bool) -> None:
        (self._committed if commit else self._aborted).value += 1

    def _send(self, ending: _Ending, wanted: Iterable[PartitionName]) -> None:
        by_node: dict[int, list[tuple[PartitionName, PartitionId]]] = {}
        for one in sorted(wanted):
            stream = self._places.streams.find(one.topic)
            if stream is None or one.partition >= len(stream.partitions):
                # It was known when it joined: it has been deleted since.
                self._settle(ending, one)
                continue
            place = PartitionId(stream.id, one.partition)
            leader = self._places.membership.partition(place).leader
            if leader is None:
                self._later(ending, [one])
            else:
                by_node.setdefault(leader, []).append((one, place))
        for node_id, found in by_node.items():
            for first in range(0, len(found), _AT_ONCE):
                self._ask(ending, node_id, found[first : first + _AT_ONCE])

    def _ask(self, ending: _Ending, node_id: int, found: list[tuple[PartitionName, PartitionId]]) -> None:
        one = ending.one
        request = WriteMarkers(
            ending.index, ending.epoch, one.producer_id, one.epoch,
            one.state is TransactionState.PREPARE_COMMIT, one.version,
            tuple((place.stream_id.bytes, place.partition) for _, place in found), one.sequence,
        )  # fmt: skip
        answered = partial(self._answered, ending, [place for place, _ in found])
        self._caller.call(node_id, WRITE_MARKERS, request, answered)

    def _answered(
        self, ending: _Ending, asked: list[PartitionName], answer: WriteMarkersResponse | DuramenError
    ) -> None:
        if isinstance(answer, WriteMarkersResponse) and len(answer.results) == len(asked):
            for one, refused in zip(asked, answer.results, strict=True):
                if refused is None:
                    self._again_ms = _AGAIN_MS
                    self._settle(ending, one)
                else:
                    self._later(ending, [one])
        else:
            self._later(ending, asked)
        self._look(ending)

    def _settle(self, ending: _Ending, one: PartitionName) -> None:
        if ending.left is not None:
            ending.left.discard(one)

    # -- again --------------------------------------------------------------------------------------

    def _later(self, ending: _Ending, wanted: Iterable[PartitionName]) -> None:
        self._again.setdefault(ending, set()).update(wanted)
        if self._timer is None:
            self._timer = self._deadlines.at(self._clock.monotonic_ms() + self._again_ms, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._again_ms = min(2 * self._again_ms, _AGAIN_MOST_MS)
        again, self._again = self._again, {}
        for ending, wanted in again.items():
            # If another node leads the partition of the id, that node has found the prepared transactions.
            if self._leads(ending):
                self._send(ending, wanted)
                self._look(ending)

    def stop(self) -> None:
        """Send nothing more."""
        self._again.clear()
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _nothing(_: TransactionalId | None, __: DuramenError | None) -> None:
    """A callback without a waiting caller."""
