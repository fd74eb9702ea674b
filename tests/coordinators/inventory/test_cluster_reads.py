"""Queries over shards of other nodes find what they would find in the rows, in as few rounds as may be."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from duramen.base.errors import CoordinatorLoading, DuramenError
from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.inventory.changing import LeftChange, changes_left
from duramen.coordinators.inventory.cluster.reading import RoundOfReads
from duramen.coordinators.inventory.cluster.requests import (
    RowsRead,
    changed,
    decode_command,
    encode_command,
    may_be_repeated,
    read_response,
)
from duramen.inventory.changes import changes
from duramen.inventory.directory import CreateTenant
from duramen.inventory.directory_history import DIRECTORY_UNKNOWN
from duramen.inventory.events import encode_event
from duramen.inventory.machine import (
    AddAlias,
    BeginChange,
    CreateTopics,
    EndChange,
    Fence,
    Fenced,
    PlaceTopic,
    TopicCommand,
    TopicShardState,
)
from duramen.inventory.names import shard_of
from duramen.inventory.packing import NameBlock, pack_names
from duramen.inventory.reading import InventoryRows
from duramen.inventory.rows import NameRow, Place

SHARDS = 3


class Rows(StateRows):
    """Rows in memory."""

    def __init__(self) -> None:
        self.all: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.all.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.all.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter([(key, self.all[key]) for key in sorted(self.all) if first <= key < end])

    def put(self, new: Mapping[bytes, bytes | None]) -> None:
        for key, value in new.items():
            if value is None:
                self.all.pop(key, None)
            else:
                self.all[key] = value


class Shard:
    """A shard without a log."""

    def __init__(self, index: int) -> None:
        self.rows = Rows()
        self.state = TopicShardState(index)

    def do(self, command: TopicCommand) -> Any:
        events, response = self.state.decide(command, self.rows)
        records = [DecodedRecord(0, 0, None, encode_event(event), ()) for event in events]
        self.rows.put(changes(records, self.rows))
        return response


def block_of(names: Sequence[bytes]) -> NameBlock:
    return NameBlock(names[0], names[-1], len(names), pack_names(names))


def by_shard(namespace: int, names: Sequence[bytes], shards: int) -> list[list[bytes]]:
    found = [list[bytes]() for _ in range(shards)]
    for name in names:
        found[shard_of(namespace, name, shards)].append(name)
    return found


def shards_with(names: Sequence[bytes]) -> list[Shard]:
    shards = [Shard(index) for index in range(SHARDS)]
    for shard, some in zip(shards, by_shard(1, names, SHARDS), strict=True):
        for at in range(0, len(some), 200):
            shard.do(CreateTopics(1, [block_of(some[at : at + 200])]))
    return shards


def inventory_of(rows: Sequence[StateRows]) -> InventoryRows:
    return InventoryRows(rows, lambda _: True)


def fetched(shards: Sequence[Shard], query: Callable[[InventoryRows], Any]) -> tuple[Any, int]:
    """What a query finds that has no shard here, and how many rounds it took."""
    return fetched_rows(shards, lambda rows: query(inventory_of(rows)))


def fetched_rows(shards: Sequence[Shard], query: Callable[[Sequence[StateRows]], Any]) -> tuple[Any, int]:
    """The same for a query that gets the rows of each shard."""
    found, rounds = RoundOfReads(), 0
    while True:
        try:
            answer = query([found.rows(shard) for shard in range(SHARDS)])
        except DuramenError as error:
            answer = error
        if found.is_whole:
            return answer, rounds
        rounds += 1
        for request in found.requests(0, DIRECTORY_UNKNOWN):
            there = shards[request.shard].rows
            scans = [
                ([*there.scan(first, end)][:most], len([*there.scan(first, end)]) > most)
                for first, end, most in request.scans
            ]
            found.take(request, RowsRead(1, 1, there.get_many(request.keys), scans))


@pytest.mark.parametrize("seed", range(5))
def test_queries_find_what_is_in_the_rows(seed: int) -> None:
    chance = random.Random(seed)
    names = sorted({b"%04d" % chance.randrange(3000) for _ in range(1500)})
    shards = shards_with(names)
    rows = inventory_of([shard.rows for shard in shards])
    some = [b"%04d" % chance.randrange(3000) for _ in range(50)]
    expected = rows.find_many(1, some)
    assert fetched(shards, lambda there: there.find_many(1, some)) == (expected, 1)
    assert fetched(shards, lambda there: there.count(1)) == (len(names), 1)
    assert fetched(shards, lambda there: [one[0] for one in there.names(1, b"")])[0] == names
    key = next(one.key for one in expected if one is not None)
    assert fetched(shards, lambda there: there.place(key))[0] == rows.place(key)


def test_a_step_with_an_older_token_is_refused_from_then_on() -> None:
    shard = shards_with([b"a"])[_home(b"a")]
    begin = BeginChange(1, b"a", "move", 1, b"b")
    row, pending = shard.do(Fenced(7, begin))
    shard.do(Fence(8))
    back = EndChange(1, b"a", row, pending)
    with pytest.raises(CoordinatorLoading):
        shard.do(Fenced(7, back))
    with pytest.raises(CoordinatorLoading):
        shard.do(Fence(7))
    again = TopicShardState(_home(b"a"))
    again.load(shard.rows)
    with pytest.raises(CoordinatorLoading):
        again.decide(Fenced(7, back), shard.rows)
    assert again.decide(Fenced(8, back), shard.rows)[0]


def _home(name: bytes) -> int:
    return next(shard for shard, some in enumerate(by_shard(1, [name], SHARDS)) if some)


@pytest.mark.parametrize(
    ("command", "repeated"),
    [
        (CreateTopics(1, [block_of([b"a", b"b"])]), True),
        (CreateTopics(1, [block_of([b"a", b"b"])], "os"), True),
        (CreateTenant("default", "t", {"a": "b"}, 5), True),
        (Fence(9), True),
        (Fenced(9, PlaceTopic(4, Place(1, b"a"), Place(2, b"b"), True)), False),
        (Fenced(9, AddAlias(4, 1, b"a")), False),
    ],
)
def test_commands_travel_as_they_are(command: Any, repeated: bool) -> None:
    assert decode_command(encode_command(command)) == command
    assert may_be_repeated(command) is repeated


def test_commands_of_topics_with_durability_sync_are_those_of_older_versions() -> None:
    command = CreateTopics(1, [block_of([b"a"])])
    old = msgspec.msgpack.encode((-1, "CreateTopics", tuple(command)[:2]))
    assert encode_command(command) == old
    assert decode_command(old) == command


def test_a_response_has_the_type_that_its_command_has() -> None:
    begin = Fenced(1, BeginChange(1, b"a", "delete"))
    shard = shards_with([b"a"])[_home(b"a")]
    response = shard.do(begin)
    assert isinstance(response[0], NameRow)
    assert read_response(begin, changed(1, 1, response)) == response


@pytest.mark.parametrize("placed", [False, True])
def test_queries_of_changes_in_progress_take_few_rounds(placed: bool) -> None:
    names = [b"%03d" % number for number in range(300)]
    shards = shards_with(names)
    for name in names:
        row, _ = shards[_home(name)].do(BeginChange(1, name, "move", 2, name, True))
        if placed:
            shards[row.key.shard].do(PlaceTopic(row.key.sequence, Place(1, name), Place(2, name), True))
    found, rounds = fetched(shards, lambda there: there.find_many(1, names))
    assert [(one.name, one.alias) for one in found] == [(name, placed) for name in names]
    assert rounds <= 5

    def left(rows: Sequence[StateRows]) -> list[LeftChange]:
        inventory: Any = SimpleNamespace(
            rows=lambda: inventory_of(rows), each_rows=lambda: rows, shard_of=partial(shard_of, shards=SHARDS)
        )
        return changes_left(inventory, 1000)

    changes_found, rounds = fetched_rows(shards, left)
    assert sorted(one.place.name for one in changes_found) == names
    assert {one.passed for one in changes_found} == {placed}
    assert rounds <= 6
