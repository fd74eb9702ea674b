"""The coordinator of Spark's queries on a node alone: decisions, losers, timeouts, older runs, and crashes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinators.transaction.deciding import Run
from tests.coordinators.transaction.transacting import broker_for, committed_values
from tests.examples import examples

from duramen.base.errors import (
    AttemptLost,
    BatchDiffers,
    ProducerFenced,
    ProducerIdUnknown,
    QueryFenced,
    RequestInvalid,
    TransactionStateInvalid,
)
from duramen.coordinators.transaction.batch_decisions import Won
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.transactions.values import ProducerIdentity

TIMEOUT_MS = 60_000  # what the writers ask for
SWEEP_MS = 10_000


@pytest.fixture
def hand() -> ManualBroker:
    broker = broker_for()
    broker.create("a", partitions=3)
    return broker


def began(hand: ManualBroker, name: str = "r1", batch: int = 0, query: str = "q") -> Run:
    run = Run(hand, query, name)
    assert not run.begin(batch)
    return run


def undecided(hand: ManualBroker) -> bool:
    """Whether readers wait for the end of any transaction."""
    return any(one.last_stable_offset != one.log.end_offset for one in hand.broker.streams.get("a").partitions)


def ids(hand: ManualBroker) -> list[str]:
    return [one.id for one in hand.broker.transactions.listing((), (), -1)]


def test_what_has_won_is_committed_and_what_has_not_is_aborted(hand: ManualBroker) -> None:
    run = began(hand)
    lost = run.write(0, 0, 1, b"lost")
    won = run.write(0, 0, 2, b"won"), run.write(0, 1, 3, b"also")
    assert [committed_values(hand, "a", index) for index in range(2)] == [[], []]
    run.decide(0, *won, digest=b"d")
    assert [committed_values(hand, "a", index) for index in range(2)] == [[b"won"], [b"also"]]
    assert not undecided(hand)
    assert lost.winner.attempt == 1
    assert ids(hand) == [], "an attempt's id is used once"
    run.decide(0, *won, digest=b"d")  # its answer was lost
    assert committed_values(hand, "a", 0) == [b"won"]
    with pytest.raises(BatchDiffers, match="another range"):
        run.decide(0, *won, digest=b"e")


def test_the_decision_is_stored_before_anything_is_committed(hand: ManualBroker) -> None:
    run = began(hand)
    won = run.write(0, 0, 1, b"won")
    answer = run.ask(0, won)
    hand.worker.run_soon()
    assert not answer.there
    hand.crash()  # the write was not synced: nothing is decided
    again = Run(hand, "q", "r1")
    assert not again.begin(0)
    again.decide(0, won)
    assert committed_values(hand, "a", 0) == [b"won"]


def test_a_batch_of_the_past_is_refused(hand: ManualBroker) -> None:
    run = began(hand)
    run.decide(3, run.write(3, 0, 1, b"x"))
    with pytest.raises(BatchDiffers, match="batch 2 of query q comes again, but batch 3 is already decided"):
        run.begin(2)
    assert run.begin(3)
    assert not run.begin(4)


def test_an_undecided_batch_times_out_and_is_written_again(hand: ManualBroker) -> None:
    run = began(hand)
    late = run.write(0, 0, 1, b"late")
    hand.advance(TIMEOUT_MS + 2 * SWEEP_MS)
    assert not undecided(hand)
    with pytest.raises(AttemptLost, match="attempt 1 of partition 0 is no longer open"):
        run.decide(0, late)
    run.decide(0, run.write(0, 0, 2, b"again"))
    assert committed_values(hand, "a", 0) == [b"again"]


def test_what_is_decided_never_times_out(hand: ManualBroker) -> None:
    run = began(hand)
    answer = run.ask(0, run.write(0, 0, 1, b"won"))
    hand.clock.advance(10 * TIMEOUT_MS)
    hand.deadlines.fire(hand.clock.monotonic_ms())
    hand.settle()
    assert answer.value is None
    assert committed_values(hand, "a", 0) == [b"won"]


def test_a_new_run_aborts_what_an_older_one_has_open_and_fences_it(hand: ManualBroker) -> None:
    old = began(hand, "old")
    left = old.write(0, 0, 1, b"left")
    task = old.task(0, 1, 2)
    new = began(hand, "new")
    assert new.number == old.number + 1
    assert not undecided(hand)
    late = task.write("a", 1, b"late")
    hand.settle()
    assert isinstance(late.error, QueryFenced)
    for refused in (lambda: old.decide(0, left), lambda: old.begin(0), lambda: old.task(0, 1, 3)):
        with pytest.raises(QueryFenced, match=r"run 1 \(old\) is fenced: run 2 \(new\)"):
            refused()
    new.decide(0, new.write(0, 0, 1, b"new"))
    assert committed_values(hand, "a", 0) == [b"new"]


def test_nothing_is_written_to_a_batch_that_is_decided(hand: ManualBroker) -> None:
    run = began(hand)
    slow = run.task(0, 0, 9)
    run.decide(0, run.write(0, 0, 1, b"won"))
    late = slow.write("a", 0, b"late")
    hand.settle()
    assert isinstance(late.error, QueryFenced | ProducerIdUnknown)
    with pytest.raises(QueryFenced, match="batch 0 of query q is decided: nothing more is written to it"):
        run.task(0, 0, 10)
    assert committed_values(hand, "a", 0) == [b"won"]


def test_a_batch_that_is_given_up_can_be_written_again(hand: ManualBroker) -> None:
    run = began(hand)
    first = run.write(0, 0, 1, b"first")
    run.write(1, 1, 2, b"of another batch")
    run.abandon(0)
    assert hand.broker.streams.get("a").partition(0).last_stable_offset == 2
    assert ids(hand) == ["__spark/q/1/1/1/2"]
    with pytest.raises(AttemptLost):
        run.decide(0, first)
    run.decide(0, run.write(0, 0, 3, b"second"))
    run.abandon(0)  # too late
    assert committed_values(hand, "a", 0) == [b"second"]


def test_an_attempt_is_ended_by_the_decision_only(hand: ManualBroker) -> None:
    run = began(hand)
    writer = run.task(0, 0, 1)
    writer.write("a", 0, b"x")
    hand.settle()
    committed = writer.end(commit=True)
    hand.settle()
    assert isinstance(committed.error, TransactionStateInvalid)
    with pytest.raises(TransactionStateInvalid, match="has already started to write"):
        run.task(0, 0, 1)
    writer.settle_end(commit=False)
    assert committed_values(hand, "a", 0) == []
    with pytest.raises(AttemptLost):
        run.decide(0, run.write(0, 1, 2, b"y"), run.write(0, 2, 3, b"z")._replace(identity=ProducerIdentity(77, 0)))


def test_names_that_are_no_attempts_are_refused(hand: ManualBroker) -> None:
    for name in ("__spark/q", "__spark/q/1/2/3/x"):
        answer: CallbackResult[ProducerIdentity] = CallbackResult()
        hand.broker.transactions.initialise(name, TIMEOUT_MS, None, answer)
        hand.settle()
        assert isinstance(answer.error, RequestInvalid)
    with pytest.raises(RequestInvalid, match="no slash"):
        Run(hand, "a/b", "r").begin(0)
    with pytest.raises(QueryFenced, match="query q is not known"):
        Run(hand, "q", "r").decide(0)
    run = Run(hand, "q", "r")
    run.number = 1
    with pytest.raises(QueryFenced, match="has no run 1"):
        run.task(0, 0, 0)


def test_a_restart_finds_everything_and_a_write_of_one_batch_is_forgotten_in_the_end(hand: ManualBroker) -> None:
    run = began(hand)
    run.decide(0, run.write(0, 0, 1, b"won"), digest=b"d")
    once = began(hand, "w", query="write-1")
    once.decide(0, once.write(0, 1, 1, b"once"))
    hand.restart()
    again = Run(hand, "q", "r2")
    assert again.begin(0)
    again.decide(0, digest=b"d")
    assert Run(hand, "write-1", "w").begin(0)
    hand.advance(hand.settings.integer("transaction.max.timeout.ms") + 2 * SWEEP_MS)
    hand.restart()
    assert not Run(hand, "write-1", "w").begin(0)
    assert Run(hand, "q", "r2").begin(0)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("step", range(12))
def test_a_crash_at_any_step_of_a_decision_leaves_all_or_nothing(step: int, seed: int | None) -> None:
    hand = broker_for()
    hand.create("a", partitions=3)
    run = began(hand)
    won = [run.write(0, partition, partition, b"won") for partition in range(3)]
    run.write(0, 0, 9, b"lost")
    answer = run.ask(0, *won, digest=b"d")
    for _ in range(step):
        hand.worker.run_soon() if hand.worker.actions else [hand.worker.step(lane) for lane in list(hand.worker.jobs)]
    said = answer.there and answer.error is None
    hand.crash(seed)
    again = Run(hand, "q", "r2")
    decided = again.begin(0)
    assert decided or not said
    assert not undecided(hand)
    values = [committed_values(hand, "a", index) for index in range(3)]
    assert values == ([[b"won"]] * 3 if decided else [[]] * 3)
    again.decide(0, *[] if decided else [again.write(0, partition, partition, b"won") for partition in range(3)])
    assert [committed_values(hand, "a", index) for index in range(3)] == [[b"won"]] * 3


_REFUSED = (AttemptLost, BatchDiffers, ProducerFenced, QueryFenced, RequestInvalid, TransactionStateInvalid)
drivers = st.lists(
    st.tuples(
        st.sampled_from(["run", "begin", "write", "decide", "abandon", "crash", "time"]),
        st.integers(0, 1), st.integers(0, 2), st.integers(0, 99),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(drivers)
def test_two_drivers_and_crashes_write_every_batch_once(steps: list[tuple[str, int, int, int]]) -> None:
    hand = broker_for()
    hand.create("a", partitions=3)
    runs: list[Run | None] = [None, None]
    written: list[dict[tuple[int, int], tuple[bytes, Won]]] = [{}, {}]
    made = 0
    answered: dict[int, set[bytes]] = {}
    for what, who, partition, number in steps:
        run = runs[who]
        if what == "crash":
            hand.crash(number or None)
        elif what == "time":
            hand.advance(TIMEOUT_MS + 2 * SWEEP_MS)
        elif what == "run" or run is None:
            made += 1
            runs[who], written[who] = Run(hand, "q", f"r{made}"), {}
        else:
            batch = max(answered, default=-1) + 1
            try:
                if what == "begin":
                    run.begin(batch)
                elif what == "write":
                    value = b"%d-%d-%d" % (batch, partition, number)
                    written[who][batch, partition] = value, run.write(batch, partition, number, value)
                elif what == "decide":
                    chosen = [found for at, found in written[who].items() if at[0] == batch]
                    run.decide(batch, *[won for _, won in chosen])
                    answered[batch] = {value for value, _ in chosen}
                else:
                    run.abandon(batch)
            except _REFUSED:
                continue
    last = Run(hand, "q", "last")
    last.begin(max(answered, default=-1) + 1)
    seen = [value or b"" for index in range(3) for value in committed_values(hand, "a", index)]
    assert sorted(seen) == sorted(value for values in answered.values() for value in values)
    assert not undecided(hand)
