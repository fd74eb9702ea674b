"""How transactional ids change: decided on what is stored, then stored, then said; and how a node alone does that."""

from collections.abc import Callable
from typing import Final, Protocol

from duramen.base.errors import (
    AttemptLost,
    BatchDiffers,
    DuramenError,
    ProducerFenced,
    ProducerIdUnknown,
    QueryFenced,
    TransactionAbortable,
    TransactionStateInvalid,
)
from duramen.coordinators.transaction.completion import Endings
from duramen.coordinators.transaction.log import TransactionLog
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.transactions.batch_decisions import Query
from duramen.transactions.values import PREPARED, TransactionalId

__all__ = ["FINAL", "Changed", "Decide", "OwnLedger", "Stored", "TransactionStore"]

FINAL: Final = (
    AttemptLost, BatchDiffers, ProducerFenced, ProducerIdUnknown, QueryFenced, TransactionAbortable,
    TransactionStateInvalid,
)  # fmt: skip
"""What clients do not ask again after. Nobody is told so by a node that remembers what another has changed since."""

Decide = Callable[[TransactionalId | None], TransactionalId | None]
"""Handed an id as it is; what it is to be, or None where it stays as it is. Raises why neither may be."""

Changed = Callable[[TransactionalId | None, DuramenError | None], None]
"""Called with the id as it is to go on with, or with why nothing is known to have changed."""

Stored = Callable[[DuramenError | None], None]


class TransactionStore(Protocol):
    """The transactional ids that this node coordinates."""

    def check(self, id_: str) -> None:
        """Raise why this node does not coordinate an id now."""

    def change(self, id_: str, decide: Decide, done: Changed) -> None:
        """Change an id; `done` once that is durable. One that is prepared then goes on to be complete."""

    def join(self, id_: str, decide: Decide, done: Changed) -> None:
        """As `change`; more than is stored may be remembered, for a marker too many does no harm."""

    def forget(self, id_: str, may: Callable[[TransactionalId], bool]) -> None:
        """Forget an id, if it may be when that can be decided."""

    def store(self, id_: str, append: Callable[[Stored], None], done: Stored) -> None:
        """Store what is kept beside an id; `done` has no error where this node has coordinated it all the while."""

    def confirm(self, id_: str, append: Callable[[Stored], None], done: Stored) -> None:
        """As `store`, of what is stored already, where only that shows whether another node coordinates by now."""

    def restore(self, done: Callable[[DuramenError | OSError | None], None]) -> None:
        """Take in what is stored at a start, and end what was left in the middle; then `done`."""


class OwnLedger:
    """The Ledger of a node alone: a change is decided at once, and ends in one step of the write-ahead log."""

    def __init__(
        self, log: TransactionLog, known: KnownTransactions, endings: Endings, report: Callable[[str], None]
    ) -> None:
        """`report` is told what an operator should hear of."""
        self._log = log
        self._known = known
        self._endings = endings
        self._report = report

    def check(self, id_: str) -> None:
        """Nothing: it coordinates all."""

    def change(self, id_: str, decide: Decide, done: Changed) -> None:
        before = self._known.get(id_)
        try:
            one = decide(before)
            if before is not None and one is not None and one.state in PREPARED:
                prepared = self._log.sequenced(one, self._known.sequences)
                self._endings.finish(before, prepared, lambda error: done(self._known.get(id_), error))
            elif one is not None:
                self._keep(before, one, done)
        except DuramenError as error:
            done(None, error)
        else:
            if one is None:
                done(before, None)

    def _keep(self, before: TransactionalId | None, one: TransactionalId, done: Changed) -> None:
        def stored(error: DuramenError | None) -> None:
            if error is not None and self._known.get(one.id) is one:
                self.take(one.id, before)
            done(one, error)

        self._known.put(one)
        self._log.append(one, stored)

    def join(self, id_: str, decide: Decide, done: Changed) -> None:
        before = self._known.get(id_)
        try:
            one = decide(before)
            if one is not None:
                self._known.put(one)
                self._log.append(one, lambda error: done(one, error))
        except DuramenError as error:
            done(None, error)
        else:
            if one is None:
                done(before, None)

    def forget(self, id_: str, may: Callable[[TransactionalId], bool]) -> None:
        one = self._known.get(id_)
        if one is None or not may(one):
            return

        def removed(error: DuramenError | None) -> None:
            if error is not None and id_ not in self._known:
                self._known.put(one)

        self._known.remove(id_)
        self._log.remove(id_, removed)

    def restore(self, done: Callable[[DuramenError | OSError | None], None]) -> None:
        def loaded(error: DuramenError | OSError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._endings.end_left(done)

        self._log.load(self._log.partitions, self, self._report, loaded)

    def store(self, id_: str, append: Callable[[Stored], None], done: Stored) -> None:
        del id_
        try:
            append(done)
        except DuramenError as error:
            done(error)

    def confirm(self, id_: str, append: Callable[[Stored], None], done: Stored) -> None:
        del id_, append
        done(None)

    def take_query(self, id_: str, query: Query | None) -> None:
        self._known.put_query(id_, query)

    def take(self, id_: str, one: TransactionalId | None) -> None:
        if one is None:
            self._known.remove(id_)
        else:
            self._known.put(one)
