"""The replication topology: fan-out, chain or tree, from assignment, in-sync set and live nodes. Pure.

Live in-sync replicas form a line: the leader first, the others in assignment order. Only these have followers. So a
chain repairs itself when one fails. A returning replica is a leaf until it is in sync: no replica waits behind one that
is catching up.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from duramen.replication.partition import ReplicatedPartition, Topology

__all__ = ["FetchUpstream", "places"]

_KEPT: Final = 1024


class FetchUpstream(NamedTuple):
    """The upstream of a node, None for the leader, and the nodes that fetch from it."""

    upstream: int | None
    downstreams: tuple[int, ...]


def places(state: ReplicatedPartition, topology: Topology, live: Collection[int]) -> Mapping[int, FetchUpstream]:
    """The upstream and downstreams of each replica and observer; empty without a leader. The result is shared.

    Callers must not change it. `live` are the nodes that are not known to be gone or about to leave. A node outside
    `live` still gets an upstream: it may be alive.
    """
    if state.leader_id is None:
        return {}
    return _places(state.leader_id, state.nodes, state.in_sync, topology, frozenset(live))


@lru_cache(maxsize=_KEPT)  # many partitions share a few layouts
def _places(
    leader: int, nodes: tuple[int, ...], in_sync: frozenset[int], topology: Topology, live: frozenset[int]
) -> Mapping[int, FetchUpstream]:
    upstreams = _upstreams(leader, nodes, in_sync, topology, live)
    below: dict[int, list[int]] = {node: [] for node in upstreams}
    for node, upstream in upstreams.items():
        if upstream is not None:
            below[upstream].append(node)
    return {node: FetchUpstream(upstream, tuple(below[node])) for node, upstream in upstreams.items()}


def _upstreams(
    leader: int, nodes: tuple[int, ...], in_sync: frozenset[int], topology: Topology, live: frozenset[int]
) -> dict[int, int | None]:
    order = [node for node in nodes if node != leader]
    line = [leader, *(node for node in order if node in in_sync and node in live)]
    rest = [node for node in order if node not in line]
    found: dict[int, int | None] = {}
    for at, node in enumerate([*line, *rest]):
        if node == leader:
            found[node] = None
        elif topology is Topology.FANOUT:
            found[node] = leader
        elif topology is Topology.TREE:
            found[node] = line[_parent(at, len(line))]
        elif at < len(line):
            found[node] = line[at - 1]
        else:
            found[node] = _before(node, order, line)
    return found


def _parent(at: int, line: int) -> int:
    """The position of the upstream of position `at`: each has two followers, and leaves continue the count."""
    parent = (at - 1) // 2
    return parent if parent < line else parent % line


def _before(node: int, order: list[int], line: list[int]) -> int:
    """The last node in line before this one, by assignment order."""
    ahead = [other for other in order[: order.index(node)] if other in line]
    return ahead[-1] if ahead else line[0]
