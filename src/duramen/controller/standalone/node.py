"""A standalone node: it decides changes itself, and commits them once its own log has them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from duramen.base.errors import (
    BatchCorrupt,
    DuramenError,
    LogDamaged,
    ReplicaAssignmentInvalid,
    ReplicationFactorInvalid,
    RequestInvalid,
    StorageFailed,
)
from duramen.base.ids import StreamId, new_stream_id
from duramen.base.ports import Buffer, Clock, Randomness
from duramen.broker.changes import Done as DecisionDone
from duramen.broker.changes import ValueDone
from duramen.broker.control import requests
from duramen.broker.control.responses import Block, Created, Done, Value
from duramen.broker.membership import MetadataListener
from duramen.broker.partition import Partition
from duramen.broker.role import Role
from duramen.controller.admin.standalone import standalone_admin
from duramen.controller.standalone.metadata import LogQuorum, Metadata
from duramen.metadata.decisions import (
    SECRET_BYTES,
    add_partitions,
    allocate_producer_ids,
    configure_group,
    configure_node,
    configure_stream,
    create_stream,
    delete_stream,
    record_gap,
)
from duramen.metadata.events import Event, NodeRegistered
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.quotas import alter_quotas
from duramen.metadata.state import ControllerState
from duramen.replication.machine import Behind
from duramen.storage.store import Store

__all__ = ["StandaloneNode"]

_ID_BYTES: Final = 16


class StandaloneNode:
    """The membership of a node that alone has its metadata log: it leads every partition."""

    def __init__(
        self, store: Store, node_id: int, directory_id: str, clock: Clock, randomness: Randomness, *, producers_ms: int
    ) -> None:  # fmt: skip
        """`producers_ms` is how long idempotent producers are remembered."""
        self._producers_ms = producers_ms
        self._store = store
        self._node_id = node_id
        self._directory_id = directory_id
        self._clock = clock
        self._randomness = randomness
        self._listener: MetadataListener | None = None
        quorum = LogQuorum(store, clock)
        self._metadata = Metadata(store, quorum, quorum.log, self._on_event)
        self.cluster_admin = standalone_admin(
            node_id, lambda: self._metadata.state, lambda: quorum.describe(node_id, directory_id)
        )
        mine = (node_id,)
        self._partition = PartitionState(mine, mine, node_id, store.node_epoch)

    @property
    def state(self) -> ControllerState:
        return self._metadata.state

    @property
    def first_role(self) -> Role | None:
        return None

    @property
    def nodes(self) -> Sequence[Node]:
        return ()

    @property
    def shown_nodes(self) -> Sequence[Node]:
        return ()

    @property
    def cluster_id(self) -> UUID:
        return UUID(self._directory_id)

    @property
    def controller_id(self) -> int:
        return self._node_id

    @property
    def most_replicas(self) -> int:
        return 1

    def partition(self, place: PartitionId) -> PartitionState:
        del place
        return self._partition

    def preferred_replica(self, partition: Partition, rack_id: str, offset: int) -> int:
        del partition, rack_id, offset
        return -1

    def heard_ms(self, node_id: int) -> int:
        del node_id
        return 0

    def behind(self) -> Iterator[Sequence[Behind]]:
        return iter(())

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        del node_id, body, done
        return False

    # -- starting -----------------------------------------------------------------------------------

    def start(self, listener: MetadataListener, done: Callable[[DuramenError | None], None]) -> None:
        self._listener = listener
        self._metadata.start(lambda error: done(None if error is None else self._error(error)))

    def _error(self, error: DuramenError | OSError) -> DuramenError:
        if isinstance(error, LogDamaged | BatchCorrupt):
            return LogDamaged(
                f"the metadata log ({self._metadata.directory}) is damaged: {error}. The node does not start, because"
                " without it streams would be lost: put the damaged file back from a backup, or save the rest with"
                " `duramen log salvage`"
            )
        return error if isinstance(error, DuramenError) else StorageFailed(f"the metadata log cannot be read: {error}")

    def _on_event(self, event: Event) -> None:
        if self._listener is not None:
            self._listener.on_event(event)

    def leader_of(self, epoch: int) -> int:
        return self._metadata.leader_of(epoch, self._directory_id)

    def is_gone(self, stream_id: StreamId) -> bool:
        # A stream that the log does not name was lost from it: that proves nothing about its records.
        return stream_id in self._metadata.deleted

    def join(self, done: DecisionDone) -> None:
        if self.state.nodes.get(self._node_id) == self._directory_id:
            done(None)
            return
        registered = NodeRegistered(self._node_id, self._directory_id)
        self._metadata.decide(lambda _: [registered], done)

    def stop(self) -> None:
        """Nothing to do: no other node has to know."""

    # -- changing -----------------------------------------------------------------------------------

    def check(self, request: requests.Request) -> None:
        self._decide(self.state, request)

    def ask(self, request: requests.Request, done: ValueDone) -> None:
        decided: list[Value] = []

        def decide(state: ControllerState) -> list[Event]:
            value, events = self._decide(state, request)
            decided.append(value)
            return events

        self._metadata.decide(decide, lambda error: done(decided[0] if error is None else error))

    def _decide(self, state: ControllerState, request: requests.Request) -> tuple[Value, list[Event]]:
        match request:
            case requests.CreateStream():
                return self._create(state, request)
            case requests.DeleteStream(name=name):
                now_ms = self._clock.wall_ms()
                return Done(), list(delete_stream(state, name, now_ms=now_ms, producers_ms=self._producers_ms))
            case requests.AllocateProducerIds():
                (block,) = allocate_producer_ids(state)
                return Block(block.first, block.count), [block]
            case requests.GrowStream():
                self._check(request.assignment)
            case _:
                pass
        decide = _DECISIONS.get(type(request))
        if decide is None:
            raise RequestInvalid("this node is standalone: there are no other nodes to choose from")
        return Done(), list(decide(state, request))

    def _create(self, state: ControllerState, request: requests.CreateStream) -> tuple[Value, list[Event]]:
        self._check(request.assignment)
        if request.replication_factor != 1:
            raise ReplicationFactorInvalid(
                f"this node is standalone: the replication factor is 1, not {request.replication_factor}"
            )
        events = create_stream(
            state,
            request.definition,
            stream_id=new_stream_id(self._randomness.token(_ID_BYTES)),
            now_ms=self._clock.wall_ms(),
            secret=self._randomness.token(SECRET_BYTES) if request.definition.is_queue_space else b"",
            idempotent=request.idempotent,
            largest_size=request.largest_size,
        )
        created = [UUID(event.id) for event in events] or [state.streams[request.definition.name].id]
        return Created(created[0], existed=not events), list(events)

    def _check(self, assignment: tuple[tuple[int, ...], ...] | None) -> None:
        if assignment is not None and any(replicas != (self._node_id,) for replicas in assignment):
            raise ReplicaAssignmentInvalid(f"this node is standalone: every partition is assigned to {self._node_id}")


_DECISIONS: Final[Mapping[type, Callable[[ControllerState, Any], Any]]] = MappingProxyType(
    {
        requests.GrowStream: lambda state, request: add_partitions(
            state, request.name, request.partitions, largest_size=request.largest_size
        ),
        requests.ConfigureStream: lambda state, request: configure_stream(
            state, request.name, request.changes, whole=request.whole
        ),
        requests.ConfigureNode: lambda state, request: configure_node(
            state, request.node_id, request.changes, whole=request.whole
        ),
        requests.ConfigureGroup: lambda state, request: configure_group(state, request.group, request.changes),
        requests.AlterQuotas: lambda state, request: alter_quotas(state, request.entity, request.changes),
        requests.RecordGap: lambda state, gap: record_gap(
            state, gap.node_id, gap.start_ms, gap.end_ms, gap.cause, gap.stream_id
        ),
    }
)
