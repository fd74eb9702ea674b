"""The state machine of a transactional id against a model that only knows who was last let in, and what ended how."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples

from duramen.base.errors import (
    ConcurrentTransactions,
    DuramenError,
    ProducerFenced,
    ProducerIdUnknown,
    TransactionAbortable,
    TransactionStateInvalid,
)
from duramen.transactions import machine
from duramen.transactions.values import (
    AT_REST,
    PREPARED,
    PartitionName,
    ProducerIdentity,
    TransactionalId,
    TransactionState,
)

PARTITIONS = [PartitionName("a", 0), PartitionName("a", 1), PartitionName("b", 0)]
PICK = st.integers(0, 1 << 16)
VERSIONS = st.sampled_from([0, 2])


class Machine(RuleBasedStateMachine):
    """Producers, one after another and late ones too, ask; time goes by; ends stay in the middle for a while.

    `heir` is the newest identity that a producer was given, `was` those before. Every commit and abort is entered in
    `ended` with the identity that asked for it and its partitions, when it is complete.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.fresh = 0
        self.one: TransactionalId | None = None
        self.given: list[ProducerIdentity] = []
        self.joined: set[PartitionName] = set()
        self.open = False
        self.ended: list[tuple[bool, ProducerIdentity, frozenset[PartitionName]]] = []
        self.ending: tuple[bool, ProducerIdentity, frozenset[PartitionName]] | None = None

    def next_id(self) -> int:
        self.fresh += 1
        return self.fresh

    def ask(self, action: Callable[[], Any]) -> Any:
        """What an operation gives, or its error; one that is refused changes nothing."""
        try:
            return action()
        except DuramenError as error:
            return error

    def identity(self, pick: int) -> ProducerIdentity:
        """Somebody who was let in once, mostly the newest."""
        return self.given[-1] if pick % 3 else self.given[pick % len(self.given)]

    @property
    def heir(self) -> ProducerIdentity:
        return self.given[-1]

    @property
    def known(self) -> TransactionalId:
        assert self.one is not None
        return self.one

    def let_in(self, identity: ProducerIdentity) -> None:
        if identity not in self.given or identity == self.heir:
            self.given.append(identity)

    # -- who writes ---------------------------------------------------------------------------------

    @rule()
    def begin_anew(self) -> None:
        self.initialise(None)

    @precondition(lambda self: self.given)
    @rule(pick=PICK)
    def go_on(self, pick: int) -> None:
        self.initialise(self.identity(pick))

    def initialise(self, expected: ProducerIdentity | None) -> None:
        before = self.one
        found = self.ask(lambda: machine.initialise(before, "t", 60_000, expected, self.now_ms, self.next_id()))
        if isinstance(found, ConcurrentTransactions):
            assert before is not None
            assert before.state in PREPARED
        elif isinstance(found, ProducerFenced):
            assert before is not None
            assert expected is not None
            assert expected != before.identity
        else:
            assert isinstance(found, TransactionalId)
            self.one = found
            if found.state is TransactionState.PREPARE_ABORT:
                assert self.open
                self.begin_end(commit=False)
                assert found.identity != before.identity if before is not None and not before.exhausted else True
            else:
                assert found.state is TransactionState.EMPTY
                assert not self.open
                assert found.epoch < 32767
                if expected is None:
                    assert found.identity not in self.given, "who comes anew is alone"
                self.let_in(found.identity)

    # -- what is written ----------------------------------------------------------------------------

    @precondition(lambda self: self.given)
    @rule(pick=PICK, partition=st.sampled_from(PARTITIONS), version=VERSIONS)
    def add(self, pick: int, partition: PartitionName, version: int) -> None:
        identity = self.identity(pick)
        found = self.ask(lambda: machine.add_partitions(self.one, "t", identity, [partition], self.now_ms, version))
        self.expect_access(identity, found)
        if found is None:
            assert self.open
            assert partition in self.joined
        elif isinstance(found, TransactionalId):
            self.one = found
            self.joined = self.joined | {partition} if self.open else {partition}
            self.open = True

    @precondition(lambda self: self.given)
    @rule(pick=PICK, partition=st.sampled_from(PARTITIONS))
    def write(self, pick: int, partition: PartitionName) -> None:
        identity = self.identity(pick)
        found = self.ask(lambda: machine.verify(self.one, "t", identity, partition))
        self.expect_access(identity, found)
        if identity == self.known.identity and self.ending is None:
            assert isinstance(found, TransactionAbortable) == (not (self.open and partition in self.joined))

    def expect_access(self, identity: ProducerIdentity, found: object) -> None:
        if identity.producer_id != self.known.producer_id:
            assert isinstance(found, ProducerIdUnknown)
        elif identity.epoch != self.known.epoch:
            assert isinstance(found, ProducerFenced)
        elif self.ending is not None:
            assert isinstance(found, ConcurrentTransactions)
        else:
            assert not isinstance(found, ProducerFenced | ProducerIdUnknown | ConcurrentTransactions)

    # -- how it ends --------------------------------------------------------------------------------

    @precondition(lambda self: self.given)
    @rule(pick=PICK, commit=st.booleans(), version=VERSIONS)
    def end(self, pick: int, commit: bool, version: int) -> None:
        identity, before = self.identity(pick), self.known
        found = self.ask(
            lambda: machine.end(
                before, "t", identity, commit=commit, version=version, now_ms=self.now_ms, fresh=self.next_id()
            )
        )
        if isinstance(found, TransactionalId):
            assert identity == before.identity
            assert self.open or (version == 2 and not commit)
            self.one = found
            self.begin_end(commit=commit, asked=identity)
            assert found.epoch == before.epoch + (1 if version == 2 else 0)
        elif found is None:
            self.expect_repeated(identity, commit, version)
        else:
            assert isinstance(
                found, ProducerFenced | ProducerIdUnknown | ConcurrentTransactions | TransactionStateInvalid
            )
            if identity == before.identity and self.open and self.ending is None:
                raise AssertionError(f"the owner of an open transaction was refused: {found}")

    def expect_repeated(self, identity: ProducerIdentity, commit: bool, version: int) -> None:
        """An end that changes nothing is one that has happened, for the same producer."""
        assert not self.open
        assert self.ended
        ended, asked, _ = self.ended[-1]
        assert ended == commit
        assert version == 0 or asked == identity or asked.epoch >= identity.epoch

    def begin_end(self, *, commit: bool, asked: ProducerIdentity | None = None) -> None:
        partitions = frozenset(self.joined) if self.open else frozenset()
        self.ending = (commit, asked if asked is not None else self.heir, partitions)
        assert self.known.partitions == partitions
        self.open = False

    @precondition(lambda self: self.ending is not None)
    @rule()
    def complete(self) -> None:
        assert self.ending is not None
        self.one = machine.complete(self.known, self.now_ms)
        assert self.one.state in AT_REST
        assert not self.one.partitions
        self.ended.append(self.ending)
        bumped = self.one.identity
        if bumped.epoch < 32766:
            self.let_in(bumped)
        elif bumped.epoch < 32767:  # the largest epoch only fences: nobody is ever told it
            self.given.append(bumped)
        self.ending = None
        self.joined = set()

    # -- time ---------------------------------------------------------------------------------------

    @rule(duration_ms=st.sampled_from([1, 59_999, 60_001]))
    def time_goes_by(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        if self.one is not None and machine.timed_out(self.one, self.now_ms):
            assert self.open
            before = self.one
            self.one = machine.fence(before, self.now_ms)
            assert self.one.identity > before.identity
            self.begin_end(commit=False)

    @precondition(
        lambda self: self.one is not None and self.ending is None and not self.open and self.one.epoch < 32000
    )
    @rule()
    def years_go_by(self) -> None:
        self.one = self.known._replace(epoch=32765)
        self.given.append(self.one.identity)

    @invariant()
    def the_state_is_the_model_s(self) -> None:
        if self.one is not None:
            assert (self.one.state is TransactionState.ONGOING) == self.open
            assert (self.one.state in PREPARED) == (self.ending is not None)
            assert 0 <= self.one.epoch <= 32767
            if self.open:
                assert self.one.partitions == self.joined
            assert machine.expired(self.one, self.now_ms + 10, 10) == (not self.open and self.ending is None)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=examples(150), stateful_step_count=40)


# -- Kafka's table of ends with version 2 (KIP-890) ---------------------------------------------------

EMPTY = TransactionalId("t", 1, 5)
ABORTED = EMPTY._replace(state=TransactionState.COMPLETE_ABORT, previous_producer_id=1)
COMMITTED = EMPTY._replace(state=TransactionState.COMPLETE_COMMIT, previous_producer_id=1)


@pytest.mark.parametrize(
    ("before", "commit", "epoch", "expected"),
    [
        (EMPTY, False, 4, ProducerFenced), (EMPTY, False, 5, TransactionalId),
        (EMPTY, True, 4, ProducerFenced), (EMPTY, True, 5, TransactionStateInvalid),
        (ABORTED, False, 4, type(None)), (ABORTED, False, 5, TransactionalId),
        (ABORTED, True, 4, TransactionStateInvalid), (ABORTED, True, 5, TransactionStateInvalid),
        (COMMITTED, False, 4, TransactionStateInvalid), (COMMITTED, False, 5, TransactionalId),
        (COMMITTED, True, 4, type(None)), (COMMITTED, True, 5, TransactionStateInvalid),
        (COMMITTED, True, 6, ProducerFenced), (COMMITTED, True, 3, ProducerFenced),
    ],
)  # fmt: skip
def test_ends_of_version_2(before: TransactionalId, commit: bool, epoch: int, expected: type) -> None:
    try:
        found: object = machine.end(
            before, "t", ProducerIdentity(1, epoch), commit=commit, version=2, now_ms=1, fresh=9
        )
    except DuramenError as error:
        found = error
    assert type(found) is expected


def test_a_timed_out_producer_of_version_2_learns_of_the_abort_and_goes_on() -> None:
    ongoing = machine.add_partitions(EMPTY, "t", ProducerIdentity(1, 5), PARTITIONS[:1], 1, 2)
    assert ongoing is not None
    aborted = machine.complete(machine.fence(ongoing, 2), 3)
    assert aborted.epoch == 6, "one bump, not two (KAFKA-19367)"
    assert machine.end(aborted, "t", ProducerIdentity(1, 5), commit=False, version=2, now_ms=4, fresh=9) is None
    with pytest.raises(TransactionStateInvalid):
        machine.end(aborted, "t", ProducerIdentity(1, 5), commit=True, version=2, now_ms=4, fresh=9)
    assert machine.initialise(aborted, "t", 60_000, ProducerIdentity(1, 5), 5, 9).epoch == 6


def test_the_last_epoch_is_left_for_fencing() -> None:
    last = EMPTY._replace(epoch=32766)
    rotated = machine.initialise(last, "t", 60_000, ProducerIdentity(1, 32766), 1, 9)
    assert rotated.identity == ProducerIdentity(9, 0)
    assert machine.initialise(rotated, "t", 60_000, ProducerIdentity(1, 32766), 1, 10).identity == ProducerIdentity(
        9, 0
    )
    ongoing = machine.add_partitions(last, "t", ProducerIdentity(1, 32766), PARTITIONS[:1], 1, 2)
    assert ongoing is not None
    fenced = machine.complete(machine.fence(ongoing, 2), 3)
    assert fenced.identity == ProducerIdentity(1, 32767)
    assert machine.initialise(fenced, "t", 60_000, None, 4, 9).identity == ProducerIdentity(9, 0)
