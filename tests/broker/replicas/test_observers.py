"""Who follows a partition only to be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.ids import StreamId
from duramen.broker.replicas.observers import observers_of
from duramen.metadata.events import NodeRegistered, StreamConfigured, StreamCreated
from duramen.metadata.nodes import BROKER_ROLE, CONTROLLER_ROLE
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.state import ControllerState

_STREAM = StreamId(int=7)
_PLACE = PartitionId(_STREAM, 0)


@pytest.fixture
def state() -> ControllerState:
    """Nodes 1 to 4 hold partitions, node 5 does not, 4 alone is of a rack; and a stream."""
    found = ControllerState()
    for node_id in range(1, 6):
        role = BROKER_ROLE if node_id < 5 else CONTROLLER_ROLE
        found.apply(
            NodeRegistered(
                node_id,
                f"d{node_id}",
                f"i{node_id}",
                node_id,
                roles=(role,),
                fenced=node_id == 4,
                rack="b" if node_id == 4 else None,
            )
        )
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
        ("rack:b", (4,)),
        ("rack:b,3", (3, 4)),
        ("rack:c", ()),
        ("racks", (4,)),
    ],
)
def test_the_config_names_them(state: ControllerState, named: str | None, observers: tuple[int, ...]) -> None:
    if named is not None:
        state.apply(StreamConfigured(str(_STREAM), {"read.replicas": named}))
    assert observers_of(state, _PLACE, PartitionState((1, 2), (1, 2), 1)) == observers


def test_of_a_stream_that_is_gone_there_are_none(state: ControllerState) -> None:
    assert observers_of(state, PartitionId(StreamId(int=8), 0), PartitionState()) == ()


_RACKS = st.dictionaries(st.integers(1, 9), st.sampled_from(["a", "b", "c", None]), min_size=1)


def _racked(racks: dict[int, str | None]) -> ControllerState:
    state = ControllerState()
    for epoch, (node_id, rack) in enumerate(sorted(racks.items()), 1):
        state.apply(NodeRegistered(node_id, f"d{node_id}", f"i{node_id}", epoch, rack=rack))
    state.apply(StreamCreated("s", str(_STREAM), 20))
    state.apply(StreamConfigured(str(_STREAM), {"read.replicas": "racks"}))
    return state


@given(_RACKS, st.sets(st.integers(1, 9), max_size=3), st.integers(0, 19))
def test_each_rack_without_a_replica_has_one_that_reads(
    racks: dict[int, str | None], replicas: set[int], index: int
) -> None:
    found = observers_of(_racked(racks), PartitionId(_STREAM, index), PartitionState(tuple(replicas), (), 1))
    served = {racks[node_id] for node_id in replicas & racks.keys()}
    assert sorted(str(racks[node_id]) for node_id in found) == sorted(
        {str(one) for one in racks.values() if one} - {str(one) for one in served}
    )
    assert not replicas.intersection(found)


@given(_RACKS, st.integers(1, 9))
def test_a_node_that_goes_changes_only_what_it_had(racks: dict[int, str | None], gone: int) -> None:
    left = {node_id: rack for node_id, rack in racks.items() if node_id != gone}
    for index in range(20):
        place = PartitionId(_STREAM, index)
        before = observers_of(_racked(racks), place, PartitionState())
        after = observers_of(_racked(left), place, PartitionState())
        assert gone in before or before == after
        assert set(before) - {gone} <= set(after)
