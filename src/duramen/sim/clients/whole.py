"""Clients that open snapshots over all keyed streams: each has every transaction entirely or not at all."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from duramen.base.errors import NodeStopping, SnapshotNotReached, StreamNotKeyed
from duramen.broker.views.running_view import RunningView
from duramen.sim.checkers.counted import UNSURE
from duramen.sim.checkers.keyed import KeyedHistory
from duramen.sim.checkers.transaction import SimulatedTransaction
from duramen.sim.clients.access import FetchedData
from duramen.sim.clients.shared import Clients
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["WholeReaders"]

_PATIENCES_US: Final = (100, 1000, 10_000, 2_000_000)
_READ_BYTES: Final = 1 << 20


class WholeReaders:
    """All of them; and the one that goes through each keyed log for its markers."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    # -- markers ------------------------------------------------------------------------------------

    def follow(self, history: KeyedHistory, until: int, done: Callable[[bool], None]) -> None:
        """Read the log up to an offset; `done` gets whether that was reached."""
        partition = self._clients.partition(history)
        if partition is None or not history.transactional or history.counted.reached >= until:
            done(partition is not None)
            return
        offset = max(history.counted.reached, partition.log.start_offset)
        answer = self._clients.answer(partial(self._followed, history, offset, until, done))
        self._clients.access.fetch(partition, offset, _READ_BYTES, answer, committed=False)

    def _followed(
        self, history: KeyedHistory, offset: int, until: int, done: Callable[[bool], None], found: FetchedData
    ) -> None:  # fmt: skip
        if found.error is not None or not found.data:
            done(False)
            return
        history.read(offset, found.data)
        history.counted.see(found.data)
        if history.counted.reached <= offset:
            done(False)
        else:
            self._clients.worker.soon(self._clients.answer(partial(self.follow, history, until, done)))

    # -- vectors ------------------------------------------------------------------------------------

    def look(self) -> None:
        """Open a snapshot over all keyed streams."""
        clients = self._clients
        histories = [one for one, _ in clients.histories() if isinstance(one, KeyedHistory) and one.keyed]
        try:
            views = [self._view(history) for history in histories]
        except (StreamNotKeyed, SnapshotNotReached, NodeStopping):
            return
        if len(views) > 1:
            _Opening(clients, self, histories, views)

    def _view(self, history: KeyedHistory) -> RunningView:
        return self._clients.broker.views.get(self._clients.broker.streams.get(history.name), history.partition)


class _Opening:
    """One snapshot: aimed at, waited for, and looked at."""

    def __init__(
        self, clients: Clients, readers: WholeReaders, histories: Sequence[KeyedHistory], views: Sequence[RunningView]
    ) -> None:
        self._clients = clients
        self._readers = readers
        self._histories = histories
        self._views = views
        self._aimed: list[int] | None = None
        self._left = 0
        self._ended = clients.answer(self._open)
        self._over = False
        clients.worker.after(clients.chance.choice(_PATIENCES_US), self._end)
        forget = clients.broker.snapshot_vectors.aim(views, self._aim)
        self._forget = [forget]

    def _aim(self, vector: list[int]) -> None:
        self._aimed, self._left = vector, len(vector)
        for view, at in zip(self._views, vector, strict=True):
            view.when_reached(at, self._reached)

    def _reached(self) -> None:
        self._left -= 1
        if not self._left:
            self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            for forget in self._forget:
                forget()
            self._ended()

    def _open(self) -> None:
        if any(self._clients.partition(history) is None for history in self._histories):
            return
        try:
            vector = self._clients.broker.snapshot_vectors.newest(self._views, self._aimed)
        except SnapshotNotReached:
            return
        self._clients.trace("a snapshot over %s is at %s", ", ".join(map(str, self._histories)), vector)
        self._go_on(dict(zip(self._histories, vector, strict=True)), list(self._histories))

    def _go_on(self, vector: dict[KeyedHistory, int], left: list[KeyedHistory]) -> None:
        """See the markers of all of them, one after another, and then look at the vector."""
        if left:
            history = left.pop()
            done = partial(self._seen, vector, left)
            self._readers.follow(history, vector[history], done)
        else:
            self._check(vector)

    def _seen(self, vector: dict[KeyedHistory, int], left: list[KeyedHistory], reached: bool) -> None:
        if reached:
            self._go_on(vector, left)

    def _check(self, vector: dict[KeyedHistory, int]) -> None:
        inside: dict[SimulatedTransaction, dict[KeyedHistory, bool]] = {}
        for history, at in vector.items():
            if history.damaged or history.spoiled or not history.keyed:
                continue
            for sent in history.stored_in_transactions():
                counts = history.counted.of(sent)
                if counts is not None and counts != UNSURE and sent.transaction is not None:
                    inside.setdefault(sent.transaction, {})[history] = counts < at
        for transaction, sides in inside.items():
            if transaction.fate != "aborted" and len(set(sides.values())) > 1:
                where = ", ".join(f"{history} {'in' if one else 'out'}" for history, one in sides.items())
                raise BrokenPromise(f"transaction {transaction.number} is in a snapshot in part: {where}")
