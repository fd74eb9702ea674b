"""Groups of all nodes, page by page: merged by id, and nodes that say nothing are named."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from duramen.base.deadlines import Deadlines
from duramen.base.errors import GroupNotFound
from duramen.base.ports import Buffer
from duramen.coordinators.group.kinds import GroupDescription, GroupKind
from duramen.coordinators.group.listing import ListedGroups, Listing
from duramen.groups.values import GroupSnapshot, GroupState
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller
from duramen.rpc.server import RpcServer
from duramen.rpc.wire import TableWire, Wires
from duramen.service.methods import TABLE
from duramen.service.old_wire import OldWire
from duramen.sim.machine.scheduler import VirtualClock

_NAMES = st.sets(st.text("abc", min_size=1, max_size=3), max_size=12)


class _Groups:
    """A coordinator of groups without members or offsets; those of `gone` are deleted while they are listed."""

    def __init__(self, names: set[str], gone: set[str]) -> None:
        self.names = names
        self.gone = gone

    def listing(self) -> list[Any]:
        return [SimpleNamespace(group_id=name) for name in self.names]

    def describe(self, group_id: str) -> GroupDescription:
        if group_id in self.gone:
            raise GroupNotFound(group_id)
        return GroupDescription(group_id, GroupState.EMPTY, GroupSnapshot(0, "", None, None, ()), GroupKind.CLASSIC)

    def all_committed(self, _: str) -> list[Any]:
        return []


class _World:
    """Nodes that ask each other; those of `silent` get every question and answer none, to `cut` there is no way."""

    def __init__(self, groups: list[set[str]], gone: set[str], silent: set[int], cut: set[int]) -> None:
        self.clock, self.deadlines = VirtualClock(), Deadlines()
        self.silent = silent
        self.cut = cut
        self.nodes = [Node(node_id, "") for node_id in range(len(groups))]
        self.offsets: Any = None
        self.leaders: list[int | None] = []
        store: Any = SimpleNamespace(soon=lambda action: action())
        self.servers: list[RpcServer] = []
        self.listings: list[Listing] = []
        for node, names in zip(self.nodes, groups, strict=True):
            wires = Wires(TableWire(TABLE), OldWire(), lambda: True)
            server = RpcServer(wires)
            self.servers.append(server)
            caller = Caller(node.id, self, wires, server, self.clock, self.deadlines)
            self.listings.append(Listing(
                cast("Any", self), cast("Any", _Groups(names, gone)), cast("Any", self), store, caller,
                cast("Any", SimpleNamespace(find=lambda _, done: done([]))),
            ))  # fmt: skip

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        if node_id in self.cut:
            return False
        if node_id not in self.silent:
            self.servers[node_id].serve(body, done)
        return True

    def find(self, name: str) -> Any:
        """The stream of committed offsets, once there is one."""
        return self.offsets if name == "__consumer_offsets" else None

    def partition(self, place: PartitionId) -> Any:
        """Who leads a partition of it."""
        return SimpleNamespace(leader=self.leaders[place.partition])

    def list(self, after: str, limit: int) -> ListedGroups:
        found: list[ListedGroups] = []
        self.listings[0].everywhere(after, limit, found.append)
        if not found:
            next_ms = self.deadlines.next_ms()
            assert next_ms is not None
            self.clock.now_us = 1000 * next_ms
            self.deadlines.fire(next_ms)
        (one,) = found
        return one


@given(
    st.lists(_NAMES, min_size=1, max_size=4), _NAMES, st.sets(st.integers(1, 3)), st.sets(st.integers(1, 3)),
    st.integers(1, 5),
)  # fmt: skip
def test_pages_have_every_group_once(
    groups: list[set[str]], gone: set[str], silent: set[int], cut: set[int], limit: int
) -> None:
    world = _World(groups, gone, silent, cut)
    mute = (silent | cut) & set(range(len(groups)))
    heard = [names for node_id, names in enumerate(groups) if node_id not in mute]
    expected = sorted(set().union(*heard) - gone)
    found: list[str] = []
    while True:
        rows, missing, leaderless = world.list(found[-1] if found else "", limit)
        assert (list(missing), list(leaderless)) == (sorted(mute), [])
        found += [row.id for row in rows]
        if not rows:
            break
    assert set(found) <= set(expected)
    if not gone:
        assert found == expected


def test_partitions_whose_groups_nobody_knows_are_named() -> None:
    world = _World([{"a"}, {"b"}], set(), set(), set())
    world.leaders = [0, None, 1, None]
    world.offsets = SimpleNamespace(id=UUID(int=1), partitions=world.leaders)
    rows, silent, leaderless = world.list("", 5)
    assert ([row.id for row in rows], list(silent), list(leaderless)) == (["a", "b"], [], [1, 3])
