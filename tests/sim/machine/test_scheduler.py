"""The seeded worker: lanes, virtual time, and jobs that are interrupted in their calls."""

import random
from collections.abc import Callable

import pytest

from duramen.sim.machine.scheduler import SeededWorker, VirtualClock


class Wrong(BaseException):
    """What the worker makes of an exception that nobody may raise."""


def new_worker(seed: int = 1) -> tuple[SeededWorker, VirtualClock]:
    clock = VirtualClock()
    return SeededWorker(clock, random.Random(seed), Wrong), clock


def run(worker: SeededWorker) -> None:
    while worker.turn():
        pass


def test_a_job_and_its_result_are_two_events_with_time_between() -> None:
    worker, clock = new_worker()
    events: list[tuple[str, int]] = []
    worker.submit("sync", lambda: events.append(("job", clock.now_us)), lambda _: events.append(("done", clock.now_us)))
    run(worker)
    (first, began_us), (second, ended_us) = events
    assert (first, second) == ("job", "done")
    assert 0 < began_us < ended_us


def test_deadlines_and_actions_come_in_the_order_of_their_times() -> None:
    worker, clock = new_worker()
    seen: list[tuple[str, int]] = []

    def note(what: str) -> Callable[[], None]:
        return lambda: seen.append((what, clock.monotonic_ms()))

    worker.after(30_000, note("action at 30"))
    worker.deadlines.at(20, note("deadline at 20"))
    worker.deadlines.at(40, note("deadline at 40"))
    worker.soon(note("soon"))
    run(worker)
    assert seen == [("soon", 0), ("deadline at 20", 20), ("action at 30", 30), ("deadline at 40", 40)]


def test_what_comes_during_a_job_can_be_done_before_the_job_goes_on() -> None:
    orders = set()
    for seed in range(200):
        worker, _ = new_worker(seed)
        seen: list[str] = []

        def job(worker: SeededWorker = worker, seen: list[str] = seen) -> None:
            seen.append("begins")
            worker.after(0, lambda: seen.append("in between"))
            worker.interrupt()
            seen.append("ends")

        worker.submit("disk", job, lambda _: None)
        run(worker)
        orders.add(tuple(seen))
    assert orders == {("begins", "in between", "ends"), ("begins", "ends", "in between")}


def test_nobody_is_interrupted_on_the_brokers_own_side() -> None:
    worker, _ = new_worker()
    worker.soon(lambda: pytest.fail("not now"))
    for _ in range(1000):
        worker.interrupt()


def test_an_exception_that_nobody_may_raise_ends_the_run() -> None:
    worker, _ = new_worker()

    def wrong() -> None:
        raise LookupError("a bug")

    worker.soon(wrong)
    with pytest.raises(Wrong):
        run(worker)
    results: list[object] = []

    def refused() -> None:
        raise OSError(5, "broken")

    worker.submit("read", refused, results.append)
    run(worker)
    assert isinstance(results[0], OSError)
