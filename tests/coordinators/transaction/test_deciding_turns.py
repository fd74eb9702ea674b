"""The coordinator of Spark's queries while records are on their way, or nobody knows what became of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from duramen.base.errors import (
    AttemptLost,
    CoordinatorLoading,
    DuramenError,
    NotEnoughReplicasAfterAppend,
    TransactionStateInvalid,
)
from duramen.base.metrics import Metrics
from duramen.codec.attempts import TaskAttempt
from duramen.coordinators.transaction.batch_decisions import DecisionRequest, Decisions, Won
from duramen.coordinators.transaction.lateness import Lateness
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.sim.broker import CallbackResult
from duramen.sim.machine.clock import ManualClock
from duramen.transactions.batch_decisions import AttemptWinner, Query
from duramen.transactions.machine import complete
from duramen.transactions.values import PREPARED, PartitionName, ProducerIdentity, TransactionalId, TransactionState

IN_DOUBT = NotEnoughReplicasAfterAppend("nobody knows whether it is stored")
TIMEOUT_MS = 60_000


class Pending(NamedTuple):
    """A record on its way: of a query or of a transactional id."""

    value: Query | TransactionalId | None
    done: Callable[..., None]


class Scripted:
    """A store whose records are stored when a test says so.

    As the runtime does, it takes no change after one in doubt before it has read again what is in the log.
    """

    def __init__(self) -> None:
        self.known = KnownTransactions(1 << 20)
        self.clock = ManualClock()
        self.pending: list[Pending] = []
        self.in_doubt: list[Query | TransactionalId | None] = []
        found: Any = self
        self.decisions = Decisions(
            self.known, found, self.clock, Lateness(self.clock), lambda action: action(), Metrics(), 1 << 40
        )

    def check(self, id_: str) -> None:
        """It coordinates all, once it knows what is in the log."""
        if self.in_doubt:
            raise CoordinatorLoading(f"for {id_} the log has to be read again")

    def change(self, id_: str, decide: Callable[..., TransactionalId | None], done: Callable[..., None]) -> None:
        one = decide(self.known.get(id_))
        if one is None:
            done(self.known.get(id_), None)
        else:
            self.pending.append(Pending(one, done))

    def forget(self, id_: str, may: Callable[[TransactionalId], bool]) -> None:
        one = self.known.get(id_)
        if one is not None and may(one):
            self.known.remove(id_)

    def put_query(self, _: str, value: Query | None, done: Callable[..., None]) -> None:
        self.pending.append(Pending(value, done))

    def confirm_query(self, _: str, done: Callable[..., None]) -> None:
        done(None)

    def answer(self, error: DuramenError | None = None) -> Query | TransactionalId | None:
        """The oldest record is stored, or something went wrong; what it is."""
        value, done = self.pending.pop(0)
        if error is None:
            self._know(value)
        else:
            self.in_doubt.append(value)
        if isinstance(value, TransactionalId):
            done(None if error is not None else self.known.get(value.id), error)
        else:
            done(error)
        return value

    def read_again(self, *, kept: bool) -> None:
        """What was in doubt is known to be in the log, or not to be."""
        for value in self.in_doubt if kept else ():
            self._know(value)
        self.in_doubt = []
        self.decisions.sweep()

    def _know(self, value: Query | TransactionalId | None) -> None:
        if isinstance(value, TransactionalId):
            self.known.put(complete(value, 0) if value.state in PREPARED else value)
        else:
            self.known.put_query("q", value)

    def begun(self) -> None:
        """Run 1 of the query has begun."""
        answer: CallbackResult[Any] = CallbackResult()
        self.decisions.begin("q", "r", 0, answer)
        self.answer()
        assert answer.calls == [(1, False, None)]

    def opened(self, batch: int, attempt: int) -> Won:
        """An attempt that has written."""
        id_ = TaskAttempt("q", 1, batch, 0, attempt).id
        self.known.put(
            TransactionalId(
                id_,
                attempt,
                0,
                timeout_ms=TIMEOUT_MS,
                state=TransactionState.ONGOING,
                partitions=frozenset({PartitionName("a", 0)}),
                started_ms=self.clock.wall_ms(),
            )
        )
        return Won(AttemptWinner(0, attempt), ProducerIdentity(attempt, 0))

    def decide(self, batch: int, *won: Won) -> CallbackResult[None]:
        answer: CallbackResult[None] = CallbackResult()
        self.decisions.decide(DecisionRequest("q", 1, batch, b"", won), answer)
        return answer


@pytest.fixture
def scripted() -> Scripted:
    found = Scripted()
    found.begun()
    return found


def states(scripted: Scripted) -> list[str]:
    """What is on its way."""
    return [one.value.state.name if isinstance(one.value, TransactionalId) else "QUERY" for one in scripted.pending]


@pytest.mark.parametrize("kept", [False, True])
def test_a_decision_that_is_in_doubt_counts_where_the_log_has_it(scripted: Scripted, *, kept: bool) -> None:
    answer = scripted.decide(0, scripted.opened(0, 7))
    assert scripted.answer(IN_DOUBT) == scripted.known.query("q")._replace(  # type: ignore[union-attr]
        batch=0, batch_run=1, winners=frozenset({AttemptWinner(0, 7)}), updated_ms=scripted.clock.wall_ms()
    )
    assert answer.error is IN_DOUBT
    scripted.clock.advance(TIMEOUT_MS + 1)
    scripted.decisions.sweep()
    assert states(scripted) == [], "nothing is aborted before it is known"
    scripted.read_again(kept=kept)
    assert states(scripted) == ["PREPARE_COMMIT" if kept else "PREPARE_ABORT"]


@pytest.mark.parametrize("kept", [False, True])
def test_an_attempt_whose_abort_is_in_doubt_wins_where_the_log_does_not_have_it(
    scripted: Scripted, *, kept: bool
) -> None:
    won = scripted.opened(0, 7)
    given_up: CallbackResult[ProducerIdentity] = CallbackResult()
    scripted.decisions.abort(TaskAttempt("q", 1, 0, 0, 7).id, won.identity, given_up)
    assert states(scripted) == ["PREPARE_ABORT"]
    scripted.answer(IN_DOUBT)
    assert isinstance(scripted.decide(0, won).error, CoordinatorLoading)
    assert scripted.pending == []
    scripted.read_again(kept=kept)
    answer = scripted.decide(0, won)
    assert states(scripted) == ([] if kept else ["QUERY"])
    assert isinstance(answer.error, AttemptLost) if kept else not answer.calls


def test_the_next_batch_is_decided_when_all_of_the_one_before_is_committed(scripted: Scripted) -> None:
    answer = scripted.decide(0, scripted.opened(0, 7))
    scripted.answer()
    assert states(scripted) == ["PREPARE_COMMIT"]
    scripted.answer(IN_DOUBT)
    assert answer.error is IN_DOUBT
    scripted.in_doubt = []
    won = scripted.opened(1, 8)
    busy = scripted.decide(1, won)
    assert states(scripted) == ["PREPARE_COMMIT"]
    scripted.answer()
    assert isinstance(busy.error, CoordinatorLoading)
    decided = scripted.decide(1, won)
    assert states(scripted) == ["QUERY"]
    scripted.answer()
    scripted.answer()
    assert decided.error is None


def test_nothing_is_aborted_while_a_decision_is_on_its_way(scripted: Scripted) -> None:
    won = scripted.opened(0, 7)
    answer = scripted.decide(0, won)
    given_up: CallbackResult[ProducerIdentity] = CallbackResult()
    scripted.decisions.abort(TaskAttempt("q", 1, 0, 0, 7).id, won.identity, given_up)
    abandoned: CallbackResult[None] = CallbackResult()
    scripted.decisions.abandon("q", 1, 0, abandoned)
    scripted.clock.advance(TIMEOUT_MS + 1)
    scripted.decisions.sweep()
    assert states(scripted) == ["QUERY"]
    scripted.answer()
    assert states(scripted) == ["PREPARE_COMMIT"]
    scripted.answer()
    assert (answer.error, abandoned.error) == (None, None)
    assert isinstance(given_up.error, TransactionStateInvalid)
    assert scripted.pending == []


def test_a_decision_waits_for_an_abort_that_is_on_its_way(scripted: Scripted) -> None:
    won = scripted.opened(0, 7)
    given_up: CallbackResult[ProducerIdentity] = CallbackResult()
    scripted.decisions.abort(TaskAttempt("q", 1, 0, 0, 7).id, won.identity, given_up)
    answer = scripted.decide(0, won)
    assert states(scripted) == ["PREPARE_ABORT"]
    scripted.answer()
    assert given_up.error is None
    assert isinstance(answer.error, AttemptLost)
