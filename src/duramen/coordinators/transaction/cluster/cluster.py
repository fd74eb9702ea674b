"""The transactions of a node in a cluster: those it coordinates, and what it does for coordinators elsewhere."""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

from duramen.base.deadlines import Deadlines
from duramen.base.errors import CoordinatorLoading, DuramenError
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.coordinators.transaction.cluster.loader import Shard, Shards
from duramen.coordinators.transaction.cluster.marker_writer import Finishing
from duramen.coordinators.transaction.cluster.participant import Participant
from duramen.coordinators.transaction.cluster.requests import JOIN, WRITE_MARKERS, Join, Joined
from duramen.coordinators.transaction.cluster.store import SharedLedger
from duramen.coordinators.transaction.cluster.verification import TransactionVerification
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.rpc.caller import Caller
from duramen.rpc.server import Done
from duramen.transactions.values import PREPARED, PartitionName, ProducerIdentity, TransactionalId

__all__ = ["ClusterKit", "ClusterTransactions", "Decides", "JoinDone"]

JoinDone = Callable[[Collection[PartitionName], DuramenError | None], None]
"""Called with the partitions that were not in the transaction before."""

_JOINING_VERSION: Final = 2


class Decides(Protocol):
    """Who decides whether partitions are in a transaction that this node coordinates."""

    def join(
        self, id_: str, identity: ProducerIdentity, partitions: Collection[PartitionName], version: int, done: JoinDone
    ) -> None:
        """They are from here on."""

    def verify(
        self,
        id_: str,
        identity: ProducerIdentity,
        partitions: Collection[PartitionName],
        done: Callable[[DuramenError | None], None],
    ) -> None:
        """`done` has an error where they are not."""

    def took_in(self) -> None:
        """The ids of one more partition are in memory."""


class ClusterKit(NamedTuple):
    """What it works with. `report` is told what an operator should hear of."""

    caller: Caller
    clock: Clock
    deadlines: Deadlines
    metrics: Metrics
    report: Callable[[str], None]


class ClusterTransactions:
    """Its parts, put together: `ledger` and `joining` are for requests of clients."""

    def __init__(
        self, places: TransactionDependencies, known: KnownTransactions, kit: ClusterKit, decides: Decides
    ) -> None:
        soon, log = places.store.soon, places.log
        self._known = known
        self._streams = places.streams
        self._decides = decides
        self._participant = Participant(places, kit.clock, self._ends)
        self.joining = TransactionVerification(places, self._participant, kit.caller, soon)
        self._shards = Shards(log, known, soon, kit.report, self._began)
        self.ledger = SharedLedger(log, known, self._shards, kit.clock, kit.deadlines, soon, self._prepared)
        self._finishing = Finishing(
            places, self._shards, kit.caller, kit.clock, kit.deadlines, kit.metrics, self.ledger.complete
        )
        kit.caller.server.handle(JOIN, self._join)
        kit.caller.server.handle(WRITE_MARKERS, self._participant.write)

    def led(self, partition: Partition, leader_epoch: int | None) -> None:
        """From here on this node leads a partition of `__transaction_state`, in that epoch; None: no more."""
        self._shards.led(partition, leader_epoch)

    def stop(self) -> None:
        """Nothing is done on its own account any more."""
        self._finishing.stop()

    def _ends(self, partition: Partition, producer_id: int) -> None:
        self.joining.ended(partition, producer_id)

    def _began(self, shard: Shard) -> None:
        """What an earlier coordinator left in the middle goes on."""
        for one in self._known.open():
            if one.state in PREPARED and self._shards.keeps(shard, one.id):
                self._finishing.begin(shard, one)
        self._decides.took_in()

    def _prepared(self, shard: Shard, one: TransactionalId) -> None:
        self._finishing.begin(shard, one)

    # -- what other nodes ask -----------------------------------------------------------------------

    def _join(self, request: Join, done: Done[Joined]) -> None:
        identity = ProducerIdentity(request.producer_id, request.epoch)
        partitions = [PartitionName(*one) for one in request.partitions]
        epoch = self._shards.get(request.id).epoch
        if request.joins:
            self._check_there(partitions)

            def joined(begun: Collection[PartitionName], error: DuramenError | None) -> None:
                done(Joined(epoch, tuple(one in begun for one in partitions)) if error is None else error)

            self._decides.join(request.id, identity, partitions, _JOINING_VERSION, joined)
        else:
            there = Joined(epoch, (False,) * len(partitions))
            self._decides.verify(
                request.id, identity, partitions, lambda error: done(there if error is None else error)
            )

    def _check_there(self, partitions: Collection[PartitionName]) -> None:
        """Who ends a transaction leaves out what was deleted: so what joins is known here."""
        for one in partitions:
            stream = self._streams.find(one.topic)
            if stream is None or one.partition >= len(stream.partitions):
                raise CoordinatorLoading(f"the coordinator has not heard of partition {one.partition} of {one.topic}")
