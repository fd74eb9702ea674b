"""The records of a shard's log: MessagePack arrays that start with the number of the event's kind. Pure.

Shard 0 has the events of tenants and namespaces. Each name of a topic is an event in the shard of that name; the
present place of a topic is an event in the shard that created it. Events describe changes of rows.
"""

from typing import Final, TypeAlias

import msgspec

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import DecodedRecord
from duramen.inventory.ids import TopicKey

__all__ = [
    "AliasChanged",
    "ChangesFenced",
    "DirectoryEvent",
    "InventoryEvent",
    "NameChanged",
    "NamesChanged",
    "NamesRemoved",
    "NamespaceDropped",
    "NamespacePut",
    "NamespaceRemoved",
    "NamespaceSwept",
    "PendingChange",
    "Policies",
    "PoliciesPut",
    "Renamed",
    "TenantPut",
    "TenantRemoved",
    "TopicPlaced",
    "TopicPoliciesPut",
    "TopicsCreated",
    "decode_event",
    "decode_pending",
    "encode_event",
    "encode_pending",
]

Labels: TypeAlias = dict[str, str]
Policies: TypeAlias = dict[str, bool | int | str]


class _Event(msgspec.Struct, frozen=True, array_like=True):
    """Base of the events."""


class TenantPut(_Event, frozen=True, tag=1):
    """A tenant is created, or changed to this. `renamed`: a `Renamed` follows, which tells subscribers all of it."""

    id: int
    account: str
    name: str
    created_ms: int
    labels: Labels
    renamed: bool = False


class NamespacePut(_Event, frozen=True, tag=2):
    """A namespace is created, or changed to this; messages to its NATS `subjects` are records of its topics.

    `renamed`: as of `TenantPut`, also if it moves to another tenant.
    """

    id: int
    tenant: int
    name: str
    created_ms: int
    labels: Labels
    subjects: tuple[str, ...] = ()
    renamed: bool = False


class TenantRemoved(_Event, frozen=True, tag=3):
    """A tenant is deleted with all its namespaces and their topics; `name` was its name."""

    id: int
    account: str = ""
    name: str = ""


class NamespaceRemoved(_Event, frozen=True, tag=4):
    """A namespace is deleted with all its topics, whose rows are removed later; `name` was its name."""

    id: int
    tenant: int = 0
    name: str = ""


class NamespaceSwept(_Event, frozen=True, tag=5):
    """No shard has rows of a removed namespace any more."""

    id: int


class TopicsCreated(_Event, frozen=True, tag=6):
    """Topics are created: `body` has their names in order, and the first name gets the sequence `first`.

    `alone`: before, no name between the first and the last existed.
    """

    namespace: int
    first: int
    count: int
    body: bytes
    alone: bool = False


class NameChanged(_Event, frozen=True, tag=7):
    """The new row of a name, None: it is removed; and the name's pending change."""

    namespace: int
    name: bytes
    value: bytes | None
    pending: bytes | None


class NamesChanged(_Event, frozen=True, tag=12):
    """Like NameChanged for many names: `rows` have the namespace, the name, its own row, and its pending change.

    A name with an empty row is in a block, and gone. `counts`: the increase of the number of topics by namespace.
    """

    rows: list[tuple[int, bytes, bytes | None, bytes | None]]
    counts: list[tuple[int, int]]


class TopicPlaced(_Event, frozen=True, tag=8):
    """The new name of a topic of this shard, None: it is deleted. The old name may become an alias."""

    sequence: int
    namespace: int
    name: bytes | None
    alias_namespace: int = 0
    alias: bytes | None = None
    old_namespace: int = 0
    old_name: bytes = b""


class AliasChanged(_Event, frozen=True, tag=9):
    """A topic of this shard gets an alias, or loses it."""

    sequence: int
    namespace: int
    name: bytes
    there: bool


class NamespaceDropped(_Event, frozen=True, tag=10):
    """Nothing is created in this namespace any more."""

    namespace: int


class NamesRemoved(_Event, frozen=True, tag=11):
    """The names of a dropped namespace are removed up to this one."""

    namespace: int
    last: bytes


class ChangesFenced(_Event, frozen=True, tag=32):
    """From here on steps of changes need this token or a higher one."""

    token: int


class PoliciesPut(_Event, frozen=True, tag=20):
    """The new policies of an account, a tenant or a namespace.

    An account has its name and no id, the others an id and no account.
    """

    level: str
    account: str
    id: int
    policies: Policies


class TopicPoliciesPut(_Event, frozen=True, tag=21):
    """The new policies of a topic of this shard, which has this name."""

    sequence: int
    policies: Policies
    namespace: int
    name: bytes


class Renamed(_Event, frozen=True, tag=22):
    """The name of a tenant or a namespace, and its tenant, before the previous event: for subscribers.

    Logs of earlier versions have it before the event.
    """

    level: str
    id: int
    account: str
    tenant: int
    name: str


DirectoryEvent: TypeAlias = TenantPut | NamespacePut | TenantRemoved | NamespaceRemoved | NamespaceSwept | PoliciesPut
"""The events of tenants and namespaces, and of their policies."""

InventoryEvent: TypeAlias = (
    TenantPut | NamespacePut | TenantRemoved | NamespaceRemoved | NamespaceSwept | TopicsCreated | NameChanged
    | NamesChanged | TopicPlaced | AliasChanged | NamespaceDropped | NamesRemoved | PoliciesPut | TopicPoliciesPut
    | Renamed | ChangesFenced
)  # fmt: skip


class PendingChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change over several shards in progress, stored with the name that it starts at.

    `kind` is `move`, `delete`, `alias` or `unalias`, and `arrive` at the target name of a move; `key` is the topic;
    `namespace` and `name` are the target of a move, or its start.
    """

    kind: str
    shard: int
    sequence: int
    namespace: int = 0
    name: bytes = b""
    keep_alias: bool = False

    @property
    def key(self) -> TopicKey:
        """The changed topic."""
        return TopicKey(self.shard, self.sequence)


_PENDING: Final = msgspec.msgpack.Decoder(PendingChange)
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(InventoryEvent)


def encode_event(event: InventoryEvent) -> bytes:
    """The value of the record."""
    return _ENCODER.encode(event)


def decode_event(record: DecodedRecord) -> InventoryEvent:
    """The event in a record. Raises BatchCorrupt."""
    try:
        event: InventoryEvent = _DECODER.decode(record.value or b"")
    except msgspec.MsgspecError as error:
        raise BatchCorrupt(f"the record at offset {record.offset} is no event of the inventory: {error}") from None
    return event


def encode_pending(change: PendingChange) -> bytes:
    """A pending change as a row's value."""
    return _ENCODER.encode(change)


def decode_pending(value: bytes) -> PendingChange:
    """The pending change of a row's value."""
    return _PENDING.decode(value)
