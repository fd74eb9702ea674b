"""Rows of a state against a model, while the store is damaged, restored, taken back by crashes, and replaced."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from duramen.base.errors import CoordinatorLoading, DuramenError, StateDamaged, StorageFailed
from duramen.base.ids import LogId, Position
from duramen.base.leader_epochs import LeaderEpochCache
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import BatchInput, DecodedRecord, encode, stamp
from duramen.coordinators.runtime.batches import unapplied
from duramen.coordinators.runtime.checkpoints import CheckpointPage
from duramen.coordinators.runtime.installation import begin_installation, install
from duramen.coordinators.runtime.layout import LogRows, StoredState
from duramen.coordinators.runtime.row_state import changes_by
from duramen.coordinators.runtime.rows import RowStates
from duramen.coordinators.runtime.shard import RowKind
from duramen.sim.machine.clock import ManualWorker
from duramen.sim.machine.views import MemoryStateStore
from duramen.storage.log.log import Log

KEYS: Final = 5
BATCH: Final = 3
END: Final = 60
OPERATIONS: Final = (
    *("apply", "step", "step", "step", "page") * 3, "begin", "checkpoint", "damage", "crash", "sweep", "restore",
)  # fmt: skip


class FakeLog:
    """What of a log the rows look at."""

    def __init__(self, log_id: int, end_offset: int, *takeovers: tuple[int, int, int]) -> None:
        self.id = LogId(log_id)
        self.start_offset = 0
        self.end_offset = end_offset
        self.durability = "sync"
        self.takeovers = LeaderEpochCache(takeovers or ((0, 1, 0),))


def log_of(log_id: int = 7, end_offset: int = END, *takeovers: tuple[int, int, int]) -> Log:
    return cast("Log", FakeLog(log_id, end_offset, *takeovers))


def batch(offset: int) -> bytes:
    records = [BatchInput(0, b"k%d" % (number % KEYS), b"%d" % number) for number in range(offset, offset + BATCH)]
    data = encode(records)
    stamp(data, offset, 0)
    return bytes(data)


def changes(found: Sequence[DecodedRecord], rows: StateRows) -> Mapping[bytes, bytes | None]:
    made = dict[bytes, bytes | None]()
    for record in found:
        key = record.key or b""
        before = made[key] if key in made else rows.get(key)
        made[key] = (before or b"") + b" " + (record.value or b"")
    return made


CHANGES: Final = changes_by(RowKind(changes), cast("Partition", None))


def model(offset: int) -> dict[bytes, bytes]:
    found = dict[bytes, bytes]()
    for number in range(offset):
        key = b"k%d" % (number % KEYS)
        found[key] = found.get(key, b"") + b" %d" % number
    return found


class Node:
    """The rows of one log, and an installation that goes on page by page."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = MemoryStateStore()
        self.log = log_of()
        self.start()

    def start(self) -> None:
        self.worker = ManualWorker()
        self.applying = False
        self.pages: list[list[tuple[bytes, bytes]]] = []
        self.generation = self.installed = self.position = 0
        self.states = RowStates(lambda: self.store, self.worker, lambda _: None, 9, lambda: [self.log])
        self.states.open()
        self.worker.settle()

    @property
    def stored(self) -> StoredState:
        return self.states.stored(self.log, leads=True)

    def rows(self) -> dict[bytes, bytes]:
        return dict(self.states.rows(self.log, self.stored).all())

    def do(self, operation: str) -> None:
        getattr(self, operation)()

    def apply(self) -> None:
        offset = self.stored.offset
        if self.applying or not self.states.available or offset >= END:
            return
        self.applying = True
        # A read may bring what is applied already.
        found = [batch(at) for at in (offset - BATCH, offset) if at >= 0]
        self.states.apply(self.log, CHANGES, self.stored, found, offset + BATCH, self._applied)

    def _applied(self, _: DuramenError | None) -> None:
        self.applying = False

    def step(self) -> None:
        self.worker.step("rows")

    def begin(self) -> None:
        self.position = self.chance.randrange(0, END + 1, BATCH)
        rows = sorted(model(self.position).items())
        self.pages = []
        begin_installation(self.states, self.log, lambda generation: self._begun(generation, rows))

    def _begun(self, generation: int | DuramenError, rows: list[tuple[bytes, bytes]]) -> None:
        if isinstance(generation, int):
            self.generation, self.installed = generation, 0
            self.pages = [rows[:2], rows[2:4], rows[4:]]

    def page(self) -> None:
        if self.pages:
            rows, self.pages = self.pages[0], self.pages[1:]
            position = None if self.pages else Position(0, self.position)
            install(self.states, self.log, self.generation, self.installed, rows, position, self._installed)
            self.installed += len(rows)

    def _installed(self, error: DuramenError | None) -> None:
        if error is not None:
            self.pages = []

    def checkpoint(self) -> None:
        self.states.checkpoints.make()

    def damage(self) -> None:
        if self.store.readable:
            self.store.damage(checkpoints=1 if self.store.readable > 1 else 0)

    def restore(self) -> None:
        self.states.restore(StateDamaged("as it is asked for"), lambda: None)

    def crash(self) -> None:
        self.store.crash(self.chance)
        self.start()

    def sweep(self) -> None:
        self.states.sweep()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(OPERATIONS), max_size=120), st.integers(0, 1 << 30))
def test_rows_are_what_the_log_is_up_to_their_position(operations: list[str], seed: int) -> None:
    node = Node(seed)
    for operation in operations:
        node.do(operation)
    for _ in range(3 * END):
        node.worker.settle()
        if node.states.available and not node.store.damaged:
            assert node.rows() == model(node.stored.offset)
        node.apply()
    assert node.stored.offset == END
    assert node.rows() == model(END)
    node.sweep()
    node.worker.settle()
    generations = {key[: -len(b"k0")] for key, _ in node.store.scan(b"\x02", b"\x03")}
    assert len(generations) <= 2  # of the state, and of an installation that may go on


def applied(states: RowStates, worker: ManualWorker, log: Log, offset: int) -> None:
    states.apply(log, CHANGES, states.stored(log, leads=True), [batch(offset)], offset + BATCH, lambda _: None)
    worker.settle()


def opened(
    store: MemoryStateStore, logs: list[Log], report: Callable[[str], None] = lambda _: None
) -> tuple[RowStates, ManualWorker]:
    worker = ManualWorker()
    states = RowStates(lambda: store, worker, report, 1_000, lambda: logs)
    states.open()
    worker.settle()
    return states, worker


def test_a_checkpoint_is_made_of_rows_that_others_ask_for_and_of_those_that_came_from_others() -> None:
    store, log = MemoryStateStore(), log_of()
    states, worker = opened(store, [log])
    applied(states, worker, log, 0)
    answers = list[object]()
    states.checkpoints.page(log, "", BATCH, None, answers.append)
    worker.settle()
    states.checkpoints.page(log, "", BATCH, None, answers.append)
    worker.settle()
    assert [type(answer) for answer in answers] == [CoordinatorLoading, CheckpointPage]
    states.checkpoints.page(
        log, "", 2 * BATCH, None, answers.append
    )  # beyond the rows: another checkpoint would not have it
    worker.settle()
    assert len(store.checkpoints()) == 1
    begin_installation(
        states,
        log,
        lambda generation: install(states, log, cast("int", generation), 0, [], Position(0, 9), lambda _: None),
    )
    worker.settle()
    assert len(store.checkpoints()) == 2
    assert states.checkpoints.floor(log, leads=True) == BATCH


def test_the_store_is_opened_when_it_is_asked_for_and_again_after_a_failure() -> None:
    store, worker, opens, failures = MemoryStateStore(), ManualWorker(), list[bool](), list[DuramenError]()

    def open_store() -> MemoryStateStore:
        opens.append(len(opens) > 0)
        if not opens[-1]:
            raise StorageFailed("not now")
        return store

    states = RowStates(open_store, worker, lambda _: None, 1_000, list)
    states.not_opened = failures.append
    worker.settle()
    assert not opens
    found = list[bool]()
    for _ in range(3):
        states.open()
        states.open()
        worker.settle()
        found.append(states.available)
    assert found == [False, True, True]
    assert [type(one) for one in failures] == [StorageFailed]
    assert opens == [False, True]


def test_rows_that_cannot_be_read_when_they_are_opened_are_those_of_the_newest_checkpoint() -> None:
    store, log = MemoryStateStore(), log_of()
    states, worker = opened(store, [log])
    applied(states, worker, log, 0)
    states.checkpoints.make()
    applied(states, worker, log, BATCH)
    store.damage(checkpoints=0)
    states, _ = opened(store, [log])
    assert states.stored(log, leads=True).offset == BATCH
    assert dict(states.rows(log, states.stored(log, leads=True)).all()) == model(BATCH)


def test_rows_of_deleted_logs_are_swept() -> None:
    store, logs = MemoryStateStore(), [log_of(1), log_of(2), log_of(3)]
    states, worker = opened(store, logs)
    for log in logs:
        applied(states, worker, log, 0)
    gone = logs.pop(1)
    states.sweep()
    worker.settle()
    assert [dict(LogRows(store, log.id, 1).all()) for log in logs] == [model(BATCH)] * 2
    assert not list(LogRows(store, gone.id, 1).all())
    assert states.stored(gone, leads=True).offset == 0
    assert opened(store, logs)[0].stored(gone, leads=True).generation == 0


def test_rows_of_a_log_in_whose_place_another_one_is_are_swept() -> None:
    store, logs = MemoryStateStore(), [log_of(1)]
    states, worker = opened(store, logs)
    applied(states, worker, logs[0], 0)
    logs[0] = log_of(2)
    applied(states, worker, logs[0], 0)
    assert not list(LogRows(store, 1, 1).all())
    assert dict(states.rows(logs[0], states.stored(logs[0], leads=True)).all()) == model(BATCH)


def test_a_state_of_another_history_begins_anew() -> None:
    store, log = MemoryStateStore(), log_of()
    states, worker = opened(store, [log])
    applied(states, worker, log, 0)
    applied(states, worker, log, BATCH)
    other = log_of(7, END, (0, 1, 0), (1, 2, BATCH))  # epoch 1 begins where epoch 0 had more
    assert states.stored(log, leads=False).offset == 2 * BATCH
    assert states.stored(other, leads=False).offset == 0
    applied(states, worker, other, 0)
    assert dict(states.rows(other, states.stored(other, leads=True)).all()) == model(BATCH)


def test_only_a_follower_may_have_a_state_ahead_of_its_log() -> None:
    log = log_of()
    states, worker = opened(MemoryStateStore(), [log])
    applied(states, worker, log, 0)
    behind = log_of(7, 1)
    assert states.stored(behind, leads=False).offset == BATCH
    assert states.stored(behind, leads=True).offset == 0


def test_records_below_the_position_are_not_applied_again() -> None:
    assert [record.offset for record in unapplied([batch(0), batch(3)], 4)] == [4, 5]
