"""A client of a cluster that also uses coordinators: of its transactional id and of its group."""

from collections.abc import Callable
from typing import Any, Final

from duramen.base.errors import ConcurrentTransactions, CoordinatorLoading, DuramenError, NotCoordinator, StateDamaged
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM, transaction_partition
from duramen.groups.records import partition_for
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import Reply
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.clients.producers import PASSING

__all__ = ["AGAIN", "CoordinatedClient"]

AGAIN: Final = (*PASSING, ConcurrentTransactions, CoordinatorLoading, NotCoordinator, StateDamaged)
"""Errors after which such clients retry."""


class CoordinatedClient(ClusterClient):
    """Finds coordinators as a client does: the leader of the group's partition, in a stream created on demand."""

    def of_transactional_id(self, id_: str, then: Callable[[PartitionId, int], None]) -> None:
        """Go on with where a transactional id is stored, and the node that leads there."""

        def ensure(broker: Broker, reply: Reply) -> None:
            broker.internal_streams.ensure_transactions(reply)

        self._coordinator(TRANSACTIONS_STREAM, id_, transaction_partition, ensure, then)

    def of_group(self, group_id: str, then: Callable[[PartitionId, int], None]) -> None:
        """The same of a group."""

        def ensure(broker: Broker, reply: Reply) -> None:
            broker.internal_streams.ensure_offsets(reply)

        self._coordinator(OFFSETS_STREAM, group_id, partition_for, ensure, then)

    def _coordinator(
        self, name: str, key: str, partition_of: Callable[[str, int], int], ensure: Callable[[Broker, Reply], None],
        then: Callable[[PartitionId, int], None],
    ) -> None:  # fmt: skip
        stream = self.calls.witness.council.state.streams.get(name)
        if stream is None:
            self.calls.ask(self.calls.any_node(), ensure, lambda _: self.next(20_000))
            return
        place = PartitionId(stream.id, partition_of(key, stream.partitions))
        self.leader(place, lambda node_id, _: then(place, node_id))

    def refused(self, place: PartitionId, value: Any) -> bool:
        """Whether the error is transient: another node may be the coordinator by now."""
        if isinstance(value, DuramenError):
            self.forget(place, value)
        return isinstance(value, AGAIN)
