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
    """A tenant is made, or is another from here on."""

    id: int
    account: str
    name: str
    created_ms: int
    labels: Labels


class NamespacePut(_Event, frozen=True, tag=2):
    """A namespace is made, or is another from here on; messages to `subjects` of NATS are records of its topics."""

    id: int
    tenant: int
    name: str
    created_ms: int
    labels: Labels
    subjects: tuple[str, ...] = ()


class TenantRemoved(_Event, frozen=True, tag=3):
    """A tenant is gone with all its namespaces and their topics; it was called so."""

    id: int
    account: str = ""
    name: str = ""


class NamespaceRemoved(_Event, frozen=True, tag=4):
    """A namespace is gone with all its topics, whose rows are removed afterwards; it was called so."""

    id: int
    tenant: int = 0
    name: str = ""


class NamespaceSwept(_Event, frozen=True, tag=5):
    """No shard has rows of a removed namespace any more."""

    id: int


class TopicsCreated(_Event, frozen=True, tag=6):
    """Topics are made: `body` has their names in order, the first of which gets the sequence `first`.

    `alone`: before, no name between the first and the last was there.
    """

    namespace: int
    first: int
    count: int
    body: bytes
    alone: bool = False


class NameChanged(_Event, frozen=True, tag=7):
    """The row of a name is this from here on, None: it is gone; and so is what is under way with it."""

    namespace: int
    name: bytes
    value: bytes | None
    pending: bytes | None


class NamesChanged(_Event, frozen=True, tag=12):
    """As NameChanged of many names: `rows` have the namespace, the name, its own row, and what is under way with it.

    A name whose row is empty is in a block, and gone. `counts`: in a namespace so many topics more have names.
    """

    rows: list[tuple[int, bytes, bytes | None, bytes | None]]
    counts: list[tuple[int, int]]


class TopicPlaced(_Event, frozen=True, tag=8):
    """A topic of this shard has this name from here on, None: it is gone. The name before may become an alias."""

    sequence: int
    namespace: int
    name: bytes | None
    alias_namespace: int = 0
    alias: bytes | None = None
    old_namespace: int = 0
    old_name: bytes = b""


class AliasChanged(_Event, frozen=True, tag=9):
    """A topic of this shard has an alias from here on, or has it no longer."""

    sequence: int
    namespace: int
    name: bytes
    there: bool


class NamespaceDropped(_Event, frozen=True, tag=10):
    """Nothing is made in this namespace any more."""

    namespace: int


class NamesRemoved(_Event, frozen=True, tag=11):
    """The names of a dropped namespace are gone up to this one."""

    namespace: int
    last: bytes


class ChangesFenced(_Event, frozen=True, tag=32):
    """Steps of changes count from here on only where they come with this token or a higher one."""

    token: int


class PoliciesPut(_Event, frozen=True, tag=20):
    """An account, a tenant or a namespace has these policies of its own from here on.

    An account has its name and no id, the others an id and no account.
    """

    level: str
    account: str
    id: int
    policies: Policies


class TopicPoliciesPut(_Event, frozen=True, tag=21):
    """A topic of this shard, which has this name, has these policies of its own from here on."""

    sequence: int
    policies: Policies
    namespace: int
    name: bytes


class Renamed(_Event, frozen=True, tag=22):
    """A tenant or a namespace was called so, in that tenant, up to the next event: for those who follow it."""

    level: str
    id: int
    account: str
    tenant: int
    name: str


DirectoryEvent: TypeAlias = TenantPut | NamespacePut | TenantRemoved | NamespaceRemoved | NamespaceSwept | PoliciesPut
"""What happens to tenants and namespaces, and to their policies."""

InventoryEvent: TypeAlias = (
    TenantPut | NamespacePut | TenantRemoved | NamespaceRemoved | NamespaceSwept | TopicsCreated | NameChanged
    | NamesChanged | TopicPlaced | AliasChanged | NamespaceDropped | NamesRemoved | PoliciesPut | TopicPoliciesPut
    | Renamed | ChangesFenced
)  # fmt: skip


class PendingChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of several shards that is under way, as it lies beside the name that it begins at.

    `kind` is `move`, `delete`, `alias` or `unalias`, and `arrive` at the name that a move leads to; `key` is the topic;
    `namespace` and `name` are where a move leads, or has begun.
    """

    kind: str
    shard: int
    sequence: int
    namespace: int = 0
    name: bytes = b""
    keep_alias: bool = False

    @property
    def key(self) -> TopicKey:
        """The topic that is changed."""
        return TopicKey(self.shard, self.sequence)


_PENDING: Final = msgspec.msgpack.Decoder(PendingChange)
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(InventoryEvent)


def encode_event(event: InventoryEvent) -> bytes:
    """The value of the record."""
    return _ENCODER.encode(event)


def decode_event(record: DecodedRecord) -> InventoryEvent:
    """What a record says. Raises BatchCorrupt."""
    try:
        event: InventoryEvent = _DECODER.decode(record.value or b"")
    except msgspec.MsgspecError as error:
        raise BatchCorrupt(f"the record at offset {record.offset} is no event of the inventory: {error}") from None
    return event


def encode_pending(change: PendingChange) -> bytes:
    """A change that is under way as a row's value."""
    return _ENCODER.encode(change)


def decode_pending(value: bytes) -> PendingChange:
    """The change that a row's value is."""
    return _PENDING.decode(value)
