"""Queues of a space with durability=os: a power failure takes the newest operations at most, a crash takes none."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.coordinators.queue.spaces import SHARDS, Space
from tests.sim.planted import Bug, Place, planted

from duramen.base.errors import StateDamaged
from duramen.base.ids import Position
from duramen.broker.streams import Stream
from duramen.codec.partitioner import partition_of
from duramen.coordinators.queue.shard import queue_kind
from duramen.coordinators.runtime.rows import RowStates
from duramen.metadata.decisions import Definition
from duramen.queues.machine import Delete, Edit
from duramen.sim.broker import CallbackResult, ManualBroker

NAME = "__os"
QUEUES = tuple(b"user-%d" % number for number in range(4))
CONFIG = {"kind": "queues", "durability": "os", "queue.log.retention.ms": "0", "segment.bytes": "2000"}
_Entries = tuple[tuple[Position, bytes | None], ...]


class OsSpace(Space):
    """A space of the broker's own, as none can have this durability otherwise."""

    def __init__(self, seed: int) -> None:
        self.hand = ManualBroker(seed=seed, kinds=(queue_kind(12),))
        made: CallbackResult[None] = CallbackResult()
        self.hand.broker.create_stream(Definition(NAME, SHARDS, CONFIG, internal=True), made)
        self.hand.settle()
        assert made.value is None
        self.hand.advance(1_000)

    @property
    def stream(self) -> Stream:
        return self.hand.broker.streams.get(NAME)


class Checked:
    """Of each shard the states after its operations, and the first that a loss of power may leave."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.space = OsSpace(seed)
        nothing: dict[bytes, _Entries] = dict.fromkeys(QUEUES, ())
        self.states = [[nothing] for _ in range(SHARDS)]
        self.safe = [0] * SHARDS
        self.values = self.lost = 0

    def shard(self, name: bytes) -> int:
        return partition_of(name, SHARDS)

    def step(self) -> None:
        name, do = self.chance.choice(QUEUES), self.chance.random()
        states = self.states[self.shard(name)]
        there = states[-1][name]
        if do < 0.6 or not there:
            value = self.value()
            (at,) = self.space.put((name, value))
            now: _Entries = (*there, (at, value))
        elif do < 0.8:
            place, value = self.chance.randrange(len(there)), self.value()
            self.space.submit(name, Edit, [(there[place][0], None, value)])
            now = (*there[:place], (there[place][0], value), *there[place + 1 :])
        else:
            gone = self.chance.choice(there)
            self.space.submit(name, Delete, [(gone[0], None)])
            now = tuple(one for one in there if one != gone)
        states.append(states[-1] | {name: now})

    def value(self) -> bytes:
        self.values += 1
        return b"value %d" % self.values

    def trouble(self) -> None:
        hand, do = self.space.hand, self.chance.random()
        if do < 0.2:
            synced: CallbackResult[None] = CallbackResult()
            hand.broker.store.sync_all(synced)
            hand.settle()
            self.all_safe()
        elif do < 0.4:
            hand.broker.coordinators.states.checkpoints.make()
            hand.settle()
        elif do < 0.5:
            hand.restart()
            self.all_safe()
        elif do < 0.8 or not hand.rows.readable:
            hand.crash(self.chance.randrange(1000))
            self.find()
        else:
            hand.rows.damage(checkpoints=0)
            hand.crash(self.chance.randrange(1000))
            self.find()
        hand.settle()
        hand.advance(10_000)

    def all_safe(self) -> None:
        self.safe = [len(states) - 1 for states in self.states]

    def read(self, shard: int) -> dict[bytes, _Entries]:
        names = [name for name in QUEUES if self.shard(name) == shard]
        return {name: tuple((one.position, one.value) for one in self.space.read(name).entries) for name in names}

    def find(self) -> None:
        """The shards are as they were after some operation."""
        self.space.hand.advance(10_000)
        for shard, states in enumerate(self.states):
            found = self.read(shard)
            number = next(at for at in reversed(range(len(states))) if found.items() <= states[at].items())
            assert number >= self.safe[shard]
            self.lost += len(states) - 1 - number
            del states[number + 1 :]
        self.all_safe()

    def check(self) -> None:
        for shard, states in enumerate(self.states):
            assert self.read(shard).items() <= states[-1].items()


def run(seed: int) -> Checked:
    found = Checked(seed)
    for _ in range(25):
        for _ in range(found.chance.randrange(1, 15)):
            found.step()
        found.trouble()
        found.check()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_of_power_takes_the_newest_operations_alone(seed: int) -> None:
    found = run(seed)
    assert found.lost
    assert max(partition.log.start_offset for partition in found.space.stream.partitions) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_it_does_for_many_seeds(seed: int) -> None:
    run(seed)


Original = Callable[..., Any]


def _unsynced(right: Original) -> Original:
    def init(
        self: RowStates, open_store: Any, worker: Any, report: Any, checkpoint_records: int, logs: Any, sync: Any
    ) -> None:
        del sync
        right(self, open_store, worker, report, checkpoint_records, logs, lambda done: done(None))

    return init


UNSYNCED = Bug("unsynced", "", (Place(RowStates, "__init__", _unsynced),), "all checkpoints are ahead of a log")


def test_a_planted_bug_is_found() -> None:
    with planted(UNSYNCED), pytest.raises((AssertionError, StateDamaged)):
        run(100)
