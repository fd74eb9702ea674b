"""A client of a cluster: one request at a time, to the node that its metadata names."""

import random
from collections.abc import Callable
from typing import Any

from duramen.base.errors import DuramenError, NotLeader, OutOfOrderSequence, StreamNotFound
from duramen.broker.partition import Partition
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.draws import below

__all__ = ["ClusterClient"]


class ClusterClient:
    """Does `step` again and again, with a pause after each answer. `think_us` is how long that is at most."""

    def __init__(self, calls: ClientCalls, seed: str, think_us: int) -> None:
        self.calls = calls
        self.chance = random.Random(seed)
        self.think_us = think_us
        self._leaders: dict[PartitionId, tuple[int, int]] = {}
        self._epochs: dict[PartitionId, int] = {}  # the newest that it has seen, behind which it does not go back

    def step(self) -> None:
        """Ask for one thing; `next` is called when that is over."""
        raise NotImplementedError

    def next(self, wait_us: int = 0) -> None:
        """Go on after a pause, unless clients are to stop."""
        self.calls.at(wait_us + 1 + below(self.chance, self.think_us), self._again)

    @property
    def finished(self) -> bool:
        """Whether it may stop, once clients are to."""
        return True

    def _again(self) -> None:
        if self.calls.open:
            self.step()

    def some_place(self) -> PartitionId | None:
        """A partition that there is."""
        places = self.calls.places()
        return self.chance.choice(places) if places else None

    def leader(self, place: PartitionId, then: Callable[[int, int], None]) -> None:
        """Continue with the known leader of a partition, and its epoch."""
        known = self._leaders.get(place)
        if known is not None and known[1] >= self._epochs.get(place, -1):
            then(*known)
            return

        def look(broker: Broker, reply: Reply) -> None:
            partition_at(broker, place)
            found = broker.membership.partition(place)
            reply((found.leader, found.leader_epoch))

        def found(value: Any) -> None:
            if isinstance(value, DuramenError) or value[0] is None or value[1] < self._epochs.get(place, -1):
                self.next(20_000)
            else:
                self._leaders[place] = value
                self.saw(place, value[1])
                then(*value)

        self.calls.ask(self.calls.any_node(), look, found)

    def leads(self, node_id: int, place: PartitionId, partition: Partition) -> bool:
        """Whether a node leads a partition, also in the committed metadata: a deposed one may not know yet."""
        known, role = self.calls.witness.council.state.partitions.get(place), partition.role
        leads = known is not None and known.leader == node_id
        return leads and known is not None and role is not None and role.epoch == known.leader_epoch

    def judged(self, node_id: int, place: PartitionId, partition: Partition, error: DuramenError) -> DuramenError:
        """The error for a refused batch; NotLeader if the error is its sequence, and another node leads by now.

        A deposed leader that does not know it yet lacks the batches before, and reports a gap; so does Kafka.
        """
        if isinstance(error, OutOfOrderSequence) and not self.leads(node_id, place, partition):
            return NotLeader(f"node {node_id} leads no more and does not know: {error}")
        return error

    def saw(self, place: PartitionId, epoch: int) -> None:
        """A node led a partition in that epoch (KIP-320)."""
        self._epochs[place] = max(epoch, self._epochs.get(place, -1))

    def forget(self, place: PartitionId, error: DuramenError) -> None:
        """The supposed leader of a partition does not lead it, or does not respond."""
        self._leaders.pop(place, None)
        if isinstance(error, StreamNotFound):
            self.lost(place)

    def lost(self, place: PartitionId) -> None:
        """There may be no such partition any more."""
