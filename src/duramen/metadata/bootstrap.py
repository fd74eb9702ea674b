"""Bootstrap of a cluster, from empty or from the streams of a standalone node, and the feature level. Pure."""

from duramen.base.errors import ClusterDiffers, RequestInvalid, UnsupportedFeature
from duramen.metadata.events import ClusterFormed, Event, FeatureLevelChanged, PartitionChanged
from duramen.metadata.partitions import PartitionId, PartitionState, difference
from duramen.metadata.state import ControllerState

__all__ = ["adopt", "form", "set_feature_level"]


def form(state: ControllerState, cluster_id: str, feature_level: int) -> list[Event]:
    """Begin a cluster with an id of its own, once. Raises ClusterDiffers where there is another one.

    Nobody has registered with it yet: whoever does is asked whether it knows the level. A node that was alone, and has
    said nothing of levels, registers anew too.
    """
    if state.cluster_id and state.cluster_id != cluster_id:
        raise ClusterDiffers(f"this is the cluster {state.cluster_id} already")
    if state.cluster_id:
        return []
    return [ClusterFormed(cluster_id), *([FeatureLevelChanged(feature_level)] if feature_level else [])]


def adopt(state: ControllerState, node_id: int, leader_epoch: int) -> list[PartitionChanged]:
    """Give the streams of a node that was alone their replica: that node, which leads in `leader_epoch`.

    That epoch has to be above any in which it led when it was alone. A partition that has replicas keeps them.
    """
    adopted = PartitionState((node_id,), (node_id,), node_id, leader_epoch)
    return [
        difference(PartitionId(stream.id, partition), None, adopted)
        for stream in state.streams.values()
        for partition in range(stream.partitions)
        if state.partitions.get(PartitionId(stream.id, partition)) is None
    ]


def set_feature_level(state: ControllerState, level: int) -> list[Event]:
    """Let the cluster use a level that all its nodes know. Raises RequestInvalid, UnsupportedFeature."""
    if level < state.feature_level:
        raise RequestInvalid(f"the feature level is {state.feature_level} and never goes down")
    for node in state.registrations:
        if not node.least_feature_level <= level <= node.latest_feature_level:
            raise UnsupportedFeature(
                f"node {node.id} knows the feature levels {node.least_feature_level} to {node.latest_feature_level}"
            )
    return [] if level == state.feature_level else [FeatureLevelChanged(level)]
