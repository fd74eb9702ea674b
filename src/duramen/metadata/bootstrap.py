"""Bootstrap of a cluster, from empty or from the streams of a standalone node, and the feature level. Pure."""

from duramen.base.errors import ClusterDiffers, RequestInvalid, UnsupportedFeature
from duramen.metadata.events import ClusterFormed, Event, FeatureLevelChanged, PartitionChanged
from duramen.metadata.partitions import PartitionId, PartitionState, difference
from duramen.metadata.state import ControllerState

__all__ = ["adopt", "form", "set_feature_level"]


def form(state: ControllerState, cluster_id: str, feature_level: int) -> list[Event]:
    """Create a cluster with an id of its own, once. Raises ClusterDiffers if there is another one.

    No node has registered with it yet: each registration is checked against the level. A former standalone node, which
    has reported no levels, registers again too.
    """
    if state.cluster_id and state.cluster_id != cluster_id:
        raise ClusterDiffers(f"this is the cluster {state.cluster_id} already")
    if state.cluster_id:
        return []
    return [ClusterFormed(cluster_id), *([FeatureLevelChanged(feature_level)] if feature_level else [])]


def adopt(state: ControllerState, node_id: int, leader_epoch: int) -> list[PartitionChanged]:
    """Make a former standalone node the only replica of its streams, and their leader in `leader_epoch`.

    That epoch must be above all in which it led as a standalone node. Partitions with replicas keep them.
    """
    adopted = PartitionState((node_id,), (node_id,), node_id, leader_epoch)
    return [
        difference(PartitionId(stream.id, partition), None, adopted)
        for stream in state.streams.values()
        for partition in range(stream.partitions)
        if state.partitions.get(PartitionId(stream.id, partition)) is None
    ]


def set_feature_level(state: ControllerState, level: int) -> list[Event]:
    """Set a feature level that all nodes support. Raises RequestInvalid, UnsupportedFeature."""
    if level < state.feature_level:
        raise RequestInvalid(f"the feature level is {state.feature_level} and never goes down")
    for node in state.registrations:
        if not node.least_feature_level <= level <= node.latest_feature_level:
            raise UnsupportedFeature(
                f"node {node.id} knows the feature levels {node.least_feature_level} to {node.latest_feature_level}"
            )
    return [] if level == state.feature_level else [FeatureLevelChanged(level)]
