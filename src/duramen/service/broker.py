"""The broker of one node: assembles everything below it, and is the interface to the doors.

Nothing here waits. Completions come through callbacks; work for later is a deadline: `next_deadline_ms` tells when
`fire` has something to do.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from duramen.base.catalogue.queues import KIND, QUEUES
from duramen.base.deadlines import Deadline
from duramen.base.errors import ConfigInvalid, DuramenError, StreamNotFound
from duramen.base.ids import Position, StreamId
from duramen.base.ports import Buffer
from duramen.broker.changes import settled
from duramen.broker.control.requests import AlterQuotas, ConfigureStream, CreateStream, DeleteStream, GrowStream
from duramen.broker.partition import Partition
from duramen.broker.replication_wait import wait_replicated
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM
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
from duramen.metadata.features import MetadataFeature
from duramen.metadata.partitions import PartitionId
from duramen.metadata.state import Entity, StreamState
from duramen.replication.replication_wait import ReplicationWaitOutcome
from duramen.service.assembly import BrokerParts
from duramen.service.inventory_names import check_config, check_definition
from duramen.service.startup import Startup

__all__ = ["Broker"]

Done = Callable[[DuramenError | None], None]
Assignment = tuple[tuple[int, ...], ...]
"""The replicas of each partition, by their node ids, the preferred leader first."""

_PARTITIONS_SHARE: Final = 4  # partitions may take a quarter of memory.limit.bytes
_PARTITION_BYTES: Final = 2048  # the memory of one without writes


class Broker(BrokerParts):
    """Streams, records, fetches and groups of this node."""

    # -- starting and stopping ----------------------------------------------------------------------

    def start(self, done: Done) -> None:
        """Take in the metadata and the groups; then `done(None)`, and requests may come."""
        Startup(self, self, done).begin()

    def stop(self, done: Callable[[OSError | None], None]) -> None:
        """Accept no more work, finish the accepted work, and leave the directory clean."""
        self.membership.stop()
        self.groups.stop()
        self.transactions.stop()
        self.views.stop(lambda: self.coordinators.states.flush(lambda: self.store.stop(done)))

    def now_ms(self) -> int:
        """The time on the wall, in ms since 1970."""
        return self.clock.wall_ms()

    def random_bytes(self, size: int) -> bytes:
        """Unpredictable bytes."""
        return self.ports.randomness.token(size)

    def monotonic_ms(self) -> int:
        """Milliseconds since some start; never goes back."""
        return self.clock.monotonic_ms()

    def wait_replicated(
        self, partition: Partition, record: Position, wait_ms: int, done: Callable[[ReplicationWaitOutcome], None]
    ) -> None:
        """See `reaching.wait_replicated`."""
        wait_replicated(partition, record, wait_ms, self.clock, self.deadlines, done)

    def later(self, delay_ms: int, action: Callable[[], None]) -> Deadline:
        """Run an action after a number of milliseconds, unless it is cancelled."""
        return self.deadlines.at(self.clock.monotonic_ms() + delay_ms, action)

    def next_deadline_ms(self) -> int | None:
        """The monotonic time at which `fire` has something to do."""
        return self.deadlines.next_ms()

    def fire(self) -> None:
        """Run due actions."""
        self.deadlines.fire(self.clock.monotonic_ms())

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
        for listener in self.event_listeners:
            listener(None)

    def partition(self, place: PartitionId) -> Partition:
        """A partition that the metadata has. Raises StreamNotFound."""
        stream = self.streams.find_id(place.stream_id)
        if stream is None:
            raise StreamNotFound(f"there is no stream {place.stream_id}")
        return stream.partition(place.partition)

    def has(self, place: PartitionId) -> bool:
        """Whether a partition is created: those of a large stream are created in steps."""
        stream = self.streams.find_id(place.stream_id)
        return stream is not None and place.partition < len(stream.partitions)

    def when_made(self, stream_id: StreamId, action: Callable[[], None]) -> None:
        """Call `action` once all partitions of a stream are created, or the stream is deleted; at once if they are."""
        self.streams.when_made(stream_id, action)

    def on_leader_change(self, place: PartitionId, leader_epoch: int | None) -> None:
        """Note that this node now leads a partition, in that epoch; None: it no longer leads it."""
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
        for listener in self.leader_listeners:
            listener(partition, leader_epoch)

    def handle_request(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """Answer a request of another node's broker."""
        self.caller.server.serve(body, answer)

    def on_event(self, event: Event) -> None:
        """Handle an event of the metadata that has taken effect."""
        match event:
            case PartitionChanged():  # most calls are such, and only listeners matter
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
        for listener in self.event_listeners:
            listener(event)

    def _remove(self, stream_id: StreamId) -> None:
        gone = self.streams.remove(stream_id)
        if gone is not None and self.offsets.ready:
            self.groups.expiration.forget_topic(gone.name)

    def _put(self, state: StreamState, *, at_once: bool = False) -> None:
        stream = self.streams.put(state, at_once=at_once or state.internal)
        if stream.name == OFFSETS_STREAM:
            self.offsets.use(stream)
        elif stream.name == TRANSACTIONS_STREAM:
            self.transaction_log.use(stream)

    def create_stream(
        self,
        definition: Definition,
        done: Done,
        *,
        idempotent: bool = False,
        replication_factor: int | None = None,
        assignment: Assignment | None = None,
    ) -> None:
        """Create a stream; with `idempotent`, an existing one with the same definition succeeds too.

        Its partitions have the given number of replicas, or those of `assignment`; without both, the number in the
        settings, or the number of nodes if that is less. A stream bound to subjects is subscribed when it is `done`.
        """
        try:
            self._check_definition(definition)
        except DuramenError as error:
            done(error)
            return
        request = self._creation(definition, replication_factor, assignment, idempotent=idempotent)
        created = self._when_whole(definition.name, self._after_listening(done) if definition.subjects else done)
        self.membership.ask(request, settled(created))

    @property
    def _most_partitions(self) -> int:
        return self.settings.integer("memory.limit.bytes") // _PARTITIONS_SHARE // _PARTITION_BYTES

    def names_inventory(self, name: str) -> bool:
        """Whether a topic of that name can only be one of the inventory."""
        return self.inventory.may_name(self.settings.text("inventory.account"), name)

    def _check_definition(self, definition: Definition) -> None:
        self.views.check_config(definition.config)
        if self.alone and not definition.internal:  # on a cluster the controller does it
            check_definition(self.inventory, self.settings.text("inventory.account"), definition)
        too_old = not self.alone and self.metadata_state.feature_level < MetadataFeature.QUEUES
        if definition.config.get(KIND) == QUEUES and too_old:
            raise ConfigInvalid(
                f"{definition.name} cannot be created: kind=queues needs every node of the cluster to have this"
                " version, and the cluster to be upgraded (duramen cluster upgrade)"
            )

    def _creation(
        self, definition: Definition, replication_factor: int | None, assignment: Assignment | None, *, idempotent: bool
    ) -> CreateStream:
        if replication_factor is None:
            replication_factor = min(self.settings.integer("default.replication.factor"), self.membership.most_replicas)
        return CreateStream(definition, replication_factor, assignment, idempotent, self._most_partitions)

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
        self, definition: Definition, *, replication_factor: int | None = None, assignment: Assignment | None = None
    ) -> None:
        """Raise the error that `create_stream` would end with."""
        self._check_definition(definition)
        self.membership.check(self._creation(definition, replication_factor, assignment, idempotent=False))

    def delete_stream(self, name: str, done: Done) -> None:
        """Delete a stream with all its records; its subjects are not listened for any more when it is `done`."""
        stream = self.streams.find(name)
        bound = stream is not None and bool(stream.subjects)
        self.membership.ask(DeleteStream(name), settled(self._after_listening(done) if bound else done))

    def add_partitions(self, name: str, partitions: int, done: Done, *, assignment: Assignment | None = None) -> None:
        """Give a stream `partitions` partitions in all; `assignment` is of the new ones."""
        request = GrowStream(name, partitions, assignment, self._most_partitions)
        self.membership.ask(request, settled(self._when_whole(name, done)))

    def check_partitions(self, name: str, partitions: int, *, assignment: Assignment | None = None) -> None:
        """Raise the error that `add_partitions` would end with."""
        self.membership.check(GrowStream(name, partitions, assignment, self._most_partitions))

    def configure_stream(
        self, name: str, changes: Mapping[str, str | None], done: Done, *, whole: bool = False
    ) -> None:
        """Change a stream's config; None sets a name back to its default, `whole` all that are not named."""
        try:
            self.views.check_config(changes)
            if self.alone:
                check_config(self.inventory, self.settings.text("inventory.account"), changes)
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
        """Count bytes that a client has produced; returns its throttle time in ms."""
        quotas = self.quotas
        return quotas.produced(client_id, size, self.clock.monotonic_ms()) if quotas.bounds else 0

    def given(self, client_id: str, size: int) -> int:
        """Count bytes that a client is given in any case; how many ms it is to wait before it asks again."""
        return self.quotas.given(client_id, size, self.clock.monotonic_ms())

    def consumed(self, client_id: str, size: int) -> int:
        """Count bytes that a client is to be given; 0, or how many ms it is to wait without them."""
        return self.quotas.consumed(client_id, size, self.clock.monotonic_ms())
