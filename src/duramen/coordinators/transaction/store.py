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
    ChangeId,
    Command,
    Decide,
    Ends,
    FinishLeft,
    ForgetId,
    IdOutcome,
    KeepQuery,
    TransactionShard,
)
from duramen.transactions.batch_decisions import Query
from duramen.transactions.sequences import DecidedCommits
from duramen.transactions.values import PREPARED, TransactionalId

__all__ = ["Changed", "Stored", "TransactionCompleter", "TransactionStore"]

Changed = Callable[[TransactionalId | None, DuramenError | None], None]
"""Called with the state of the id to continue with, or with the reason why no change is known."""

Stored = Callable[[DuramenError | None], None]


class TransactionCompleter(Protocol):
    """Completes prepared transactions."""

    def begin(self, index: int, epoch: int, prepared: TransactionalId, done: Changed) -> None:
        """A partition led in `epoch` has the prepared record; `done` gets the state once its producer may continue."""

    def left(self, index: int, epoch: int) -> None:
        """A partition is loaded: continue its prepared transactions."""


class TransactionStore:
    """Sends changes of ids to the shards of `__transaction_state`. `ends` is as in `TransactionShard`."""

    def __init__(
        self, log: TransactionLog, known: KnownTransactions, runtime: Runtime, ends: Ends | None,
        soon: Callable[[Callable[[], None]], None], report: Callable[[str], None], took_in: Callable[[], None],
    ) -> None:  # fmt: skip
        """`report` receives messages for the operator; `took_in` is called after more ids are loaded.

        The component that ends transactions sets `ending`.
        """
        self.ending: TransactionCompleter
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
        """Forget the state of a partition: this node no longer leads it, or leads it in a new epoch."""
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.forget()

    def _began(self, index: int) -> None:
        epoch = self._runtime.leader_epoch(TRANSACTIONS_STREAM, index)
        if epoch is None:
            return  # another node leads by now
        if not self._restoring:
            self.ending.left(index, epoch)
            self._took_in()

    # -- at a start ---------------------------------------------------------------------------------

    def restore(self, done: Callable[[DuramenError | None], None]) -> None:
        """Calls `done` once all stored ids of a standalone node are loaded, or with the error."""

        def loaded(error: DuramenError | None) -> None:
            # Shards report first: interrupted transactions are ended once all ids are known.
            self._soon(partial(self._restored, done, error))

        if self.alone:
            self._restoring = True
            self._runtime.when_loaded(TRANSACTIONS_STREAM, loaded)
        else:
            done(None)  # nothing is coordinated before this node leads it

    def _restored(self, done: Callable[[DuramenError | None], None], error: DuramenError | None) -> None:
        self._restoring = False
        done(error)

    # -- changing -----------------------------------------------------------------------------------

    def check(self, id_: str) -> None:
        """Raise the reason why this node does not coordinate an id now."""
        if self._log.ready or not self.alone:
            self._runtime.check(TRANSACTIONS_STREAM, self._log.partition_of(id_))

    def epoch_of(self, id_: str) -> int:
        """The epoch in which this node coordinates an id. Raises like `check`, NotCoordinator."""
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
        """The transactions that a partition has decided so far, if this node leads it in that epoch.

        Raises NotCoordinator, CoordinatorLoading.
        """
        self._runtime.check(TRANSACTIONS_STREAM, index)
        if not self.leads(index, epoch):
            raise NotCoordinator(f"this node does not lead partition {index} of {TRANSACTIONS_STREAM} in epoch {epoch}")
        return DecidedCommits(self._known.sequences.newest_us, frozenset(self._shards[index].undecided()))

    def change(self, id_: str, decide: Decide, done: Changed) -> None:
        """Change an id; calls `done` once that is durable. A prepared transaction then continues to its completion."""
        self._submit(id_, ChangeId(id_, decide), partial(self._changed, id_, done))

    def join(self, id_: str, decide: Decide, done: Changed) -> None:
        """Like `change`; if no other node can lead, `done` is called at once: the record precedes the next append."""
        self._submit(id_, ChangeId(id_, decide), partial(self._changed, id_, done), early=True)

    def _submit(
        self, id_: str, command: Command, done: Callable[[IdOutcome | DuramenError], None], *, early: bool = False
    ) -> None:
        def answered(answer: ShardAnswer | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            elif isinstance(answer.response, IdOutcome):
                done(answer.response)

        try:
            if self.alone and not self._log.ready and isinstance(command, ChangeId):
                command.decide(None)  # nothing is stored
            index = self._log.partition_of(id_)
        except DuramenError as error:
            done(error)
        else:
            self._runtime.submit(TRANSACTIONS_STREAM, index, command, answered, early=early)

    def _changed(self, id_: str, done: Changed, outcome: IdOutcome | DuramenError) -> None:
        if isinstance(outcome, DuramenError):
            done(None, outcome)
        elif outcome.changed and outcome.one is not None and outcome.one.state in PREPARED:
            index = self._log.partition_of(id_)
            self.ending.begin(index, self._epoch(index), outcome.one, done)
        else:
            done(outcome.one, outcome.error)

    def finish_left(self, id_: str, done: Changed) -> None:
        """On a standalone node: complete a transaction that was prepared before the start."""
        self._submit(id_, FinishLeft(id_), partial(self._changed, id_, done))

    def forget(self, id_: str, may: Callable[[TransactionalId], bool]) -> None:
        """Forget an id, if that is allowed in its turn."""
        self._submit(id_, ForgetId(id_, may), lambda _: None)

    def put_query(self, query: str, value: Query | None, done: Stored) -> None:
        """Store a query, or None to forget it; `done` gets no error once that is known to be stored."""
        self._submit(
            query_name(query), KeepQuery(query, value),
            lambda outcome: done(outcome if isinstance(outcome, DuramenError) else None),
        )  # fmt: skip

    def confirm_query(self, query: str, done: Stored) -> None:
        """`done` gets no error if no other node coordinates a query by now."""
        if self.alone:
            done(None)
        else:
            self.put_query(query, self._known.query(query), done)
