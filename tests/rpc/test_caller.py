"""One node is asked once, and answers or not; several are asked, and what is missing is named with its reason."""

from collections.abc import Callable
from functools import partial

import pytest

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, NodeStarting, NotLeader, OutcomeUnknown, StorageFailed
from duramen.base.ports import Buffer
from duramen.rpc.caller import Caller, Gathered
from duramen.rpc.methods import Method, MethodTable
from duramen.rpc.server import Done, RpcServer
from duramen.rpc.wire import TableWire, Wires
from duramen.service.old_wire import OldWire
from duramen.sim.machine.scheduler import VirtualClock

DOUBLE = Method("double", int, int, idempotent=True, deadline_ms=1_000)
LATER = Method("later", int, int, idempotent=False)


class World:
    """Nodes 1 to 3; there is no way to `cut` ones, `silent` ones do not answer until `hang_up`."""

    def __init__(self) -> None:
        self.clock, self.deadlines = VirtualClock(), Deadlines()
        self.cut: set[int] = set()
        self.silent: set[int] = set()
        self.hanging: list[Callable[[Buffer | None], None]] = []
        self.wires = Wires(TableWire(MethodTable([DOUBLE, LATER])), OldWire(), lambda: True)
        self.servers = {node_id: RpcServer(self.wires) for node_id in (1, 2, 3)}
        for server in self.servers.values():
            server.handle(DOUBLE, _double)
        self.caller = Caller(1, self, self.wires, self.servers[1], self.clock, self.deadlines)

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        if node_id in self.cut:
            return False
        if node_id in self.silent:
            self.hanging.append(done)
        else:
            self.servers[node_id].serve(body, done)
        return True

    def advance(self, duration_ms: int) -> None:
        self.clock.now_us += 1000 * duration_ms
        self.deadlines.fire(self.clock.monotonic_ms())


def _double(request: int, done: Done[int]) -> None:
    if request < 0:
        raise StorageFailed("it is negative")
    done(2 * request)


@pytest.fixture
def world() -> World:
    return World()


def call(
    world: World, node_id: int, request: int, outcomes: list[int | DuramenError] | None = None
) -> list[int | DuramenError]:
    """The outcomes, as they come."""
    outcomes = [] if outcomes is None else outcomes
    world.caller.call(node_id, DOUBLE, request, outcomes.append)
    return outcomes


@pytest.mark.parametrize("node_id", [1, 2])
def test_a_node_answers_or_refuses(world: World, node_id: int) -> None:
    assert call(world, node_id, 21) == [42]
    (refused,) = call(world, node_id, -1)
    assert (type(refused), str(refused)) == (StorageFailed, "it is negative")
    world.advance(10_000)
    outcomes: list[int | DuramenError] = []
    world.caller.call(node_id, LATER, 1, outcomes.append)
    assert [type(one) for one in outcomes] == [NodeStarting]


def test_without_a_connection_nothing_was_done(world: World) -> None:
    world.cut = {2}
    assert [type(one) for one in call(world, 2, 1)] == [NotLeader]


def test_what_is_not_answered_may_have_been_done(world: World) -> None:
    world.silent = {2}
    outcomes = call(world, 2, 1)
    world.advance(999)
    assert outcomes == []
    world.advance(1)
    assert [str(one) for one in outcomes] == ["node 2 has not answered in 1000 ms"]
    world.hanging.pop()(world.wires.table.encode_response(DOUBLE, 2))
    call(world, 2, 1, outcomes)
    world.hanging.pop()(None)
    call(world, 2, 1, outcomes)
    world.hanging.pop()(b"nonsense")
    assert [type(one) for one in outcomes] == [OutcomeUnknown] * 3


def test_several_nodes_are_asked_and_who_says_nothing_is_named(world: World) -> None:
    found: list[Gathered[int]] = []
    world.caller.gather(DOUBLE, {1: 1, 2: 2, 3: 3}, found.append)
    assert found == [Gathered({1: 2, 2: 4, 3: 6}, {})]
    world.cut, world.silent = {2}, {3}
    found.clear()
    world.caller.gather(DOUBLE, {1: -1, 2: 2, 3: 3}, found.append)
    assert not found
    world.advance(1_000)
    (gathered,) = found
    assert gathered.answers == {}
    assert {node_id: type(error) for node_id, error in gathered.missing.items()} == {
        1: StorageFailed, 2: NotLeader, 3: OutcomeUnknown,
    }  # fmt: skip


def test_nobody_is_asked(world: World) -> None:
    found: list[Gathered[int]] = []
    world.caller.gather(DOUBLE, {}, found.append)
    assert found == [Gathered({}, {})]


def test_the_first_answer_counts(world: World) -> None:
    dones: list[Done[int]] = []
    world.servers[2].handle(LATER, lambda _, done: dones.append(done))
    outcomes: list[int | DuramenError] = []
    world.caller.call(2, LATER, 1, outcomes.append)
    (done,) = dones
    for answer in (partial(done, 1), partial(done, 2)):
        answer()
    assert outcomes == [1]
