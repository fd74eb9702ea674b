"""A shard without replicas: what is appended counts, what is appended together, and what could not be stored."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, cast

import pytest

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator, StorageFull
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import BatchInput, DecodedRecord, Header, check, encode
from duramen.coordinators.runtime.shard import Decision, ShardAnswer, ShardKind, Together
from duramen.coordinators.runtime.unreplicated import UnreplicatedDependencies, UnreplicatedShard
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.sim.machine.clock import ManualClock
from duramen.storage.log.log import Log
from duramen.storage.store import AppendDone, Store

STREAM: Final = "newest"
OTHER: Final = "other"


class Put(NamedTuple):
    """A key is to have this value, and with `other` that log a record behind it; answered with the value before."""

    key: bytes
    value: bytes | None
    other: Log | None = None


class Newest:
    """The newest value of each key. What is put together with another log is confirmed behind it."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.offsets: list[int] = []

    def keys_of(self, command: Put) -> Collection[Hashable]:
        return (command.key,)

    def decide(self, command: Put, rows: StateRows, now_ms: int) -> Decision:
        del rows, now_ms
        before = self.values.get(command.key)
        if before == command.value:
            return Decision((), before)
        if command.other is None:
            return Decision([(command.key, command.value)], before)
        data = encode([BatchInput(0, None, b"marker")])
        together = Together([(command.other, data, check(data))], [(command.key, b"done")], self.offsets.extend)
        return Decision([(command.key, command.value)], before, together=together)

    def apply(self, record: DecodedRecord) -> None:
        if record.value is None:
            self.values.pop(record.key or b"", None)
        else:
            self.values[record.key or b""] = record.value

    def loaded(self, rows: StateRows) -> Iterator[None]:
        del rows
        return iter(())

    def next_ms(self) -> int | None:
        return None

    def due(self, now_ms: int) -> Iterable[object]:
        del now_ms
        return ()


class Node:
    """A node that is alone, with the newest values on it."""

    def __init__(self) -> None:
        self.hand = ManualBroker(kinds=[ShardKind(STREAM, lambda _: Newest(), newest_counts=True)])
        for name in (STREAM, OTHER):
            self.hand.create(name, retention_ms=-1, durability="sync")

    def submit(self, put: Put, *, early: bool = False) -> CallbackResult[object]:
        answer: CallbackResult[object] = CallbackResult()
        self.hand.broker.coordinators.submit(STREAM, 0, put, answer, early=early)
        return answer

    def values(self) -> dict[bytes, bytes]:
        return cast("dict[bytes, bytes]", self.ask(lambda shard: dict(shard.values)))

    def ask(self, query: Callable[[Newest], object]) -> object:
        answer: CallbackResult[object] = CallbackResult()
        self.hand.broker.coordinators.read(STREAM, 0, lambda shard, _: query(shard), answer)
        self.hand.settle()
        return answer.value

    def log(self, name: str) -> Log:
        return self.hand.broker.streams.get(name).partitions[0].log


@pytest.fixture
def node() -> Node:
    return Node()


def responses(answers: Sequence[CallbackResult[object]]) -> list[object]:
    return [cast("ShardAnswer", answer.value).response for answer in answers]


def test_commands_are_decided_on_what_is_appended_and_answered_once_it_is_durable(node: Node) -> None:
    answers = [node.submit(Put(b"k", value)) for value in (b"1", b"2", b"2")]
    node.hand.worker.run_soon()
    assert [answer.calls for answer in answers] == [[]] * 3
    node.hand.settle()
    assert responses(answers) == [None, b"1", b"2"]
    node.hand.crash()
    assert node.values() == {b"k": b"2"}


def test_an_early_answer_comes_at_once_and_the_record_stands_before_what_comes_next(node: Node) -> None:
    early = [node.submit(Put(b"k", b"1"), early=True), node.submit(Put(b"k", b"1"), early=True)]
    assert responses(early) == [None, b"1"]
    node.hand.settle()
    assert node.values() == {b"k": b"1"}


def test_what_is_appended_together_counts_at_once_or_not_at_all(node: Node) -> None:
    answer = node.submit(Put(b"k", b"1", node.log(OTHER)))
    node.hand.worker.run_soon()
    assert (node.log(OTHER).high_watermark, node.log(STREAM).high_watermark, answer.calls) == (0, 0, [])
    node.hand.settle()
    assert (node.log(OTHER).high_watermark, node.log(STREAM).high_watermark) == (1, 2)
    assert responses([answer]) == [None]
    assert node.ask(lambda shard: (dict(shard.values), list(shard.offsets))) == ({b"k": b"done"}, [0])
    node.hand.restart()
    assert node.values() == {b"k": b"done"}


def test_what_is_damaged_is_reported_and_the_rest_known(node: Node) -> None:
    for number in range(4):
        node.submit(Put(b"k%d" % number, b"1"))
        node.hand.settle()
    node.hand.advance(61_000)
    log = node.log(STREAM)
    node.hand.stop()
    node.hand.files.corrupt(log.active.path + ".log", log.active.size // 4 + 65, 1)
    node.hand.start()
    assert node.values() == {b"k0": b"1", b"k2": b"1", b"k3": b"1"}
    assert any(f"record 1 in partition 0 of {STREAM} cannot be read" in report for report in node.hand.reports)


class FakeLog:
    start_offset = end_offset = 0


class FakePartition:
    """Keeps what is to be stored until the test says what becomes of it; or refuses it at once."""

    def __init__(self) -> None:
        self.log = cast("Log", FakeLog())
        self.stores: list[AppendDone] = []
        self.refusal: DuramenError | None = None

    def check_leads(self) -> None:
        pass

    def store(self, batch: bytearray, head: Header, done: AppendDone) -> None:
        del batch, head
        if self.refusal is not None:
            done(-1, self.refusal)
        else:
            self.stores.append(done)


class Unreplicated:
    """A shard on a partition that the test has in its hand."""

    def __init__(self) -> None:
        self.partition = FakePartition()
        self.answers: list[ShardAnswer | DuramenError] = []
        self.shard = Newest()
        self.again: list[str] = []
        parts = UnreplicatedDependencies(cast("Store", None), lambda: None, lambda: self.again.append("again"))
        self.active = UnreplicatedShard(
            self.shard, cast("Partition", self.partition), cast("StateRows", None), ManualClock(),
            lambda action: action(), lambda _, __: None, parts,
        )  # fmt: skip
        self.active.advanced(0)

    def submit(self, key: bytes, value: bytes) -> None:
        self.active.submit(Put(key, value), self.answers.append)


FULL: Final = StorageFull("the disk is full")


def test_what_is_refused_at_once_is_not_known() -> None:
    made = Unreplicated()
    made.partition.refusal = FULL
    made.submit(b"k", b"1")
    assert (made.answers, made.shard.values, made.again) == ([FULL], {}, [])
    made.partition.refusal = None
    made.submit(b"k", b"1")
    assert made.shard.values == {b"k": b"1"}


def test_what_could_not_be_stored_is_forgotten_once_nothing_is_under_way() -> None:
    made = Unreplicated()
    for command in ((b"a", b"1"), (b"a", b"1"), (b"b", b"1")):
        made.submit(*command)
    made.partition.stores.pop(0)(-1, FULL)
    assert [answer.id for answer in made.answers if isinstance(answer, DuramenError)] == [
        FULL.id, CoordinatorLoading.id
    ]  # fmt: skip
    assert made.again == []
    made.submit(b"c", b"1")
    made.partition.stores.pop(0)(0, None)
    assert made.answers[2:] == [made.answers[2], ShardAnswer(None, 1)]
    assert isinstance(made.answers[2], CoordinatorLoading)
    assert made.again == ["again"]


def test_commands_cut_off_by_a_reload_do_not_count_for_ever() -> None:
    made = Unreplicated()
    for load in range(12):
        for number in range(1_000):
            made.submit(b"%d" % number, b"%d" % load)
        made.active.reload(CoordinatorLoading("the rows are being restored"))
    assert {type(answer) for answer in made.answers} == {NotCoordinator}
    made.submit(b"k", b"1")
    made.partition.stores[-1](0, None)
    assert made.answers[-1] == ShardAnswer(None, 1)
