"""The read replicas of a partition, from the metadata log alone, so that all nodes agree. Pure."""

import struct
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from duramen.base.catalogue.catalogue import STREAM
from duramen.base.settings import check, config_text
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.state import ControllerState

__all__ = ["READ_REPLICAS", "observers_of"]

READ_REPLICAS: Final = "read.replicas"
_ALL: Final = "all"
_EACH_RACK: Final = "racks"
_OF_RACK: Final = "rack:"
_SCORED: Final = struct.Struct(">16sii")


def observers_of(state: ControllerState, place: PartitionId, partition: PartitionState) -> tuple[int, ...]:
    """The registered nodes that `read.replicas` of the stream names, but for those that are replicas anyway."""
    stream = state.stream_by_id(place.stream_id)
    text = None if stream is None else stream.config.get(READ_REPLICAS)
    if not text:
        return ()
    named = frozenset(config_text(check(STREAM[READ_REPLICAS], text)).split(","))
    nodes = [node for node in state.registrations if node.holds_partitions]
    chosen = _one_of_each_rack(nodes, place, partition) if _EACH_RACK in named else frozenset()
    return tuple(
        node.id
        for node in nodes
        if node.id not in partition.replicas and (node.id in chosen or not named.isdisjoint(_names(node)))
    )


def _names(node: Node) -> tuple[str, ...]:
    """The names of a node in `observers`."""
    return (_ALL, str(node.id), *(() if node.rack is None else (_OF_RACK + node.rack,)))


def _one_of_each_rack(nodes: Sequence[Node], place: PartitionId, partition: PartitionState) -> frozenset[int]:
    """A node in each rack without a replica.

    By the highest of their hashes, so that partitions are spread, and a node that comes or goes changes only its own.
    https://www.eecs.umich.edu/techreports/cse/96/CSE-TR-316-96.pdf (rendezvous hashing)
    """
    has_one = {node.rack for node in nodes if node.id in partition.replicas}
    chosen: dict[str, int] = {}
    for rack in {node.rack for node in nodes} - has_one - {None}:
        of_rack = [node.id for node in nodes if node.rack == rack]
        chosen[str(rack)] = max(of_rack, key=lambda node_id: _score(place, node_id))
    return frozenset(chosen.values())


def _score(place: PartitionId, node_id: int) -> tuple[int, int]:
    return crc32(_SCORED.pack(place.stream_id.bytes, place.partition, node_id)), node_id
