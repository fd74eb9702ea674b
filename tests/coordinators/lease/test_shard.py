"""Leases as a shard against a model: what is open, what has expired and since when, and what is held."""

from random import Random
from typing import Any, cast
from uuid import UUID

import pytest
from tests.examples import examples

from duramen.base.errors import BatchCorrupt, DuramenError, NodeBusy, SnapshotLeaseExpired, SnapshotLeaseNotFound
from duramen.base.ports import StateRows
from duramen.codec.batch import BatchInput, DecodedRecord, batches, encode, records
from duramen.coordinators.lease.shard import (
    REMEMBERED_MS,
    CloseLease,
    Command,
    EndLeases,
    LeaseShard,
    OpenLease,
    RenewLease,
)
from duramen.keyed.leases import SnapshotLease

STREAMS = [UUID(int=7), UUID(int=8)]
NO_ROWS = cast("StateRows", None)


class Log:
    """The records of a shard; `compacted` has the newest of each key only, as a load may find it."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None]] = []

    def shard(self, *, compacted: bool) -> LeaseShard:
        kept = list(dict(self.records).items()) if compacted else self.records
        shard = LeaseShard()
        for record in decoded(kept):
            shard.apply(record)
        return shard


def decoded(found: list[Any]) -> list[DecodedRecord]:
    if not found:
        return []
    data = encode([BatchInput(0, key, value) for key, value in found])
    return [record for at, head in batches(data) for record in records(memoryview(data)[at : at + head.size])]


class World:
    """A shard, its log, and by definition: the leases that are open, and those that have expired."""

    def __init__(self) -> None:
        self.log = Log()
        self.shard = LeaseShard()
        self.now_ms = 1_000_000
        self.open: dict[str, tuple[UUID, SnapshotLease]] = {}
        self.expired: dict[str, tuple[UUID, int]] = {}

    def do(self, command: Command) -> object:
        decision = self.shard.decide(command, NO_ROWS, self.now_ms)
        self.log.records += decision.records
        for record in decoded(list(decision.records)):
            self.shard.apply(record)
        return decision.response

    def let_pass(self, duration_ms: int) -> None:
        """As the runtime: what is due is asked for when it is."""
        until_ms = self.now_ms + duration_ms
        while (next_ms := self.shard.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            for command in self.shard.due(self.now_ms):
                self.do(command)
            assert (self.shard.next_ms() or until_ms) > self.now_ms
        self.now_ms = until_ms
        for name, (stream_id, lease) in list(self.open.items()):
            if lease.expires_ms <= self.now_ms:
                self.expired[name] = stream_id, lease.expires_ms
                del self.open[name]

    def check(self) -> None:
        for stream_id in STREAMS:
            mine = [lease for id_, lease in self.open.values() if id_ == stream_id]
            assert sorted(self.shard.all(stream_id, self.now_ms)) == sorted(mine)
            for partition in range(3):
                held = [lease.positions[partition] for lease in mine if partition in lease.positions]
                # What has just expired may be held for a second more.
                just = any(self.now_ms - expired_ms <= 1000 for _, expired_ms in self.expired.values())
                assert just or self.shard.oldest(stream_id, partition) == min(held, default=None)
        for name, (stream_id, lease) in self.open.items():
            assert self.shard.get(stream_id, name, self.now_ms) == lease
            other = STREAMS[stream_id == STREAMS[0]]
            assert isinstance(self.refusal(other, name), SnapshotLeaseNotFound)
        for name, (stream_id, expired_ms) in self.expired.items():
            refusal = self.refusal(stream_id, name)
            if self.now_ms - expired_ms < REMEMBERED_MS:
                assert isinstance(refusal, SnapshotLeaseExpired)
                assert f"ended {(self.now_ms - expired_ms) / 1000:.0f} s ago" in str(refusal)
            elif self.now_ms - expired_ms > REMEMBERED_MS + 5000:
                assert isinstance(refusal, SnapshotLeaseNotFound)

    def refusal(self, stream_id: UUID, name: str) -> DuramenError | None:
        try:
            self.shard.get(stream_id, name, self.now_ms)
        except DuramenError as error:
            return error
        return None

    def step(self, chance: Random, number: int) -> None:
        draw = chance.random()
        names = sorted(self.open)
        if draw < 0.4 or not names:
            stream_id, name = chance.choice(STREAMS), f"lease-{number}"
            positions = {partition: chance.randrange(50) for partition in range(chance.randrange(1, 4))}
            expires_ms = self.now_ms + chance.randrange(1, 60_000)
            lease = SnapshotLease(name, positions, expires_ms, self.now_ms, dict.fromkeys(positions, 3))
            self.open[name] = stream_id, lease
            assert self.do(OpenLease(stream_id, lease)) == lease
        elif draw < 0.55:
            name = chance.choice(names)
            stream_id, lease = self.open[name]
            lease_ms = chance.randrange(1, 60_000)
            renewed = lease._replace(expires_ms=max(lease.expires_ms, self.now_ms + lease_ms))
            self.open[name] = stream_id, renewed
            assert self.do(RenewLease(stream_id, name, lease_ms)) == renewed
        elif draw < 0.65:
            name = chance.choice(names)
            stream_id, _ = self.open.pop(name)
            self.do(CloseLease(stream_id, name))
        elif draw < 0.68:
            stream_id = chance.choice(STREAMS)
            self.do(EndLeases(stream_id))
            self.open = {name: held for name, held in self.open.items() if held[0] != stream_id}
            self.expired = {name: held for name, held in self.expired.items() if held[0] != stream_id}
        elif draw < 0.75:
            self.shard = self.log.shard(compacted=chance.random() < 0.5)
        else:
            self.let_pass(chance.choice((1, 500, 20_000, REMEMBERED_MS // 3)))


@pytest.mark.parametrize("seed", range(examples(40)))
def test_it_is_what_the_model_says(seed: int) -> None:
    chance, world = Random(seed), World()
    for number in range(120):
        world.step(chance, number)
        world.check()
    world.let_pass(3 * REMEMBERED_MS)
    world.check()
    assert world.shard.next_ms() is None
    assert not any(world.shard.knows(stream_id) for stream_id in STREAMS)


def test_what_has_ended_is_not_renewed() -> None:
    world = World()
    world.do(OpenLease(STREAMS[0], SnapshotLease("a", {0: 5}, world.now_ms + 10)))
    world.now_ms += 10  # nothing has expired it yet
    for command in (RenewLease(STREAMS[0], "a", 1000), CloseLease(STREAMS[0], "a")):
        with pytest.raises(SnapshotLeaseExpired):
            world.do(command)
    assert world.shard.oldest(STREAMS[0], 0) == 5


def test_what_is_due_is_asked_for_again_later_only() -> None:
    shard = LeaseShard()
    [record] = decoded(list(shard.decide(OpenLease(STREAMS[0], SnapshotLease("a", {0: 5}, 10)), NO_ROWS, 0).records))
    shard.apply(record)
    assert shard.next_ms() == 10
    assert len(list(shard.due(10))) == 1
    assert shard.next_ms() == 1010


def test_there_is_a_bound_of_open_ones_and_of_expired_ones() -> None:
    world = World()
    world.shard = LeaseShard(most=10)
    for turn in range(4):
        for number in range(10):
            lease = SnapshotLease(f"{turn}-{number}", {}, world.now_ms + 100)
            world.do(OpenLease(STREAMS[0], lease))
            world.open[lease.lease_id] = STREAMS[0], lease
        with pytest.raises(NodeBusy, match="10 leases"):
            world.do(OpenLease(STREAMS[0], SnapshotLease("one", {}, 10**9)))
        world.let_pass(5000)
    known = [name for name in world.expired if isinstance(world.refusal(STREAMS[0], name), SnapshotLeaseExpired)]
    assert 10 <= len(known) <= 20


def test_a_record_that_cannot_be_read() -> None:
    with pytest.raises(BatchCorrupt, match="offset 4 is no lease"):
        LeaseShard().apply(DecodedRecord(4, 0, b"a", b"{}", ()))
