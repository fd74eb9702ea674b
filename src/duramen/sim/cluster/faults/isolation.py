"""An isolated leader: once its session with the controller is over it serves nothing.

Before that it returns nothing newer than what is committed. The same holds for the groups and transactional ids that it
coordinates.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

from duramen.base.errors import DuramenError, TransactionalIdNotFound
from duramen.broker.fetch import FetchResult, PartitionFetch
from duramen.broker.partition import LATEST, Partition
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM, transaction_partition
from duramen.groups.records import partition_for
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["ISOLATED_US", "Isolated"]

ISOLATED_US: Final = 30_000_000
_CUT_OFF_US: Final = 15_000_000
"""A session with the controller, a heartbeat, and the silence that ends a connection, are less."""

_EVERY_US: Final = 500_000

_Asking = Callable[[PartitionId], Callable[[Broker, Reply], None]]

_COORDINATED: Final[Mapping[str, Callable[[str, int], int]]] = {
    OFFSETS_STREAM: partition_for,
    TRANSACTIONS_STREAM: transaction_partition,
}


class Isolated:
    """Clients that still reach an isolated node, and read from its partitions and coordinators."""

    def __init__(self, calls: ClientCalls, node_id: int) -> None:
        self._calls = calls
        self._node_id = node_id
        self._since_us = calls.true.now_us
        self._until_us = self._since_us + ISOLATED_US

    def begin(self) -> None:
        """Read every partition that the node leads, again and again."""
        state = self._calls.witness.council.state
        for place, partition in state.partitions:
            if partition.leader == self._node_id and len(partition.isr) > 1:
                stream = state.stream_by_id(place.stream_id)
                asks = [self._fetch, self._list]
                if stream is not None and stream.name in _COORDINATED:
                    asks.append(partial(_coordinate, stream.name, stream.partitions))
                self._again(place, asks)

    @property
    def over(self) -> bool:
        """Whether the node has been alone for long enough."""
        return self._calls.true.now_us >= self._until_us

    def _again(self, place: PartitionId, asks: Sequence[_Asking]) -> None:
        for ask in asks:
            self._calls.ask(self._node_id, ask(place), lambda value: self._answered(place, value))
        if not self.over:
            self._calls.at(_EVERY_US, lambda: self._again(place, asks))

    def _fetch(self, place: PartitionId) -> Callable[[Broker, Reply], None]:
        def fetch(broker: Broker, reply: Reply) -> None:
            def found(answers: list[FetchResult]) -> None:
                (answer,) = answers
                reply(answer.error or partition)

            partition = partition_at(broker, place)
            offset = max(partition.log.start_offset, partition.log.high_watermark - 1)
            wanted = PartitionFetch(partition, offset, 1)
            broker.fetches.fetch([wanted], min_bytes=0, max_bytes=1, max_wait_ms=0, done=found)

        return fetch

    def _list(self, place: PartitionId) -> Callable[[Broker, Reply], None]:
        def ask(broker: Broker, reply: Reply) -> None:
            partition = partition_at(broker, place)
            partition.check_leads()

            def found(offset: int, _: int, error: DuramenError | OSError | None) -> None:
                if error is None:
                    self._calls.witness.shows(self._node_id, place, offset)
                reply(error or partition)

            partition.find_offset(LATEST, found)

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


def _coordinate(stream: str, partitions: int, place: PartitionId) -> Callable[[Broker, Reply], None]:
    """Ask for a group, or a transactional id, that is stored in that partition; there need not be one."""
    key = next(name for at in count() if _COORDINATED[stream](name := f"{at}", partitions) == place.partition)

    def ask(broker: Broker, reply: Reply) -> None:
        if stream == OFFSETS_STREAM:
            broker.groups.check_fetch(key, None, -1)
        else:
            with suppress(TransactionalIdNotFound):  # only its coordinator knows that
                broker.transactions.describe(key)
        reply(partition_at(broker, place))

    return ask
