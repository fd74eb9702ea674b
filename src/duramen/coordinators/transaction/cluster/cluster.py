"""The transactions of a cluster node: those that it coordinates, and its part in those of other coordinators."""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

from duramen.base.deadlines import Deadlines
from duramen.base.errors import CoordinatorLoading, DuramenError
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.coordinators.transaction.cluster.holds import CommitHolds
from duramen.coordinators.transaction.cluster.marker_writer import Finishing
from duramen.coordinators.transaction.cluster.participant import Participant
from duramen.coordinators.transaction.cluster.requests import JOIN, WRITE_MARKERS, Join, Joined
from duramen.coordinators.transaction.cluster.survey import CommitSurvey
from duramen.coordinators.transaction.cluster.vectors import ClusterVectors
from duramen.coordinators.transaction.cluster.verification import TransactionVerification
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.coordinators.transaction.registry import KnownTransactions
from duramen.coordinators.transaction.store import TransactionStore
from duramen.rpc.caller import Caller
from duramen.rpc.server import Done
from duramen.transactions.values import PartitionName, ProducerIdentity

__all__ = ["ClusterDependencies", "ClusterTransactions", "Decides", "JoinDone"]

JoinDone = Callable[[Collection[PartitionName], DuramenError | None], None]
"""Called with the partitions that joined the transaction just now."""

_JOINING_VERSION: Final = 2


class Decides(Protocol):
    """Decides whether partitions are in a transaction that this node coordinates."""

    def join(
        self, id_: str, identity: ProducerIdentity, partitions: Collection[PartitionName], version: int, done: JoinDone
    ) -> None:
        """The partitions join the transaction."""

    def verify(
        self,
        id_: str,
        identity: ProducerIdentity,
        partitions: Collection[PartitionName],
        done: Callable[[DuramenError | None], None],
    ) -> None:
        """`done` gets an error if they are not in the transaction."""


class ClusterDependencies(NamedTuple):
    """Dependencies."""

    caller: Caller
    clock: Clock
    deadlines: Deadlines
    metrics: Metrics


class ClusterTransactions:
    """The parts, assembled: `joining` serves client requests."""

    def __init__(
        self, places: TransactionDependencies, known: KnownTransactions, store: TransactionStore,
        dependencies: ClusterDependencies, decides: Decides,
    ) -> None:  # fmt: skip
        self._streams = places.streams
        self._store = store
        self._decides = decides
        self._participant = Participant(places, dependencies.clock, self._ends)
        self.joining = TransactionVerification(places, self._participant, dependencies.caller, places.store.soon)
        holds = CommitHolds(
            places, known, store, dependencies.clock, dependencies.deadlines, dependencies.caller.server
        )
        self.finishing = Finishing(
            places,
            known,
            store,
            dependencies.caller,
            dependencies.clock,
            dependencies.deadlines,
            dependencies.metrics,
            holds,
        )
        CommitSurvey(places, dependencies.caller.server)
        self.vectors = ClusterVectors(places, dependencies.caller, dependencies.clock, dependencies.deadlines)
        """Takes snapshots across partitions that other nodes lead."""
        dependencies.caller.server.handle(JOIN, self._join)
        dependencies.caller.server.handle(WRITE_MARKERS, self._participant.write)

    def stop(self) -> None:
        """Stop all background work."""
        self.finishing.stop()
        self.vectors.stop()

    def _ends(self, partition: Partition, producer_id: int) -> None:
        self.joining.ended(partition, producer_id)

    # -- requests of other nodes --------------------------------------------------------------------

    def _join(self, request: Join, done: Done[Joined]) -> None:
        identity = ProducerIdentity(request.producer_id, request.epoch)
        partitions = [PartitionName(*one) for one in request.partitions]
        epoch = self._store.epoch_of(request.id)
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
        """The end of a transaction skips deleted partitions: so joining partitions must be known here."""
        for one in partitions:
            stream = self._streams.find(one.topic)
            if stream is None or one.partition >= len(stream.partitions):
                raise CoordinatorLoading(f"the coordinator does not know partition {one.partition} of {one.topic}")
