"""Whether a node accepts writes, beside a model: a full disk, a failed replica and a failed quorum in any order."""

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, StorageFailed, StorageFull
from duramen.controller.membership.writability import Writability
from duramen.sim.machine.clock import ManualClock, ManualWorker
from duramen.storage.condition import Condition
from duramen.storage.store import Store

LONG_MS = 10 * 60 * 1000
FAILED = StorageFailed("the disk")
FULL = StorageFull("the disk is full")
STEPS = ("full", "room", "replica", "later", "quorum")


class FakeStore:
    def __init__(self, worker: ManualWorker) -> None:
        self.condition = Condition(worker)
        self.soon = worker.soon

    def each_log(self) -> list[Any]:
        return []


@given(st.lists(st.sampled_from(STEPS), max_size=12))
def test_changes_are_told_once_and_a_failed_quorum_lasts(steps: list[str]) -> None:
    worker, clock, deadlines = ManualWorker(), ManualClock(), Deadlines()
    store, failed, told = FakeStore(worker), list[DuramenError](), list[bool]()
    writability = Writability(
        cast("Store", store), clock, deadlines, lambda: failed[0] if failed else None,
        lambda problem: told.append(problem is not None),
    )  # fmt: skip
    problems, expected = set[str](), list[bool]()
    for step in steps:
        match step:
            case "full":
                store.condition.update(FULL)
                problems.add("full")
            case "room":
                store.condition.update(None)
                problems.discard("full")
            case "replica":
                writability.replica_failed(FAILED)
                problems.add("replica")
            case "later":
                clock.advance(LONG_MS)
                deadlines.fire(clock.monotonic_ms())
                problems.discard("replica")
            case "quorum":
                failed.append(FAILED)
                writability.look()
                problems.add("quorum")
        worker.settle()
        if bool(problems) is not (bool(expected) and expected[-1]):
            expected.append(bool(problems))
        assert (step, writability.problem is not None) == (step, bool(problems))
    assert told == expected
