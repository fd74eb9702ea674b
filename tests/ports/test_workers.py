"""The conformance suite of the Worker port: threads, the worker moved by hand, and the seeded one."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol

import pytest

from duramen.base.ports import Lane, Worker
from duramen.host.worker import HostWorker
from duramen.sim.machine.clock import ManualWorker
from duramen.sim.machine.scheduler import SeededWorker, VirtualClock

THREADS: Final[tuple[Lane, ...]] = ("sync", "disk", "rows", "read", "read", "read", "read")


class Harness(Protocol):
    worker: Worker

    def settle(self) -> None: ...


class OnThreads:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        host = HostWorker(self.loop)
        self.worker: Worker = host
        self.stop = host.stop

    def settle(self) -> None:
        """Wait until a job of every lane has come back: each lane ran what was submitted before."""
        future = self.loop.create_future()
        left = len(THREADS)

        def done(_: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                future.set_result(None)

        for lane in THREADS:
            self.worker.submit(lane, lambda: None, done)
        self.loop.run_until_complete(future)
        self.loop.run_until_complete(asyncio.sleep(0))

    def close(self) -> None:
        self.stop()
        self.loop.close()


class ByHand:
    def __init__(self) -> None:
        manual = ManualWorker()
        self.worker: Worker = manual
        self.settle = manual.settle

    def close(self) -> None:
        return None


class Seeded:
    def __init__(self) -> None:
        self.seeded = SeededWorker(VirtualClock(), random.Random(5), lambda error: error)
        self.worker: Worker = self.seeded

    def settle(self) -> None:
        while self.seeded.turn():
            pass

    def close(self) -> None:
        return None


@pytest.fixture(params=[OnThreads, ByHand, Seeded])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    made = request.param()
    yield made
    made.close()


def test_results_and_errors_come_back(harness: Harness) -> None:
    seen: list[object] = []

    def fails() -> None:
        raise OSError(5, "broken")

    harness.worker.submit("disk", lambda: 42, seen.append)
    harness.worker.submit("disk", fails, seen.append)
    assert seen == []  # never inside the call
    harness.settle()
    assert seen[0] == 42
    assert isinstance(seen[1], OSError)


@pytest.mark.parametrize("lane", ["sync", "disk", "rows"])
def test_jobs_of_an_ordered_lane_run_one_after_another(harness: Harness, lane: Lane) -> None:
    ran: list[int] = []
    delivered: list[object] = []

    def job(number: int) -> Callable[[], int]:
        def run() -> int:
            ran.append(number)
            return number

        return run

    for number in range(50):
        harness.worker.submit(lane, job(number), delivered.append)
    harness.settle()
    assert ran == delivered == list(range(50))


def test_the_result_of_a_brief_job_may_come_later_too(harness: Harness) -> None:
    seen: list[object] = []
    for number in range(20):
        harness.worker.submit("sync", partial(int, number), seen.append, brief=True)
        assert seen == list(range(number))
        harness.settle()
    assert seen == list(range(20))


def test_a_brief_job_runs_in_the_thread_of_its_loop_and_so_does_what_follows() -> None:
    loop = asyncio.new_event_loop()
    host, here = HostWorker(loop, at_once=True), threading.get_ident()
    ran: list[int | BaseException] = []
    future = loop.create_future()
    host.submit("sync", threading.get_ident, ran.append, brief=True)
    assert ran == [here]
    host.submit("sync", threading.get_ident, future.set_result)
    assert loop.run_until_complete(future) != here
    host.stop()
    loop.close()


def test_rows_do_not_wait_for_the_disk() -> None:
    threads, copied, written = OnThreads(), threading.Event(), list[object]()
    threads.worker.submit("disk", copied.wait, written.append)
    future = threads.loop.create_future()
    threads.worker.submit("rows", lambda: "rows", future.set_result)
    assert threads.loop.run_until_complete(future) == "rows"
    assert written == []
    copied.set()
    threads.settle()
    assert written == [True]
    threads.close()


def test_soon_is_after_what_runs_now(harness: Harness) -> None:
    seen: list[str] = []

    def first() -> None:
        harness.worker.soon(lambda: seen.append("soon"))
        seen.append("now")

    harness.worker.soon(first)
    assert seen == []
    harness.settle()
    assert seen == ["now", "soon"]
