"""A shard at its leader: turns of commands, what fails to be stored or loaded, and how many may wait."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from itertools import pairwise
from typing import Any, cast

import pytest

from duramen.base.deadlines import Deadlines
from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NodeStopping,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    StorageFailed,
    StorageFull,
)
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import TRANSACTIONAL, DecodedRecord, Header
from duramen.coordinators.runtime.active import ActiveShard
from duramen.coordinators.runtime.applying import Retry
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.coordinators.runtime.shard import Decision, ShardAnswer, TransactionProducer
from duramen.sim.machine.clock import ManualClock, ManualWorker
from duramen.storage.log.log import Log
from duramen.storage.store import AppendDone


class FakeLog:
    end_offset = 0


class FakePartition:
    """Keeps what is to be stored until the test says what becomes of it."""

    def __init__(self) -> None:
        self.log = cast("Log", FakeLog())
        self.stores: list[tuple[Header, AppendDone]] = []
        self.role = "of a leader"

    def check_leads(self) -> None:
        pass

    def store(self, batch: bytearray, head: Header, done: AppendDone) -> None:
        del batch
        self.stores.append((head, done))


class Sum:
    """Adds numbers; decides on the sum, or on the sums that a command names. It is loaded in `steps`."""

    steps = 0
    producer: TransactionProducer | None = None

    def keys_of(self, command: int | tuple[str, ...]) -> Collection[Hashable]:
        return command if isinstance(command, tuple) else ("sum",) if command else ()

    def decide(self, command: int | tuple[str, ...], rows: StateRows, now_ms: int) -> Decision:
        del rows, now_ms
        return Decision([(None, str(command).encode())], command, producer=self.producer)

    def apply(self, record: DecodedRecord) -> None:
        pass

    def loaded(self, rows: StateRows) -> Iterator[None]:
        del rows
        return iter([None] * self.steps)

    def next_ms(self) -> int | None:
        return None

    def due(self, now_ms: int) -> Iterable[object]:
        del now_ms
        return ()


class Leader:
    def __init__(self) -> None:
        self.partition = FakePartition()
        self.worker = ManualWorker()
        self.answers: list[ShardAnswer | DuramenError] = []
        self.shard = Sum()
        self.steps: list[tuple[Iterator[None], Callable[[DuramenError | None], None]]] = []
        self.active = ActiveShard(
            self.shard, cast("Partition", self.partition), cast("StateRows", None), ManualClock(), self.worker.soon,
            self._take,
        )  # fmt: skip

    def _take(self, steps: Iterator[None], done: Callable[[DuramenError | None], None]) -> None:
        if self.shard.steps:
            self.steps.append((steps, done))
        elif next(steps, done) is done:
            done(None)

    def load(self, error: DuramenError | None = None) -> None:
        """Take the steps of the oldest load."""
        steps, done = self.steps.pop(0)
        assert len(list(steps)) in (0, self.shard.steps)
        done(error)

    def submit(self, command: int | tuple[str, ...]) -> None:
        self.active.submit(command, self.answers.append)
        self.worker.settle()

    def stored(self, base_offset: int, error: DuramenError | None = None) -> None:
        self.partition.stores.pop(0)[1](base_offset, error)
        self.worker.settle()


def ids(answers: list[ShardAnswer | DuramenError]) -> list[str]:
    return [answer.id if isinstance(answer, DuramenError) else "well" for answer in answers]


def test_a_command_is_decided_once_that_before_it_is_applied() -> None:
    leader = Leader()
    leader.active.advanced(0)
    leader.submit(1)
    leader.submit(2)
    assert [head.records for head, _ in leader.partition.stores] == [1]
    leader.stored(0)
    assert (leader.answers, leader.partition.stores) == ([], [])
    leader.active.advanced(1)
    leader.worker.settle()
    assert leader.answers == [ShardAnswer(1, 1, 0)]
    assert len(leader.partition.stores) == 1


def test_a_command_waits_for_each_of_its_keys() -> None:
    leader = Leader()
    leader.active.advanced(0)
    for command in (("a",), ("b",), ("a", "b", "c"), ("c",), ("c", "a")):
        leader.submit(command)
    assert [head.records for head, _ in leader.partition.stores] == [1, 1]
    for end_offset, told in ((1, 1), (2, 2)):
        leader.stored(end_offset - 1)
        leader.active.advanced(end_offset)
        leader.worker.settle()
        assert len(leader.answers) == told
    assert len(leader.partition.stores) == 1
    for end_offset in (3, 4, 5):
        leader.stored(end_offset - 1)
        leader.active.advanced(end_offset)
        leader.worker.settle()
    responses = [answer.response for answer in leader.answers if isinstance(answer, ShardAnswer)]
    assert responses == [("a",), ("b",), ("a", "b", "c"), ("c",), ("c", "a")]


def test_all_that_wait_for_keys_are_refused_once_and_the_keys_are_free() -> None:
    leader = Leader()
    leader.active.advanced(0)
    for command in (("a",), ("a", "b"), ("b", "a")):
        leader.submit(command)
    leader.stored(0, NotEnoughReplicasAfterAppend("too few"))
    assert ids(leader.answers) == [NotEnoughReplicasAfterAppend.id, CoordinatorLoading.id, CoordinatorLoading.id]
    leader.submit(("b",))
    assert len(leader.partition.stores) == 1


@pytest.mark.parametrize("wrong", [RuntimeError("no decision"), [(None, "no bytes")]])
def test_a_command_that_a_bug_ends_leaves_its_keys_free_and_is_reported(
    wrong: RuntimeError | list[tuple[None, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide(self: Sum, command: int | tuple[str, ...], rows: StateRows, now_ms: int) -> Decision:
        if command != ("bug",):
            return plain(self, command, rows, now_ms)
        if isinstance(wrong, RuntimeError):
            raise wrong
        return Decision(wrong, None)

    plain = Sum.decide
    monkeypatch.setattr(Sum, "decide", decide)
    monkeypatch.setattr(Sum, "keys_of", lambda _self, _command: ("key",))
    leader = Leader()
    leader.active.advanced(0)
    for command in (("bug",), ("fine",)):
        leader.active.submit(command, leader.answers.append)
    with pytest.raises((RuntimeError, TypeError, AttributeError)):
        leader.worker.settle()
    leader.worker.settle()
    assert ids(leader.answers) == [DuramenError.id]
    leader.stored(0)
    leader.active.advanced(1)
    leader.worker.settle()
    assert leader.answers[1:] == [ShardAnswer(("fine",), 1, 0)]


def test_readers_that_leave_hold_no_room() -> None:
    leader = Leader()
    leader.active.advanced(0)
    refused = list[DuramenError]()
    for _ in range(20_000):
        leader.active.read(1 << 60, lambda: None, refused.append)()
    assert refused == []
    for _ in range(10_001):
        leader.active.read(1 << 60, lambda: None, refused.append)
    assert [type(error) for error in refused] == [CoordinatorLoading]


def test_no_command_is_taken_before_the_last_step_of_a_load() -> None:
    leader = Leader()
    leader.shard.steps = 3
    leader.active.advanced(0)
    leader.submit(1)
    leader.load()
    leader.submit(2)
    assert ids(leader.answers) == [CoordinatorLoading.id]
    leader.stored(0)
    leader.active.advanced(1)
    assert leader.answers[1:] == [ShardAnswer(2, 1, 0)]


def test_a_load_that_another_one_follows_does_not_count() -> None:
    leader = Leader()
    leader.shard.steps = 3
    leader.active.advanced(0)
    leader.active.suspend(CoordinatorLoading("the rows are others"))
    leader.active.advanced(0)
    leader.load()
    assert not leader.active.loaded
    leader.load(StorageFailed("damaged"))
    assert not leader.active.loaded
    leader.active.advanced(0)
    leader.load()
    assert leader.active.loaded


def test_what_is_not_known_to_be_stored_is_read_before_more_is_decided() -> None:
    leader = Leader()
    leader.active.advanced(0)
    for command in (1, 2):
        leader.submit(command)
    cast("FakeLog", leader.partition.log).end_offset = 1
    leader.stored(0, NotEnoughReplicasAfterAppend("too few"))
    assert ids(leader.answers) == [NotEnoughReplicasAfterAppend.id, CoordinatorLoading.id]
    leader.submit(3)
    assert ids(leader.answers)[2:] == [CoordinatorLoading.id]
    leader.active.advanced(1)
    leader.submit(4)
    assert len(leader.partition.stores) == 1


@pytest.mark.parametrize("kind", [NotEnoughReplicas, NotLeader, NodeStopping, StorageFailed, StorageFull])
def test_the_state_is_loaded_again_after_an_error_that_leaves_the_outcome_open(kind: type[DuramenError]) -> None:
    leader = Leader()
    leader.active.advanced(0)
    for command in (1, 2):
        leader.submit(command)
    cast("FakeLog", leader.partition.log).end_offset = 1
    leader.stored(-1, kind("failed"))
    first = NotCoordinator if kind is NotLeader else kind
    assert ids(leader.answers) == [first.id, *([] if kind.outcome_known else [CoordinatorLoading.id])]
    assert leader.active.loaded is kind.outcome_known


def test_it_is_loaded_again_where_nothing_was_appended() -> None:
    leader = Leader()
    leader.active.advanced(0)
    leader.submit(1)
    leader.stored(0, StorageFailed("the disk is full"))
    leader.submit(2)
    assert ids(leader.answers) == [StorageFailed.id]
    assert len(leader.partition.stores) == 1


def test_those_under_way_hear_that_it_is_not_known_when_leadership_ends() -> None:
    leader = Leader()
    leader.active.advanced(0)
    leader.submit(1)
    leader.active.end(NotCoordinator("another leads"))
    leader.stored(0)
    assert ids(leader.answers) == [NotCoordinator.id]


def test_a_load_that_goes_on_failing_is_told() -> None:
    leader = Leader()
    cast("FakeLog", leader.partition.log).end_offset = 5
    leader.active.reload(CoordinatorLoading("to begin with"))
    leader.active.advanced(3)
    leader.submit(1)
    leader.active.advanced(3, StorageFailed("damaged"))
    leader.submit(1)
    leader.active.advanced(5)
    leader.submit(1)
    assert ids(leader.answers) == [CoordinatorLoading.id, StorageFailed.id]
    assert len(leader.partition.stores) == 1


def test_so_many_commands_wait_and_no_more() -> None:
    leader = Leader()
    leader.active.advanced(0)
    for command in range(1, 10_001):
        leader.active.submit(command, leader.answers.append)
    assert leader.answers == []
    leader.submit(1)
    assert ids(leader.answers) == [CoordinatorLoading.id]
    leader.stored(0)
    leader.active.advanced(1)
    leader.submit(1)
    assert ids(leader.answers) == [CoordinatorLoading.id, "well"]


def test_what_fails_is_tried_later_and_later_and_told_after_some_time() -> None:
    clock, deadlines, tries, told = ManualClock(), Deadlines(), list[int](), list[bool]()

    def again() -> None:
        tries.append(clock.monotonic_ms())
        retry.failed(StorageFailed("damaged"))
        told.append(retry.error is not None)

    retry = Retry(clock, deadlines, again)
    again()
    while len(tries) < 12:
        clock.advance((deadlines.next_ms() or 0) - clock.monotonic_ms())
        deadlines.fire(clock.monotonic_ms())
    waits = [after - before for before, after in pairwise(tries)]
    assert waits == sorted(waits)
    assert waits[-1] == waits[-2] == 5_000
    assert told == [False] * 4 + [True] * 8
    retry.went_well()
    assert retry.error is None


def test_records_of_a_transaction_go_into_the_log_at_once_behind_those_before_them() -> None:
    leader = Leader()
    leader.active.advanced(0)
    told: list[tuple[int, int, CommittedBatch]] = []
    leader.active.own = lambda base, end, batch: told.append((base, end, batch()))
    leader.active.submit(("a",), leader.answers.append)
    leader.shard.producer = TransactionProducer(7, 3)
    leader.active.submit(("b",), leader.answers.append)
    heads = [head for head, _ in leader.partition.stores]
    assert [head.attributes & TRANSACTIONAL for head in heads] == [0, TRANSACTIONAL]
    assert (heads[1].producer_id, heads[1].producer_epoch) == (7, 3)
    leader.stored(0)
    leader.stored(1)
    assert [(base, end, batch.transactional, batch.producer_id) for base, end, batch in told] == [
        (0, 1, False, -1), (1, 2, True, 7),
    ]  # fmt: skip
    assert [record.offset for _, _, batch in told for record in batch.records] == [0, 1]


def test_the_shard_hears_that_it_is_unloaded_before_those_who_wait() -> None:
    leader = Leader()
    leader.active.advanced(0)
    heard: list[str] = []
    leader.active.unloaded = lambda error: heard.append(f"unloaded: {error.id}")
    leader.active.submit(1, lambda _: heard.append("answered"))
    leader.worker.settle()
    leader.stored(0, NotEnoughReplicasAfterAppend("too few"))
    assert heard == [f"unloaded: {CoordinatorLoading.id}", "answered"]
    leader.active.end(NotCoordinator("over"))
    assert heard[2:] == [f"unloaded: {NotCoordinator.id}"]


def test_what_the_shard_stores_while_it_is_loaded_is_taken() -> None:
    leader = Leader()
    leader.shard.steps = 2
    leader.active.advanced(0)
    leader.submit(1)
    leader.active.submit_while_loading(2, leader.answers.append)
    leader.worker.settle()
    assert ids(leader.answers) == [CoordinatorLoading.id]
    assert [head.records for head, _ in leader.partition.stores] == [1]
