"""The events of the metadata log, as JSON records. Adding fields with defaults keeps old logs readable."""

import msgspec

from duramen.base.errors import BatchCorrupt

__all__ = [
    "Event",
    "GroupConfigured",
    "NatsGapRecorded",
    "NatsGapsSummed",
    "NodeConfigured",
    "NodeRegistered",
    "PartitionsAdded",
    "ProducerIdsAllocated",
    "QuotasChanged",
    "StreamConfigured",
    "StreamCreated",
    "StreamDeleted",
    "decode_event",
    "encode_event",
]


class _Event(msgspec.Struct, frozen=True, tag_field="event"):
    """Base of the events: the tag is the field `event`."""


class NodeRegistered(_Event, frozen=True, tag="node-registered"):
    """A node with this id and data directory (UUID, as text) takes part."""

    node_id: int
    directory_id: str


class StreamCreated(_Event, frozen=True, tag="stream-created"):
    """A stream exists from here on. `config` holds only what differs from the broker's defaults."""

    name: str
    id: str
    partitions: int
    config: dict[str, str] = {}
    subjects: tuple[str, ...] = ()
    internal: bool = False
    at_ms: int = 0


class PartitionsAdded(_Event, frozen=True, tag="partitions-added"):
    """The stream has `partitions` partitions from here on."""

    id: str
    partitions: int


class StreamConfigured(_Event, frozen=True, tag="stream-configured"):
    """The stream's config is `config` from here on, whole."""

    id: str
    config: dict[str, str]


class StreamDeleted(_Event, frozen=True, tag="stream-deleted"):
    """The stream is gone; its id is never used again."""

    id: str


class ProducerIdsAllocated(_Event, frozen=True, tag="producer-ids-allocated"):
    """The ids from `first` on, `count` of them, belong to the node that asked."""

    first: int
    count: int


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


class NatsGapRecorded(_Event, frozen=True, tag="nats-gap-recorded"):
    """From `start_ms` to `end_ms` (since 1970) the node was not subscribed to what its streams are bound to.

    It concerns every stream that has subjects at this point of the log.
    """

    node_id: int
    start_ms: int
    end_ms: int
    cause: str


class NatsGapsSummed(_Event, frozen=True, tag="nats-gaps-summed"):
    """What the gaps of a stream come to so far: count, ms, and start, end and cause of the most recent ones.

    A snapshot has it in the place of those that were recorded.
    """

    id: str
    gaps: int
    total_ms: int
    recent: tuple[tuple[int, int, str], ...]


Event = (
    NodeRegistered
    | StreamCreated
    | PartitionsAdded
    | StreamConfigured
    | StreamDeleted
    | ProducerIdsAllocated
    | QuotasChanged
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
    try:
        event: Event = _decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise BatchCorrupt(f"the metadata log holds an event that this version cannot read: {error}") from None
    return event
