"""The state derived from the metadata log. Applying the same events in the same order gives the same state."""

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

import msgspec

from duramen.base.catalogue.keyed import LIVE_TOPIC
from duramen.base.catalogue.queues import TOPIC_PREFIX
from duramen.base.ids import SHARD_BITS, StreamId, stream_id_of
from duramen.metadata.events import (
    ClusterFormed,
    Event,
    FeatureLevelChanged,
    GroupConfigured,
    NatsGapRecorded,
    NatsGapsSummed,
    NodeConfigured,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    QuotasChanged,
    StreamConfigured,
    StreamCreated,
    StreamDeleted,
    TenantNameReserved,
)
from duramen.metadata.nodes import Nodes
from duramen.metadata.partitions import Partitions

__all__ = ["STREAM_SIZE", "ControllerState", "Entity", "Gap", "StreamGaps", "StreamState", "flat"]

STREAM_SIZE: Final = 3
"""The memory of a stream besides its partitions, in partitions (measured: 6 and 2 KiB)."""

Entity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: types (`client-id`, `user`) and names, sorted; None as a name is the default of its type."""

_SPACE_NUMBERS: Final = 1 << SHARD_BITS
_RECENT_GAPS: Final = 100
_DELETED_NAMES: Final = 10_000

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Gap(NamedTuple):
    """A period, in ms since 1970, without a subscription to a stream's subjects, and its cause."""

    start_ms: int
    end_ms: int
    cause: str


class StreamGaps(NamedTuple):
    """The gaps of a stream: their number, their total length, and the most recent ones, oldest first."""

    gaps: int = 0
    total_ms: int = 0
    recent: tuple[Gap, ...] = ()


class StreamState(msgspec.Struct, frozen=True):
    """The present definition of a stream."""

    name: str
    id: StreamId
    partitions: int
    config: Mapping[str, str]
    subjects: tuple[str, ...]
    internal: bool
    created_at_ms: int
    forgotten_producer_id: int = -1
    number: int = 0
    """For a queue space: the prefix of the ids of its queues' topics."""
    secret: bytes = b""
    """For a queue space: the key of the hash of its queues' names. No response shows it."""

    @property
    def hash_key(self) -> bytes:
        """The key of the hash of the names of a space's queues: its secret, or its id if it has none."""
        return self.secret or self.id.bytes


class ControllerState:
    """Streams with their gaps, nodes with their configs, client quotas, the configs of groups, the next producer id.

    For a cluster also its id, its feature level, and the replicas of partitions. `size` is the number of partitions of
    all streams, a stream itself counting as STREAM_SIZE of them.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, StreamState] = {}
        self._by_id: dict[StreamId, StreamState] = {}
        self._by_flat_name: dict[str, StreamState] = {}
        self._by_live_topic: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        self._tenants: dict[tuple[str, str], int] = {}
        self._tenant_accounts: dict[str, int] = {}
        self.next_reservation = 1
        self._gaps: dict[StreamId, StreamGaps] = {}
        self._groups: dict[str, Mapping[str, str]] = {}
        self._node_configs: dict[int | None, Mapping[str, str]] = {}
        self._quotas: dict[Entity, Mapping[str, float]] = {}
        self.registrations = Nodes()
        self.partitions = Partitions()
        self.cluster_id = ""
        self.feature_level = 0
        self.next_producer_id = 1
        self.size = 0
        self._deleted: dict[str, int] = {}  # until when producers may continue in a stream of that name, in ms
        self._any_deleted_ms = 0  # the same for any name, after too many deletions

    @property
    def streams(self) -> Mapping[str, StreamState]:
        """Streams by name."""
        return MappingProxyType(self._by_name)

    @property
    def topic_prefixes(self) -> Mapping[str, str]:
        """The prefixes of topics that are queues, with the names of their spaces."""
        return MappingProxyType(self._prefixes)

    @property
    def free_space_number(self) -> int:
        """An unused number for a queue space: the one after the highest, to avoid reuse; 0 if all are used."""
        taken = {stream.number for stream in self._by_name.values() if stream.number}
        following = max(taken, default=0) + 1
        if following < _SPACE_NUMBERS:
            return following
        return next((number for number in range(1, _SPACE_NUMBERS) if number not in taken), 0)

    @property
    def tenant_names(self) -> Mapping[tuple[str, str], int]:
        """Reserved names of tenants, by account and name, with the numbers of their reservations."""
        return MappingProxyType(self._tenants)

    def is_tenant(self, name: str) -> bool:
        """Whether a tenant of any account has reserved that name."""
        return name in self._tenant_accounts

    @property
    def nodes(self) -> Mapping[int, str]:
        """Directory ids by node id."""
        return self.registrations.directories

    @property
    def groups(self) -> Mapping[str, Mapping[str, str]]:
        """The configs of groups that have their own, by group."""
        return MappingProxyType(self._groups)

    @property
    def node_configs(self) -> Mapping[int | None, Mapping[str, str]]:
        """Settings changed on running nodes, by node; None: of every node."""
        return MappingProxyType(self._node_configs)

    @property
    def quotas(self) -> Mapping[Entity, Mapping[str, float]]:
        """Client quotas by entity."""
        return MappingProxyType(self._quotas)

    def gaps(self, stream_id: StreamId) -> StreamGaps:
        """The gaps of the stream's NATS subscriptions."""
        return self._gaps.get(stream_id, StreamGaps())

    @property
    def highest_producer_id(self) -> int:
        """The end of the highest allocated block of producer ids."""
        return self.next_producer_id - 1

    @property
    def deleted_names(self) -> tuple[dict[str, int], int]:
        """Until when (ms since 1970) producers may continue in deleted streams: by name, and in any."""
        return dict(self._deleted), self._any_deleted_ms

    def has_producers_of(self, name: str, now_ms: int) -> bool:
        """Whether producers may continue in a deleted stream of that name."""
        return now_ms < max(self._deleted.get(name, 0), self._any_deleted_ms)

    def clash(self, name: str) -> str | None:
        """A stream whose name differs from `name` only in '.' and '_', as Kafka forbids."""
        known = self._by_flat_name.get(flat(name))
        return None if known is None or known.name == name else known.name

    def live_topic(self, name: str) -> str | None:
        """The stream whose live topic has this name, or one that metrics cannot tell from it."""
        return self._by_live_topic.get(flat(name))

    def copy(self) -> "ControllerState":
        """A copy of the state."""
        other = ControllerState()
        other.registrations = self.registrations.copy()
        other.partitions = self.partitions.copy()
        other.cluster_id = self.cluster_id
        other.feature_level = self.feature_level
        other._gaps = dict(self._gaps)
        other._groups = dict(self._groups)
        other._node_configs = dict(self._node_configs)
        other._quotas = dict(self._quotas)
        other._tenants, other._tenant_accounts = dict(self._tenants), dict(self._tenant_accounts)
        other.next_producer_id, other.next_reservation = self.next_producer_id, self.next_reservation
        other._deleted, other._any_deleted_ms = dict(self._deleted), self._any_deleted_ms
        for stream in self._by_name.values():
            other._put(stream)
        return other

    def stream_by_id(self, stream_id: StreamId) -> StreamState | None:
        """The stream with that id."""
        return self._by_id.get(stream_id)

    def apply(self, event: Event) -> None:
        """Apply an event; one about a deleted stream changes nothing."""
        match event:
            case PartitionChanged():  # the most frequent event
                self._change_partition(event)
            case StreamCreated():
                stream = StreamState(
                    event.name,
                    stream_id_of(event.id),
                    event.partitions,
                    MappingProxyType(dict(event.config)),
                    event.subjects,
                    event.internal,
                    event.at_ms,
                    self.highest_producer_id if event.forgotten_producer_id is None else event.forgotten_producer_id,
                    event.number or 0,
                    bytes.fromhex(event.secret or ""),
                )
                self._deleted.pop(stream.name, None)
                self._put(stream)
            case PartitionsAdded():
                self._change(event.id, partitions=event.partitions)
            case StreamConfigured():
                self._change(event.id, config=MappingProxyType(dict(event.config)))
            case StreamDeleted():
                self._note_deleted(event)
                self._remove(stream_id_of(event.id))
            case ProducerIdsAllocated():
                self.next_producer_id = max(self.next_producer_id, event.first + event.count)
                self._deleted.update(event.until_ms)
                self._any_deleted_ms = max(self._any_deleted_ms, event.any_until_ms)
            case NatsGapRecorded():
                self._add_gap(event)
            case NatsGapsSummed():
                recent = tuple(Gap(*gap) for gap in event.recent)
                self._gaps[stream_id_of(event.id)] = StreamGaps(event.gaps, event.total_ms, recent)
            case QuotasChanged():
                _put(self._quotas, event.entity, event.values)
            case GroupConfigured() | NodeConfigured() | TenantNameReserved():
                self._configure(event)
            case ClusterFormed() | FeatureLevelChanged():
                self._apply_of_cluster(event)
            case _:
                self.registrations.apply(event)

    def _reserve(self, event: TenantNameReserved) -> None:
        key = event.account, event.name
        accounts = self._tenant_accounts.get(event.name, 0) - (self._tenants.pop(key, None) is not None)
        self.next_reservation = max(self.next_reservation, event.number + 1)
        if event.reserved:
            self._tenants[key] = event.number
            accounts += 1
        if accounts:
            self._tenant_accounts[event.name] = accounts
        else:
            self._tenant_accounts.pop(event.name, None)

    def _note_deleted(self, event: StreamDeleted) -> None:
        """Remember the name while producers may continue in it; of very many, those deleted last."""
        stream = self._by_id.get(stream_id_of(event.id))
        if stream is None:
            return
        while self._deleted and next(iter(self._deleted.values())) <= event.at_ms:
            del self._deleted[next(iter(self._deleted))]
        self._deleted[stream.name] = event.producers_until_ms
        if len(self._deleted) > _DELETED_NAMES:
            oldest = next(iter(self._deleted))
            self._any_deleted_ms = max(self._any_deleted_ms, self._deleted.pop(oldest))

    def _remove(self, stream_id: StreamId) -> None:
        gone = self._by_id.pop(stream_id, None)
        if gone is not None:
            self.size -= gone.partitions + STREAM_SIZE
            del self._by_name[gone.name]
            del self._by_flat_name[flat(gone.name)]
            self._by_live_topic.pop(flat(gone.config.get(LIVE_TOPIC, "")), None)
            self._prefixes.pop(gone.config.get(TOPIC_PREFIX, ""), None)
            self._gaps.pop(gone.id, None)
            self.partitions.remove_stream(gone.id)

    def _change_partition(self, event: PartitionChanged) -> None:
        stream = self._by_id.get(stream_id_of(event.id))
        if stream is not None and event.partition < stream.partitions:
            self.partitions.apply(stream.id, event)

    def _apply_of_cluster(self, event: ClusterFormed | FeatureLevelChanged) -> None:
        if isinstance(event, ClusterFormed):
            self.cluster_id = self.cluster_id or event.cluster_id
        else:
            self.feature_level = event.level

    def _configure(self, event: GroupConfigured | NodeConfigured | TenantNameReserved) -> None:
        if isinstance(event, TenantNameReserved):
            self._reserve(event)
        elif isinstance(event, GroupConfigured):
            _put(self._groups, event.group, event.config)
        else:
            _put(self._node_configs, event.node_id, event.config)

    def _change(self, stream_id: str, **changes: object) -> None:
        known = self._by_id.get(uuid.UUID(stream_id))
        if known is not None:
            self._put(msgspec.structs.replace(known, **changes))

    def _add_gap(self, event: NatsGapRecorded) -> None:
        one = self._by_id.get(uuid.UUID(event.stream_id)) if event.stream_id else None
        concerned = self._by_id.values() if not event.stream_id else () if one is None else (one,)
        for stream in concerned:
            gap = Gap(max(event.start_ms, stream.created_at_ms), event.end_ms, event.cause)
            if stream.subjects and gap.start_ms < gap.end_ms:
                count, total_ms, recent = self.gaps(stream.id)
                recent = (*recent, gap)[-_RECENT_GAPS:]
                self._gaps[stream.id] = StreamGaps(count + 1, total_ms + gap.end_ms - gap.start_ms, recent)

    def _put(self, stream: StreamState) -> None:
        before = self._by_id.get(stream.id)
        self.size += stream.partitions + STREAM_SIZE
        if before is not None:
            self.size -= before.partitions + STREAM_SIZE
            self._by_live_topic.pop(flat(before.config.get(LIVE_TOPIC, "")), None)
            self._prefixes.pop(before.config.get(TOPIC_PREFIX, ""), None)
        if stream.config.get(LIVE_TOPIC):
            self._by_live_topic[flat(stream.config[LIVE_TOPIC])] = stream.name
        if stream.config.get(TOPIC_PREFIX):
            self._prefixes[stream.config[TOPIC_PREFIX]] = stream.name
        self._by_name[stream.name] = stream
        self._by_flat_name[flat(stream.name)] = stream
        self._by_id[stream.id] = stream


def _put(all_: dict[_Key, Mapping[str, _Value]], key: _Key, values: Mapping[str, _Value]) -> None:
    all_.pop(key, None)
    if values:
        all_[key] = MappingProxyType(dict(values))


def flat(name: str) -> str:
    """The name in metrics, which do not distinguish '.' and '_'."""
    return name.replace(".", "_")
