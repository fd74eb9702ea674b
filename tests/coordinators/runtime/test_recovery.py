"""Recovery of damaged rows against a model: what is used afterwards, and that nothing is deleted."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinators.runtime.test_rows import BATCH, CHANGES, applied, batch, log_of, model, opened
from tests.examples import examples

from duramen.base.errors import DuramenError, StateDamaged, StorageFailed
from duramen.coordinators.runtime.layout import ALL_ROWS, LogRows, StoredState, position_rows, row_prefix
from duramen.coordinators.runtime.recovery import open_rows, recover
from duramen.coordinators.runtime.row_scrub import RowScrub
from duramen.sim.machine.views import MemoryStateStore

LOGS: Final = (1, 2, 3)
POSITIONS: Final = b"\x00", b"\x01"
COPIES: Final = b"\x03", b"\x04"


def range_of(log_id: int) -> tuple[bytes, bytes]:
    """The keys of a log's rows."""
    return row_prefix(log_id, 0), row_prefix(log_id + 1, 0)


RANGES: Final = (*map(range_of, LOGS), POSITIONS, COPIES, ALL_ROWS)


def put(store: MemoryStateStore, log_id: int, offset: int) -> None:
    """The state of a log is a row with its offset."""
    stored = StoredState(0, offset, 1)
    store.write([*position_rows(log_id, stored), (row_prefix(log_id, 1) + b"offset", b"%d" % offset)], ())
    store.flush()


class Source(NamedTuple):
    """The offsets of the logs in the rows or in a checkpoint, and the numbers of its damaged ranges."""

    offsets: dict[int, int]
    damage: set[int]

    def reads(self, log_id: int) -> bool:
        return not self.damage & {log_id - 1, 5} and not self.damage >= {3, 4}


OPERATIONS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(LOGS)),
    st.tuples(st.just("checkpoint"), st.just(0)),
    st.tuples(st.just("damage"), st.integers(0, len(RANGES) - 1)),
)


@given(
    st.lists(OPERATIONS, max_size=12),
    st.lists(st.tuples(st.integers(0, len(RANGES) - 1), st.integers(0, 3)), max_size=4),
    st.booleans(),
)
@settings(max_examples=examples(150), deadline=None)
def test_each_log_has_its_newest_readable_rows(
    operations: list[tuple[str, int]], damage: list[tuple[int, int]], rewrite: bool
) -> None:
    store, live, kept, offset = MemoryStateStore(), Source({}, set()), dict[str, Source](), 0
    for what, number in operations:
        if what == "put":
            offset += 1
            put(store, number, offset)
            live.offsets[number] = offset
        elif what == "checkpoint":
            name = f"{len(kept):012d}"
            store.make_checkpoint(name)
            kept[name] = Source(dict(live.offsets), set())
    before = dict(store.scan(*ALL_ROWS))
    for number, checkpoints in damage:
        store.damage(checkpoints=checkpoints, rows=RANGES[number])
        live.damage.add(number)
        for name in sorted(kept, reverse=True)[:checkpoints]:
            kept[name].damage.add(number)
    sources = [live, *(kept[name] for name in sorted(kept, reverse=True))]
    whole = next((one for one in sources if not one.damage and not rewrite), None)
    if whole is live and not live.offsets and kept:
        whole = next((one for one in sources[1:] if not one.damage), None)
    if whole is not None:
        expected, lost = whole.offsets, set[int]()
    else:
        found_in = {log_id: [one for one in sources if one.reads(log_id)] for log_id in LOGS}
        offsets = {log_id: [one.offsets.get(log_id) for one in found] for log_id, found in found_in.items()}
        expected = {log_id: next(filter(None, values)) for log_id, values in offsets.items() if any(values)}
        lost = {log_id for log_id in LOGS if log_id not in expected and len(found_in[log_id]) < len(sources)}

    found = recover(store, LOGS, rewrite=rewrite)

    assert {log_id: stored.offset for log_id, stored in found.stored.items()} == expected
    assert lost <= set(found.damage)  # also logs that never had rows, if their positions are damaged
    assert not expected.keys() & found.damage.keys()
    rows = {log_id: dict(LogRows(store, log_id, 1).all()) for log_id in LOGS}
    assert rows == {log_id: {b"offset": b"%d" % expected[log_id]} if log_id in expected else {} for log_id in LOGS}
    assert not store.damaged
    if whole is not live:
        assert before in store.aside
    assert [name for name, _ in found.checkpoints] == store.checkpoints()
    assert len(store.checkpoints()) + len(store.aside) - (whole is not live) == len(kept)


def test_a_checkpoint_with_damaged_positions_is_read_before_it_is_set_aside() -> None:
    store = MemoryStateStore()
    put(store, 1, 1)
    put(store, 2, 2)
    store.make_checkpoint("1")
    store.damage(checkpoints=1, rows=POSITIONS)
    store.clear()
    put(store, 1, 3)
    put(store, 2, 4)
    store.damage(checkpoints=0, rows=range_of(2))
    found = open_rows(lambda: store, LOGS)
    assert {log_id: stored.offset for log_id, stored in found.stored.items()} == {1: 3, 2: 2}
    assert not found.damage.keys() & {1, 2}
    assert (store.checkpoints(), len(store.aside)) == ([], 2)


def test_rows_that_are_absent_come_from_the_newest_checkpoint_and_new_ones_are_left_alone() -> None:
    store = MemoryStateStore()
    assert open_rows(lambda: store, LOGS).reports == []
    put(store, 1, 1)
    store.make_checkpoint("1")
    store.make_checkpoint("held-1")
    assert open_rows(lambda: store, LOGS).reports == []
    assert store.checkpoints() == ["1"]
    store.clear()
    found = open_rows(lambda: store, LOGS)
    assert {log_id: stored.offset for log_id, stored in found.stored.items()} == {1: 1}
    assert found.reports


class Failing(MemoryStateStore):
    """Reads fail for the system's reasons, so many times."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.failures = failures

    def _pass(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StorageFailed("IO error: Input/output error")

    def get(self, key: bytes) -> bytes | None:
        self._pass()
        return super().get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._pass()
        return super().scan(first, end)


def test_an_error_that_passes_is_no_damage() -> None:
    store, log, failures, done = Failing(), log_of(), list[DuramenError](), list[object]()
    states, worker = opened(store, [log])
    states.not_opened = failures.append
    applied(states, worker, log, 0)
    states.checkpoints.make()
    worker.settle()
    store.failures = 1
    states.apply(log, CHANGES, states.stored(log, leads=True), [batch(BATCH)], 2 * BATCH, done.append)
    worker.settle()
    assert [type(one) for one in done] == [StorageFailed]
    available = [states.available]
    applied(states, worker, log, BATCH)
    store.failures = 1
    states.restore(StateDamaged("so it seemed"), lambda: done.append(""))
    worker.settle()
    available.append(states.available)
    assert [type(one) for one in failures] == [StorageFailed]
    store.failures = 0
    states.open()
    worker.settle()
    assert [*available, states.available] == [True, False, True]
    assert store.aside == []
    assert states.stored(log, leads=True).offset == BATCH


def test_rows_that_can_be_read_stay_and_are_written_to_new_files_if_the_same_error_comes_again() -> None:
    store, log, reports = MemoryStateStore(), log_of(), list[str]()
    states, worker = opened(store, [log], reports.append)
    applied(states, worker, log, 0)
    states.checkpoints.make()
    applied(states, worker, log, BATCH)
    store.flush()
    for aside in (0, 2 + 1):
        states.restore(StateDamaged("block 7"), lambda: None)
        worker.settle()
        assert states.stored(log, leads=True).offset == 2 * BATCH
        assert len(store.aside) == aside
    assert states.damages == 2
    assert sum("can be read again" in one for one in reports) == 1


# -- the scrubber -----------------------------------------------------------------------------------


class Scrubbed:
    """The rows of two logs with two checkpoints, and their scrubber."""

    def __init__(self) -> None:
        self.logs = [log_of(1), log_of(2)]
        self.store, self.reports = MemoryStateStore(), list[str]()
        self.states, self.worker = opened(self.store, self.logs, self.reports.append)
        for offset in range(0, 3 * BATCH, BATCH):
            for log in self.logs:
                applied(self.states, self.worker, log, offset)
            if offset < 2 * BATCH:
                self.states.checkpoints.make()
                self.worker.settle()
        self.store.flush()
        self.scrub = RowScrub(self.states, self.worker, self.reports.append)

    def round(self) -> int:
        """The number of bytes of a round."""
        sizes = list[int]()
        while not sizes or sizes[-1]:
            self.scrub.step(sizes.append)
            self.worker.settle()
        return sum(sizes)

    def offsets(self) -> list[int]:
        return [self.states.stored(log, leads=True).offset for log in self.logs]


def test_a_round_reads_the_rows_and_each_checkpoint_and_leaves_nothing() -> None:
    scrubbed = Scrubbed()
    kept = scrubbed.store.checkpoints()
    sizes = {scrubbed.round() for _ in range(2)}
    (size,) = sizes
    assert size > 2 * len(kept) * sum(len(key) + len(value) for key, value in model(BATCH).items())
    assert scrubbed.store.checkpoints() == kept
    assert scrubbed.reports == []
    assert scrubbed.states.damages == 0


def test_damage_of_rows_is_found_before_a_reader_meets_it() -> None:
    scrubbed = Scrubbed()
    scrubbed.store.damage(checkpoints=0, rows=range_of(2))
    scrubbed.round()
    assert scrubbed.offsets() == [2 * BATCH, 2 * BATCH]
    assert not scrubbed.store.damaged
    assert scrubbed.states.damages == 1


def test_a_damaged_checkpoint_is_set_aside_and_another_one_is_made() -> None:
    scrubbed = Scrubbed()
    older, newer = scrubbed.store.checkpoints()
    scrubbed.store.damage(checkpoints=1, rows=range_of(2))
    scrubbed.store.restore(older)  # only the newer checkpoint is damaged
    scrubbed.states.restore(StateDamaged("for the positions"), lambda: None)
    scrubbed.worker.settle()
    scrubbed.store.aside.clear()
    scrubbed.round()
    assert newer not in scrubbed.store.checkpoints()
    assert len(scrubbed.store.checkpoints()) == 2
    assert len(scrubbed.store.aside) == 1
    assert scrubbed.offsets() == [BATCH, BATCH]


def test_a_log_whose_rows_are_damaged_everywhere_does_not_take_the_others_with_it() -> None:
    scrubbed = Scrubbed()
    scrubbed.store.damage(checkpoints=2, rows=range_of(2))
    scrubbed.round()
    assert scrubbed.offsets() == [3 * BATCH, 0]
    assert list(scrubbed.states.damage) == [2]
    assert len(scrubbed.store.aside) == 3
    assert len(scrubbed.store.checkpoints()) == 1
    assert dict(scrubbed.states.rows(scrubbed.logs[0], scrubbed.states.stored(scrubbed.logs[0], leads=True)).all()) == (
        model(3 * BATCH)
    )
