"""The store against a model: whatever the order of appends, jobs, time, crashes and restarts.

The promise: an acknowledged record comes back at its offset, byte for byte; offsets are dense; epochs grow;
a repetition gets its first offset; what was never acknowledged is there whole or not at all.
"""

import errno
import os
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles, expected_values
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.store import StoreLimits
from tests.examples import examples
from tests.storage.jobs import JobsMachine

LOGS = 3
TINY = StoreLimits(
    wal_file_bytes=8 << 10, wal_max_bytes=64 << 10, pending_bytes=32 << 10, copy_bytes=4 << 10, copy_interval_ms=1000
)


class Model:
    """What is known of one log: every append that was asked for, and how many of them a crash may have taken."""

    def __init__(self) -> None:
        self.appends: list[AppendOutcome] = []
        self.sequences: dict[AppendOutcome, int] = {}
        self.numbers: dict[AppendOutcome, int] = {}
        self.made = 0
        self.committed: list[bytes] = []  # the log's content as of the last restart
        self.sequence = 0
        self.epochs: list[int] = []


class StoreMachine(JobsMachine):
    lanes = ("sync", "disk", "read")
    durations_ms = (1, 1000, 60_000)
    durability = "sync"

    @initialize(cold=st.booleans(), short_writes=st.booleans())
    def start(self, cold: bool, short_writes: bool) -> None:
        self.doubles = StoreOnDoubles(TINY)
        self.doubles.files.cold = cold
        self.short_writes = short_writes
        self.interfere()
        self.models = [Model() for _ in range(LOGS)]

    def interfere(self) -> None:
        chance = random.Random(1)
        self.sync_fails = False
        self.sync_failed = False

        def shorten(call: str, path: str, size: int) -> int:
            if call == "sync" and self.sync_fails and path.startswith("logs/"):
                self.sync_fails = False
                self.doubles.files.drop(path)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return chance.randint(1, size) if call == "write" and self.short_writes and size else size

        self.doubles.files.interfere = shorten

    def log(self, number: int) -> Log:
        return self.doubles.log(number, LogConfig(durability=self.durability, segment_bytes=30_000))

    @rule(
        number=st.integers(0, LOGS - 1),
        sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=4),
        batches=st.integers(1, 8),
        written=st.booleans(),
    )
    def append(self, number: int, sizes: list[int], batches: int, written: bool) -> None:
        model = self.models[number]
        for _ in range(batches):
            values = tuple(random.Random(len(model.appends) + size).randbytes(size) for size in sizes)
            append = self.doubles.append(self.log(number), *values, producer=(number + 1, 0, model.sequence))
            model.appends.append(append)
            model.sequences[append] = model.sequence
            model.numbers[append] = model.made
            model.made += 1
            model.sequence += len(values)
        if written:
            self.doubles.worker.run_soon()

    @rule(number=st.integers(0, LOGS - 1))
    def repeat_the_last(self, number: int) -> None:
        model = self.models[number]
        if not model.appends:
            return
        last = model.appends[-1]
        if model.made - model.numbers[last] >= 5:
            return  # five batches are remembered
        again = self.doubles.append(self.log(number), *last.values, producer=(number + 1, 0, model.sequences[last]))
        self.settle()
        if last.acknowledged:
            assert again.acknowledged
            assert again.base_offset == last.base_offset

    @rule()
    def settle(self) -> None:
        self.finish()
        for model in self.models:
            assert all(append.acknowledged for append in model.appends)

    @rule()
    def a_sync_of_a_segment_will_fail(self) -> None:
        """Once in the life of a process: where a second fails before the first is mended, appends may be refused."""
        if not self.sync_failed:
            self.sync_fails = self.sync_failed = True

    @rule(seed=st.integers(0, 2**32 - 1), keep=st.booleans())
    def power_fails(self, seed: int, keep: bool) -> None:
        self.doubles.crash(random.Random(seed) if keep else None)
        self.after_restart()

    @rule()
    def process_is_killed(self) -> None:
        self.sync_fails = False
        self.doubles.kill()
        self.after_restart()

    @rule()
    def node_stops_and_starts(self) -> None:
        self.settle()
        assert self.doubles.stop() is None
        self.sync_fails = False
        self.doubles.boot()
        assert self.doubles.recovered.replayed_bytes == 0
        self.after_restart()

    def after_restart(self) -> None:
        self.undelivered.clear()
        self.interfere()
        assert self.doubles.findings == []
        for number, model in enumerate(self.models):
            content = self.doubles.values(self.log(number))
            assert content[: len(model.committed)] == model.committed
            model.appends = [append for append in model.appends if append.acknowledged]
            self.check(model, content)
            # What was in flight is there whole, in order, or not at all; from now on it is history.
            model.committed = content
            model.sequence = len(content)
            epoch = self.doubles.store.node_epoch
            assert epoch not in model.epochs
            model.epochs.append(epoch)

    def check(self, model: Model, content: list[bytes]) -> None:
        for append in model.appends:
            base = append.base_offset or 0
            if append.acknowledged:
                assert tuple(content[base : base + len(append.values)]) == append.values

    @invariant()
    def offsets_are_dense_and_readable(self) -> None:
        if not hasattr(self, "doubles"):
            return
        for number, model in enumerate(self.models):
            log = self.doubles.store.log(self.log(number).key)
            assert log is not None
            assert log.start_offset <= log.high_watermark <= log.end_offset
            acknowledged = [append for append in model.appends if append.acknowledged]
            for append in acknowledged[-2:]:
                assert (append.base_offset or 0) + len(append.values) <= log.high_watermark

    def teardown(self) -> None:
        if hasattr(self, "doubles"):
            self.settle()
            for number, model in enumerate(self.models):
                self.check(model, self.doubles.values(self.log(number)))


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=examples(150), stateful_step_count=50, deadline=None)


@pytest.mark.parametrize("durability", ["sync", "os", "memory"])
def test_records_come_back_in_order(durability: str) -> None:
    doubles = StoreOnDoubles()
    log = doubles.log(0, LogConfig(durability=durability, segment_bytes=5000))
    appends = [doubles.append(log, b"%d" % number * 100, b"second") for number in range(100)]
    doubles.settle()
    assert doubles.values(log) == expected_values(appends)
    assert [record.offset for record in doubles.read(log)] == list(range(200))
    assert doubles.values(log, 150) == expected_values(appends)[150:]
