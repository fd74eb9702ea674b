"""The replication configs of a stream, from the metadata log alone, so that all nodes agree. Pure.

The timeouts that a leader applies to its replicas are settings of its own node.
"""

from typing import Final, NamedTuple

from duramen.base.catalogue.catalogue import STREAM
from duramen.base.ids import StreamId
from duramen.base.settings import Value, check
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import rules_of
from duramen.replication.partition import PartitionConfig, Topology

__all__ = ["PATIENCE", "ReplicaPatience", "config_of"]

_TOPOLOGY: Final = "replication.topology"
_MIN_SYNCED: Final = "min.synced.nodes"


class ReplicaPatience(NamedTuple):
    """When a replica is late (`replica.lag.time.max.ms`), and slow (`replica.eject.latency.ms`, None: never)."""

    lag_time_max_ms: int = 30_000
    eject_latency_ms: int | None = None


PATIENCE: Final = ReplicaPatience()


def config_of(state: ControllerState, stream_id: StreamId, patience: ReplicaPatience = PATIENCE) -> PartitionConfig:
    """How the partitions of a stream are replicated; the defaults if the stream is unknown."""
    stream = state.stream_by_id(stream_id)

    def value(name: str) -> Value:
        text = None if stream is None else stream.config.get(name)
        return STREAM[name].default if text is None else check(STREAM[name], text)

    return PartitionConfig(
        min_insync_replicas=rules_of(state, stream_id).min_insync_replicas,
        min_synced_nodes=int(value(_MIN_SYNCED)),
        topology=Topology(str(value(_TOPOLOGY))),
        lag_time_max_ms=patience.lag_time_max_ms,
        eject_latency_ms=patience.eject_latency_ms,
    )
