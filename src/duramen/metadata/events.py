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
    """The cluster has this id (UUID, as text), for ever."""

    cluster_id: str


class FeatureLevelChanged(_Event, frozen=True, tag="feature-level-changed"):
    """What is written and said from here on needs nodes that know this level."""

    level: int


class Endpoint(msgspec.Struct, frozen=True):
    """Where a node listens; `name` says for whom: `kafka`, `http`, `cluster`."""

    name: str
    host: str
    port: int


class NodeRegistered(_Event, frozen=True, omit_defaults=True, tag="node-registered"):
    """A node with this id and data directory (UUID, as text) takes part.

    `incarnation_id` (UUID, as text) is of the node's process. `epoch`, the end of the metadata log behind this, is
    higher than that of any registration before (KIP-631). A node that is alone registers without them, never fenced.
    `remembers`: the directory keeps under which incarnations it took part.
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
    """The node was silent, or wants it so: it is no leader's choice and in no in-sync set until it is unfenced."""

    node_id: int
    epoch: int


class NodeUnfenced(_Event, frozen=True, tag="node-unfenced"):
    """The node is live and knows the metadata."""

    node_id: int
    epoch: int


class NodeDraining(_Event, frozen=True, omit_defaults=True, tag="node-draining"):
    """The node is about to stop: leaders leave it, and none comes to it while another can be found.

    So it is with `unwritable`: its storage takes no writes, until it registers anew.
    """

    node_id: int
    epoch: int
    unwritable: bool = False


class NodeUnregistered(_Event, frozen=True, tag="node-unregistered"):
    """The node takes part no more."""

    node_id: int
    epoch: int


class StreamCreated(_Event, frozen=True, tag="stream-created"):
    """A stream exists from here on. `config` holds only what differs from the broker's defaults.

    Idempotent producers up to `forgotten_producer_id` may have written to an earlier stream of its name; None, as an
    older version has it: all that were made before. `number` is that of a queue space: the ids of its queues' topics
    begin with it; others have none, as spaces that an older version has made.
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


class PartitionsAdded(_Event, frozen=True, tag="partitions-added"):
    """The stream has `partitions` partitions from here on."""

    id: str
    partitions: int


class PartitionChanged(_Event, frozen=True, gc=False, omit_defaults=True, tag="partition-changed"):
    """What changed of a partition's replicas, as in Kafka's PartitionChangeRecord; what is not named stays.

    The first about a partition names all. `id` is the stream's; a leader of None is none. `elr` are the eligible leader
    replicas of KIP-966. With `unclean` the leader may lack acknowledged records, which are lost with this.
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
    """The stream's config is `config` from here on, whole."""

    id: str
    config: dict[str, str]


class StreamDeleted(_Event, frozen=True, tag="stream-deleted"):
    """The stream is gone; its id is never used again.

    It is so since `at_ms`. Until `producers_until_ms` producers may go on in a stream of its name; both since 1970.
    """

    id: str
    at_ms: int = 0
    producers_until_ms: int = 0


class ProducerIdsAllocated(_Event, frozen=True, omit_defaults=True, tag="producer-ids-allocated"):
    """The ids from `first` on, `count` of them, belong to the node that asked.

    In a snapshot also until when (ms since 1970) producers may go on in streams that are deleted, by name, and in any.
    """

    first: int
    count: int
    until_ms: dict[str, int] = {}
    any_until_ms: int = 0


class GroupConfigured(_Event, frozen=True, tag="group-configured"):
    """The config of a group is `config` from here on, whole; without entries it has none of its own."""

    group: str
    config: dict[str, str]


class NodeConfigured(_Event, frozen=True, tag="node-configured"):
    """What was changed of a node's settings while it ran is `config` from here on, whole; None: of every node's."""

    node_id: int | None
    config: dict[str, str]


class QuotasChanged(_Event, frozen=True, tag="quotas-changed"):
    """The quotas of an entity are these from here on, whole; `entity` has types and names, None the default."""

    entity: tuple[tuple[str, str | None], ...]
    values: dict[str, float]


class TenantNameReserved(_Event, frozen=True, tag="tenant-name-reserved"):
    """A tenant's name begins names of the inventory's topics, or is free again; `number` is used up in any case."""

    account: str
    name: str
    number: int
    reserved: bool = True


class NatsGapRecorded(_Event, frozen=True, omit_defaults=True, tag="nats-gap-recorded"):
    """From `start_ms` to `end_ms` (since 1970) nobody was subscribed to what streams are bound to, as the node knows.

    It concerns the stream of that id, of which the node leads partitions; where none is named, every stream that has
    subjects at this point of the log.
    """

    node_id: int
    start_ms: int
    end_ms: int
    cause: str
    stream_id: str = ""


class NatsGapsSummed(_Event, frozen=True, tag="nats-gaps-summed"):
    """What the gaps of a stream come to so far: count, ms, and start, end and cause of the most recent ones.

    A snapshot has it in the place of those that were recorded.
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
    """The event in a record's value. Raises BatchCorrupt where it is none that this version knows."""
    return decode_events((value,))[0]


def decode_events(values: Iterable[bytes]) -> list[Event]:
    """The events in values of records. Raises BatchCorrupt where one is none that this version knows."""
    try:
        return list(map(_decoder.decode, values))
    except msgspec.MsgspecError as error:
        raise BatchCorrupt(f"the metadata log holds an event that this version cannot read: {error}") from None
