"""Who follows a partition only to be read."""

import pytest

from duramen.base.ids import StreamId
from duramen.broker.replicas.observers import observers_of
from duramen.controller.events import NodeRegistered, StreamConfigured, StreamCreated
from duramen.controller.nodes import BROKER_ROLE, CONTROLLER_ROLE
from duramen.controller.partitions import PartitionId, PartitionState
from duramen.controller.state import ControllerState

_STREAM = StreamId(int=7)
_PLACE = PartitionId(_STREAM, 0)


@pytest.fixture
def state() -> ControllerState:
    """Nodes 1 to 4 hold partitions, node 5 does not; and a stream."""
    found = ControllerState()
    for node_id in range(1, 6):
        role = BROKER_ROLE if node_id < 5 else CONTROLLER_ROLE
        found.apply(NodeRegistered(node_id, f"d{node_id}", f"i{node_id}", node_id, roles=(role,), fenced=node_id == 4))
    found.apply(StreamCreated("s", str(_STREAM), 1))
    return found


@pytest.mark.parametrize(
    ("named", "observers"),
    [
        (None, ()),
        ("", ()),
        ("all", (3, 4)),
        ("3", (3,)),
        ("4,3,2", (3, 4)),
        ("1,2", ()),
        ("3,all", (3, 4)),
        ("5,9", ()),
    ],
)
def test_the_config_names_them(state: ControllerState, named: str | None, observers: tuple[int, ...]) -> None:
    if named is not None:
        state.apply(StreamConfigured(str(_STREAM), {"read.replicas": named}))
    assert observers_of(state, _PLACE, PartitionState((1, 2), (1, 2), 1)) == observers


def test_of_a_stream_that_is_gone_there_are_none(state: ControllerState) -> None:
    assert observers_of(state, PartitionId(StreamId(int=8), 0), PartitionState()) == ()
