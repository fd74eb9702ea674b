"""A view that is being loaded, that is in the middle of a job, and that goes on after a crash."""

import errno

from tests.broker.views.test_views import Keyed

from duramen.broker.views.running_view import RunningView
from duramen.codec.batch import BatchInput, encode
from duramen.sim.broker import CallbackResult


def test_no_snapshot_is_open_while_the_view_is_not_loaded() -> None:
    keyed = Keyed()
    keyed.produce((b"k", b"v"))
    keyed.hand.stop()
    broken = [True]

    def interfere(call: str, path: str, size: int) -> int:
        if call == "read" and path.startswith("keyed/") and broken:
            raise OSError(errno.EIO, "a read error")
        return size

    keyed.hand.files.interfere = interfere
    keyed.hand.start()
    assert keyed.view.bounds.position < keyed.view.bounds.s0
    broken.clear()
    keyed.hand.advance(61_000)
    assert keyed.view.bounds.position == 1
    keyed.check(1)


def test_who_waits_for_a_view_is_told_when_its_bounds_say_so() -> None:
    keyed = Keyed()
    view: RunningView = keyed.view
    worker = keyed.hand.worker
    appended: CallbackResult[int] = CallbackResult()
    keyed.hand.broker.streams.get("users").partition(0).append(encode([BatchInput(0, b"k", b"v")]), appended)
    worker.run_soon()
    worker.step("sync")
    told: list[int] = []
    view.when_reached(1, lambda: told.append(view.bounds.position))
    worker.run_soon()
    while worker.jobs["read"]:
        deliver = worker.start("read")
        worker.run_soon()
        view.when_reached(1, lambda: told.append(view.bounds.position))
        worker.run_soon()
        deliver()
        worker.run_soon()
    keyed.hand.settle()
    assert told
    assert set(told) == {1}


def test_a_longer_time_for_tombstones_is_none_for_those_of_before_after_a_crash_either() -> None:
    keyed = Keyed(snapshot_retention_ms=0, delete_retention_ms=60_000, segment_bytes=1 << 20)
    for value in (b"1", b"2"):
        keyed.produce((b"k", value))
        keyed.hand.advance(5_000)
    keyed.hand.restart()
    assert keyed.view.bounds[:] == (2, 2, 0)
    changed: CallbackResult[None] = CallbackResult()
    keyed.hand.broker.configure_stream("users", {"delete.retention.ms": "600000"}, changed)
    keyed.hand.settle()
    assert keyed.view.bounds.horizon == 2
    keyed.hand.crash()
    assert keyed.view.bounds.horizon == 2


def test_what_is_committed_while_a_checkpoint_is_written_is_applied() -> None:
    keyed = Keyed()
    keyed.produce((b"k", b"1"))
    hand, worker, written = keyed.hand, keyed.hand.worker, list[str]()

    def interfere(call: str, path: str, size: int) -> int:
        if call == "sync" and path.startswith("keyed/") and path.endswith(".new"):
            written.append(path)
        return size

    hand.files.interfere = interfere
    hand.clock.advance(70_000)
    hand.broker.fire()
    worker.run_soon()
    while True:
        deliver = worker.start(next(lane for lane in worker.jobs if worker.jobs[lane]))
        if written:
            break
        deliver()
        worker.run_soon()
    keyed.produce((b"k", b"2"))
    hand.advance(100)
    assert keyed.view.bounds.position == 2
    deliver()
    hand.settle()
    hand.crash()
    keyed.check(2)
