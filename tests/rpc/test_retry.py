"""The retry rule against a model: which outcomes are followed by another attempt, of whom, when, and what is told."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.deadlines import Deadlines
from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NodeStarting,
    NodeStopping,
    NotController,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OutcomeUnknown,
    StorageFailed,
    StreamExists,
)
from duramen.rpc.retry import KnownLeader, Retrying, RetryPace, Underway, may_be_done, may_repeat, unasked_as
from duramen.sim.machine.scheduler import VirtualClock

NOTHING_DONE = (NotLeader, NotController, NodeStopping, NodeStarting, OffsetNotAvailable)
MAYBE_DONE = (OutcomeUnknown, NotCoordinator, CoordinatorLoading, NotEnoughReplicas, NotEnoughReplicasAfterAppend)
FINAL = (StorageFailed, StreamExists)
PACE = RetryPace(within_ms=1_000, first_ms=20, most_ms=100)

Kind = type[DuramenError]


class Step(NamedTuple):
    """What becomes of one attempt, after so many ms; where another leads from then on, and in which epoch."""

    outcome: Kind | int
    after_ms: int
    elected: bool


class Driven:
    """A request whose attempts go as a script says; once that is over, nothing is answered."""

    def __init__(self, script: list[Step], *, idempotent: bool) -> None:
        self.clock, self.deadlines = VirtualClock(), Deadlines()
        self.script = script
        self.leader = KnownLeader(1, 1)
        self.attempts: list[tuple[int, int]] = []  # when, and in which epoch
        self.outcomes: list[tuple[int, int | DuramenError]] = []
        self.retrying = Retrying(
            self.attempt, lambda: self.leader, PACE, self.clock, self.deadlines,
            lambda outcome: self.outcomes.append((self.now_ms, outcome)), idempotent=idempotent,
        )  # fmt: skip
        self.retrying.begin()

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def attempt(self, leader: KnownLeader, left_ms: int, answered: Callable[[int | DuramenError], None]) -> Underway:
        assert left_ms == PACE.within_ms - self.now_ms
        at = len(self.attempts)
        self.attempts.append((self.now_ms, leader.epoch))
        step = self.script[at] if at < len(self.script) else Step(OutcomeUnknown, left_ms, False)

        def answer() -> None:
            if step.elected:
                self.leader = KnownLeader(2, self.leader.epoch + 1)
            answered(step.outcome if isinstance(step.outcome, int) else step.outcome(f"attempt {at}"))

        self.deadlines.at(self.now_ms + min(step.after_ms, left_ms), answer)
        return Underway(leader.node_id)

    def run(self) -> None:
        while (due_ms := self.deadlines.next_ms()) is not None:
            self.clock.now_us = 1000 * due_ms
            self.deadlines.fire(due_ms, 1)


def model(script: list[Step], *, idempotent: bool) -> tuple[list[tuple[int, int]], tuple[int, Kind | int]]:
    """The attempts, and when it ends with what."""
    now_ms, epoch, wait_ms = 0, 1, PACE.first_ms
    attempts: list[tuple[int, int]] = []
    unknown = False
    steps = iter([*script, *[Step(OutcomeUnknown, PACE.within_ms, False)] * 1000])
    while True:
        step = next(steps)
        asked = epoch
        attempts.append((now_ms, epoch))
        now_ms = min(PACE.within_ms, now_ms + step.after_ms)
        epoch += step.elected
        if isinstance(step.outcome, int):
            return attempts, (now_ms, step.outcome)
        if not (step.outcome in NOTHING_DONE or (idempotent and step.outcome in MAYBE_DONE)):
            return attempts, (now_ms, step.outcome)
        unknown = unknown or step.outcome is OutcomeUnknown
        if epoch == asked:
            now_ms, wait_ms = now_ms + wait_ms, min(2 * wait_ms, PACE.most_ms)
        if now_ms >= PACE.within_ms:
            return attempts, (PACE.within_ms, OutcomeUnknown if unknown else step.outcome)


STEPS = st.builds(
    Step,
    st.sampled_from([*NOTHING_DONE, *MAYBE_DONE]) | st.sampled_from([*FINAL, 7]),
    st.integers(1, 400),
    st.booleans(),
)


@given(st.lists(STEPS, max_size=12), st.booleans())
def test_it_does_as_the_model(script: list[Step], idempotent: bool) -> None:
    driven = Driven(script, idempotent=idempotent)
    driven.run()
    attempts, (ended_ms, outcome) = model(script, idempotent=idempotent)
    assert driven.attempts == attempts
    ((told_ms, told),) = driven.outcomes
    assert (told_ms, told if isinstance(told, int) else type(told)) == (ended_ms, outcome)


@pytest.mark.parametrize(("kinds", "repeats"), [(NOTHING_DONE, True), (MAYBE_DONE, False), (FINAL, False)])
def test_what_may_have_been_done_is_repeated_where_that_does_no_harm(kinds: tuple[Kind, ...], repeats: bool) -> None:
    for kind in kinds:
        assert may_repeat(kind("x"), idempotent=False) is repeats
        assert may_repeat(kind("x"), idempotent=True) is (kind not in FINAL)


def test_only_errors_after_which_nothing_was_done_are_repeated_in_any_case() -> None:
    doubtful = [kind for kind in (*NOTHING_DONE, *MAYBE_DONE, *FINAL) if may_be_done(kind("x"))]
    assert {NotCoordinator, NotEnoughReplicasAfterAppend, OutcomeUnknown} <= set(doubtful)
    assert not any(may_repeat(kind("x"), idempotent=False) for kind in doubtful)


@pytest.mark.parametrize("kind", [*NOTHING_DONE, *MAYBE_DONE, *FINAL])
def test_a_node_that_could_not_be_asked_is_no_controller(kind: Kind) -> None:
    error = kind("why")
    found = unasked_as(NotController, error)
    if kind in (NotLeader, NodeStarting):
        assert (type(found), str(found)) == (NotController, "why")
        assert may_repeat(found, idempotent=False)
    else:
        assert found is error


def test_a_response_is_what_it_is() -> None:
    assert unasked_as(NotController, 7) == 7


@pytest.mark.parametrize("idempotent", [False, True])
def test_who_stops_says_whether_something_may_have_been_done(idempotent: bool) -> None:
    driven = Driven([], idempotent=idempotent)
    driven.retrying.stop(NodeStopping("it stops"))
    driven.run()
    assert [type(one) for _, one in driven.outcomes] == [OutcomeUnknown]


def test_who_cancels_hears_nothing() -> None:
    driven = Driven([Step(NotLeader, 5, False)], idempotent=True)
    driven.retrying.cancel()
    driven.run()
    assert (len(driven.attempts), driven.outcomes) == (1, [])
