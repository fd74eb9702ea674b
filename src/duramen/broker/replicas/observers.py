"""Which nodes follow a partition only to be read: from the metadata log alone, so that all nodes agree. Pure."""

from typing import Final

from duramen.base.catalogue import STREAM
from duramen.base.settings import check, config_text
from duramen.controller.partitions import PartitionId, PartitionState
from duramen.controller.state import ControllerState

__all__ = ["READ_REPLICAS", "observers_of"]

READ_REPLICAS: Final = "read.replicas"
_ALL: Final = "all"


def observers_of(state: ControllerState, place: PartitionId, partition: PartitionState) -> tuple[int, ...]:
    """The registered nodes that `read.replicas` of the stream names, but for those that are replicas anyway."""
    stream = state.stream_by_id(place.stream_id)
    text = None if stream is None else stream.config.get(READ_REPLICAS)
    if not text:
        return ()
    named = config_text(check(STREAM[READ_REPLICAS], text)).split(",")
    return tuple(
        node.id
        for node in state.registrations
        if node.holds_partitions and node.id not in partition.replicas and (_ALL in named or str(node.id) in named)
    )
