"""The broker of one node: everything below it, put together, and what the doors may ask of it.

Nothing here waits. Completions come back through callbacks, what has to happen later is a deadline:
`next_deadline_ms` says when `fire` has something to do.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from duramen.base.catalogue_queues import KIND, QUEUES
from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import ConfigInvalid, DuramenError, StorageFailed, StreamNotFound
from duramen.base.ids import METADATA_STREAM_ID, Position, StreamId
from duramen.base.memory import memory_share_bytes
from duramen.base.metrics import Metrics
from duramen.base.ports import Buffer, Clock, Randomness, StateStore, Worker
from duramen.base.settings import Settings
from duramen.broker.changes import settled
from duramen.broker.control.requests import AlterQuotas, ConfigureStream, CreateStream, DeleteStream, GrowStream
from duramen.broker.fetch import FetchCoordinator
from duramen.broker.gaps import NatsGapLog
from duramen.broker.late_records import LateDeletions
from duramen.broker.list_offsets import BoundsOf
from duramen.broker.node_configs import NodeConfigs
from duramen.broker.partition import Partition
from duramen.broker.quotas import Quotas
from duramen.broker.replication_wait import wait_replicated
from duramen.broker.streams import BrokerStreams
from duramen.broker.views.running import ViewLimits
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
from duramen.coordinators.group.offsets import OFFSETS_STREAM, GroupOffsets
from duramen.coordinators.group.remote_lag import Elsewhere
from duramen.coordinators.lease.leases import LEASES, SnapshotLeases
from duramen.coordinators.queue.shard import queue_kind
from duramen.coordinators.runtime.rows import RowStates
from duramen.coordinators.runtime.runtime import Runtime, RuntimeParts
from duramen.coordinators.runtime.shard import ShardKind, least_checkpoint_records
from duramen.coordinators.share.groups import ShareGroups
from duramen.coordinators.share.nodes import ShareKit, ShareNodes
from duramen.coordinators.share.shard import share_state_kind
from duramen.coordinators.share.state import StateStream
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.coordinators.transaction.coordinator import Transactions
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM, TransactionLog
from duramen.coordinators.transaction.producer_ids import ProducerIds
from duramen.metadata.decisions import Definition
from duramen.metadata.events import (
    Event,
    GroupConfigured,
    NatsGapRecorded,
    NodeConfigured,
    PartitionChanged,
    PartitionsAdded,
    QuotasChanged,
    StreamConfigured,
    StreamCreated,
    StreamDeleted,
)
from duramen.metadata.partitions import PartitionId
from duramen.metadata.state import ControllerState, Entity, StreamState
from duramen.replication.replication_wait import ReplicationWaitOutcome
from duramen.rpc.caller import Caller
from duramen.rpc.server import RpcServer
from duramen.service.internal_streams import InternalStreams
from duramen.service.methods import wires_by
from duramen.service.metrics import Measures
from duramen.storage.log.refused_batches import Refusals
from duramen.storage.store import Store

__all__ = ["Broker", "Ports"]

Done = Callable[[DuramenError | None], None]
Assignment = tuple[tuple[int, ...], ...]
"""The replicas of each partition, by their node ids, the preferred leader first."""

_PARTITIONS_SHARE: Final = 4  # partitions may take a quarter of memory.limit.bytes
_PARTITION_BYTES: Final = 2048  # what one takes while nothing is written to it
_VIEW_LIMITS: Final = ViewLimits()


class Ports(NamedTuple):
    """What the broker needs of the outside."""

    worker: Worker
    clock: Clock
    randomness: Randomness
    open_rows: Callable[[], StateStore]
    """Blocking: opens the rows of coordinators, once there are any. Raises StorageFailed."""


class Broker:
    """Streams, records, fetches and groups of this node."""

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
        """`report` is told what an operator should hear of. Without a `standing` the node is alone.

        `kinds` are those of coordinators that run beside the broker's own.

        A door that listens for the subjects of streams sets `when_listening`: it calls what it is handed once
        what is listened for is what is bound now. Doors that follow leaders or the metadata add themselves to
        `when_led`, called as `led` is, and to `when_happened`, called with each event behind its effect, or with None
        where all of the metadata may be another.
        """
        self._clock = ports.clock
        self._randomness = ports.randomness
        self._deadlines = deadlines
        self._report = report
        self._stopping = False
        self.settings, self.metrics = settings, metrics
        self.store = store
        self.node_id = settings.integer("node.id")
        self._largest_size = settings.integer("memory.limit.bytes") // _PARTITIONS_SHARE // _PARTITION_BYTES
        self.membership = membership or StandaloneNode(
            store, self.node_id, directory_id, ports.clock, ports.randomness,
            producers_ms=settings.integer("producer.id.expiration.ms"),
        )  # fmt: skip
        self.streams = BrokerStreams(store, settings, ports.clock, metrics, self.membership.first_role)
        self.refused = Refusals(ports.clock)  # by stream name and partition, of those that were not there
        self.quotas = Quotas(settings)
        self.fetches = FetchCoordinator(store, ports.clock, deadlines, metrics, self.membership.preferred_replica)
        self.group_configs = GroupConfigs(settings, self.membership)
        alone = self.membership.first_role is None
        wires = wires_by(lambda: self.metadata_state)
        self.caller = Caller(self.node_id, self.membership, wires, RpcServer(wires), ports.clock, deadlines)
        self._offsets = GroupOffsets(store, lambda: self.coordinators, ports.clock, alone=alone)
        self.coordinators = self._runtime(
            ports, (self._offsets.kind, self._shares(), LEASES, queue_kind(), *kinds)
        )  # fmt: skip
        self.groups = Coordinator(
            self._offsets, self.streams, ports.clock, deadlines, ports.randomness, settings, self.group_configs.get,
            metrics, report, alone=alone,
        )  # fmt: skip
        self.leases = SnapshotLeases(self.streams, ports.clock)
        self.views = KeyedViews(
            self.streams, store, ports.clock, deadlines, ports.randomness, report, self.leases.oldest, alone=alone,
            limit_bytes=memory_share_bytes(settings.integer("memory.limit.bytes")), limits=view_limits,
        )  # fmt: skip
        self._transaction_log = TransactionLog()
        self.internal_streams = InternalStreams(
            self.create_stream, settings, self._offsets, self._transaction_log, StateStream(self.streams), self.leases,
            self.coordinators.when_loaded if alone else lambda _, done: done(None),
        )  # fmt: skip
        metrics.most_series = settings.integer("metrics.partitions.max")
        self.leases.use(self.coordinators, self.internal_streams.ensure_leases)
        self.bounds = BoundsOf(self.membership, self.streams, store, self.caller)
        self.completeness = Completeness(lambda: self.membership, self.streams, self.caller)
        self._unclean = UncleanElections(
            self.node_id, lambda: self.membership, self.completeness, ports.clock, deadlines
        )
        self.lags = Lags(
            self._offsets, self.streams, store, ports.clock, Elsewhere(self.bounds, ports.clock, store.soon),
            most_series=metrics.most_series,
        )  # fmt: skip
        self.resets = Resets(self.streams, self.groups, ports.clock, self.internal_streams.ensure_offsets, self.bounds)
        self.producer_ids = ProducerIds(self.membership)
        self.transactions = Transactions(
            TransactionDependencies(self._transaction_log, self.streams, self._offsets, store, self.membership),
            self.groups, ports.clock, deadlines, settings, self.producer_ids.allocate, metrics, report, self.caller,
            self.coordinators,
        )  # fmt: skip
        self.listing = Listing(self.membership, self.groups, self.streams, store, self.caller, self.bounds)
        metrics.counter("duramen_memory_limit_bytes").value = settings.integer("memory.limit.bytes")
        _report_from(store, self.streams, report)
        self.measures = Measures(
            self.streams, self.groups, self.transactions, self.lags, ports.clock, metrics, self.views
        )
        self.node_configs = NodeConfigs(settings, self.membership, self.node_id, report)
        self.share_nodes = ShareNodes(
            ShareKit(
                self.coordinators, self.caller, self.membership, self.streams, self._offsets, store, ports.clock,
                deadlines, settings, self.group_configs.get, metrics,
            )
        )  # fmt: skip
        self.sharing = self.share_nodes.sharing
        self.share_groups = ShareGroups(
            self.sharing, self.share_nodes.inventory, self.streams, ports.clock, deadlines, settings, self.groups.room,
            self.groups.kinds,
        )  # fmt: skip
        self.groups.kinds.add(self.share_groups)
        self.gaps = NatsGapLog(self.node_id, self.membership, self.streams, ports.clock, deadlines, metrics)
        self.when_listening: Callable[[Callable[[], None]], None] | None = None
        self.when_led: list[Callable[[Partition, int | None], object]] = []
        self.when_happened: list[Callable[[Event | None], object]] = [
            self.leases.happened, *([] if alone else [self._unclean.happened]),
        ]  # fmt: skip

    def _shares(self) -> ShardKind[Any]:
        updates = self.settings.integer("share.coordinator.snapshot.update.records.per.snapshot")
        return share_state_kind(alone=self.membership.first_role is None, updates_per_snapshot=updates)

    def _runtime(self, ports: Ports, kinds: Sequence[ShardKind[Any]]) -> Runtime:
        rows = RowStates(
            ports.open_rows, ports.worker, self._report, least_checkpoint_records(kinds), self.store.each_log
        )  # fmt: skip
        parts = RuntimeParts(
            self.membership, self.streams, self.store, self.caller, ports.clock, self._deadlines, self._report, rows
        )  # fmt: skip
        return Runtime(parts, kinds)

    # -- starting and stopping ----------------------------------------------------------------------

    def start(self, done: Done) -> None:
        """Take in the metadata and the groups; then `done(None)`, and requests may come."""
        self.membership.start(self, lambda error: self._metadata_ready(error, done))

    def _metadata_ready(self, error: DuramenError | None, done: Done) -> None:
        if error is not None:
            done(error)
            return
        self.restored()
        self.store.name_leaders(self.membership.leader_of)
        if self.membership.first_role is None:
            for log in self.store.each_log():
                self.store.bound_forgotten(log, self.metadata_state.highest_producer_id)
        self.gaps.measure()
        if self.membership.first_role is None:
            self.coordinators.when_loaded(OFFSETS_STREAM, lambda failure: self._offsets_ready(failure, done))
        else:
            self._offsets_ready(None, done)

    def _remove_orphans(self) -> None:
        # A stream's deletion is durable before its logs are deleted: a crash in between leaves them behind.
        for log in list(self.store.each_log()):
            stream_id = log.key.stream_id
            if stream_id == METADATA_STREAM_ID or self.metadata_state.stream_by_id(stream_id) is not None:
                continue
            if self.membership.is_gone(stream_id):
                self.store.delete(log)
            else:
                self._report(
                    f"{log.directory} holds partition {log.key.partition} of the stream {stream_id}, which the metadata"
                    " log does not know; its records are left where they are and not served"
                )

    def _offsets_ready(self, error: DuramenError | OSError | None, done: Done) -> None:
        if error is not None:
            done(_storage_error("the stream of consumer offsets cannot be read", error))
            return
        self.share_nodes.started(
            lambda refused: (
                done(refused)
                if refused is not None
                else self.transactions.restore(lambda failure: self._transactions_ready(failure, done))
            )
        )

    def _transactions_ready(self, error: DuramenError | OSError | None, done: Done) -> None:
        if error is not None:
            done(_storage_error("the stream of transactions cannot be read", error))
            return
        # As late as can be: members have a whole session from here on, and no requests of theirs may come before.
        self.groups.restore()
        self._every("log.retention.check.interval.ms", self._enforce_retention)
        self._every("log.cleaner.backoff.ms", self.store.compact)
        self._every("transaction.abort.timed.out.transaction.cleanup.interval.ms", self.transactions.abort_timed_out)
        self._every("transaction.remove.expired.transaction.cleanup.interval.ms", self.transactions.expire)
        self._every("offsets.retention.check.interval.ms", self.groups.expire)
        self._every("share.coordinator.state.topic.prune.interval.ms", self._tidy_shares)
        self.store.scrubber.start(
            self.settings.integer("scrub.bytes.per.second"), self.settings.integer("scrub.interval.ms")
        )
        self.membership.join(partial(self._joined, done))

    def _joined(self, done: Done, error: DuramenError | None) -> None:
        if error is None:
            self._remove_orphans()
            self.views.remove_leftovers()
            self._unclean.happened(None)
        done(error)

    def _tidy_shares(self) -> None:
        self.share_nodes.tidy()
        self.share_groups.tidy(self.share_nodes.is_gone)

    def _every(self, setting: str, action: Callable[[], None]) -> None:
        self._repeat(self.settings.integer(setting), action)

    def _repeat(self, interval_ms: int, action: Callable[[], None]) -> None:
        def due() -> None:
            self._deadlines.at(self._clock.monotonic_ms() + interval_ms, due)
            action()

        self._deadlines.at(self._clock.monotonic_ms() + interval_ms, due)

    def _enforce_retention(self) -> None:
        now_ms = self._clock.wall_ms()
        self.store.enforce_retention(now_ms)
        self.store.expire_producers(now_ms - self.settings.integer("producer.id.expiration.ms"))
        self.coordinators.states.flush(lambda: None)

    def stop(self, done: Callable[[OSError | None], None]) -> None:
        """Take no more work, finish what was taken, and leave the directory clean."""
        self._stopping = True
        self.membership.stop()
        self.groups.stop()
        self.transactions.stop()
        self.views.stop(lambda: self.coordinators.states.flush(lambda: self.store.stop(done)))

    @property
    def metadata_state(self) -> ControllerState:
        """What is committed of the metadata."""
        return self.membership.state

    def now_ms(self) -> int:
        """The time on the wall, in ms since 1970."""
        return self._clock.wall_ms()

    def random_bytes(self, size: int) -> bytes:
        """Bytes that nobody can guess."""
        return self._randomness.token(size)

    def monotonic_ms(self) -> int:
        """Milliseconds since some start; never goes back."""
        return self._clock.monotonic_ms()

    def wait_replicated(
        self, partition: Partition, record: Position, wait_ms: int, done: Callable[[ReplicationWaitOutcome], None]
    ) -> None:
        """See `reaching.wait_replicated`."""
        wait_replicated(partition, record, wait_ms, self._clock, self._deadlines, done)

    def later(self, delay_ms: int, action: Callable[[], None]) -> Deadline:
        """Do something after so many milliseconds, unless it is cancelled."""
        return self._deadlines.at(self._clock.monotonic_ms() + delay_ms, action)

    def next_deadline_ms(self) -> int | None:
        """The monotonic time at which `fire` has something to do."""
        return self._deadlines.next_ms()

    def fire(self) -> None:
        """Do what is due."""
        self._deadlines.fire(self._clock.monotonic_ms())

    # -- streams ------------------------------------------------------------------------------------

    def restored(self) -> None:
        """The metadata is another as a whole: streams follow."""
        state = self.metadata_state
        self.streams.reconfigure(self.node_configs.changed)
        for stream in self.streams:
            if state.stream_by_id(stream.id) is None:
                self._remove(stream.id)
        for stream_state in state.streams.values():
            self._put(stream_state, at_once=True)
        self.quotas.update(state.quotas)
        for listener in self.when_happened:
            listener(None)

    def partition(self, place: PartitionId) -> Partition:
        """A partition that the metadata has. Raises StreamNotFound."""
        stream = self.streams.find_id(place.stream_id)
        if stream is None:
            raise StreamNotFound(f"there is no stream {place.stream_id}")
        return stream.partition(place.partition)

    def has(self, place: PartitionId) -> bool:
        """Whether a partition is made already: many are made a few at a time."""
        stream = self.streams.find_id(place.stream_id)
        return stream is not None and place.partition < len(stream.partitions)

    def when_made(self, stream_id: StreamId, action: Callable[[], None]) -> None:
        """Do `action` once all partitions of a stream are made: now, or later, or when it is deleted."""
        self.streams.when_made(stream_id, action)

    def led(self, place: PartitionId, leader_epoch: int | None) -> None:
        """From here on this node leads a partition, in that epoch; None: no more."""
        stream = self.streams.find_id(place.stream_id)
        if stream is None:
            return
        partition = stream.partition(place.partition)
        if leader_epoch is not None:
            self.store.bound_forgotten(partition.log, self.metadata_state.highest_producer_id)
        if stream.name == TRANSACTIONS_STREAM:
            self.transactions.led(partition)
        self.coordinators.led(partition, leader_epoch)
        self.sharing.led(partition)
        for listener in self.when_led:
            listener(partition, leader_epoch)

    def asked(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """The broker of another node asks."""
        self.caller.server.serve(body, answer)

    def happened(self, event: Event) -> None:
        """An event of the metadata has taken effect."""
        match event:
            case PartitionChanged():  # most of them are, and only those who listen care
                pass
            case StreamCreated() | PartitionsAdded() | StreamConfigured():
                state = self.metadata_state.streams.get(event.name) if isinstance(event, StreamCreated) else None
                if state is None:
                    state = self.metadata_state.stream_by_id(UUID(event.id))
                if state is not None:
                    self._put(state)
            case StreamDeleted():
                self._remove(UUID(event.id))
            case NatsGapRecorded():
                self.gaps.measure()
            case NodeConfigured():
                self.streams.reconfigure(self.node_configs.changed)
            case GroupConfigured():
                self.sharing.reconfigured(event.group)
                self.groups.consumer.reconfigured(event.group)
            case QuotasChanged():
                self.quotas.update(self.metadata_state.quotas)
            case _:
                pass
        for listener in self.when_happened:
            listener(event)

    def _remove(self, stream_id: StreamId) -> None:
        gone = self.streams.remove(stream_id)
        if gone is not None and self._offsets.ready:
            self.groups.forget_topic(gone.name)

    def _put(self, state: StreamState, *, at_once: bool = False) -> None:
        stream = self.streams.put(state, at_once=at_once or state.internal)
        if stream.name == OFFSETS_STREAM:
            self._offsets.use(stream)
        elif stream.name == TRANSACTIONS_STREAM:
            self._transaction_log.use(stream)

    def create_stream(
        self,
        wish: Definition,
        done: Done,
        *,
        idempotent: bool = False,
        replication_factor: int | None = None,
        assignment: Assignment | None = None,
    ) -> None:
        """Create a stream; with `idempotent`, one that exists with the same definition is as good.

        Its partitions have as many replicas, or those of `assignment`; without both as many as the settings say, where
        there are so many nodes. One that is bound to subjects is listened for when it is `done`.
        """
        try:
            self._check_wish(wish)
        except DuramenError as error:
            done(error)
            return
        request = self._creation(wish, replication_factor, assignment, idempotent=idempotent)
        created = self._when_whole(wish.name, self._after_listening(done) if wish.subjects else done)
        self.membership.ask(request, settled(created))

    def _check_wish(self, wish: Definition) -> None:
        self.views.check_config(wish.config)
        if wish.config.get(KIND) == QUEUES and self.membership.first_role is not None:
            raise ConfigInvalid(f"kind=queues is for standalone nodes so far: {wish.name} cannot be made on a cluster")

    def _creation(
        self, wish: Definition, replication_factor: int | None, assignment: Assignment | None, *, idempotent: bool
    ) -> CreateStream:
        if replication_factor is None:
            replication_factor = min(self.settings.integer("default.replication.factor"), self.membership.most_replicas)
        return CreateStream(wish, replication_factor, assignment, idempotent, self._largest_size)

    def _when_whole(self, name: str, done: Done) -> Done:
        def decided(error: DuramenError | None) -> None:
            if error is None:
                self.streams.when_whole(name, lambda: done(None))
            else:
                done(error)

        return decided

    def _after_listening(self, done: Done) -> Done:
        def changed(error: DuramenError | None) -> None:
            if error is None and self.when_listening is not None:
                self.when_listening(lambda: done(None))
            else:
                done(error)

        return changed

    def check_stream(
        self, wish: Definition, *, replication_factor: int | None = None, assignment: Assignment | None = None
    ) -> None:
        """Raise what `create_stream` would end with."""
        self._check_wish(wish)
        self.membership.check(self._creation(wish, replication_factor, assignment, idempotent=False))

    def delete_stream(self, name: str, done: Done) -> None:
        """Delete a stream with all its records; its subjects are not listened for any more when it is `done`."""
        stream = self.streams.find(name)
        bound = stream is not None and bool(stream.subjects)
        self.membership.ask(DeleteStream(name), settled(self._after_listening(done) if bound else done))

    def add_partitions(self, name: str, partitions: int, done: Done, *, assignment: Assignment | None = None) -> None:
        """Give a stream `partitions` partitions in all; `assignment` is of the new ones."""
        request = GrowStream(name, partitions, assignment, self._largest_size)
        self.membership.ask(request, settled(self._when_whole(name, done)))

    def check_partitions(self, name: str, partitions: int, *, assignment: Assignment | None = None) -> None:
        """Raise what `add_partitions` would end with."""
        self.membership.check(GrowStream(name, partitions, assignment, self._largest_size))

    def configure_stream(
        self, name: str, changes: Mapping[str, str | None], done: Done, *, whole: bool = False
    ) -> None:
        """Change a stream's config; None sets a name back to its default, `whole` all that are not named."""
        try:
            self.views.check_config(changes)
        except DuramenError as error:
            done(error)
            return

        def checked(error: DuramenError | None) -> None:
            if error is None:
                self.membership.ask(ConfigureStream(name, changes, whole), settled(done))
            else:
                done(error)

        self.views.check_keys(name, changes, checked)

    def alter_quotas(self, entity: Entity, changes: Sequence[tuple[str, float | None]], done: Done) -> None:
        """Change the quotas of a user, a client or both; None removes one."""
        self.membership.ask(AlterQuotas(entity, changes), settled(done))

    def produced(self, client_id: str, size: int) -> int:
        """Count bytes that a client has produced; how many ms it is to wait before it goes on."""
        quotas = self.quotas
        return quotas.produced(client_id, size, self._clock.monotonic_ms()) if quotas.bounds else 0

    def given(self, client_id: str, size: int) -> int:
        """Count bytes that a client is given in any case; how many ms it is to wait before it asks again."""
        return self.quotas.given(client_id, size, self._clock.monotonic_ms())

    def consumed(self, client_id: str, size: int) -> int:
        """Count bytes that a client is to be given; 0, or how many ms it is to wait without them."""
        return self.quotas.consumed(client_id, size, self._clock.monotonic_ms())


def _report_from(store: Store, streams: BrokerStreams, report: Callable[[str], None]) -> None:
    store.compactor.report = report
    store.quarantine.report_to(report)
    store.when_failed(lambda error: report(str(error)))
    store.when_late(LateDeletions(streams, report).deleted)


def _storage_error(what: str, error: DuramenError | OSError) -> DuramenError:
    return error if isinstance(error, DuramenError) else StorageFailed(f"{what}: {error}")
