"""One partition of `__transaction_state` as a pure state machine: what its commands come to, and what it knows."""

from typing import Final, cast

import pytest

from duramen.base.errors import ProducerFenced
from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.shard import Decision
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.coordinators.transaction.shard import (
    ChangeId,
    Command,
    Ends,
    FinishLeft,
    ForgetId,
    IdOutcome,
    KeepQuery,
    Step,
    TransactionShard,
)
from duramen.transactions.batch_decisions import Query
from duramen.transactions.machine import complete
from duramen.transactions.records import decode_value
from duramen.transactions.values import TransactionalId, TransactionState

NOW_MS: Final = 1_000
ONE: Final = TransactionalId("t", 7, 3, last_epoch=2, timeout_ms=10, state=TransactionState.ONGOING, started_ms=1)
PREPARED: Final = ONE._replace(state=TransactionState.PREPARE_COMMIT)


class InOneStep:
    """How transactions end where none of their markers comes later."""

    def __init__(self) -> None:
        self.stored: list[bool] = []

    def step(self, prepared: TransactionalId, *, stored: bool) -> Step:
        self.stored.append(stored)
        return Step(complete(prepared, NOW_MS), (), False, lambda _: None)


class Made:
    """A shard, the records that it has come to, and what is known."""

    def __init__(self, ends: Ends | None = None) -> None:
        self.known = KnownTransactions(1 << 20)
        self.reports: list[str] = []
        self.shard = TransactionShard(0, self.known, ends, lambda: None, self.reports.append)

    def decide(self, command: Command) -> Decision:
        return self.shard.decide(command, cast("StateRows", None), NOW_MS)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        self.shard.apply(DecodedRecord(5, NOW_MS, key, value, ()))

    def do(self, command: Command) -> Decision:
        decision = self.decide(command)
        for key, value in decision.records:
            self.apply(key, value)
        return decision


def fence(_: TransactionalId | None) -> TransactionalId | None:
    raise ProducerFenced("another goes on")


def test_a_final_refusal_is_said_once_what_it_was_decided_on_is_stored_again() -> None:
    made = Made()
    made.do(ChangeId("t", lambda _: ONE))
    refused = made.decide(ChangeId("t", fence))
    assert refused.records == made.decide(ChangeId("t", lambda _: ONE)).records
    assert isinstance(cast("IdOutcome", refused.response).error, ProducerFenced)
    unknown = made.decide(ChangeId("u", fence))
    assert [value for _, value in unknown.records] == [None]


def test_a_node_that_is_alone_refuses_at_once() -> None:
    with pytest.raises(ProducerFenced):
        Made(InOneStep()).decide(ChangeId("t", fence))


def test_who_decided_knows_more_than_the_record_says() -> None:
    made, other = Made(), Made()
    for key, value in made.do(ChangeId("t", lambda _: ONE)).records:
        other.apply(key, value)
    assert made.known.get("t") == ONE
    assert other.known.get("t") == ONE._replace(last_epoch=-1)


def test_what_is_prepared_is_complete_behind_its_markers_where_no_other_node_may_lead() -> None:
    ends = InOneStep()
    made = Made(ends)
    decision = made.do(ChangeId("t", lambda _: PREPARED))
    known = made.known.get("t")
    assert known is not None
    assert (known.state, known.sequence >= 0) == (TransactionState.PREPARE_COMMIT, True)
    assert decision.together is not None
    ((key, value),) = decision.together.records
    assert decode_value("t", value or b"").state is TransactionState.COMPLETE_COMMIT
    left = made.decide(FinishLeft("t"))
    assert (left.records, ends.stored) == ((), [False, True])
    made.apply(key, value)
    assert made.known.get("t") == cast("IdOutcome", decision.response).one
    assert made.decide(FinishLeft("t")).together is None


def test_all_that_it_knows_is_forgotten_and_nothing_else() -> None:
    made = Made()
    made.known.put(ONE._replace(id="of another partition"))
    made.do(ChangeId("t", lambda _: ONE))
    made.do(ChangeId("u", lambda _: ONE._replace(id="u")))
    made.do(KeepQuery("q", Query("q", 1, ("r",))))
    assert made.do(ForgetId("u", lambda _: True)).records
    assert not made.decide(ForgetId("t", lambda _: False)).records
    assert ("u" in made.known, "t" in made.known, made.known.query("q") is None) == (False, True, False)
    made.shard.forget()
    assert [one.id for one in made.known.values()] == ["of another partition"]
    assert made.known.queries() == []


def test_a_record_that_cannot_be_read_is_reported() -> None:
    made = Made()
    made.apply(b"\0\0\0\1t", b"\0\1")
    assert (made.reports[0].startswith("record 5 of __transaction_state cannot be read"), "t" in made.known) == (
        True, False
    )  # fmt: skip
