"""Exports as JSON."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from duramen.doors.queues.types import MissingShard

__all__ = [
    "DirectoryInfo", "ExportInfo", "ExportQuery", "ExportShard", "ExportedNamespace", "ExportedTenant", "RunsQuery",
    "TopicsExportQuery",
]  # fmt: skip

_LARGEST_PAGE_BYTES: Final = 16 << 20
_Shard = Annotated[int, Meta(ge=0, description="The shard, from 0 on")]
_Bytes = Annotated[int, Meta(ge=1, le=_LARGEST_PAGE_BYTES, description="The approximate size of a page")]
_LAST_SEQUENCE: Final = (1 << 40) - 1


class ExportShard(msgspec.Struct):
    """The part of an export that belongs to one shard.

    `export` is that of the node that has the shard. Of the inventory `sequences` is the sequence after those of all
    topics of the shard with durability=sync. `os_sequences` are the first sequence of topics with durability=os, and
    the one after the last. The ids of all topics begin with `ids`.
    """

    shard: int
    position: str
    sequences: int | msgspec.UnsetType = msgspec.UNSET
    ids: str | msgspec.UnsetType = msgspec.UNSET
    export: str | msgspec.UnsetType = msgspec.UNSET
    os_sequences: tuple[int, int] | msgspec.UnsetType = msgspec.UNSET


class ExportQuery(msgspec.Struct):
    """What is exported."""

    partial: Annotated[
        bool, Meta(description="Whether to leave out shards that are lost or have no leader; `missing_shards` has them")
    ] = False


class ExportInfo(msgspec.Struct):
    """An export of the state at `taken_at_ms`. It expires `lasts_ms` after its last read.

    It has no rows of `missing_shards`; without `partial` there are none.
    """

    export: str
    taken_at_ms: int
    lasts_ms: int
    shards: list[ExportShard]
    missing_shards: list[MissingShard]


class RunsQuery(msgspec.Struct):
    """A range of a shard to read: queues by the hashes of their names, in hexadecimal digits."""

    shard: _Shard
    first: Annotated[str, Meta(description="The first hash, or a prefix of it")] = ""
    end: Annotated[str, Meta(description="The hash after the last one; empty: no end")] = ""
    after: Annotated[str, Meta(description="The place at which the previous page said that the next one begins")] = ""
    max_bytes: _Bytes = 4 << 20


class TopicsExportQuery(msgspec.Struct):
    """A range of a shard to read: topics by the sequences of their creation."""

    shard: _Shard
    first: Annotated[int, Meta(ge=0, le=_LAST_SEQUENCE, description="The first sequence")] = 0
    end: Annotated[int, Meta(ge=0, le=_LAST_SEQUENCE, description="The sequence after the last one")] = _LAST_SEQUENCE
    max_bytes: _Bytes = 4 << 20
    names: Annotated[bool, Meta(description="Whether the topics' names are wanted")] = True
    policies: Annotated[bool, Meta(description="Whether the topics' own policies are wanted")] = False


class ExportedTenant(msgspec.Struct):
    """A tenant; `policies` are set on it or on its account."""

    id: int
    name: str
    account: str
    created_at_ms: int
    labels: dict[str, str]
    policies: dict[str, str]


class ExportedNamespace(msgspec.Struct):
    """A namespace of the tenant with the id `tenant`; `policies` are set on it, its tenant or its account."""

    id: int
    tenant: int
    name: str
    created_at_ms: int
    labels: dict[str, str]
    policies: dict[str, str]


class DirectoryInfo(msgspec.Struct):
    """All tenants and namespaces of an export."""

    tenants: list[ExportedTenant]
    namespaces: list[ExportedNamespace]
