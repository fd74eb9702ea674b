"""What an operator reads of the cluster: nodes at once, partitions summed up, nothing twice."""

from collections.abc import Callable

import pytest

from duramen.base.deadlines import Deadlines
from duramen.controller.membership.event_log import ClusterEventLog
from duramen.metadata.events import NodeDraining, NodeFenced, NodeRegistered, NodeUnfenced, NodeUnregistered
from duramen.metadata.partitions import PartitionState
from duramen.sim.machine.clock import ManualClock


class Read:
    """A chronicle and the lines that it told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.deadlines = Deadlines()
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.chronicle = ClusterEventLog(self.clock, self.deadlines, self.lines.append, self.warnings.append)

    def wait(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.deadlines.fire(self.clock.monotonic_ms())

    def new(self) -> list[str]:
        lines, self.lines[:] = list(self.lines), []
        return lines


@pytest.fixture
def read() -> Read:
    return Read()


def _state(leader: int | None, *isr: int) -> PartitionState:
    return PartitionState((1, 2, 3), isr, leader)


def test_nodes_are_told_of_at_once(read: Read) -> None:
    for event in (
        NodeRegistered(4, "", rack="b"),
        NodeUnfenced(4, 1),
        NodeDraining(4, 1),
        NodeFenced(4, 1),
        NodeUnregistered(4, 1),
    ):
        read.chronicle.node(event)
    assert read.new() == [
        "node 4 has registered, in rack b",
        "node 4 is live",
        "node 4 is about to stop: its leaderships move to other nodes",
        "node 4 is fenced: it leads no partition, and leaves each in-sync set that has another member",
        "node 4 was removed from the cluster",
    ]


def test_many_partitions_are_two_lines(read: Read) -> None:
    for number in range(100):
        leader = None if number < 4 else 1 if number < 40 else 3
        read.chronicle.partition(f"flights-{number}", _state(2, 1, 2, 3), _state(leader, 1, 3))
    assert read.new() == []
    read.wait(999)
    assert read.new() == []
    read.wait(1)
    leaders, in_sync = read.new()
    moves = "60 from node 2 to node 3, 36 from node 2 to node 1, 4 from node 2 to nobody"
    waiting = "flights-0, flights-1, flights-2 …"
    assert leaders == f"leaders of 100 partitions changed: {moves}; without a leader: {waiting}"
    assert in_sync == "in-sync sets of 100 partitions changed: node 2 left 100"
    read.wait(10_000)
    assert read.new() == []


@pytest.mark.parametrize(
    ("after", "line"),
    [
        (_state(3, 3, 2, 1), "leaders of 1 partition changed: 1 from node 2 to node 3"),
        (_state(2, 2), "in-sync sets of 1 partition changed: node 1 left 1, node 3 left 1"),
    ],
)
def test_a_line_says_what_changed_only(read: Read, after: PartitionState, line: str) -> None:
    read.chronicle.partition("rides-0", _state(2, 1, 2, 3), after)
    read.wait(1_000)
    assert read.new() == [line]


def test_what_was_before_is_told_before(read: Read) -> None:
    read.chronicle.node(NodeFenced(3, 1))
    read.chronicle.partition("rides-0", _state(2, 2, 3), _state(2, 2))
    read.chronicle.node(NodeUnfenced(3, 2))
    read.chronicle.partition("rides-0", _state(2, 2), _state(2, 2, 3))
    read.wait(1_000)
    fenced, left, live, joined = read.new()
    assert [fenced[:16], live, left[-13:], joined[-15:]] == [
        "node 3 is fenced", "node 3 is live", "node 3 left 1", "node 3 joined 1",
    ]  # fmt: skip


@pytest.mark.parametrize("end", [ClusterEventLog.stop, lambda _: None])
def test_what_waits_is_told_at_the_end(read: Read, end: Callable[[ClusterEventLog], None]) -> None:
    read.chronicle.partition("rides-0", _state(2, 2), _state(2, 2, 3))
    end(read.chronicle)
    read.wait(5_000)
    assert read.new() == ["in-sync sets of 1 partition changed: node 3 joined 1"]


def test_a_state_that_is_the_same_is_not_told(read: Read) -> None:
    read.chronicle.partition("rides-0", _state(2, 1, 2), _state(2, 2, 1))
    read.wait(5_000)
    assert read.new() == []


def test_a_partition_that_changes_twice_is_one(read: Read) -> None:
    for before, after in (((2, 2), (2, 2, 3)), ((2, 2, 3), (None, 3)), ((None, 3), (3, 3))):
        read.chronicle.partition("rides-0", _state(*before), _state(*after))
    read.wait(1_000)
    assert read.new() == [
        "leaders of 1 partition changed: 1 from node 2 to nobody, 1 from nobody to node 3; without a leader: rides-0",
        "in-sync sets of 1 partition changed: node 2 left 1, node 3 joined 1",
    ]


def test_an_unclean_election_is_a_warning_at_once(read: Read) -> None:
    read.chronicle.partition("rides-0", _state(2, 2), _state(None))
    read.chronicle.partition("rides-0", _state(None), _state(3, 3), unclean=True)
    assert read.new() == [
        "leaders of 1 partition changed: 1 from node 2 to nobody; without a leader: rides-0",
        "in-sync sets of 1 partition changed: node 2 left 1",
    ]
    assert read.warnings == ["unclean election: node 3 leads rides-0; acknowledged records that it lacks are lost"]
