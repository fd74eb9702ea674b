"""flush.messages and flush.ms: what survives a power failure with durability=os, and when syncs are made."""

import errno
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from tests.examples import examples
from tests.storage.jobs import JobsMachine

from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.segment.segment import Segment
from duramen.storage.store import StoreLimits

LOGS = 2


def bounded(messages: int | None = None, ms: int | None = None, *, durability: str = "os") -> LogConfig:
    config = LogConfig(durability=durability, segment_bytes=2000)
    if messages is not None:
        config = config._replace(flush_messages=messages)
    return config if ms is None else config._replace(flush_ms=ms)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=60),
    st.booleans(),
    st.integers(0, 1 << 30),
)
def test_what_was_due_survives(bound: int, batches: list[tuple[int, int]], idle_between: bool, seed: int) -> None:
    doubles = StoreOnDoubles()
    values: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    covered = dict.fromkeys(values, 0)
    since = dict.fromkeys(values, 0)
    for number, count in batches:
        added = [b"%d-%d" % (number, len(values[number]) + at) for at in range(count)]
        assert doubles.append(doubles.log(number, bounded(bound)), *added) is not None
        values[number] += added
        since[number] += count
        if since[number] >= bound:
            covered[number], since[number] = len(values[number]), 0
        if idle_between:
            doubles.settle()
    doubles.settle()
    # Nothing unsynced is kept, or whatever chance keeps.
    doubles.crash(random.Random(seed) if seed % 2 else None)
    for number, expected in values.items():
        found = doubles.values(doubles.log(number, bounded(bound)))
        assert found == expected[: len(found)]
        assert len(found) >= covered[number]


def test_appends_are_answered_before_the_sync_and_share_it() -> None:
    doubles = StoreOnDoubles()
    doubles.append(doubles.log(0, bounded(1)), b"first")
    doubles.settle()
    appends = [doubles.append(doubles.log(number % 3, bounded(1)), b"x") for number in range(30)]
    doubles.worker.run_soon()
    assert len(doubles.worker.jobs["disk"]) == 1
    more = doubles.append(doubles.log(0), b"y")
    assert more.acknowledged
    doubles.settle()
    assert all(append.acknowledged for append in appends)


def test_without_a_bound_nothing_is_synced() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, bounded())
    doubles.append(log, b"x")
    doubles.settle()
    assert log.active.synced == 0
    assert not doubles.worker.jobs["disk"]
    doubles.crash()
    assert doubles.values(doubles.log(0, bounded())) == []


def test_the_time_counts_from_the_first_record_that_is_not_synced() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, bounded(ms=500))
    doubles.append(log, b"1")
    doubles.advance(499)
    doubles.append(log, b"2")
    assert log.active.synced == 0
    doubles.advance(1)
    assert log.active.synced == log.active.size
    doubles.append(log, b"3")
    doubles.advance(499)
    assert log.active.synced < log.active.size
    doubles.advance(1)
    assert log.active.synced == log.active.size
    doubles.crash()
    assert doubles.values(doubles.log(0, bounded(ms=500))) == [b"1", b"2", b"3"]


def test_a_sync_by_count_starts_the_time_anew() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, bounded(2, 500))
    doubles.append(log, b"1", b"2")
    doubles.settle()
    doubles.advance(400)
    doubles.append(log, b"3")
    doubles.advance(100)
    assert log.active.synced < log.active.size
    doubles.advance(400)
    assert log.active.synced == log.active.size


@pytest.mark.parametrize("durability", ["sync", "memory"])
def test_other_durabilities_take_no_part(durability: str) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, bounded(1, 1, durability=durability))
    for _ in range(5):
        doubles.append(log, b"x")
    doubles.worker.run_soon()
    doubles.clock.advance(10)
    doubles.deadlines.fire(doubles.clock.monotonic_ms())
    doubles.worker.run_soon()
    assert not doubles.worker.jobs["disk"]


def test_a_deleted_log_is_left() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, bounded(1))
    doubles.append(log, b"x")
    doubles.store.delete(log)
    doubles.settle()
    assert not any(path.startswith(log.directory) for path in doubles.files.paths())


def test_a_failed_sync_ends_writing_to_that_log_only() -> None:
    doubles = StoreOnDoubles()
    bad, good = doubles.log(0, bounded(1)), doubles.log(1, bounded(1))
    doubles.append(bad, b"0")
    doubles.append(good, b"0")
    doubles.settle()

    def interfere(call: str, path: str, size: int) -> int:
        if call == "sync" and path.startswith(f"{bad.directory}/"):
            doubles.files.drop(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    doubles.files.interfere = interfere
    doubles.append(bad, b"1")
    doubles.append(good, b"1")
    doubles.settle()
    refused = doubles.append(bad, b"2")
    assert refused.error is not None
    assert "no writes until restart" in str(refused.error)
    assert doubles.append(good, b"2").acknowledged
    doubles.settle()
    doubles.crash()
    assert doubles.values(doubles.log(0, bounded(1))) == [b"0"]
    assert doubles.values(doubles.log(1, bounded(1))) == [b"0", b"1", b"2"]


def test_a_directory_that_cannot_be_synced_is_tried_again() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, bounded(1))
    failing = True

    def interfere(call: str, path: str, size: int) -> int:
        if failing and call == "sync_directory" and path.startswith("logs"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    doubles.files.interfere = interfere
    doubles.append(log, b"x")
    doubles.settle()
    assert log.active.synced == 0
    failing = False
    doubles.advance(1000)
    assert log.active.synced == log.active.size
    doubles.crash()
    assert doubles.values(doubles.log(0, bounded(1))) == [b"x"]


def test_a_bound_that_is_set_later_covers_what_was_there() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, bounded())
    for number in range(50):
        doubles.append(log, b"%d" % number * 10)
    doubles.settle()
    doubles.append(doubles.log(0, bounded(1)), b"last")
    doubles.settle()
    doubles.crash()
    assert len(doubles.values(doubles.log(0, bounded(1)))) == 51


class FlushingMachine(JobsMachine):
    """What was acknowledged and is taken for synced survives a power failure, whatever jobs and failures there are."""

    durations_ms = (1, 100, 5000, 60_000)

    @initialize(messages=st.integers(1, 6), ms=st.sampled_from([0, 100, 5000]))
    def start(self, messages: int, ms: int) -> None:
        limits = StoreLimits(64 << 10, 1 << 20, 256 << 10, 4 << 10, 1000)
        self.doubles = StoreOnDoubles(limits)
        self.config = bounded(messages, ms)._replace(segment_bytes=700)
        self.values: list[list[bytes]] = [[] for _ in range(LOGS)]
        self.restarted()

    def restarted(self) -> None:
        self.undelivered.clear()
        self.known = [len(values) for values in self.values]
        self.ends: list[list[tuple[AppendOutcome, Segment, int, int]]] = [[] for _ in range(LOGS)]
        self.sync_fails = False

        def interfere(call: str, path: str, size: int) -> int:
            if call == "sync" and self.sync_fails and path.startswith("logs/"):
                self.sync_fails = False
                self.doubles.files.drop(path)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return size

        self.doubles.files.interfere = interfere

    def log(self, number: int) -> Log:
        return self.doubles.log(number, self.config)

    @rule(number=st.integers(0, LOGS - 1), records=st.integers(1, 4), size=st.integers(0, 300))
    def append(self, number: int, records: int, size: int) -> None:
        log, values = self.log(number), self.values[number]
        added = [b"%d" % (len(values) + at) + b"x" * size for at in range(records)]
        if log.failed:
            assert self.doubles.append(log, *added).error is not None
            return
        appended = self.doubles.append(log, *added)
        assert appended.error is None
        values += added
        self.ends[number].append((appended, log.active, log.active.size, len(values)))

    @rule(number=st.integers(0, 1))
    def a_log_that_syncs_each_record(self, number: int) -> None:
        """So that there are copies and a write-ahead log, too."""
        self.doubles.append(self.doubles.log(LOGS + number, LogConfig(segment_bytes=3000)), b"y" * 2000)

    @rule()
    def a_sync_of_a_segment_will_fail(self) -> None:
        self.sync_fails = True

    @rule(seed=st.integers(0, 2**32 - 1), keep=st.booleans())
    def power_fails(self, seed: int, keep: bool) -> None:
        believed = [
            # The first of an epoch is acknowledged once the write-ahead log says whose the segment is.
            max([known, *(count for done, segment, end, count in ends if done.acknowledged and end <= segment.synced)])
            for known, ends in zip(self.known, self.ends, strict=True)
        ]
        self.doubles.crash(random.Random(seed) if keep else None)
        for number, least in enumerate(believed):
            found = self.doubles.values(self.log(number))
            assert found == self.values[number][: len(found)]
            assert len(found) >= least
            self.values[number] = found
        self.restarted()

    def teardown(self) -> None:
        if hasattr(self, "doubles"):
            self.sync_fails = False
            self.settle()
            for number in range(LOGS):
                log = self.log(number)
                if not log.failed:
                    assert self.doubles.values(log) == self.values[number]


TestFlushing = FlushingMachine.TestCase
TestFlushing.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
