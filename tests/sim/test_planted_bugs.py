"""Each planted bug breaks a promise: a short story goes well as it is, and badly with the bug.

So a simulator that does not find one of them is too weak; see test_planted.py for the hunt.
"""

import errno
import os
import random
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest
from tests.sim.bugs.every import BUGS
from tests.sim.planted import Bug, Place, broken_by, planted
from tests.sim.queue_stories import QUEUE_STORIES
from tests.sim.view_stories import VIEW_STORIES

from duramen.base.errors import DuramenError
from duramen.codec.batch import TRANSACTIONAL, BatchInput, check, encode, header
from duramen.codec.markers import encode_marker
from duramen.coordinators.runtime.layout import EMPTY, LogRows, stored_of
from duramen.coordinators.runtime.rows import RowStates
from duramen.sim.machine.clock import ManualWorker
from duramen.sim.machine.store import SMALL, AppendOutcome, StoreOnDoubles, expected_values
from duramen.sim.machine.views import MemoryStateStore
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.planning.compaction import CompactionConfig

T = TypeVar("T")

Story = Callable[[], None]


def bug_of(name: str) -> Bug:
    return next(bug for bug in BUGS if bug.name == name)


def kept(doubles: StoreOnDoubles, *appends: AppendOutcome) -> None:
    """What was acknowledged is there, and nothing else but what was not answered."""
    acknowledged = [append for append in appends if append.acknowledged]
    content = doubles.values(doubles.log())
    assert content[: len(acknowledged)] == expected_values(acknowledged)


def cut(doubles: StoreOnDoubles, end_offset: int) -> None:
    errors: list[DuramenError | None] = []
    doubles.store.truncate(doubles.log(), end_offset, doubles.store.node_epoch, errors.append)
    doubles.settle()
    assert errors == [None]


def power_goes_before_the_sync() -> None:
    doubles = StoreOnDoubles()
    append = doubles.append(doubles.log(), b"first")
    doubles.worker.run_soon()
    doubles.crash()
    kept(doubles, append)


def a_batch_comes_during_a_sync() -> None:
    doubles = StoreOnDoubles()
    first = doubles.append(doubles.log(), b"first")
    doubles.worker.run_soon()
    deliver = doubles.worker.start("sync")
    second = doubles.append(doubles.log(), b"second")
    doubles.worker.run_soon()
    deliver()
    doubles.crash()
    kept(doubles, first, second)


def a_sync_fails_once() -> None:
    doubles = StoreOnDoubles()
    append = doubles.append(doubles.log(), b"first")
    failures = [True]

    def interfere(call: str, path: str, size: int) -> int:
        if call == "sync" and path.startswith("wal/") and failures:
            failures.clear()
            doubles.files.drop(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    doubles.files.interfere = interfere
    doubles.settle()
    doubles.files.interfere = None
    doubles.crash()
    kept(doubles, append)


def power_goes_after_checkpoints() -> None:
    doubles = StoreOnDoubles()
    appends = []
    for _ in range(30):
        appends.append(doubles.append(doubles.log(), bytes(20_000)))
        doubles.advance(61_000)
    doubles.crash()
    assert doubles.findings == []
    kept(doubles, *appends)


def power_goes_after_copies() -> None:
    doubles = StoreOnDoubles(SMALL._replace(wal_max_bytes=4 << 20))
    appends = []
    for _ in range(20):
        appends.append(doubles.append(doubles.log(), bytes(20_000)))
        doubles.advance(1_500)
    doubles.crash()
    kept(doubles, *appends)


def power_goes_as_soon_as_it_is_back() -> None:
    doubles = StoreOnDoubles()
    appends = [doubles.append(doubles.log(), b"first")]
    doubles.append(doubles.log(), b"to be cut off")
    doubles.settle()
    cut(doubles, 1)
    appends += [doubles.append(doubles.log(), bytes(30_000)) for _ in range(3)]
    doubles.settle()
    doubles.restart()
    doubles.crash()
    kept(doubles, *appends)


def a_part_of_a_copy_survives() -> None:
    for seed in range(10):
        doubles = StoreOnDoubles()
        append = doubles.append(doubles.log(), random.Random(seed).randbytes(20_000))
        doubles.advance(1_500)
        doubles.crash(random.Random(seed))
        kept(doubles, append)


def one_frame_is_bad() -> None:
    doubles = StoreOnDoubles()
    for number in range(4):
        doubles.append(doubles.log(), bytes([number]) * 100)
        doubles.settle()
    place = bytes(doubles.files.open("wal/000000.wal").read(0, 64 << 10)).find(b"\1" * 100)
    doubles.files.corrupt("wal/000000.wal", place)
    doubles.kill()
    assert doubles.values(doubles.log(), 2) == [b"\2" * 100, b"\3" * 100]


def a_batch_comes_again_after_a_restart() -> None:
    doubles = StoreOnDoubles()
    first = doubles.append(doubles.log(), b"once", producer=(1, 0, 0))
    doubles.settle()
    doubles.crash()
    again = doubles.append(doubles.log(), b"once", producer=(1, 0, 0))
    doubles.settle()
    assert again.base_offset == first.base_offset


def the_node_starts_again() -> None:
    doubles = StoreOnDoubles()
    epoch = doubles.store.node_epoch
    doubles.append(doubles.log(), b"first")
    doubles.settle()
    doubles.crash()
    assert doubles.store.node_epoch > epoch


def power_goes_after_a_cut() -> None:
    doubles = StoreOnDoubles()
    first = doubles.append(doubles.log(), b"first")
    doubles.append(doubles.log(), b"to be cut off")
    doubles.settle()
    cut(doubles, 1)
    second = doubles.append(doubles.log(), b"second")
    doubles.settle()
    doubles.crash()
    kept(doubles, first, second)


def power_goes_after_a_deletion() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log()
    doubles.append(log, b"first")
    doubles.settle()
    doubles.store.delete(log)
    doubles.settle()
    doubles.crash()
    assert doubles.store.log(log.key) is None


def power_goes_after_a_compaction() -> None:
    doubles = StoreOnDoubles()
    rules = CompactionConfig(min_dirty_ratio=0)
    log = doubles.log(0, LogConfig(segment_bytes=2_000, compact=True, compaction=rules))
    for number in range(20):
        records = [BatchInput(doubles.clock.wall_ms(), b"%d" % (number % 3), b"%d" % number * 200)]
        batch = encode(records)
        doubles.store.append(log, batch, check(batch), doubles.store.node_epoch, None)
        doubles.settle()
    doubles.advance(61_000)
    doubles.store.compact()
    doubles.advance(10_000)
    assert log.cleaned_offset > 0
    doubles.advance(130_000)
    doubles.crash()
    newest = max(segment.base_offset for segment in doubles.log().segments if segment.generation)
    assert doubles.values(doubles.log(), newest)[-7:] == [b"%d" % number * 200 for number in range(13, 20)]


def power_goes_between_two_batches_of_rows() -> None:
    doubles = StoreOnDoubles()
    append = doubles.append(doubles.log(), b"first")
    doubles.settle()
    for jobs in range(3):
        worker, rows, log = ManualWorker(), MemoryStateStore(), doubles.log()
        states = RowStates(partial(_itself, rows), worker, lambda _: None, 100, partial(_itself, [log]))
        states.open()
        worker.settle()
        states.apply_at_once(log, EMPTY, 1, lambda _: {b"row": b"first"})
        for _ in range(jobs):
            worker.step("rows")
        assert append.acknowledged
        stored = stored_of(rows, log.id)
        assert (LogRows(rows, log.id, stored.generation).get(b"row") is not None) == (stored.offset == 1)


def _itself(value: T) -> T:
    return value


def a_write_is_short() -> None:
    doubles = StoreOnDoubles()
    doubles.files.interfere = shorten
    append = doubles.append(doubles.log(), random.Random(1).randbytes(2_000))
    doubles.settle()
    doubles.crash()
    kept(doubles, append)


def shorten(call: str, path: str, size: int) -> int:
    return size - 3_000 if call == "write" and path.startswith("wal/") and size > 3_000 else size


def in_a_transaction(doubles: StoreOnDoubles) -> None:
    batch = encode(
        [BatchInput(0, None, b"open")], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0
    )
    doubles.store.append(doubles.log(), batch, check(batch), doubles.store.node_epoch, None)
    doubles.settle()


def the_node_starts_again_in_a_transaction() -> None:
    doubles = StoreOnDoubles()
    in_a_transaction(doubles)
    doubles.kill()
    assert doubles.log().high_watermark == 1
    assert doubles.log().last_stable_offset == 0


def the_node_starts_again_after_an_abort() -> None:
    doubles = StoreOnDoubles()
    in_a_transaction(doubles)
    marker = encode_marker(7, 0, commit=False, coordinator_epoch=0, now_ms=0)
    doubles.store.append(doubles.log(), marker, header(marker), doubles.store.node_epoch, None)
    doubles.settle()
    doubles.kill()
    assert [one.producer_id for one in doubles.log().transactions.aborted_within(0, 2)] == [7]


def the_first_batch_of_a_producer_is_refused() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log()
    for sequence in (0, 1):
        batch = encode([BatchInput(0, None, b"x")], producer_id=1, producer_epoch=0, base_sequence=sequence)
        if sequence == 0:
            doubles.store.note_refused(log, header(batch))
        else:
            doubles.store.append(log, batch, check(batch), doubles.store.node_epoch, None)
    doubles.settle()
    again = doubles.append(log, b"x", producer=(1, 0, 0))
    doubles.settle()
    assert again.acknowledged


STORIES: dict[str, Story] = {
    **VIEW_STORIES,
    **QUEUE_STORIES,
    "acknowledge-before-sync": power_goes_before_the_sync,
    "acknowledge-later-writes": a_batch_comes_during_a_sync,
    "retry-sync": a_sync_fails_once,
    "skip-directory-sync": power_goes_after_checkpoints,
    "recycle-before-sync": power_goes_after_copies,
    "old-frames": power_goes_as_soon_as_it_is_back,
    "believe-unsynced-bytes": a_part_of_a_copy_survives,
    "cut-at-first-bad": one_frame_is_bad,
    "drop-producers": a_batch_comes_again_after_a_restart,
    "take-any-first-sequence": the_first_batch_of_a_producer_is_refused,
    "reuse-epoch": the_node_starts_again,
    "replay-truncated": power_goes_after_a_cut,
    "replay-deleted": power_goes_after_a_deletion,
    "swap-unsynced": power_goes_after_a_compaction,
    "position-before-rows": power_goes_between_two_batches_of_rows,
    "ignore-short-write": a_write_is_short,
    "forget-open-transactions": the_node_starts_again_in_a_transaction,
    "drop-aborted": the_node_starts_again_after_an_abort,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_breaks_a_promise(bug: Bug) -> None:
    story = STORIES[bug.name]
    story()
    with planted(bug), pytest.raises((AssertionError, DuramenError)):
        story()
    story()


def test_a_bug_is_not_planted_where_its_place_has_changed() -> None:
    places = {
        "gone": Place(Log, "rolled", lambda right: right),
        "another": Place(Log, "roll", lambda _: shorten),
    }
    for name, place in places.items():
        with pytest.raises(ValueError, match=r"Log\.roll"), planted(Bug(name, "", (place,))):
            pass


@pytest.mark.parametrize(
    "gone",
    [
        "'Replica' object has no attribute '_kit'", "type object 'Log' has no attribute 'roll'",
        "module 'duramen.storage.recovery' has no attribute 'run'", "name 'shorten' is not defined",
    ],
)  # fmt: skip
def test_lines_of_a_bug_that_fail_themselves_do_not_find_it(gone: str) -> None:
    with pytest.raises(ValueError, match="the lines of bug use what is gone"):
        broken_by("bug", f"node 1: AttributeError where none may be: {gone}")


@pytest.mark.parametrize("broken", ["", "a record is lost", "'NoneType' object has no attribute 'roll'"])
def test_what_else_a_run_breaks_is_found_by_the_bug(broken: str) -> None:
    assert broken_by("bug", broken) == broken
