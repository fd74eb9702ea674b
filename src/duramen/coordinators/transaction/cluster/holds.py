"""Commit markers held back while a snapshot is taken, so that it has each transaction entirely or not at all.

A coordinator that holds commits of some streams back reports the transactions decided so far, once all of them have
their markers. Later decisions get no marker until the hold is released or expires. No snapshot relies on that: commit
sequences in the markers reveal later decisions (`duramen.keyed.cuts`). Without holds there would hardly be a moment
between transactions while many are in progress.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator
from duramen.base.ids import StreamId
from duramen.base.ports import Clock
from duramen.coordinators.transaction.cluster.requests import (
    HOLD_COMMITS,
    RELEASE_COMMITS,
    CommitsHeld,
    CommitsReleased,
    HeldCommits,
    HoldCommits,
    ReleaseCommits,
)
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.coordinators.transaction.store import TransactionStore
from duramen.rpc.server import Done, RpcServer
from duramen.transactions.sequences import DecidedCommits, partition_of
from duramen.transactions.values import TransactionalId, TransactionState

__all__ = ["CommitHolds"]

_HOLD_MS: Final = 500
_WAIT_MS: Final = 2_500
_MOST: Final = 1_000
"""The largest number of concurrent holds."""


class _Hold:
    """`decided` has the decisions at the start of the hold, by partition of `__transaction_state`."""

    __slots__ = ("decided", "over", "streams")

    def __init__(self, streams: frozenset[StreamId], decided: dict[int, DecidedCommits], over: Deadline) -> None:
        self.streams = streams
        self.decided = decided
        self.over = over


class _Waiter:
    """A request that waits until all earlier decisions have their markers."""

    __slots__ = ("decided", "done", "epochs", "late", "streams")

    def __init__(
        self, streams: frozenset[StreamId], epochs: dict[int, int], decided: dict[int, DecidedCommits],
        done: Done[CommitsHeld],
    ) -> None:  # fmt: skip
        self.streams = streams
        self.epochs = epochs
        self.decided = decided
        self.done = done
        self.late: Deadline | None = None


class CommitHolds:
    """The holds of this node. `resume` is called when a hold ends."""

    def __init__(
        self, places: TransactionDependencies, known: KnownTransactions, store: TransactionStore, clock: Clock,
        deadlines: Deadlines, server: RpcServer,
    ) -> None:  # fmt: skip
        self.resume: Callable[[], None] = lambda: None
        self._places = places
        self._known = known
        self._store = store
        self._clock = clock
        self._deadlines = deadlines
        self._holds: dict[bytes, _Hold] = {}
        self._waiters: dict[_Waiter, None] = {}
        server.handle(HOLD_COMMITS, self._hold)
        server.handle(RELEASE_COMMITS, self._release)

    def holds(self, prepared: TransactionalId) -> bool:
        """Whether the markers of a transaction must wait."""
        if not self._holds or prepared.state is not TransactionState.PREPARE_COMMIT:
            return False
        streams, index = self._streams_of(prepared), partition_of(prepared.sequence)
        return any(
            not hold.streams.isdisjoint(streams)
            and (decided := hold.decided.get(index)) is not None
            and not decided.has(prepared.sequence)
            for hold in self._holds.values()
        )

    def _streams_of(self, one: TransactionalId) -> set[StreamId]:
        found = (self._places.streams.find(partition.topic) for partition in one.partitions)
        return {stream.id for stream in found if stream is not None}

    def look(self) -> None:
        """A transaction is complete, or the coordinated partitions have changed: serve waiting requests."""
        for waiter in list(self._waiters):
            error = self._refusal(waiter)
            if error is None and self._unmarked(waiter):
                continue
            del self._waiters[waiter]
            if waiter.late is not None:
                waiter.late.cancel()
            held = [HeldCommits(one.newest_us, tuple(one.undecided)) for one in waiter.decided.values()]
            waiter.done(CommitsHeld(tuple(held)) if error is None else error)

    def _refusal(self, waiter: _Waiter) -> DuramenError | None:
        if all(self._store.leads(index, epoch) for index, epoch in waiter.epochs.items()):
            return None
        return NotCoordinator("another node now coordinates these transactions")

    def _unmarked(self, waiter: _Waiter) -> bool:
        """Whether an earlier decision may lack markers."""
        return any(
            one.state is TransactionState.PREPARE_COMMIT
            and (decided := waiter.decided.get(self._places.log.partition_of(one.id))) is not None
            and decided.has(one.sequence)
            and not waiter.streams.isdisjoint(self._streams_of(one))
            for one in self._known.open()
        )

    # -- requests of other nodes --------------------------------------------------------------------

    def _hold(self, request: HoldCommits, done: Done[CommitsHeld]) -> None:
        if len(self._holds) >= _MOST or len(self._waiters) >= _MOST:
            raise CoordinatorLoading(f"{_MOST} snapshots are already being taken: retry")
        decided, epochs = dict[int, DecidedCommits](), dict(request.coordinators)
        for index, epoch in request.coordinators:
            decided[index] = self._store.decided(index, epoch)
        streams, now_ms = frozenset(StreamId(bytes=one) for one in request.streams), self._clock.monotonic_ms()
        self._end(request.hold_id)
        over = self._deadlines.at(now_ms + _HOLD_MS, partial(self._end, request.hold_id))
        self._holds[request.hold_id] = _Hold(streams, decided, over)
        waiter = _Waiter(streams, epochs, decided, done)
        waiter.late = self._deadlines.at(now_ms + _WAIT_MS, partial(self._give_up, waiter))
        self._waiters[waiter] = None
        self.look()

    def _give_up(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            del self._waiters[waiter]
            waiter.done(CoordinatorLoading(f"a committed transaction still lacks a marker after {_WAIT_MS} ms"))

    def _release(self, request: ReleaseCommits, done: Done[CommitsReleased]) -> None:
        self._end(request.hold_id)
        done(CommitsReleased())

    def _end(self, hold_id: bytes) -> None:
        hold = self._holds.pop(hold_id, None)
        if hold is not None:
            hold.over.cancel()
            self.resume()
