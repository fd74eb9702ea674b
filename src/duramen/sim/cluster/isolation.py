"""A leader that is cut off from all other nodes: once its session with the controller is over it serves nothing."""

from collections.abc import Callable
from typing import Any, Final

from duramen.base.errors import DuramenError
from duramen.broker.broker import Broker
from duramen.broker.fetching import Fetched, Wanted
from duramen.broker.partition import LATEST, Partition
from duramen.controller.partitions import PartitionId
from duramen.sim.cluster.calls import Calls, Reply, partition_at
from duramen.sim.trace import BrokenPromise

__all__ = ["ISOLATED_US", "Isolated"]

ISOLATED_US: Final = 30_000_000
_CUT_OFF_US: Final = 15_000_000
"""A session with the controller, a heartbeat, and the silence that ends a connection, are less."""

_EVERY_US: Final = 500_000


class Isolated:
    """Clients that still reach a node which no other node reaches, and read what it leads."""

    def __init__(self, calls: Calls, node_id: int) -> None:
        self._calls = calls
        self._node_id = node_id
        self._since_us = calls.true.now_us
        self._until_us = self._since_us + ISOLATED_US

    def begin(self) -> None:
        """Read every partition that the node leads, again and again."""
        for place, partition in self._calls.witness.council.state.partitions:
            if partition.leader == self._node_id and len(partition.isr) > 1:
                self._again(place)

    @property
    def over(self) -> bool:
        """Whether the node has been alone for long enough."""
        return self._calls.true.now_us >= self._until_us

    def _again(self, place: PartitionId) -> None:
        for ask in (self._fetch, self._list):
            self._calls.ask(self._node_id, ask(place), lambda value: self._answered(place, value))
        if not self.over:
            self._calls.at(_EVERY_US, lambda: self._again(place))

    def _fetch(self, place: PartitionId) -> Callable[[Broker, Reply], None]:
        def fetch(broker: Broker, reply: Reply) -> None:
            def found(answers: list[Fetched]) -> None:
                (answer,) = answers
                reply(answer.error or partition)

            partition = partition_at(broker, place)
            wanted = Wanted(partition, partition.log.start_offset, 1)
            broker.fetches.fetch([wanted], min_bytes=0, max_bytes=1, max_wait_ms=0, done=found)

        return fetch

    def _list(self, place: PartitionId) -> Callable[[Broker, Reply], None]:
        def ask(broker: Broker, reply: Reply) -> None:
            partition = partition_at(broker, place)
            partition.check_leads()
            partition.find_offset(LATEST, lambda _, __, error: reply(error or partition))

        return ask

    def _answered(self, place: PartitionId, value: Any) -> None:
        alone_us = self._calls.true.now_us - self._since_us
        if isinstance(value, DuramenError) or not isinstance(value, Partition) or self.over:
            return
        known, role = self._calls.witness.council.state.partitions.get(place), value.role
        if known is None or known.leader == self._node_id or role is None or role.latest_offset is None:
            return
        if alone_us > _CUT_OFF_US:
            raise BrokenPromise(
                f"node {self._node_id}, alone for {alone_us} us, serves {place}, which {known.leader} leads"
            )
