"""The coordinator of Spark queries: stores the decision about a batch, and ends its transactions accordingly.

A query and all its attempts are in one partition of `__transaction_state`, so one node decides about them, and their
records are in the order of the decisions. Decisions and aborts of a query exclude each other: no attempt is aborted
while a decision that it has won is being written, and none wins while its abort is (docs/adr/batches-in-one-record.md).
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from duramen.base.countdown import ErrorCountdown
from duramen.base.errors import (
    AttemptLost,
    BatchDiffers,
    CoordinatorLoading,
    DuramenError,
    QueryFenced,
    TransactionStateInvalid,
)
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.codec.attempts import TaskAttempt, attempt_of, find_attempt, is_reserved, query_name
from duramen.coordinators.transaction.keyed_queue import KeyedQueue
from duramen.coordinators.transaction.lateness import Lateness
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.coordinators.transaction.shard import FINAL
from duramen.coordinators.transaction.store import TransactionStore
from duramen.transactions import batch_decisions as deciding
from duramen.transactions import machine
from duramen.transactions.batch_decisions import AttemptFate, AttemptWinner, Query
from duramen.transactions.values import AT_REST, SERVER_VERSION, ProducerIdentity, TransactionalId, TransactionState

__all__ = ["DecisionRequest", "Decisions", "Won"]

Done = Callable[[DuramenError | None], None]
BegunDone = Callable[[int, bool, DuramenError | None], None]
"""Called with the run's number and whether the batch is decided, or with the error."""

_NO_FRESH: Final = -1
_ONGOING: Final = TransactionState.ONGOING


class Won(NamedTuple):
    """A winning attempt, and the producer of its transaction."""

    winner: AttemptWinner
    identity: ProducerIdentity


class DecisionRequest(NamedTuple):
    """A driver's request to decide: a batch of a query by one of its runs. `digest` is empty if unknown."""

    query: str
    run: int
    batch: int
    digest: bytes
    won: tuple[Won, ...]


class Decisions:
    """Decides for the queries that this node coordinates; their stored state is in `known`."""

    def __init__(
        self,
        known: KnownTransactions,
        store: TransactionStore,
        clock: Clock,
        lateness: Lateness,
        soon: Callable[[Callable[[], None]], None],
        metrics: Metrics,
        kept_ms: int,
    ) -> None:
        """The state of a query of a single batch is deleted `kept_ms` after its last attempt has ended."""
        self._decided = metrics.counter("duramen_spark_batches_total", "decided")
        self._refused = metrics.counter("duramen_spark_batches_total", "refused")
        self._known = known
        self._transactions = store
        self._clock = clock
        self._lateness = lateness
        self._kept_ms = kept_ms
        self._turns = KeyedQueue(soon)

    # -- attempts -----------------------------------------------------------------------------------

    def check_open(self, id_: str) -> None:
        """Raise unless an id may start or continue to write: unreserved ids always may, attempts while open."""
        if is_reserved(id_):
            attempt = attempt_of(id_)
            deciding.check_open(self._known.query(attempt.query), attempt)

    def check_begins(self, id_: str, current: TransactionalId | None) -> None:
        """Like `check_open`; an attempt with an open transaction must not start again, which would abort it."""
        self.check_open(id_)
        if is_reserved(id_) and current is not None and current.state is _ONGOING:
            raise TransactionStateInvalid(
                f"{id_} is the id of one task attempt, and that attempt has already started to write"
            )

    def abort(
        self, id_: str, identity: ProducerIdentity, done: Callable[[ProducerIdentity | None, DuramenError | None], None]
    ) -> None:
        """The writer of an attempt aborts it."""
        try:
            attempt = attempt_of(id_)
        except DuramenError as error:
            done(None, error)
            return

        def act(over: Done) -> None:
            if deciding.fate_of(self._known.query(attempt.query), attempt) is AttemptFate.COMMIT:
                over(TransactionStateInvalid(f"batch {attempt.batch} of query {attempt.query} is decided: {id_} won"))
                return
            self._change(id_, partial(_given_up, self._clock.wall_ms(), id_, identity), over)

        def ended(error: DuramenError | None) -> None:
            one = self._known.get(id_)
            done(None if one is None or error is not None else one.identity, error)

        self._turn(attempt.query, act, ended)

    # -- requests of drivers and their tasks --------------------------------------------------------

    def begin(self, query: str, run: str, batch: int, done: BegunDone) -> None:
        """A run starts a batch. Once it is the newest run of its query, attempts of older runs are aborted."""

        def act(over: Done) -> None:
            before = self._known.query(query)
            begun = deciding.begin(before, query, run, self._clock.wall_ms())
            if begun is None:
                deciding.check_comes(before, batch)
                over(None)
                return
            self._known.check_query(begun)
            self._transactions.put_query(query, begun, self._then_settle(query, over))

        def answer(error: DuramenError | None) -> None:
            found = self._known.query(query)
            try:
                if error is not None:
                    raise error
                if found is None or found.runs[-1] != run:
                    raise QueryFenced(f"query {query}: a run other than {run} has started to write since")
                decided = deciding.is_decided(found, batch)
            except DuramenError as refused:
                done(-1, False, refused)
            else:
                done(found.run, decided, None)

        self._turn(query, act, answer)

    def decide(self, request: DecisionRequest, done: Done) -> None:
        """Store the decision about a batch, then commit the winners and abort the others.

        It calls `done` once that has started. A repeated request resumes. Raises like `deciding.decide`, and
        AttemptLost.
        """

        def act(over: Done) -> None:
            current = self._known.query(request.query)
            if current is None:
                raise QueryFenced(f"query {request.query} is not known: none of its tasks has started to write")
            winners = [won.winner for won in request.won]
            decided = deciding.decide(
                current, request.run, request.batch, request.digest, winners, self._clock.wall_ms()
            )
            if decided is None:
                self._settle(request.query, over)
                return
            if any(self._is_open(attempt.id) for attempt in deciding.winners_of(current)):
                self._settle(request.query, lambda error: over(error or _busy(current)))
                return
            self._check_won(request)
            self._known.check_query(decided)
            self._transactions.put_query(request.query, decided, stored(over))

        def stored(over: Done) -> Done:
            settle = self._then_settle(request.query, over)

            def count(error: DuramenError | None) -> None:
                self._decided.value += error is None
                settle(error)

            return count

        def answer(error: DuramenError | None) -> None:
            self._refused.value += isinstance(error, _REFUSALS)
            done(error)

        self._turn(request.query, act, answer)

    def abandon(self, query: str, run: int, batch: int, done: Done) -> None:
        """A driver gives up an undecided batch: the open attempts of its run are aborted."""

        def act(over: Done) -> None:
            lost = [
                one.id
                for one, attempt in self._attempts(query)
                if (attempt.run, attempt.batch) == (run, batch)
                and deciding.fate_of(self._known.query(query), attempt) is AttemptFate.OPEN
            ]
            self._all([partial(self._change, id_, self._aborted) for id_ in lost], self._forgetting(query, over))

        self._turn(query, act, done)

    def _is_open(self, id_: str) -> bool:
        one = self._known.get(id_)
        return one is not None and one.state is _ONGOING

    def _check_won(self, request: DecisionRequest) -> None:
        """Check that every winner is open with its producer: then it stays open until it is ended here."""
        for won in request.won:
            id_ = TaskAttempt(request.query, request.run, request.batch, *won.winner).id
            one = self._known.get(id_)
            if one is None or one.state is not _ONGOING or one.identity != won.identity:
                state = "forgotten" if one is None else one.state.label
                raise AttemptLost(
                    f"batch {request.batch} of query {request.query}: attempt {won.winner.attempt} of partition"
                    f" {won.winner.partition} is no longer open ({state})"
                )

    # -- turns --------------------------------------------------------------------------------------

    def _turn(self, query: str, act: Callable[[Done], None], done: Done) -> None:
        """Run `act` after all earlier work for a query; it calls its argument once, or raises."""
        try:
            name = query_name(query)
            self._transactions.check(name)
        except DuramenError as error:
            done(error)
            return

        def end(error: DuramenError | None) -> None:
            self._turns.over(name)
            done(error)

        def over(error: DuramenError | None) -> None:
            if isinstance(error, FINAL):
                self._transactions.confirm_query(query, lambda failed: end(failed or error))
            else:
                end(error)

        def begin() -> None:
            try:
                # A failed write may be in the log: the log has been read again before the next turn.
                self._transactions.check(name)
                act(over)
            except DuramenError as refused:
                over(refused)

        self._turns.take(name, begin)

    def _change(self, id_: str, decide: Callable[[TransactionalId | None], TransactionalId | None], done: Done) -> None:
        """End an attempt in its turn."""
        self._transactions.change(id_, decide, lambda _, error: done(error))

    # -- decisions are executed ---------------------------------------------------------------------

    def sweep(self) -> None:
        """End attempts that are decided or have timed out, and forget ended ones."""
        for query in self._known.writing_queries():
            if any(self._wants(one, attempt) for one, attempt in self._attempts(query)):
                self._turn(query, partial(self._settle, query), _nothing)
            else:
                self._forget_over(query)
        late_ms = self._clock.wall_ms() - self._kept_ms
        for found in self._known.queries():
            if _was_one_batch(found) and found.updated_ms < late_ms and not self._known.attempts(found.id):
                self._turn(found.id, partial(self._drop, found), _nothing)

    def _attempts(self, query: str) -> list[tuple[TransactionalId, TaskAttempt]]:
        found = [(one, find_attempt(one.id)) for one in self._known.attempts(query)]
        return [(one, attempt) for one, attempt in found if attempt is not None]

    def _wants(self, one: TransactionalId, attempt: TaskAttempt) -> bool:
        """Whether an attempt is open and must be ended."""
        if one.state is not _ONGOING:
            return False
        fate = deciding.fate_of(self._known.query(attempt.query), attempt)
        return fate is not AttemptFate.OPEN or self._lateness.is_late(one)

    def _settle(self, query: str, over: Done) -> None:
        """In a turn: end every attempt that must be ended."""
        ends = [
            partial(self._change, one.id, partial(self._ended, attempt))
            for one, attempt in self._attempts(query)
            if self._wants(one, attempt)
        ]

        self._all(ends, self._forgetting(query, over))

    def _then_settle(self, query: str, over: Done) -> Done:
        def stored(error: DuramenError | None) -> None:
            if error is not None:
                over(error)
            else:
                self._settle(query, over)

        return stored

    def _forgetting(self, query: str, over: Done) -> Done:
        def ended(error: DuramenError | None) -> None:
            self._forget_over(query)
            over(error)

        return ended

    def _ended(self, attempt: TaskAttempt, current: TransactionalId | None) -> TransactionalId | None:
        if current is None or current.state is not _ONGOING:
            return None
        if deciding.fate_of(self._known.query(attempt.query), attempt) is not AttemptFate.COMMIT:
            return self._aborted(current)
        return machine.end(
            current, current.id, current.identity,
            commit=True, version=SERVER_VERSION, now_ms=self._clock.wall_ms(), fresh=_NO_FRESH,
        )  # fmt: skip

    def _aborted(self, current: TransactionalId | None) -> TransactionalId | None:
        if current is None or current.state is not _ONGOING:
            return None
        return machine.fence(current, self._clock.wall_ms())

    def _all(self, actions: Iterable[Callable[[Done], None]], done: Done) -> None:
        """Run all actions; then call `done` with the first of their errors."""
        parts = ErrorCountdown(done)
        for action in actions:
            parts.add()
            action(parts.count_down)
        parts.count_down()

    def _forget_over(self, query: str) -> None:
        """An attempt's id is used for one transaction: it is forgotten after its end."""
        late_ms = self._clock.wall_ms() - self._kept_ms
        for one, attempt in self._attempts(query):
            decided = deciding.fate_of(self._known.query(query), attempt) is not AttemptFate.OPEN
            if _is_over(one) or (one.state in AT_REST and (decided or one.updated_ms < late_ms)):
                self._transactions.forget(one.id, lambda found: found.state in AT_REST)

    def _drop(self, found: Query, over: Done) -> None:
        if self._known.query(found.id) != found or self._known.attempts(found.id):
            over(None)
        else:
            self._transactions.put_query(found.id, None, over)


_REFUSALS: Final = (AttemptLost, QueryFenced, BatchDiffers)


def _given_up(
    now_ms: int, id_: str, identity: ProducerIdentity, current: TransactionalId | None
) -> TransactionalId | None:
    return machine.end(
        current, id_, identity, commit=False, version=SERVER_VERSION, now_ms=now_ms, fresh=_NO_FRESH
    )  # fmt: skip


def _is_over(one: TransactionalId) -> bool:
    return one.state in AT_REST and one.state is not TransactionState.EMPTY


def _was_one_batch(query: Query) -> bool:
    """Whether the query is a `df.write`: it never has another batch."""
    return query.id.startswith("write-")


def _busy(query: Query) -> DuramenError:
    return CoordinatorLoading(f"batch {query.batch} of query {query.id} is still being committed")


def _nothing(_: DuramenError | None) -> None:
    """A callback without a waiting caller."""
