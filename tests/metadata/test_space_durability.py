"""The durability of queue spaces: `sync`, or `os` for the broker's own, where all nodes know that."""

from uuid import UUID

import pytest

from duramen.base.errors import ConfigInvalid, RequestInvalid
from duramen.metadata.decisions import Definition, create_stream
from duramen.metadata.events import ClusterFormed, FeatureLevelChanged
from duramen.metadata.features import MetadataFeature
from duramen.metadata.state import ControllerState


def make(state: ControllerState, name: str, durability: str) -> None:
    wish = Definition(name, 1, {"kind": "queues", "durability": durability}, internal=name.startswith("__"))
    create_stream(state, wish, stream_id=UUID(int=1), now_ms=0)


@pytest.mark.parametrize(("name", "durability"), [("a", "os"), ("a", "memory"), ("__a", "memory")])
def test_others_are_refused(name: str, durability: str) -> None:
    with pytest.raises(ConfigInvalid, match="needs durability=sync"):
        make(ControllerState(), name, durability)


def test_a_cluster_is_upgraded_first() -> None:
    state = ControllerState()
    make(state, "__a", "os")  # a standalone node
    state.apply(ClusterFormed("c"))
    state.apply(FeatureLevelChanged(MetadataFeature.SPACE_NUMBERS))
    make(state, "__a", "sync")
    with pytest.raises(RequestInvalid, match="duramen cluster upgrade"):
        make(state, "__a", "os")
    state.apply(FeatureLevelChanged(MetadataFeature.TOPIC_DURABILITY))
    make(state, "__a", "os")
