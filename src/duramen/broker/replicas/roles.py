"""The replicas that the controller assigns to a node: opened, updated, and released.

A damaged replica is closed, and reopened once the controller no longer counts it as in sync. Then it is repaired from
other replicas, or, if their records do not fit, fetched again from the damage on.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final

from duramen.base.errors import DuramenError, LogDamaged
from duramen.base.ids import StreamId
from duramen.base.ports import Buffer
from duramen.broker.partition import Partition
from duramen.broker.replicas.absent import Absent
from duramen.broker.replicas.dependencies import ReplicaDependencies
from duramen.broker.replicas.recovery import DamagePolicy, gaps_of, look, lost_ranges
from duramen.broker.replicas.repair import Repair, RepairOutcome
from duramen.broker.replicas.replica import Replica
from duramen.broker.replicas.throttle.sweeps import Sweeps
from duramen.metadata import partitions as controller
from duramen.metadata.partitions import PartitionId
from duramen.replication.messages import Message, ReplicaFetch, ReplicaFetchAnswer
from duramen.replication.partition import PartitionConfig, ReplicatedPartition
from duramen.replication.replica import ReplicaDiskState
from duramen.storage.log.log import Log

__all__ = ["Replicas", "state_of"]

_SETS_KEPT: Final = 1024
_EARLY: Final = 65_536
"""The number of partitions for which a fetch waits for the replica; messages of more count as lost."""
_RETRY_MS: Final = 10_000
"""The period after which the missing records of a damaged replica are requested again."""
_NONE: Final[Mapping[int, ReplicaFetch]] = MappingProxyType({})

PartitionOf = Callable[[PartitionId], Partition]
"""Its partition, with a log that is there."""

ConfigOf = Callable[[PartitionId], PartitionConfig]
"""The present configs of its stream."""


def state_of(state: controller.PartitionState, observers: tuple[int, ...] = ()) -> ReplicatedPartition:
    """A partition of the controller's as its replicas know it, and those that only follow."""
    return ReplicatedPartition(
        state.leader, state.leader_epoch, state.partition_epoch, state.replicas, _set_of(state.isr), observers,
        len(state.adding),
    )  # fmt: skip


@lru_cache(maxsize=_SETS_KEPT)  # tens of thousands of partitions have a few
def _set_of(members: tuple[int, ...]) -> frozenset[int]:
    return frozenset(members)


class Replicas:
    """A replica for each partition of the node.

    `on_partition_state` gets the states of the controller's log in order, none from before the node's registration with
    its broker epoch.
    """

    def __init__(self, dependencies: ReplicaDependencies, partition_of: PartitionOf, config_of: ConfigOf) -> None:
        self._dependencies = dependencies
        self._partition_of = partition_of
        self._config_of = config_of
        self._replicas: dict[PartitionId, Replica] = {}
        self._opening: dict[PartitionId, ReplicatedPartition] = {}  # their newest states
        self._early: dict[
            PartitionId, dict[int, ReplicaFetch]
        ] = {}  # of nodes that knew of a partition before this one
        self._held: set[PartitionId] = set()  # damaged: closed until their next state
        self._tried: set[PartitionId] = set()  # that cannot be repaired: opened as they are
        self._live: Collection[int] = ()
        self._session_alive = True
        self._gone: dict[int, int] = {}  # nodes to which there is no connection any more, and since when
        self._sweeps: Sweeps[PartitionId] = Sweeps(dependencies.store.soon)
        self._over = False

    def __iter__(self) -> Iterator[tuple[PartitionId, Replica]]:
        return iter(list(self._replicas.items()))

    def get(self, place: PartitionId) -> Replica | None:
        """The replica of a partition, if it is open here."""
        return self._replicas.get(place)

    def on_partition_state(
        self, place: PartitionId, state: controller.PartitionState, observers: tuple[int, ...] = ()
    ) -> None:
        """A partition is like this: this node has a replica of it, or has none any more. `observers` only follow."""
        if self._over:
            return
        replica, known = self._replicas.get(place), state_of(state, observers)
        if self._dependencies.node_id not in known.nodes:
            self._let_go(place, state)
            return
        if replica is not None:
            replica.on_partition_state(known, self._live)
        elif place in self._held:
            pass
        elif place in self._opening:
            self._opening[place] = known
        else:
            self._opening[place] = known
            self._open(place, gaps_of(state, self._dependencies.node_id))

    def damaged(self, place: PartitionId) -> None:
        """Damage was found in the log of a replica: it leaves the in-sync set and serves nothing until it is repaired.

        If there is no other replica it continues without the damaged records.
        """
        replica = self._replicas.get(place)
        if self._dependencies.peers is None or replica is None or len(replica.machine.state.nodes) < 2:
            return
        log, epoch = replica.partition.log, replica.epoch
        self._dependencies.outside.report(
            f"{_named(log)} is damaged: it is neither leader nor in sync until it is repaired"
        )
        self._close(place)
        replica.partition.role = Absent(epoch, None)
        self._report(place)

    def _report(self, place: PartitionId) -> None:
        if self._dependencies.peers is not None:
            self._held.add(place)
            self._dependencies.peers.report_damage(place, partial(self._publish_again, place))

    def _publish_again(self, place: PartitionId) -> None:
        self._held.discard(place)
        if self._dependencies.peers is not None and not self._over:
            self._dependencies.peers.publish_again(place)

    def on_live_nodes(self, live: Collection[int]) -> None:
        """These nodes are not known to be gone, or about to go."""
        if live == self._live:
            return
        self._live = live
        self._sweep(lambda replica: replica.on_live_nodes(self._live))

    def configured(self) -> None:
        """Configs of streams have changed."""

        def configure(place: PartitionId) -> None:
            replica = self._replicas.get(place)
            if replica is not None:
                replica.configure(self._config_of(place))

        self._sweeps.begin(self._replicas, configure)

    def reachable(self, node_id: int) -> None:
        """There is a new connection to a node."""
        self._gone.pop(node_id, None)
        self._sweep(lambda replica: replica.reachable(node_id))

    def unreachable(self, node_id: int) -> None:
        """There is no connection to a node any more."""
        since_ms = self._gone.setdefault(node_id, self._dependencies.clock.monotonic_ms())
        self._sweep(lambda replica: replica.unreachable(node_id, since_ms))

    def on_controller_session(self, *, alive: bool) -> None:
        """Whether this node's session with the controller is alive, as far as it can know."""
        self._session_alive = alive
        self._sweep(lambda replica: replica.on_controller_session(alive=self._session_alive))

    def deposed(self) -> list[PartitionId]:
        """Partitions that this node leads as far as it knows, and that others may lead since long."""
        if self._session_alive:
            return []
        return [place for place, replica in self._replicas.items() if replica.deposed]

    def removed(self, stream_id: StreamId) -> None:
        """The stream is deleted: its replicas end; the caller deletes the logs."""
        for place in [*self._replicas, *self._opening, *self._early]:
            if place.stream_id == stream_id:
                self._close(place)

    def only(self, stream_ids: Collection[StreamId]) -> None:
        """There are these streams and no others: as `removed` for those that are not there any more."""
        for place in [*self._replicas, *self._opening, *self._early]:
            if place.stream_id not in stream_ids:
                self._close(place)

    def receive(self, place: PartitionId, message: Message, records: Buffer = b"") -> None:
        """A message for a replica came. Where there is none yet a fetch waits for it; all else counts as lost."""
        replica = self._replicas.get(place)
        if replica is not None:
            replica.receive(message, records)
        elif isinstance(message, ReplicaFetch) and not message.reports:
            self._wait_for_replica(place, message)

    def _wait_for_replica(self, place: PartitionId, fetch: ReplicaFetch) -> None:
        if not self._over and (place in self._early or len(self._early) < _EARLY):
            self._early.setdefault(place, {})[fetch.node_id] = fetch

    def lost(self, place: PartitionId, message: ReplicaFetch | ReplicaFetchAnswer) -> None:
        """A message of a replica could not be sent."""
        replica = self._replicas.get(place)
        if replica is not None:
            replica.lost(message)

    def stop(self) -> None:
        """All replicas end."""
        self._over = True
        self._early.clear()
        self._sweeps.end()
        for place in [*self._replicas, *self._opening]:
            self._close(place)

    def _sweep(self, action: Callable[[Replica], None]) -> None:
        """Do it with each replica that is open by now, in its turn."""

        def act(place: PartitionId) -> None:
            replica = self._replicas.get(place)
            if replica is not None:
                action(replica)

        self._sweeps.begin(self._replicas, act)

    def _open(self, place: PartitionId, gaps: DamagePolicy) -> None:
        log = self._partition_of(place).log
        lost = lost_ranges(log)
        if (
            lost
            and gaps is not DamagePolicy.REFUSED
            and place not in self._tried
            and self._others(self._opening[place])
        ):
            self._repair(place, log, gaps)
            return
        self._tried.discard(place)
        if lost and gaps is DamagePolicy.CUT:
            named = f"{log.directory} lost records to damage from offset {lost[0][0]} on"
            self._dependencies.outside.report(f"{named}: the log is truncated there, and fetched again from its leader")

        def found(kept: ReplicaDiskState | DuramenError) -> None:
            if place not in self._opening:
                return
            partition = self._partition_of(place)
            if partition.log is not log:
                return  # it was let go and is to be here again: another log is looked at, for another answer than this
            state = self._opening.pop(place)
            if isinstance(kept, DuramenError):
                self._dependencies.outside.failed(place, kept)
                if (
                    gaps is DamagePolicy.REFUSED
                    and isinstance(kept, LogDamaged)
                    and self._dependencies.node_id in state.in_sync
                ):
                    self._report(place)
                return
            replica = self._replicas[place] = Replica(
                self._dependencies, place, partition, kept, self._config_of(place)
            )
            for node_id, since_ms in self._gone.items():
                replica.unreachable(node_id, since_ms)
            replica.on_controller_session(alive=self._session_alive)
            replica.on_partition_state(state, self._live)
            for fetch in self._early.pop(place, _NONE).values():
                replica.receive(fetch)
            if lost_ranges(log):
                # Damage that was found meanwhile, or that no node can repair now.
                self._look_later(place) if gaps is DamagePolicy.KEPT else self.damaged(place)

        look(self._dependencies.store, log, found, gaps)

    # -- damage -------------------------------------------------------------------------------------

    def _others(self, state: ReplicatedPartition) -> list[int]:
        """The other replicas, the leader first."""
        if self._dependencies.peers is None:
            return []
        others = [node_id for node_id in state.replicas if node_id != self._dependencies.node_id]
        return sorted(others, key=lambda node_id: node_id != state.leader_id)

    def _repair(self, place: PartitionId, log: Log, gaps: DamagePolicy) -> None:
        """Repair a log before its replica begins."""

        def done(outcome: RepairOutcome) -> None:
            if self._opening.pop(place, None) is None or self._over:
                return
            if outcome is RepairOutcome.WHOLE:
                self._dependencies.outside.report(
                    f"{log.directory} is repaired from other replicas and follows its leader again"
                )
            elif outcome is RepairOutcome.LACKING and gaps is DamagePolicy.CUT:
                # A truncation there would lose sound records after the damage, which the others may lack.
                self._dependencies.outside.report(f"{_named(log)} cannot be repaired yet: {outcome.value}")
                self._held.add(place)
                self._dependencies.deadlines.at(
                    self._dependencies.clock.monotonic_ms() + _RETRY_MS, partial(self._publish_again, place)
                )
                return
            else:
                self._tried.add(place)
            self._publish_again(place)

        self._ask_others(place, log, self._opening[place], done)

    def _ask_others(
        self, place: PartitionId, log: Log, state: ReplicatedPartition, done: Callable[[RepairOutcome], None]
    ) -> None:
        if self._dependencies.peers is not None:
            Repair(
                self._dependencies.store,
                self._dependencies.peers,
                place,
                log,
                self._others(state),
                state.leader_id,
                done,
            ).begin()

    def _look_later(self, place: PartitionId) -> None:
        """A damaged replica is open because it has most records. Others may soon have the missing ones."""
        self._dependencies.deadlines.at(
            self._dependencies.clock.monotonic_ms() + _RETRY_MS, partial(self._look_again, place)
        )

    def _look_again(self, place: PartitionId) -> None:
        replica = self._replicas.get(place)
        if replica is None or self._over or not lost_ranges(replica.partition.log):
            return
        log, state = replica.partition.log, replica.machine.state

        def done(outcome: RepairOutcome) -> None:
            if outcome is RepairOutcome.WHOLE:
                self._dependencies.outside.report(f"{log.directory} is repaired from other replicas")
            else:
                self._look_later(place)

        if len(state.in_sync) > 1:
            self.damaged(place)  # others have all of it by now
        elif self._others(state):
            self._ask_others(place, log, state, done)

    def _close(self, place: PartitionId) -> None:
        self._opening.pop(place, None)
        self._early.pop(place, None)
        replica = self._replicas.pop(place, None)
        if replica is not None:
            replica.stop()

    def _let_go(self, place: PartitionId, state: controller.PartitionState) -> None:
        """The node has no replica of it, or no longer: delete its log."""
        self._close(place)
        self._held.discard(place)
        partition = self._partition_of(place)
        partition.role = Absent(state.leader_epoch, state.leader)
        if partition.log.written:
            partition.begin_anew()


def _named(log: Log) -> str:
    lost = ", ".join(f"{first} to {last}" for first, last in lost_ranges(log))
    return f"the replica in {log.directory} (offsets {lost})"
