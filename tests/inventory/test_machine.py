"""Commands on topics of a shard, decided one by one and together."""

from random import Random
from typing import Any
from zlib import crc32

import pytest

from duramen.base.errors import DuramenError, TopicExists, TopicNotFound
from duramen.codec.batch import DecodedRecord
from duramen.inventory.changes import changes
from duramen.inventory.events import PendingChange, encode_event
from duramen.inventory.ids import TopicKey
from duramen.inventory.machine import (
    BeginChange,
    BindName,
    ChangeStep,
    CreateTopics,
    DropNamespace,
    EndChange,
    StepsTogether,
    SweepNamespace,
    TopicCommand,
    TopicShardState,
    topic_keys,
)
from duramen.inventory.name_rows import value_of_name, values_by_name, values_of_names
from duramen.inventory.packing import plain_sort_names
from duramen.inventory.rows import ALIAS, ARRIVED, NameRow, name_row
from duramen.inventory.steps import MarkedNames, subjects_of
from duramen.sim.machine.views import MemoryViewStore

NAMESPACE = 7


class Shard:
    """A shard alone with its rows."""

    def __init__(self) -> None:
        self.rows = MemoryViewStore()
        self.state = TopicShardState(0)
        self.records = 0

    def do(self, command: TopicCommand) -> Any:
        events, response = self.state.decide(command, self.rows)
        self.records += len(events)
        found = changes([DecodedRecord(0, 0, None, encode_event(event), ()) for event in events], self.rows)
        puts = [(key, value) for key, value in found.items() if value is not None]
        self.rows.write(puts, [key for key, value in found.items() if value is None])
        return response

    def tried(self, step: ChangeStep) -> Any:
        try:
            return self.do(step)
        except DuramenError as error:
            return error

    def create(self, *names: str, namespace: int = NAMESPACE) -> object:
        return self.do(CreateTopics(namespace, plain_sort_names(names, namespace, 1).blocks[0]))

    def sequence(self, name: str) -> int:
        value = value_of_name(self.rows, NAMESPACE, name.encode())
        assert value is not None
        return name_row(value, 0).key.sequence


def test_steps_together_come_to_what_each_comes_to_alone() -> None:
    names = [f"topic-{number:03}" for number in range(300)]
    together, alone = Shard(), Shard()
    steps = [BeginChange(NAMESPACE, name.encode(), "move", NAMESPACE, b"new-" + name.encode()) for name in names]
    steps.insert(7, BeginChange(NAMESPACE, b"nothing", "delete"))
    for shard in (together, alone):
        shard.create(*names)
    blocks = alone.records
    command = StepsTogether(steps)
    assert set(topic_keys(command)) == {key for step in steps for key in topic_keys(step)}
    responses = together.do(command)
    assert isinstance(responses, list)
    assert isinstance(responses.pop(7), TopicNotFound)
    del steps[7]
    assert responses == [alone.do(step) for step in steps]
    everything = [*together.rows.scan(b"", b"\xff")]
    assert everything == [*alone.rows.scan(b"", b"\xff")]
    assert together.records == blocks + 1  # what becomes of names is one event
    assert alone.records == blocks + len(steps)
    assert len(subjects_of(steps).names) == len(steps)


@pytest.mark.parametrize("between", ["nothing", "a command on its own", "a restart"])
def test_changes_that_are_ended_together_come_to_what_each_comes_to_alone(between: str) -> None:
    """Whether the rows of their names are known from the steps before, or have to be read."""
    chance = Random(between)
    names = [f"topic-{number:03}".encode() for number in range(200)]
    together, alone = Shard(), Shard()
    for shard in (together, alone):
        shard.create(*(name.decode() for name in names))  # most of them are in blocks
        shard.create(*(f"topic-{number:03}x" for number in range(0, 200, 7)))
        for number in range(0, 200, 5):  # rows of their own over those of blocks, some of which are of names gone
            arrival = PendingChange("arrive", 0, number, 3, b"old")
            row = NameRow(ARRIVED, TopicKey(0, number)) if number % 2 else None
            begun = shard.do(BeginChange(NAMESPACE, names[number], "delete"))
            shard.do(EndChange(NAMESPACE, names[number], row, begun[1]))
            shard.do(BindName(NAMESPACE, names[number] + b"y", NameRow(ARRIVED, TopicKey(0, number)), arrival))
            shard.do(EndChange(NAMESPACE, names[number] + b"y", row, arrival))
    begin: list[ChangeStep] = [BeginChange(NAMESPACE, name, "move", 9, name) for name in names]
    begin += [
        BindName(NAMESPACE, b"new-" + name, NameRow(ARRIVED, TopicKey(1, at)), PendingChange("arrive", 1, at, 9, name))
        for at, name in enumerate(names)
    ]
    responses = together.do(StepsTogether(begin))
    assert isinstance(responses, list)
    assert list(map(str, responses)) == [str(alone.tried(step)) for step in begin]
    end = list[ChangeStep]()
    for step, response in zip(begin, responses, strict=True):
        rows = [None, NameRow(ALIAS, TopicKey(0, 5)), NameRow(ARRIVED, TopicKey(2, 6)), NameRow(0, TopicKey(0, 7))]
        if isinstance(step, BindName):
            end.append(EndChange(step.namespace, step.name, chance.choice(rows), step.pending))
        elif isinstance(step, BeginChange) and not isinstance(response, DuramenError):
            another = PendingChange("move", 0, 1, 9, b"another")  # a change that the name does not have
            pending = another if chance.random() < 0.1 else response[1]
            end.append(EndChange(step.namespace, step.name, chance.choice(rows), pending))
    if between == "a restart":
        together.state.load(together.rows)
    elif between != "nothing":
        for shard in (together, alone):
            shard.do(SweepNamespace(9))
    chance.shuffle(end)
    for some in (end[:250], end[250:], end[200:300]):  # some twice
        assert together.do(StepsTogether(some)) == [alone.do(step) for step in some]
    assert [*together.rows.scan(b"", b"\xff")] == [*alone.rows.scan(b"", b"\xff")]


def test_rows_of_marked_names_are_read_again_after_a_sweep() -> None:
    shard = Shard()
    shard.create("here")
    begun = shard.do(StepsTogether([BeginChange(NAMESPACE, b"here", "move", 9, b"there")]))
    shard.do(DropNamespace(NAMESPACE))
    while shard.do(SweepNamespace(NAMESPACE)):
        pass
    shard.do(StepsTogether([EndChange(NAMESPACE, b"here", *begun[0])]))  # refused by the topic's shard
    assert value_of_name(shard.rows, NAMESPACE, b"here") is None


def test_planted_rows_of_marked_names_that_outlive_a_sweep_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(_: MarkedNames) -> None:
        """Forget nothing."""

    monkeypatch.setattr(MarkedNames, "clear", kept)
    with pytest.raises(AssertionError):
        test_rows_of_marked_names_are_read_again_after_a_sweep()


def test_names_of_blocks_and_rows_of_their_own_are_found_and_listed_in_order() -> None:
    shard = Shard()
    shard.create(*(f"topic-{number:04}" for number in range(0, 1000, 2)))
    shard.create(*(f"topic-{number:04}" for number in range(1000)))  # every second one is between two of a block
    shard.create(*(f"zebra-{number:04}" for number in range(200)))
    blocks = sum(1 for _ in shard.rows.scan(b"b", b"c"))
    own = sum(1 for _ in shard.rows.scan(b"n", b"o"))
    assert (blocks, own) == (4 + 2, 500)  # of 128 names at most
    expected = sorted(
        [f"topic-{number:04}" for number in range(1000)] + [f"zebra-{number:04}" for number in range(200)]
    )
    encoded = [name.encode() for name in expected]
    assert [name for name, _ in values_by_name(shard.rows, NAMESPACE, b"")] == encoded
    assert [name for name, _ in values_by_name(shard.rows, NAMESPACE, encoded[33], encoded[777])] == encoded[33:777]
    values = values_of_names(shard.rows, [(NAMESPACE, name) for name in (*encoded, b"topic-0000x", b"a", b"zz")])
    assert None not in values[:-3]
    assert values[-3:] == [None, None, None]
    assert len(set(values[:-3])) == 1200  # a sequence each


def test_names_of_several_namespaces_are_found_together() -> None:
    shard, asked = Shard(), list[tuple[int, bytes]]()
    for namespace in (NAMESPACE, 3, 9):
        shard.create(*(f"topic-{number:03}" for number in range(50)), namespace=namespace)
        shard.create("zz", namespace=namespace)
        asked += [(namespace, name) for name in (b"topic-049", b"zz", b"topic-000", b"zzz", b"a")]
    asked += [(4, b"topic-001"), (10, b"topic-001")]
    values = values_of_names(shard.rows, asked)
    assert values == [value_of_name(shard.rows, *one) for one in asked]
    assert [value is None for value in values] == [False, False, False, True, True] * 3 + [True, True]


def test_a_name_of_a_block_is_taken_until_it_is_gone() -> None:
    shard = Shard()
    shard.create(*(f"topic-{number:04}" for number in range(100)))
    key = name_row(value_of_name(shard.rows, NAMESPACE, b"topic-0050") or b"", 0).key
    response = shard.do(BeginChange(NAMESPACE, b"topic-0050", "delete"))
    assert isinstance(response, tuple)
    row, pending = response
    bind = BindName(NAMESPACE, b"topic-0051", NameRow(ARRIVED, key), pending)
    with pytest.raises(TopicExists):
        shard.do(bind)
    assert row.key == key
    assert shard.sequence("topic-0051") == shard.sequence("topic-0050") + 1


def test_commands_that_may_make_blocks_of_names_wait_for_one_another() -> None:
    """Blocks of a namespace do not overlap: of two that are decided at once each would see that it is alone."""
    names = {crc32(name.encode()) % 64: name for name in (f"topic-{number:03}" for number in range(500))}
    ordered = sorted(names[lock] for lock in range(32))
    halves = (ordered[::2], ordered[1::2])
    blocks = [plain_sort_names(some, NAMESPACE, 1).blocks[0] for some in halves]
    one, other = (set(topic_keys(CreateTopics(NAMESPACE, some))) for some in blocks)
    assert one & other
