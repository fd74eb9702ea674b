"""Consumer groups as types of the HTTP API: checked on input, JSON on output."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = [
    "AssignedPartition",
    "GroupInfo",
    "GroupList",
    "GroupOffset",
    "GroupSummary",
    "GroupsQuery",
    "MemberInfo",
    "OffsetMove",
    "OffsetMoves",
    "OffsetsRequest",
]


class GroupsQuery(msgspec.Struct):
    """Selects the groups of a listing."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="The most groups in one response")] = 1000
    after: Annotated[str, Meta(description="Continue after this id: `next` of the previous response")] = ""


class GroupSummary(msgspec.Struct):
    """A group in the list: its number of members and its lag over all partitions.

    `lag_records` is null if the leader of a partition did not answer, or if a share group has read nothing yet.
    """

    id: str
    state: str
    protocol_type: str
    protocol: str | None
    members: int
    lag_records: int | None
    kind: Annotated[str, Meta(description="classic, consumer or share")]


class GroupList(msgspec.Struct):
    """Groups by id. `next` is `after` of the next page; null: this is the last page.

    On a cluster every live node is asked. The list lacks groups of `silent_nodes`, which did not answer, and of
    `leaderless_partitions` of `__consumer_offsets`.
    """

    groups: list[GroupSummary]
    next: str | None
    silent_nodes: list[int]
    leaderless_partitions: list[int]


class AssignedPartition(msgspec.Struct):
    """A partition that a member reads."""

    stream: str
    partition: int


class MemberInfo(msgspec.Struct):
    """A member of a group, with its assigned partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[AssignedPartition]


class GroupOffset(msgspec.Struct):
    """The committed offset of a group in a partition, and its lag.

    `start_offset` and `end_offset` are those of the partition. `lag_seconds` is the age of the first record after the
    committed offset: 0 if there is none, null if it is unknown. If the partition's leader did not answer, every field
    but the committed offset is null.

    A share group commits no offset: `start_offset` is the first record that it is not done with. It is null before the
    group's first read. `lag_records` is the number of records that it is not done with.
    """

    stream: str
    partition: int
    committed_offset: int | None
    start_offset: int | None
    end_offset: int | None
    lag_records: int | None
    lag_seconds: float | None


class GroupInfo(msgspec.Struct):
    """A group: its members and committed offsets."""

    id: str
    state: str
    protocol_type: str
    protocol: str | None
    generation: int
    members: list[MemberInfo]
    offsets: list[GroupOffset]
    kind: Annotated[str, Meta(description="classic, consumer or share")]


class OffsetsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """New offsets of a group. `to` is start, end, N, -N or @TIME, in each partition.

    `streams` defaults to those in which the group has committed offsets, `partition` to all partitions. With `dry_run`
    nothing changes.
    """

    to: str
    streams: Annotated[list[str], Meta(min_length=1)] | None = None
    partition: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)] | None = None
    dry_run: bool = False


class OffsetMove(msgspec.Struct):
    """A partition, and the committed offset of the group before (null: none) and after the request."""

    stream: str
    partition: int
    before: int | None
    after: int


class OffsetMoves(msgspec.Struct):
    """The partitions of a request."""

    offsets: list[OffsetMove]
