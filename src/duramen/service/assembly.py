"""Assembles the broker of one node: the data plane, and the coordinators on top of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.memory import memory_share_bytes
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock, Randomness, StateStore, Worker
from duramen.base.settings import Settings
from duramen.broker.control.requests import ReleaseTenant, ReserveTenant
from duramen.broker.fetch import FetchCoordinator
from duramen.broker.gaps import NatsGapLog
from duramen.broker.late_records import LateDeletions
from duramen.broker.list_offsets import BoundsOf
from duramen.broker.node_configs import NodeConfigs
from duramen.broker.partition import Partition
from duramen.broker.quotas import Quotas, RateTable
from duramen.broker.streams import BrokerStreams
from duramen.broker.views.keys import ClusterKeys
from duramen.broker.views.live import LiveTopics
from duramen.broker.views.parts import ViewLimits
from duramen.broker.views.vectors import SnapshotVectors
from duramen.broker.views.views import KeyedViews
from duramen.controller.admin.cluster import AdministeredMembership
from duramen.controller.admin.completeness import Completeness
from duramen.controller.admin.unclean import UncleanElections
from duramen.controller.standalone.node import StandaloneNode
from duramen.coordinators.group.configs import GroupConfigs
from duramen.coordinators.group.coordinator import Coordinator
from duramen.coordinators.group.lag import Lags
from duramen.coordinators.group.listing import Listing
from duramen.coordinators.group.offset_resets import Resets
from duramen.coordinators.group.offsets import GroupOffsets
from duramen.coordinators.group.remote_lag import RemoteLags
from duramen.coordinators.inventory.cluster.inventory import ClusterInventory, TenantNames
from duramen.coordinators.inventory.cluster.shards import RoutedShards
from duramen.coordinators.inventory.gone import GoneTopics
from duramen.coordinators.inventory.inventory import Inventory, InventoryKit
from duramen.coordinators.inventory.shard import inventory_kind
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.coordinators.lease.coordinator import LeaseCoordinator
from duramen.coordinators.lease.held import HeldPositions
from duramen.coordinators.lease.leases import LEASES, RemoteLeases, SnapshotLeases
from duramen.coordinators.lease.records import LEASES_STREAM
from duramen.coordinators.queue.shard import queue_kind
from duramen.coordinators.runtime.dependencies import RuntimeDependencies
from duramen.coordinators.runtime.exports import Exports
from duramen.coordinators.runtime.row_scrub import RowScrub
from duramen.coordinators.runtime.rows import RowStates
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.runtime.shard import ShardKind, least_checkpoint_records
from duramen.coordinators.share.groups import ShareGroups
from duramen.coordinators.share.lag import ShareLags
from duramen.coordinators.share.nodes import ShareDependencies, ShareNodes
from duramen.coordinators.share.resets import ShareStarts
from duramen.coordinators.share.shard import share_state_kind
from duramen.coordinators.share.state import StateStream
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.coordinators.transaction.coordinator import Transactions
from duramen.coordinators.transaction.log import TransactionLog
from duramen.coordinators.transaction.producer_ids import ProducerIds
from duramen.metadata.decisions import Definition
from duramen.metadata.events import Event
from duramen.metadata.partitions import PartitionId
from duramen.metadata.state import ControllerState
from duramen.rpc.caller import Caller
from duramen.rpc.retry import KnownLeader
from duramen.rpc.server import RpcServer
from duramen.service.internal_streams import InternalStreams
from duramen.service.inventory_names import drop_topic, have_records, own_records, submit_here, tenant_problem
from duramen.service.inventory_usage import InventoryUsage
from duramen.service.leftover_records import LeftoverRecords
from duramen.service.methods import wires_by
from duramen.service.metrics import Measures
from duramen.service.queue_retention import QueueRetention, RetentionParts
from duramen.storage.log.refused_batches import Refusals
from duramen.storage.store import Store

__all__ = ["BrokerParts", "Ports"]

Done = Callable[[DuramenError | None], None]
Answered = Callable[[Any], None]

_VIEW_LIMITS: Final = ViewLimits()


class Ports(NamedTuple):
    """The ports that the broker needs."""

    worker: Worker
    clock: Clock
    randomness: Randomness
    open_rows: Callable[[], StateStore]
    """Blocking: opens the rows of coordinators, once there are any. Raises StorageFailed."""


class BrokerParts(ABC):
    """The parts of a broker, made in the order in which they need each other."""

    def __init__(
        self,
        ports: Ports,
        deadlines: Deadlines,
        store: Store,
        settings: Settings,
        metrics: Metrics,
        *,
        directory_id: str,
        report: Callable[[str], None],
        membership: AdministeredMembership | None = None,
        kinds: Sequence[ShardKind[Any]] = (),
        view_limits: ViewLimits = _VIEW_LIMITS,
    ) -> None:
        """`report` gets messages for operators. Without a `membership` the node is standalone.

        `kinds` are additional coordinator kinds.

        A door that subscribes to the subjects of streams sets `when_listening`: it calls the given function once its
        subscriptions match the bindings. Doors that follow leaders or the metadata add themselves to
        `leader_listeners`, called like `on_leader_change`, and to `event_listeners`, called with each event after its
        effect, or with None if all of the metadata may have changed.
        """
        self.ports, self.deadlines, self.report = ports, deadlines, report
        self.settings, self.metrics = settings, metrics
        self.store, self.clock = store, ports.clock
        self.node_id = settings.integer("node.id")
        self.membership = membership or self._standalone(directory_id)
        self.alone = self.membership.first_role is None
        self._make_data_plane()
        self._make_coordinators(kinds)
        self._make_views(view_limits)
        self._make_topics()
        self._make_offsets()
        self._make_transactions()
        self._make_shares()
        self._make_reports()
        self.gaps = NatsGapLog(self.node_id, self.membership, self.streams, ports.clock, deadlines, metrics)
        self.when_listening: Callable[[Callable[[], None]], None] | None = None
        self.leader_listeners: list[Callable[[Partition, int | None], object]] = []
        self.event_listeners: list[Callable[[Event | None], object]] = [
            self.leases.on_event, *([] if self.alone else [self.unclean.on_event]),
        ]  # fmt: skip

    def _make_data_plane(self) -> None:
        store, clock, metrics, membership = self.store, self.clock, self.metrics, self.membership
        self.streams = BrokerStreams(store, self.settings, clock, metrics, membership.first_role)
        self.refused = Refusals(clock)  # by stream name and partition, of those that were not there
        self.quotas = Quotas(self.settings)
        self.fetches = FetchCoordinator(store, clock, self.deadlines, metrics, membership.preferred_replica)

    def _make_coordinators(self, kinds: Sequence[ShardKind[Any]]) -> None:
        self.group_configs = GroupConfigs(self.settings, self.membership)
        self.caller = self._caller()
        self.offsets = GroupOffsets(self.store, lambda: self.coordinators, self.clock, alone=self.alone)
        self.coordinators = self._runtime(kinds)
        scrub = RowScrub(self.coordinators.states, self.ports.worker, self.report)
        self.store.scrubber.others.append(lambda: [scrub])
        self.exports = Exports(
            self.coordinators.states, self.ports.worker, self.clock, self.deadlines, self.store.node_epoch
        )
        self.groups = self._group_coordinator()

    def _make_views(self, limits: ViewLimits) -> None:
        self.leases = SnapshotLeases(self.streams, self.clock)
        self.live = LiveTopics(self.store, self.clock)
        self.views = self._keyed_views(limits)

    def _make_topics(self) -> None:
        """The inventory, and the internal streams that it shares with other parts."""
        self.transaction_log = TransactionLog()
        self.inventory = self._make_inventory()
        self.usage = self._inventory_usage()
        self.retention = self._queue_retention()
        self.leases.use(self.coordinators, self.internal_streams.ensure_leases)
        if not self.alone:
            self._join_keyed()

    def _make_offsets(self) -> None:
        self.bounds = BoundsOf(self.membership, self.streams, self.store, self.caller)
        self.completeness = Completeness(lambda: self.membership, self.streams, self.caller)
        self.unclean = UncleanElections(
            self.node_id, lambda: self.membership, self.completeness, self.clock, self.deadlines
        )
        self.lags = self._lags()
        self.resets = Resets(self.streams, self.groups, self.clock, self.internal_streams.ensure_offsets, self.bounds)

    def _make_transactions(self) -> None:
        self.producer_ids = ProducerIds(self.membership)
        self.transactions = self._transaction_coordinator()
        self.snapshot_vectors = SnapshotVectors(self.clock, self.transactions.when_whole)

    def _make_reports(self) -> None:
        """Lists, metrics and messages for operators."""
        self.listing = Listing(self.membership, self.groups, self.streams, self.store, self.caller, self.bounds)
        self.listing.find_shared = self.share_nodes.lags
        self.metrics.counter("duramen_memory_limit_bytes").value = self.settings.integer("memory.limit.bytes")
        _report_from(self.store, self.streams, self.report)
        self.measures = Measures(
            self.streams, self.groups, self.transactions, self.lags, self._share_lags(), self.clock, self.metrics,
            self.views, self.coordinators,
        )  # fmt: skip
        self.node_configs = NodeConfigs(self.settings, self.membership, self.node_id, self.report)

    def _make_shares(self) -> None:
        self.share_nodes = self._share_nodes()
        self.sharing = self.share_nodes.sharing
        self.share_groups = self._share_groups()
        self.groups.kinds.add(self.share_groups)
        self.resets.starts = ShareStarts(self.share_groups, self.share_nodes)

    @abstractmethod
    def create_stream(self, definition: Definition, done: Done, *, idempotent: bool = False) -> None:
        """Create a stream; with `idempotent`, one that exists with the same definition is as good."""

    @property
    def metadata_state(self) -> ControllerState:
        """The committed metadata."""
        return self.membership.state

    def _standalone(self, directory_id: str) -> AdministeredMembership:
        return StandaloneNode(
            self.store, self.node_id, directory_id, self.clock, self.ports.randomness,
            producers_ms=self.settings.integer("producer.id.expiration.ms"),
        )  # fmt: skip

    def _caller(self) -> Caller:
        wires = wires_by(lambda: self.metadata_state)
        return Caller(self.node_id, self.membership, wires, RpcServer(wires), self.clock, self.deadlines)

    def _runtime(self, others: Sequence[ShardKind[Any]]) -> Runtime:
        updates = self.settings.integer("share.coordinator.snapshot.update.records.per.snapshot")
        shares = share_state_kind(alone=self.alone, updates_per_snapshot=updates)
        kinds: Sequence[ShardKind[Any]] = (
            self.offsets.kind, shares, LEASES, queue_kind(), inventory_kind(), *others,
        )  # fmt: skip
        rows = RowStates(
            self.ports.open_rows, self.ports.worker, self.report, least_checkpoint_records(kinds), self.store.each_log,
            self.store.sync_all,
        )  # fmt: skip
        parts = RuntimeDependencies(
            self.membership, self.streams, self.store, self.caller, self.clock, self.deadlines, self.report, rows
        )  # fmt: skip
        return Runtime(parts, kinds)

    def _group_coordinator(self) -> Coordinator:
        return Coordinator(
            self.offsets, self.streams, self.clock, self.deadlines, self.ports.randomness, self.settings,
            self.group_configs.get, self.metrics, self.report, alone=self.alone,
        )  # fmt: skip

    def _inventory_usage(self) -> InventoryUsage:
        usage = InventoryUsage(self.streams, self.coordinators, self.inventory.shards, self.clock.monotonic_ms)
        self.inventory.quotas.stored = usage
        return usage

    def _queue_retention(self) -> QueueRetention:
        return QueueRetention(
            RetentionParts(
                self.streams, self.coordinators, self.store, self.clock, self.deadlines, lambda: self.metadata_state,
                self.alone, self.inventory.policies.retention,
                LeftoverRecords(self.inventory.shards, self.coordinators, self.store),
            )
        )  # fmt: skip

    def _keyed_views(self, limits: ViewLimits) -> KeyedViews:
        return KeyedViews(
            self.streams, self.store, self.clock, self.deadlines, self.ports.randomness, self.report,
            self.leases.oldest, self.live.oldest, alone=self.alone,
            limit_bytes=memory_share_bytes(self.settings.integer("memory.limit.bytes")), limits=limits,
            feature_level=lambda: self.metadata_state.feature_level,
        )  # fmt: skip

    def _join_keyed(self) -> None:
        self.views.keys = ClusterKeys(self.streams, self.store, self.caller, self._leader)
        held = HeldPositions(self.streams, self.views, self.caller, self.clock, self._lease_coordinator)
        LeaseCoordinator(self.coordinators, self.caller, self._leader, self.clock)
        self.leases.join(RemoteLeases(self.caller, self._lease_coordinator), held)

    def _lease_coordinator(self) -> KnownLeader | None:
        stream = self.streams.find(LEASES_STREAM)
        if stream is None:
            return None
        return self._leader(PartitionId(stream.id, 0))

    def _leader(self, place: PartitionId) -> KnownLeader:
        state = self.membership.partition(place)
        return KnownLeader(state.leader, state.leader_epoch)

    def _internal_streams(self, shards: InventoryShards) -> InternalStreams:
        return InternalStreams(
            self.create_stream, self.settings, self.offsets, self.transaction_log, StateStream(self.streams),
            self.leases, shards, self.coordinators.when_loaded if self.alone else lambda _, done: done(None),
        )  # fmt: skip

    def _make_inventory(self) -> Inventory:
        parts = self.streams, self.coordinators, self.clock, self.deadlines
        rates = RateTable(self.settings)
        if self.alone:
            shards = InventoryShards(*parts)
            self.internal_streams = self._internal_streams(shards)
            kit = InventoryKit(
                rates, self.metrics, self.store, self.node_id, self.internal_streams.ensure_durability
            )  # fmt: skip
            shards.own_records = partial(own_records, self.streams, partial(submit_here, self.coordinators))
            shards.drop_records = self._drop_topic
            shards.have_records = partial(have_records, self.streams, self.coordinators)
            return Inventory(
                shards, self.clock, self.internal_streams.ensure_inventory, partial(tenant_problem, self.streams),
                kit=kit,
            )  # fmt: skip
        routed = RoutedShards(*parts, self.caller, self._leader)
        self.internal_streams = self._internal_streams(routed)
        ensure = self.internal_streams.ensure_inventory
        kit = InventoryKit(rates, self.metrics, self.store, self.node_id, self.internal_streams.ensure_durability)
        return ClusterInventory(
            routed, self.clock, ensure, self._tenant_names(), lambda: self.metadata_state.nodes, kit
        )  # fmt: skip

    def _drop_topic(self, lasting_id: UUID, done: Answered) -> None:
        self.share_nodes.topic_deleted(lasting_id)
        drop_topic(self.streams, self.coordinators, self.groups, lasting_id, done)

    def _tenant_names(self) -> TenantNames:
        def reserve(account: str, tenant: str, done: Answered) -> None:
            self.membership.ask(ReserveTenant(account, tenant), done)

        def release(account: str, tenant: str, number: int, done: Answered) -> None:
            self.membership.ask(ReleaseTenant(account, tenant, number), done)

        return TenantNames(lambda: self.metadata_state.tenant_names, reserve, release)

    def _lags(self) -> Lags:
        self.metrics.most_series = self.settings.integer("metrics.partitions.max")
        return Lags(
            self.offsets, self.streams, self.groups.topics, self.store, self.clock,
            RemoteLags(self.bounds, self.clock, self.store.soon),
            most_series=self.metrics.most_series,
        )  # fmt: skip

    def _share_lags(self) -> ShareLags:
        return ShareLags(
            self.share_nodes, self.groups.topics, RemoteLags(self.bounds, self.clock, self.store.soon), self.clock,
            self.store.soon, most_series=self.metrics.most_series,
        )  # fmt: skip

    def _transaction_coordinator(self) -> Transactions:
        dependencies = TransactionDependencies(
            self.transaction_log, self.streams, self.offsets, self.store, self.membership
        )  # fmt: skip
        return Transactions(
            dependencies, self.groups, self.clock, self.deadlines, self.settings, self.producer_ids.allocate,
            self.metrics, self.report, self.caller, self.coordinators,
        )  # fmt: skip

    def _share_nodes(self) -> ShareNodes:
        return ShareNodes(
            ShareDependencies(
                self.coordinators, self.caller, self.membership, self.streams, GoneTopics(self.inventory.shards),
                self.offsets, self.store, self.clock, self.deadlines, self.settings, self.group_configs.get,
                self.metrics,
            )
        )  # fmt: skip

    def _share_groups(self) -> ShareGroups:
        return ShareGroups(
            self.sharing, self.share_nodes.inventory, self.share_nodes.topics, self.groups.topics, self.streams,
            self.clock, self.deadlines, self.settings, self.groups.room, self.groups.kinds,
        )  # fmt: skip


def _report_from(store: Store, streams: BrokerStreams, report: Callable[[str], None]) -> None:
    store.compactor.report = report
    store.quarantine.report_to(report)
    store.when_failed(lambda error: report(str(error)))
    store.when_late(LateDeletions(streams, report).deleted)
