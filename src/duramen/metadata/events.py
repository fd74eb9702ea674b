"""The events of the metadata log, as JSON records. New fields with defaults keep old logs readable."""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from duramen.base.errors import BatchCorrupt

__all__ = [
    "ClusterFormed",
    "Endpoint",
    "Event",
    "FeatureLevelChanged",
    "GroupConfigured",
    "NatsGapRecorded",
    "NatsGapsSummed",
    "NodeConfigured",
    "NodeDraining",
    "NodeEvent",
    "NodeFenced",
    "NodeRegistered",
    "NodeUnfenced",
    "NodeUnregistered",
    "PartitionChanged",
    "PartitionsAdded",
    "ProducerIdsAllocated",
    "QuotasChanged",
    "StreamConfigured",
    "StreamCreated",
    "StreamDeleted",
    "TenantNameReserved",
    "decode_event",
    "decode_events",
    "encode_event",
]


class _Event(msgspec.Struct, frozen=True, tag_field="event"):
    """Base of the events: the tag is the field `event`."""


class ClusterFormed(_Event, frozen=True, tag="cluster-formed"):
    """The cluster has this id (UUID, as text), permanently."""

    cluster_id: str


class FeatureLevelChanged(_Event, frozen=True, tag="feature-level-changed"):
    """Data and messages may need nodes that support this level from now on."""

    level: int


class Endpoint(msgspec.Struct, frozen=True):
    """The address of a listener of a node; `name` is its kind: `kafka`, `http`, `cluster`."""

    name: str
    host: str
    port: int


class NodeRegistered(_Event, frozen=True, omit_defaults=True, tag="node-registered"):
    """A node with this id and data directory (UUID, as text) is registered.

    `incarnation_id` (UUID, as text) identifies the node's process. `epoch`, the end of the metadata log after this
    event, is higher than that of any earlier registration (KIP-631). A standalone node registers without them, never
    fenced. `remembers`: the directory records the incarnations under which it was registered.
    """

    node_id: int
    directory_id: str
    incarnation_id: str = ""
    epoch: int = 0
    rack: str | None = None
    roles: tuple[str, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    least_feature_level: int = 0
    latest_feature_level: int = 0
    fenced: bool = False
    remembers: bool = False


class NodeFenced(_Event, frozen=True, tag="node-fenced"):
    """The node was silent, or requested it: until it is unfenced it neither leads nor is in any in-sync set."""

    node_id: int
    epoch: int


class NodeUnfenced(_Event, frozen=True, tag="node-unfenced"):
    """The node is live and knows the metadata."""

    node_id: int
    epoch: int


class NodeDraining(_Event, frozen=True, omit_defaults=True, tag="node-draining"):
    """The node is about to stop: it gives up leadership, and becomes leader only if there is no other node.

    The same holds with `unwritable`: its storage accepts no writes, until it registers again.
    """

    node_id: int
    epoch: int
    unwritable: bool = False


class NodeUnregistered(_Event, frozen=True, tag="node-unregistered"):
    """The node is removed from the cluster."""

    node_id: int
    epoch: int


class StreamCreated(_Event, frozen=True, tag="stream-created"):
    """A stream is created. `config` has only what differs from the broker's defaults.

    Idempotent producers up to `forgotten_producer_id` may have written to an earlier stream of its name; None, as in
    older versions: all earlier ones. `number` is that of a queue space: the ids of its queues' topics start with it;
    other streams, and spaces created by older versions, have none. `secret`, in hex, is the key of the hash of the
    names of a space's queues; without one it is the space's id.
    """

    name: str
    id: str
    partitions: int
    config: dict[str, str] = {}
    subjects: tuple[str, ...] = ()
    internal: bool = False
    at_ms: int = 0
    forgotten_producer_id: int | None = None
    number: int | msgspec.UnsetType = msgspec.UNSET
    secret: str | msgspec.UnsetType = msgspec.UNSET


class PartitionsAdded(_Event, frozen=True, tag="partitions-added"):
    """The stream has `partitions` partitions from here on."""

    id: str
    partitions: int


class PartitionChanged(_Event, frozen=True, gc=False, omit_defaults=True, tag="partition-changed"):
    """Changes of a partition's replicas, as in Kafka's PartitionChangeRecord; absent fields are unchanged.

    The first event of a partition has all fields. `id` is the stream's; a leader of None means none. `elr` are the
    eligible leader replicas of KIP-966. With `unclean` the leader may lack acknowledged records, which are lost with
    this event.
    """

    id: str
    partition: int
    partition_epoch: int
    leader: int | UnsetType | None = UNSET
    leader_epoch: int | UnsetType = UNSET
    replicas: tuple[int, ...] | UnsetType = UNSET
    isr: tuple[int, ...] | UnsetType = UNSET
    elr: tuple[int, ...] | UnsetType = UNSET
    last_known_elr: tuple[int, ...] | UnsetType = UNSET
    adding: tuple[int, ...] | UnsetType = UNSET
    removing: tuple[int, ...] | UnsetType = UNSET
    unclean: bool = False


class StreamConfigured(_Event, frozen=True, tag="stream-configured"):
    """The stream's whole config is `config` from here on."""

    id: str
    config: dict[str, str]


class StreamDeleted(_Event, frozen=True, tag="stream-deleted"):
    """The stream is deleted; its id is never used again.

    `at_ms` is the time of the deletion. Until `producers_until_ms` producers may continue in a stream of its name; both
    since 1970.
    """

    id: str
    at_ms: int = 0
    producers_until_ms: int = 0


class ProducerIdsAllocated(_Event, frozen=True, omit_defaults=True, tag="producer-ids-allocated"):
    """The `count` ids from `first` on belong to the requesting node.

    A snapshot also has until when (ms since 1970) producers may continue in deleted streams, by name, and in any.
    """

    first: int
    count: int
    until_ms: dict[str, int] = {}
    any_until_ms: int = 0


class GroupConfigured(_Event, frozen=True, tag="group-configured"):
    """The group's whole config is `config` from here on; empty: it has none of its own."""

    group: str
    config: dict[str, str]


class NodeConfigured(_Event, frozen=True, tag="node-configured"):
    """The changed settings of a running node are `config` from here on, completely; None: of every node."""

    node_id: int | None
    config: dict[str, str]


class QuotasChanged(_Event, frozen=True, tag="quotas-changed"):
    """The quotas of an entity from here on, completely; `entity` has types and names, None the default."""

    entity: tuple[tuple[str, str | None], ...]
    values: dict[str, float]


class TenantNameReserved(_Event, frozen=True, tag="tenant-name-reserved"):
    """A tenant's name is reserved as a prefix of inventory topics, or released; `number` is never reused."""

    account: str
    name: str
    number: int
    reserved: bool = True


class NatsGapRecorded(_Event, frozen=True, omit_defaults=True, tag="nats-gap-recorded"):
    """From `start_ms` to `end_ms` (since 1970) a node was not subscribed to the subjects of streams.

    It concerns the stream with that id, whose partitions the node leads; without an id, every stream with subjects
    at this point of the log.
    """

    node_id: int
    start_ms: int
    end_ms: int
    cause: str
    stream_id: str = ""


class NatsGapsSummed(_Event, frozen=True, tag="nats-gaps-summed"):
    """The totals of a stream's gaps so far: count, ms, and start, end and cause of the most recent ones.

    A snapshot has it in place of the recorded gaps.
    """

    id: str
    gaps: int
    total_ms: int
    recent: tuple[tuple[int, int, str], ...]


NodeEvent = NodeRegistered | NodeFenced | NodeUnfenced | NodeDraining | NodeUnregistered

Event = (
    NodeRegistered
    | NodeFenced
    | NodeUnfenced
    | NodeDraining
    | NodeUnregistered
    | ClusterFormed
    | FeatureLevelChanged
    | PartitionChanged
    | StreamCreated
    | PartitionsAdded
    | StreamConfigured
    | StreamDeleted
    | ProducerIdsAllocated
    | QuotasChanged
    | TenantNameReserved
    | NatsGapRecorded
    | NatsGapsSummed
    | GroupConfigured
    | NodeConfigured
)

_decoder = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """The value of the event's record."""
    return msgspec.json.encode(event)


def decode_event(value: bytes) -> Event:
    """The event in a record's value. Raises BatchCorrupt if this version does not know it."""
    return decode_events((value,))[0]


def decode_events(values: Iterable[bytes]) -> list[Event]:
    """The events in values of records. Raises BatchCorrupt if this version does not know one."""
    try:
        return list(map(_decoder.decode, values))
    except msgspec.MsgspecError as error:
        raise BatchCorrupt(f"the metadata log holds an event that this version cannot read: {error}") from None
