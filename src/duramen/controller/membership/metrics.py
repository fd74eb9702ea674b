"""Metrics of a cluster node that are computed on request. Nothing here scans all partitions."""

from collections.abc import Callable, Iterator

from duramen.base.errors import NotController
from duramen.base.metrics import Metrics, Sample
from duramen.broker.control.responses import Observed
from duramen.controller.membership.member import ClusterMember
from duramen.metadata.stream_rules import RulesOf
from duramen.raft.description import UNKNOWN

__all__ = ["ClusterMeasures"]


class ClusterMeasures:
    """The metrics of one member."""

    def __init__(self, member: ClusterMember, metrics: Metrics) -> None:
        self._member = member
        counters, replicating = member.counters, member.replicating

        def one(name: str, value: Callable[[], float]) -> None:
            metrics.compute(name, lambda: [((), value())])

        one("duramen_partitions_offline", lambda: len(counters.offline))
        one("duramen_partitions_under_replicated", lambda: len({*counters.under_replicated, *replicating.deposed()}))
        one("duramen_partitions_under_min_isr", self._under_min_isr)
        one("duramen_partition_leaders", lambda: member.state.partitions.leader_count(member.node_id))
        one("duramen_partition_replicas", lambda: member.state.partitions.replica_count(member.node_id))
        one("duramen_isr_shrinks_total", lambda: counters.isr_shrinks)
        one("duramen_isr_expands_total", lambda: counters.isr_expands)
        one("duramen_leader_elections_total", lambda: counters.elections)
        one("duramen_unclean_leader_elections_total", lambda: counters.unclean_elections)
        one("duramen_replica_fetch_in_bytes_total", lambda: replicating.bytes_in)
        one("duramen_replica_fetch_out_bytes_total", lambda: replicating.bytes_out)
        one("duramen_controller_active", lambda: member.controller.active_epoch is not None)
        one("duramen_metadata_applied_offset", lambda: member.controller.applied_offset)
        metrics.compute("duramen_quorum_epoch", lambda: [((), seen.leader_epoch) for seen in self._quorum()])
        metrics.compute("duramen_quorum_leader_id", lambda: [((), seen.leader_id) for seen in self._quorum()])
        metrics.compute("duramen_quorum_lag_records", self._lags)
        metrics.compute("duramen_nodes", self._nodes)

    def _under_min_isr(self) -> int:
        # If all replicas are in sync, there are enough.
        state = self._member.state
        rules_of = RulesOf(state)
        found = 0
        for place in self._member.counters.under_replicated:
            partition = state.partitions.get(place)
            if partition is not None:
                found += len(partition.isr) < rules_of[place.stream_id].least_in_sync(partition)
        return found

    def _quorum(self) -> Iterator[Observed]:
        try:
            yield self._member.cluster_admin.seen_from_here()
        except NotController:
            return

    def _lags(self) -> Iterator[Sample]:
        for seen in self._quorum():
            rows = [row for row in (*seen.voters, *seen.observers) if row.log_end_offset != UNKNOWN]
            if seen.leader_id == self._member.node_id:
                end_offset = max(row.log_end_offset for row in rows)
                yield from (((str(row.replica.node_id),), end_offset - row.log_end_offset) for row in rows)

    def _nodes(self) -> list[Sample]:
        nodes = self._member.state.registrations
        return [(("live",), len(nodes.live)), (("fenced",), len(nodes) - len(nodes.live))]
