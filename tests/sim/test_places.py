"""Every planted bug has its place: those that only the long suite looks for too, whatever has been renamed since."""

import pytest
from tests.broker.replicas import planted as replicas
from tests.controller.active import planted as controller
from tests.controller.quorum import planted as quorum
from tests.raft import planted as raft
from tests.replication import planted as replication
from tests.service import test_leftover_records as leftovers
from tests.service import test_topic_durability as durability
from tests.sim.bugs import every
from tests.sim.cluster import planted as clusters
from tests.sim.cluster import test_inventory as inventories
from tests.sim.cluster import test_keyed as keyed
from tests.sim.cluster import test_keyed_transactions as keyed_transactions
from tests.sim.cluster import test_queues as queues
from tests.sim.cluster import test_shards as shards
from tests.sim.planted import Bug, planted

BUGS = {
    f"{room.__name__}-{bug.name}": bug
    for room in (
        every, clusters, inventories, keyed, keyed_transactions, queues, shards,
        replicas, controller, quorum, raft, replication, leftovers, durability,
    )
    for bug in (*room.BUGS, *getattr(room, "BOUNDED_BUGS", ()))
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_it_can_be_planted(bug: Bug) -> None:
    with planted(bug):
        assert bug.places
