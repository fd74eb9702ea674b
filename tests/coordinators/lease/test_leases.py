"""Leases on a node on doubles: what a lease holds is there until it ends, whatever happens to the node."""

from random import Random
from typing import Any

import pytest
from tests.broker.views.test_views import Keyed
from tests.examples import examples

from duramen.base.errors import NotCoordinator, SnapshotCut, SnapshotLeaseExpired, SnapshotLeaseNotFound, SnapshotTooOld
from duramen.broker.streams import Stream
from duramen.broker.views.held_bytes import held_bytes
from duramen.coordinators.lease.leases import SnapshotLeases, position_of
from duramen.keyed.leases import SnapshotLease
from duramen.sim.broker import CallbackResult, ManualBroker

LEASE_MS = 20_000


class Leasing(Keyed):
    """A node with a keyed stream, and the leases that were opened."""

    def __init__(self, seed: int = 0, **config: Any) -> None:
        super().__init__(seed, snapshot_lease_ms=LEASE_MS, **config)
        self.leases: dict[str, SnapshotLease] = {}

    @property
    def stream(self) -> Stream:
        return self.hand.broker.streams.get("users")

    def open(self, name: str, at: int) -> None:
        """As the door: held while it is stored, and checked behind what S0 is about to become."""
        release = self.hand.broker.views.hold(self.stream, {0: at})
        checked: CallbackResult[int] = CallbackResult()
        self.view.check(at, checked)
        self.hand.settle()
        answer: CallbackResult[SnapshotLease] = CallbackResult()
        if checked.error is None:
            self.hand.broker.leases.open(self.stream, name, {0: checked.value}, answer)
            self.hand.settle()
            self.leases[name] = answer.value
        release()
        if checked.error is not None:
            raise checked.error

    def renew(self, name: str) -> None:
        answer: CallbackResult[SnapshotLease] = CallbackResult()
        self.hand.broker.leases.renew(self.stream, name, answer)
        self.hand.settle()
        self.leases[name] = answer.value

    def close(self, name: str) -> None:
        answer: CallbackResult[None] = CallbackResult()
        self.hand.broker.leases.close(self.stream, name, answer)
        self.hand.settle()
        assert answer.value is None
        del self.leases[name]

    def check_leases(self) -> None:
        now_ms = self.hand.clock.wall_ms()
        for name, lease in self.leases.items():
            if lease.expires_ms > now_ms:
                assert self.hand.broker.leases.get(self.stream, name) == lease
                self.check(lease.positions[0])
                assert self.view.bounds.s0 <= lease.positions[0]
            else:
                with pytest.raises(SnapshotLeaseExpired):
                    self.hand.broker.leases.get(self.stream, name)


def random_step(world: Leasing, chance: Random, number: int) -> None:
    draw, now_ms = chance.random(), world.hand.clock.wall_ms()
    alive = [name for name, lease in world.leases.items() if lease.expires_ms > now_ms]
    if draw < 0.45:
        keys = [b"k%d" % chance.randrange(12) for _ in range(chance.randrange(1, 9))]
        world.produce(*((key, None if chance.random() < 0.2 else b"%d" % number) for key in keys))
    elif draw < 0.6:
        bounds = world.view.bounds
        if bounds.position > bounds.s0:
            world.open(f"lease-{number}", chance.randrange(bounds.s0, bounds.position))
    elif draw < 0.66 and alive:
        world.renew(chance.choice(alive))
    elif draw < 0.7 and alive:
        world.close(chance.choice(alive))
    elif draw < 0.76:
        world.hand.crash(chance.randrange(1 << 30))
    elif draw < 0.8:
        world.hand.restart()
    else:
        world.hand.advance(chance.choice((300, 1500, 6000, 15_000)))


@pytest.mark.parametrize("seed", range(examples(20)))
def test_what_a_lease_holds_is_there(seed: int) -> None:
    chance, world = Random(seed), Leasing(seed)
    for number in range(60):
        random_step(world, chance, number)
        world.check_leases()
    world.hand.advance(2 * LEASE_MS)
    world.check_leases()
    world.produce((b"k1", b"last"))
    world.hand.advance(120_000)
    assert world.view.bounds.s0 == world.view.bounds.position


def test_s0_stands_until_leases_are_known_and_goes_on_when_they_end() -> None:
    world = Leasing()
    world.produce(*((b"k%d" % (number % 3), b"%d" % number) for number in range(30)))
    world.open("a", 4)
    hand = world.hand
    unloaded = SnapshotLeases(hand.broker.streams, hand.clock)
    assert unloaded.oldest(world.stream.id, 0) == 0
    world.produce((b"k0", b"new"))
    hand.advance(6_500)
    hand.crash()
    hand.advance(8_000)
    world.check_leases()
    with pytest.raises(SnapshotTooOld):
        world.open("b", 3)
    world.close("a")
    with pytest.raises(SnapshotLeaseNotFound, match="there is no lease a"):
        hand.broker.leases.get(world.stream, "a")
    hand.advance(3_000)
    assert world.view.bounds.s0 == 31


def test_how_many_bytes_are_held() -> None:
    world = Leasing()
    world.produce(*((b"k%d" % number, b"x" * 50) for number in range(10)))
    world.open("all", 10)
    for number in range(10):
        world.produce(*((b"k%d" % index, b"%d" % number * 50) for index in range(10)))
    world.open("new", 110)
    answer: CallbackResult[list[int]] = CallbackResult()
    world.hand.advance(6_000)
    held_bytes(world.view, [10, 60, 110], answer)
    world.hand.settle()
    size = world.stream.partition(0).log.size_bytes()
    # 100 of 110 records supersede another, and are taken to be spread evenly.
    assert answer.value == [90 * size // 110, 45 * size // 110, 0]


@pytest.mark.parametrize("how", ["deleted", "unkeyed"])
def test_a_stream_that_is_gone_or_not_keyed_any_more_ends_its_leases(how: str) -> None:
    world = Leasing()
    world.produce((b"k", b"v"))
    world.open("a", 1)
    stream = world.stream
    if how == "deleted":
        world.hand.delete("users")
    else:
        world.configure("false")
    world.hand.settle()
    with pytest.raises(SnapshotLeaseNotFound):
        world.hand.broker.leases.get(stream, "a")
    assert world.hand.broker.leases.oldest(stream.id, 0) is None


def test_records_that_were_lost_and_written_anew_are_told() -> None:
    world = Leasing()
    world.produce((b"k", b"v"), (b"k", b"w"))
    world.open("a", 2)
    lease = world.leases["a"]
    assert position_of(world.stream, 0, lease) == 2
    for other in (lease._replace(positions={0: 3}), lease._replace(epochs={0: lease.epochs[0] - 1})):
        with pytest.raises(SnapshotCut, match="has lost records before"):
            position_of(world.stream, 0, other)


def test_a_node_without_coordinators_keeps_none() -> None:
    hand = ManualBroker()
    stream, answer = hand.create("users", keyed="true"), CallbackResult[SnapshotLease]()
    leases = SnapshotLeases(hand.broker.streams, hand.clock)
    leases.open(stream, "a", {0: 0}, answer)
    assert isinstance(answer.error, NotCoordinator)
    for ask in (leases.renew, leases.close):
        refused: CallbackResult[SnapshotLease] = CallbackResult()
        ask(stream, "a", refused)
        assert isinstance(refused.error, SnapshotLeaseNotFound)
    assert list(leases.all(stream)) == []


def test_s0_waits_for_a_lease_that_is_being_stored() -> None:
    world = Leasing()
    world.produce(*((b"k", b"%d" % number) for number in range(10)))
    release, checked = world.hand.broker.views.hold(world.stream, {0: 3}), CallbackResult[int]()
    world.view.check(3, checked)
    world.hand.settle()
    assert checked.value == 3
    world.hand.advance(12_000)
    assert world.view.bounds.s0 <= 3
    release()
    world.hand.advance(3_000)
    assert world.view.bounds.s0 == 10
