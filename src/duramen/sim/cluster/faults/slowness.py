"""A leader whose disk becomes slow while clients write: soon another in-sync replica leads."""

import random
from collections.abc import Iterator
from typing import Any, Final

from duramen.base.errors import DuramenError
from duramen.codec.batch import BatchInput, encode, header
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.checkers.history import SentBatch
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.cluster.faults.trial import GoOn, see
from duramen.sim.cluster.victim import Victim

__all__ = ["SlowLeader"]

_SLOW_US: Final = 4_000_000
"""How long a call to the disk takes at most."""
_QUICK_US: Final = 1_000
_EVERY_US: Final = 100_000
_YIELDED_US: Final = 30_000_000
"""Three windows of a second, each as late as its slowest sync, and the controller's time."""


class SlowLeader:
    """The disk of one node is slow, and clients write to its partitions. `numbers` are those of batches."""

    def __init__(
        self, cluster: Victim, calls: ClientCalls, chance: random.Random, numbers: Iterator[int], go_on: GoOn
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._calls = calls
        self._numbers = numbers
        self._go_on = go_on
        led = {node_id: self._led(node_id) for node_id in cluster.nodes}
        able = [node_id for node_id, places in led.items() if places and cluster.nodes[node_id].ejects]
        self.possible = bool(able)
        self._node_id = chance.choice(able or list(cluster.nodes))
        self._places = led[self._node_id]

    def _led(self, node_id: int) -> list[PartitionId]:
        """The partitions that the node leads and another could lead, of those that clients write to."""
        partitions = self._cluster.witness.council.state.partitions
        known = ((place, partitions.get(place)) for place in self._calls.places())
        return [place for place, one in known if one is not None and one.leader == node_id and len(one.isr) > 1]

    def run(self) -> None:
        """Make it slow until it leads none of them, then quick again."""
        self._cluster.trace("the disk of node %d is slow", self._node_id)
        self._set(_SLOW_US)
        for place in self._places:
            self._write(place)
        see(self._go_on, self._has_yielded, f"node {self._node_id}, whose disk is slow, leads on", _YIELDED_US)
        self._set(_QUICK_US)

    def _set(self, disk_us: int) -> None:
        node = self._cluster.nodes[self._node_id]
        node.disk_us = disk_us
        if node.process is not None:
            node.process.disk_us = disk_us

    def _leads(self, place: PartitionId) -> bool:
        known = self._cluster.witness.council.state.partitions.get(place)
        return known is not None and known.leader == self._node_id and len(known.isr) > 1

    def _has_yielded(self) -> bool:
        return not any(map(self._leads, self._places))

    def _write(self, place: PartitionId) -> None:
        """A record, and soon another, while the node leads there. Refused ones are not sent again."""
        if not self._leads(place):
            return
        number, calls = next(self._numbers), self._calls
        data = bytes(encode([BatchInput(calls.true.wall_ms(), None, b"%d/" % number)]))
        batch = SentBatch(number, data, header(data).crc, 1, acks_all=True, producer_id=-1, sequence=-1)
        calls.book.page(place).sent(batch)

        def append(broker: Broker, reply: Reply) -> None:
            def done(base_offset: int, error: DuramenError | None) -> None:
                reply(base_offset if error is None else error)

            partition_at(broker, place).append(bytearray(data), done, None, all_replicas=True)

        def answered(value: Any) -> None:
            if not isinstance(value, DuramenError):
                calls.book.page(place).acknowledged_at(batch, value)

        calls.ask(self._node_id, append, answered)
        calls.at(_EVERY_US, lambda: self._write(place))
