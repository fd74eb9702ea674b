"""Clients of the simulated clusters: what they take for an answer of who leads."""

from typing import Final

from tests.sim.cluster.test_membership import forming, until

from duramen.base.errors import DuramenError, NotLeader, OutOfOrderSequence, StorageFailed, StreamNotFound
from duramen.broker.control import requests
from duramen.broker.partition import Partition
from duramen.codec.batch import BatchInput, encode
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import partition_at
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.world import ClusterWorld
from duramen.storage.log.refused_batches import NEW_LEADER_MS

PRODUCER: Final = 7


def broker_of(world: ClusterWorld, node_id: int) -> Broker:
    broker = world.nodes[node_id].broker
    assert broker is not None
    return broker


def partition_of(world: ClusterWorld, node_id: int, place: PartitionId) -> Partition:
    return partition_at(broker_of(world, node_id), place)


def made(world: ClusterWorld) -> PartitionId:
    """A partition of three replicas that somebody leads."""
    config = {"min.insync.replicas": "1"}
    broker_of(world, 1).membership.ask(requests.CreateStream(Definition("s", 1, config), 3), lambda _: None)
    until(world, lambda: bool(world.calls.places()) and leads(world, world.calls.places()[0]))
    return world.calls.places()[0]


def leader_of(world: ClusterWorld, place: PartitionId) -> int | None:
    known = world.witness.council.state.partitions.get(place)
    return None if known is None else known.leader


def leads(world: ClusterWorld, place: PartitionId) -> bool:
    """Whether who leads by what is committed knows it, and may be written to."""
    node_id = leader_of(world, place)
    if node_id is None:
        return False
    try:
        role = partition_of(world, node_id, place).role
        if role is not None:
            role.check_leads()
    except (NotLeader, StreamNotFound):
        return False
    return True


def lead_for_long(world: ClusterWorld) -> None:
    """Let so much time go by that who leads is no new leader any more."""
    end_us = world.true.now_us + NEW_LEADER_MS * 1_000
    until(world, lambda: world.true.now_us >= end_us)


def append(world: ClusterWorld, node_id: int, place: PartitionId, sequence: int) -> list[DuramenError | None]:
    """What the producer is answered, once it is."""
    data = encode(
        [BatchInput(0, None, b"%d" % sequence)], producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
    )
    answers: list[DuramenError | None] = []
    partition_of(world, node_id, place).append(data, lambda _, error: answers.append(error))
    return answers


def test_a_gap_that_one_who_was_deposed_sees_says_nothing() -> None:
    world = forming()
    place = made(world)
    client, before = ClusterClient(world.calls, "a client", 1), leader_of(world, place)
    assert before is not None
    lead_for_long(world)
    first = append(world, before, place, 0)
    until(world, lambda: first == [None])
    world.network.change_cut(frozenset((before, other) for other in world.nodes if other != before))
    until(world, lambda: leader_of(world, place) not in (before, None) and leads(world, place))
    after = leader_of(world, place)
    assert after is not None
    second = append(world, after, place, 1)
    until(world, lambda: second == [None])

    (refused,) = append(world, before, place, 2)
    assert isinstance(refused, OutOfOrderSequence)
    assert isinstance(client.judged(before, place, partition_of(world, before, place), refused), NotLeader)

    (refused,) = append(world, after, place, 5)
    assert isinstance(refused, NotLeader)  # the leader is new, and another may have refused what comes before
    lead_for_long(world)
    (refused,) = append(world, after, place, 5)
    assert isinstance(refused, OutOfOrderSequence)
    assert client.judged(after, place, partition_of(world, after, place), refused) is refused
    failed = StorageFailed("the disk is gone")
    assert client.judged(before, place, partition_of(world, before, place), failed) is failed


class Asking(ClusterClient):
    """Asks whom to go to, until somebody says it."""

    def __init__(self, world: ClusterWorld, place: PartitionId) -> None:
        super().__init__(world.calls, "a client", 1)
        self.place = place
        self.told: list[tuple[int, int]] = []  # nodes and their epochs

    def step(self) -> None:
        self.leader(self.place, lambda node_id, epoch: self.told.append((node_id, epoch)))


def test_who_saw_a_newer_epoch_does_not_go_back_to_the_leader_of_an_older_one() -> None:
    world = forming()
    place = made(world)
    client = Asking(world, place)
    client.step()
    until(world, lambda: len(client.told) == 1)
    client.step()
    (before, epoch), again = client.told
    assert again == (before, epoch)

    world.network.change_cut(frozenset((before, other) for other in world.nodes if other != before))
    until(world, lambda: leader_of(world, place) not in (before, None) and leads(world, place))
    client.saw(place, epoch + 1)  # as a consumer does that reads of a follower
    client.step()
    until(world, lambda: len(client.told) == 3)
    assert client.told[2] == (leader_of(world, place), epoch + 1)
