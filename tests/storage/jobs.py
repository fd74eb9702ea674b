"""A state machine over a store on doubles: its jobs run and come back in any order, and time passes."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from duramen.base.ports import Lane
from duramen.sim.machine.store import StoreOnDoubles


class JobsMachine(RuleBasedStateMachine):
    """Whoever makes `doubles` anew clears what is `undelivered`."""

    lanes: ClassVar[Sequence[Lane]] = ("sync", "disk")
    durations_ms: ClassVar[Sequence[int]] = ()
    doubles: StoreOnDoubles

    def __init__(self) -> None:
        super().__init__()
        self.undelivered: dict[Lane, Callable[[], None]] = {}

    @rule(lane=st.runner().flatmap(lambda machine: st.sampled_from(machine.lanes)))
    def a_job_runs(self, lane: Lane) -> None:
        """In its own thread: its result comes back later."""
        worker = self.doubles.worker
        worker.run_soon()
        if lane not in self.undelivered and worker.jobs[lane]:
            self.undelivered[lane] = worker.start(lane)

    @rule(lane=st.runner().flatmap(lambda machine: st.sampled_from(machine.lanes)))
    def a_result_comes_back(self, lane: Lane) -> None:
        if lane in self.undelivered:
            self.undelivered.pop(lane)()
            self.doubles.worker.run_soon()

    @rule(duration_ms=st.runner().flatmap(lambda machine: st.sampled_from(machine.durations_ms)))
    def time_passes(self, duration_ms: int) -> None:
        self.doubles.clock.advance(duration_ms)
        self.doubles.deadlines.fire(self.doubles.clock.monotonic_ms())

    def finish(self) -> None:
        """All results come back, and everything runs until nothing is left to run."""
        for lane in list(self.undelivered):
            self.undelivered.pop(lane)()
        self.doubles.settle()

    @rule()
    def settle(self) -> None:
        self.finish()
