"""An unclean election for a partition whose only in-sync replica is gone: the most complete replica leads.

A follower is down while its leader and the other follower continue, without writes. Then the leader fails, and the
other follower returns with an empty disk. The first follower is back and has everything; by the rules nobody may lead.
"""

import random
from typing import Final, NamedTuple

from duramen.base.errors import DuramenError
from duramen.controller.admin.cluster import Elected
from duramen.controller.admin.replica_survey import Survey
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.sim.cluster.faults.trial import GoOn, see
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.victim import Victim

__all__ = ["UncleanElection"]

_NOTICED_US: Final = 60_000_000
_ELECTED_US: Final = 10_000_000


class _Parts(NamedTuple):
    """A partition, its leader, the complete replica, and the one that will be empty."""

    place: PartitionId
    leader: SimulatedNode
    full: SimulatedNode
    blank: SimulatedNode


class UncleanElection:
    """One such partition, at the end of a run. `go_on` lets the cluster live."""

    def __init__(self, cluster: Victim, chance: random.Random, go_on: GoOn, places: list[PartitionId]) -> None:
        """`places` are those that clients write to."""
        self._cluster = cluster
        self._go_on = go_on
        able = [parts for place in places for parts in self._parts_of(place)]
        self._parts = chance.choice(able) if able else None

    def _parts_of(self, place: PartitionId) -> list[_Parts]:
        """The leader and one follower vote, so that the remaining nodes can elect a controller; the other does not."""
        nodes, known = self._cluster.nodes, self._cluster.witness.council.state.partitions.get(place)
        if known is None or known.leader is None or len(known.replicas) != 3 or set(known.isr) != set(known.replicas):
            return []
        leader = nodes[known.leader]
        voters = () if leader.runner is None else leader.runner.machine.voters.ids
        others = [nodes[node_id] for node_id in known.replicas if node_id != known.leader]
        blank = [node for node in others if node.replica_id not in voters]
        full = [node for node in others if node.replica_id in voters]
        if len(voters) != 3 or leader.replica_id not in voters or len(full) != 1:
            return []
        if not all(map(self._cluster.witness.elects_without, (leader, full[0]))):
            return []
        return [_Parts(place, leader, full[0], blank[0])]

    def run(self) -> bool:
        """Bring it about, and request the election; returns whether that was possible. A node is still down then."""
        if self._parts is None:
            return False
        place, leader, full, blank = self._parts
        cluster, go_on = self._cluster, self._go_on
        ledger = cluster.witness.ledger(place)
        end_offset = ledger.end_offset
        full.out = True
        cluster.end(full, power=False)
        go_on(lambda: self._is_out(full), "a node that is gone stays in sync", _NOTICED_US)
        # A coordinator may have ended a transaction there meanwhile.
        if ledger.end_offset != end_offset or not self._is_spared(blank):
            return False
        cluster.trace("node %d alone is in sync in %s, and goes", leader.node_id, place)
        leader.out = True
        cluster.end(leader, power=False)
        cluster.wipe(blank)
        full.out = False
        cluster.start(full)
        go_on(self._is_settled, "nodes do not come back", _NOTICED_US)
        if self._state.leader is not None:
            return False  # another was eligible
        self._elect()
        see(go_on, lambda: self._state.leader is not None, f"nobody is elected for {place}", _ELECTED_US)
        return True

    def mend(self) -> None:
        """All are back."""
        for node in () if self._parts is None else (self._parts.leader, self._parts.full):
            node.out = False
            self._cluster.start(node)

    @property
    def _state(self) -> PartitionState:
        known = None if self._parts is None else self._cluster.witness.council.state.partitions.get(self._parts.place)
        if known is None:
            raise AssertionError("there is no such partition")
        return known

    def _is_out(self, node: SimulatedNode) -> bool:
        partitions = self._cluster.witness.council.state.partitions
        return all(node.node_id not in one.isr or len(one.isr) == 1 for _, one in partitions)

    def _is_spared(self, blank: SimulatedNode) -> bool:
        """Whether its disk is not the only one that holds all of something."""
        partitions = self._cluster.witness.council.state.partitions
        return all({*one.isr, *one.elr} != {blank.node_id} for _, one in partitions)

    def _is_settled(self) -> bool:
        """Whether all but the leader are back, and the controller knows of the empty disk."""
        if self._parts is None or not (self._parts.full.ready and self._parts.blank.ready):
            return False
        _, leader, full, blank = self._parts
        live = {node.id for node in self._cluster.witness.council.state.registrations if not node.fenced}
        return (
            live >= {full.node_id, blank.node_id}
            and leader.node_id not in live
            and blank.node_id not in self._state.isr
        )

    def _elect(self) -> None:
        if self._parts is None:
            return
        place, _, full, _ = self._parts
        broker = full.broker
        if broker is None:
            return
        self._cluster.witness.council.unclean.add(place)

        def surveyed(surveys: list[Survey]) -> None:
            self._cluster.trace("replicas have %s", surveys)
            broker.membership.cluster_admin.elect_unclean(surveys, elected)

        def elected(found: list[Elected]) -> None:
            errors: list[DuramenError] = [one.error for one in found if one.error is not None]
            self._cluster.trace("elected: %s", errors or "yes")

        broker.completeness.survey([place], surveyed)
