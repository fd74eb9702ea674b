"""The transactional ids that a node of a cluster coordinates: what memory says of them all replicas in sync have.

An id changes in turns: who comes while a change is on its way waits until it is stored or refused. So nothing is
decided on what another leader might not find. Nor is anything refused for good on what another leader has changed: what
it was decided on is stored once more before, which all replicas in sync take from the one that leads only.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, NotCoordinator, NotLeader
from duramen.base.ports import Clock
from duramen.coordinators.transaction.cluster.keyed_queue import KeyedQueue
from duramen.coordinators.transaction.cluster.loader import Shard, Shards
from duramen.coordinators.transaction.log import TransactionLog
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.coordinators.transaction.store import FINAL, Changed, Decide, Stored
from duramen.transactions import machine
from duramen.transactions.values import PREPARED, TransactionalId

__all__ = ["SharedLedger"]

_AGAIN_MS: Final = 100


class SharedLedger:
    """A Ledger whose log has replicas. `prepared` is told of each transaction whose end is decided."""

    def __init__(
        self,
        log: TransactionLog,
        known: KnownTransactions,
        shards: Shards,
        clock: Clock,
        deadlines: Deadlines,
        soon: Callable[[Callable[[], None]], None],
        prepared: Callable[[Shard, TransactionalId], None],
    ) -> None:
        self._log = log
        self._known = known
        self._shards = shards
        self._clock = clock
        self._deadlines = deadlines
        self._turns = KeyedQueue(soon)
        self._prepared = prepared

    def check(self, id_: str) -> None:
        self._shards.get(id_)

    def change(self, id_: str, decide: Decide, done: Changed) -> None:
        try:
            shard = self._shards.get(id_)
        except DuramenError as error:
            done(None, error)
        else:
            self._turns.take(id_, partial(self._decide, shard, id_, decide, done))

    def join(self, id_: str, decide: Decide, done: Changed) -> None:
        self.change(id_, decide, done)

    def _decide(self, shard: Shard, id_: str, decide: Decide, done: Changed) -> None:
        try:
            self._check_led(shard, id_)
            current = self._known.get(id_)
            one = decide(current)
            if one is not None:
                one = self._log.sequenced(one, self._known.sequences)
        except DuramenError as error:
            self._refuse(id_, error, done)
            return
        if one is None:
            self._turns.over(id_)
            done(current, None)
        else:
            self._log.append(one, partial(self._stored, shard, one, done))

    def _stored(self, shard: Shard, one: TransactionalId, done: Changed, error: DuramenError | None) -> None:
        led = self._shards.is_led(shard)
        if error is None and led:
            self._known.put(one)
        self._turns.over(one.id)
        if error is None and led and one.state in PREPARED:
            # It is decided, so it is said, as Apache Kafka does: the markers are seen to whatever happens.
            done(machine.complete(one, one.updated_ms), None)
            self._prepared(shard, one)
        elif error is None and led:
            done(one, None)
        else:
            done(None, _refusal(one.id, error))

    def _refuse(self, id_: str, error: DuramenError, done: Changed) -> None:
        """In its turn."""

        def over(failed: DuramenError | None) -> None:
            self._turns.over(id_)
            done(None, error if failed is None else failed)

        def append(stored: Stored) -> None:
            current = self._known.get(id_)
            if current is None:
                self._log.remove(id_, stored)
            else:
                self._log.append(current, stored)

        if isinstance(error, FINAL):
            self.confirm(id_, append, over)
        else:
            over(None)

    def _check_led(self, shard: Shard, id_: str) -> None:
        if not self._shards.is_led(shard):
            raise _refusal(id_, None)

    def complete(self, shard: Shard, prepared: TransactionalId, done: Callable[[], None]) -> None:
        """Every marker is there: store that, until it is stored or another node leads; `done` where it is stored."""

        def stored(one: TransactionalId | None, error: DuramenError | None) -> None:
            if one is not None and error is None:
                done()
            elif self._shards.is_led(shard):
                at_ms = self._clock.monotonic_ms() + _AGAIN_MS
                self._deadlines.at(at_ms, partial(self.complete, shard, prepared, done))

        if self._shards.is_led(shard):
            self.change(prepared.id, lambda _: machine.complete(prepared, self._clock.wall_ms()), stored)

    def forget(self, id_: str, may: Callable[[TransactionalId], bool]) -> None:
        try:
            shard = self._shards.get(id_)
        except DuramenError:
            return
        self._turns.take(id_, partial(self._remove, shard, id_, may))

    def _remove(self, shard: Shard, id_: str, may: Callable[[TransactionalId], bool]) -> None:
        current = self._known.get(id_)
        if self._shards.is_led(shard) and current is not None and may(current):
            self._log.remove(id_, partial(self._removed, shard, id_))
        else:
            self._turns.over(id_)

    def _removed(self, shard: Shard, id_: str, error: DuramenError | None) -> None:
        if error is None and self._shards.is_led(shard):
            self._known.remove(id_)
        self._turns.over(id_)

    def store(self, id_: str, append: Callable[[Stored], None], done: Stored) -> None:
        try:
            shard = self._shards.get(id_)
            append(
                lambda error: done(
                    None if error is None and self._shards.is_led(shard) else _refusal(id_, error)
                )
            )  # fmt: skip
        except DuramenError as error:
            done(error)

    def confirm(self, id_: str, append: Callable[[Stored], None], done: Stored) -> None:
        self.store(id_, append, done)

    def restore(self, done: Callable[[DuramenError | OSError | None], None]) -> None:
        # Nothing is coordinated before it is led.
        done(None)


def _refusal(id_: str, error: DuramenError | None) -> DuramenError:
    if error is None or isinstance(error, NotLeader):
        return NotCoordinator(f"this node does not coordinate the transactional id {id_} any more")
    return error
