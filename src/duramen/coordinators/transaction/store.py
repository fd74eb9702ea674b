"""The transactional ids that this node coordinates: their changes, and the actions once these are stored."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from duramen.base.errors import DuramenError, NotCoordinator
from duramen.codec.attempts import query_name
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.runtime.shard import ShardAnswer, ShardKind
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM, TransactionLog
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.coordinators.transaction.shard import (
    Change,
    Command,
    Decide,
    Ends,
    FinishLeft,
    Forget,
    KeepQuery,
    Outcome,
    TransactionShard,
)
from duramen.transactions.batch_decisions import Query
from duramen.transactions.sequences import DecidedCommits
from duramen.transactions.values import PREPARED, TransactionalId

__all__ = ["Changed", "Ending", "Stored", "TransactionStore"]

Changed = Callable[[TransactionalId | None, DuramenError | None], None]
"""Called with the id as it is to go on with, or with why nothing is known to have changed."""

Stored = Callable[[DuramenError | None], None]


class Ending(Protocol):
    """Sees to it that what is prepared becomes complete."""

    def begin(self, index: int, epoch: int, prepared: TransactionalId, done: Changed) -> None:
        """A partition led in `epoch` says that it is prepared; `done` gets it once who ended it may go on."""

    def left(self, index: int, epoch: int) -> None:
        """All of a partition is known: what is prepared there goes on."""


class TransactionStore:
    """Changes of ids go to the shards of `__transaction_state`. `ends` is as of `TransactionShard`."""

    def __init__(
        self, log: TransactionLog, known: KnownTransactions, runtime: Runtime, ends: Ends | None,
        soon: Callable[[Callable[[], None]], None], report: Callable[[str], None], took_in: Callable[[], None],
    ) -> None:  # fmt: skip
        """`report` is told what an operator should hear of; `took_in` is called where more ids are known.

        Whoever sees to ends sets `ending`.
        """
        self.ending: Ending
        self.alone = ends is not None
        self._log = log
        self._known = known
        self._runtime = runtime
        self._ends = ends
        self._soon = soon
        self._report = report
        self._took_in = took_in
        self._shards: dict[int, TransactionShard] = {}
        self._restoring = False
        runtime.add(ShardKind(TRANSACTIONS_STREAM, self._make, newest_counts=True))

    def _make(self, index: int) -> TransactionShard:
        self.let_go(index)
        shard = self._shards[index] = TransactionShard(
            index, self._known, self._ends, lambda: self._soon(partial(self._began, index)), self._report
        )  # fmt: skip
        return shard

    def let_go(self, index: int) -> None:
        """Nothing is known of a partition: this node leads it no more, or anew."""
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.forget()

    def _began(self, index: int) -> None:
        epoch = self._runtime.leader_epoch(TRANSACTIONS_STREAM, index)
        if epoch is None:
            return  # others lead by now
        if not self._restoring:
            self.ending.left(index, epoch)
            self._took_in()

    # -- at a start ---------------------------------------------------------------------------------

    def restore(self, done: Callable[[DuramenError | None], None]) -> None:
        """`done` once all that is stored on a node that is alone is known, or why it cannot be."""

        def loaded(error: DuramenError | None) -> None:
            # Shards tell of themselves first: what is left in the middle is ended once all of them are known.
            self._soon(partial(self._restored, done, error))

        if self.alone:
            self._restoring = True
            self._runtime.when_loaded(TRANSACTIONS_STREAM, loaded)
        else:
            done(None)  # nothing is coordinated before it is led

    def _restored(self, done: Callable[[DuramenError | None], None], error: DuramenError | None) -> None:
        self._restoring = False
        done(error)

    # -- changing -----------------------------------------------------------------------------------

    def check(self, id_: str) -> None:
        """Raise why this node does not coordinate an id now."""
        if self._log.ready or not self.alone:
            self._runtime.check(TRANSACTIONS_STREAM, self._log.partition_of(id_))

    def epoch_of(self, id_: str) -> int:
        """The epoch in which this node coordinates an id. Raises as `check`, NotCoordinator."""
        self.check(id_)
        return self._epoch(self._log.partition_of(id_))

    def _epoch(self, index: int) -> int:
        epoch = self._runtime.leader_epoch(TRANSACTIONS_STREAM, index)
        if epoch is None:
            raise NotCoordinator(f"this node does not lead partition {index} of {TRANSACTIONS_STREAM}")
        return epoch

    def leads(self, index: int, epoch: int) -> bool:
        """Whether this node still leads a partition in that epoch, as far as it knows."""
        return self._runtime.leader_epoch(TRANSACTIONS_STREAM, index) == epoch

    def decided(self, index: int, epoch: int) -> DecidedCommits:
        """The transactions that a partition has decided on by now, where this node leads it in that epoch.

        Raises NotCoordinator, CoordinatorLoading.
        """
        self._runtime.check(TRANSACTIONS_STREAM, index)
        if not self.leads(index, epoch):
            raise NotCoordinator(f"this node does not lead partition {index} of {TRANSACTIONS_STREAM} in epoch {epoch}")
        return DecidedCommits(self._known.sequences.newest_us, frozenset(self._shards[index].undecided()))

    def change(self, id_: str, decide: Decide, done: Changed) -> None:
        """Change an id; `done` once that is durable. One that is prepared then goes on to be complete."""
        self._submit(id_, Change(id_, decide), partial(self._changed, id_, done))

    def join(self, id_: str, decide: Decide, done: Changed) -> None:
        """As `change`; where no other node may lead, `done` at once: the record stands before what is appended next."""
        self._submit(id_, Change(id_, decide), partial(self._changed, id_, done), early=True)

    def _submit(
        self, id_: str, command: Command, done: Callable[[Outcome | DuramenError], None], *, early: bool = False
    ) -> None:
        def answered(answer: ShardAnswer | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            elif isinstance(answer.response, Outcome):
                done(answer.response)

        try:
            if self.alone and not self._log.ready and isinstance(command, Change):
                command.decide(None)  # nothing is stored
            index = self._log.partition_of(id_)
        except DuramenError as error:
            done(error)
        else:
            self._runtime.submit(TRANSACTIONS_STREAM, index, command, answered, early=early)

    def _changed(self, id_: str, done: Changed, outcome: Outcome | DuramenError) -> None:
        if isinstance(outcome, DuramenError):
            done(None, outcome)
        elif outcome.changed and outcome.one is not None and outcome.one.state in PREPARED:
            index = self._log.partition_of(id_)
            self.ending.begin(index, self._epoch(index), outcome.one, done)
        else:
            done(outcome.one, outcome.error)

    def finish_left(self, id_: str, done: Changed) -> None:
        """On a node that is alone: what was prepared before its start is to be complete."""
        self._submit(id_, FinishLeft(id_), partial(self._changed, id_, done))

    def forget(self, id_: str, may: Callable[[TransactionalId], bool]) -> None:
        """Forget an id, if it may be when that can be decided."""
        self._submit(id_, Forget(id_, may), lambda _: None)

    def put_query(self, query: str, value: Query | None, done: Stored) -> None:
        """Store a query, None: that it is forgotten; `done` has no error once that is known to be stored."""
        self._submit(
            query_name(query), KeepQuery(query, value),
            lambda outcome: done(outcome if isinstance(outcome, DuramenError) else None),
        )  # fmt: skip

    def confirm_query(self, query: str, done: Stored) -> None:
        """`done` has no error where no other node coordinates a query by now."""
        if self.alone:
            done(None)
        else:
            self.put_query(query, self._known.query(query), done)
