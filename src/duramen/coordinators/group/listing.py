"""The groups of all nodes, page by page: the node that receives the request asks every node for its groups."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import CoordinatorLoading, DuramenError, GroupNotFound, NotCoordinator
from duramen.broker.list_offsets import BoundsOf, ListOffsetsPartition, PartitionBounds
from duramen.broker.membership import NodeMembership
from duramen.broker.streams import BrokerStreams
from duramen.coordinators.group.coordinator import Coordinator
from duramen.coordinators.group.kinds import GroupKind
from duramen.coordinators.group.lag import lag_of
from duramen.coordinators.group.lag_values import lag_between
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.group.topics import MOST_COUNTED, LightFound
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller, Gathered
from duramen.rpc.methods import Method
from duramen.rpc.server import Done as Answered
from duramen.storage.store import Store

__all__ = ["LIST_GROUPS", "GroupRow", "GroupRows", "ListGroups", "ListedGroups", "Listing"]

_AT_ONCE: Final = 200  # offsets per step: a few milliseconds
_MOST_ROWS: Final = 10_001


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    """A group in a list: its number of members, and its total lag in records, if known."""

    id: str
    state: str
    protocol_type: str
    protocol: str | None
    members: int
    lag_records: int | None
    kind: str


class ListGroups(msgspec.Struct, frozen=True, array_like=True):
    """Request the first `limit` groups that a node coordinates, with ids after `after`."""

    after: str
    limit: int


class GroupRows(msgspec.Struct, frozen=True, array_like=True):
    """The groups that a node coordinates."""

    rows: list[GroupRow]


LIST_GROUPS: Final = Method("list-groups", ListGroups, GroupRows, idempotent=True)


class ListedGroups(NamedTuple):
    """Groups by id, without those of nodes that did not respond (`silent`) and of partitions without a leader.

    The `leaderless` partitions are of `__consumer_offsets`.
    """

    rows: Sequence[GroupRow]
    silent: Sequence[int]
    leaderless: Sequence[int] = ()


SharedLags = Callable[[Sequence[str], Callable[[Sequence[int | None]], None]], None]
"""Called with the share groups of this node; the callback gets the lag of each in records, None where it is unknown."""

RowsDone = Callable[[list[GroupRow]], None]


class Listing:
    """Lists groups."""

    def __init__(
        self, membership: NodeMembership, groups: Coordinator, streams: BrokerStreams, store: Store, caller: Caller,
        bounds: BoundsOf,
    ) -> None:  # fmt: skip
        self.find_shared: SharedLags = lambda groups, done: done([None] * len(groups))
        self._bounds = bounds
        self._membership = membership
        self._groups = groups
        self._streams = streams
        self._store = store
        self._caller = caller
        caller.server.handle(LIST_GROUPS, self._serve)

    def everywhere(self, after: str, limit: int, done: Callable[[ListedGroups], None]) -> None:
        """The first `limit` groups of all nodes with ids after `after`. Nodes that do not respond in time are named."""
        nodes = {node.id for node in self._membership.nodes if node.holds_partitions} | {self._caller.node_id}
        leaderless = self._leaderless()

        def gathered(result: Gathered[GroupRows]) -> None:
            found = {row.id: row for answer in result.answers.values() for row in answer.rows}
            rows = heapq.nsmallest(limit, found.values(), key=lambda row: row.id)
            done(ListedGroups(rows, sorted(result.missing), leaderless))

        self._caller.gather(LIST_GROUPS, dict.fromkeys(sorted(nodes), ListGroups(after, limit)), gathered)

    def _serve(self, request: ListGroups, done: Answered[GroupRows]) -> None:
        """List the groups that this node coordinates."""
        limit = min(max(request.limit, 0), _MOST_ROWS)
        self._here(request.after, limit, lambda rows: done(GroupRows(rows)))

    def _leaderless(self) -> list[int]:
        stream = self._streams.find(OFFSETS_STREAM)
        if stream is None:
            return []
        places = (PartitionId(stream.id, index) for index in range(len(stream.partitions)))
        return [place.partition for place in places if self._membership.partition(place).leader is None]

    def _here(self, after: str, limit: int, done: RowsDone) -> None:
        ids = heapq.nsmallest(limit, (group.group_id for group in self._groups.listing() if group.group_id > after))
        rows: list[GroupRow] = []
        lags: list[_Committed] = []
        light: list[_CommittedLight] = []
        steps = self._describe(ids, rows, lags, light)

        def found(bounds: list[PartitionBounds | DuramenError]) -> None:
            _add_lags(rows, lags, bounds)
            if not light:
                self._add_shared(rows, done)
                return
            wanted = [(one.stored, one.offset) for one in light]
            self._groups.topics.find_behind(
                wanted, lambda there: self._add_shared(_with_light(rows, light, there), done)
            )  # fmt: skip

        def go_on() -> None:
            if next(steps, rows) is rows:
                self._bounds.find([lag.wanted for lag in lags], found)
            else:
                self._store.soon(go_on)

        go_on()

    def _add_shared(self, rows: list[GroupRow], done: RowsDone) -> None:
        """Continue with the lag of share groups, which commit no offsets."""
        shared = [at for at, row in enumerate(rows) if row.kind == GroupKind.SHARE]

        def found(lags: Sequence[int | None]) -> None:
            for at, lag in zip(shared, lags, strict=True):
                rows[at] = msgspec.structs.replace(rows[at], lag_records=lag)
            done(rows)

        self.find_shared([rows[at].id for at in shared], found)

    def _describe(
        self, ids: Sequence[str], rows: list[GroupRow], elsewhere: "list[_Committed]", light: "list[_CommittedLight]"
    ) -> Iterator[None]:  # fmt: skip
        """Add a row for each group that still exists here, with its lag in partitions that this node leads.

        Offsets in other partitions are added to `elsewhere` and `light`. Other work can run after every step.
        """
        looked = 0
        for group_id in ids:
            try:
                described = self._groups.describe(group_id)
            except (GroupNotFound, CoordinatorLoading, NotCoordinator):
                continue  # deleted meanwhile, or coordinated on another node
            snapshot, lag_records = described.snapshot, 0
            for key, committed in self._groups.all_committed(group_id):
                looked += 1
                if looked % _AT_ONCE == 0:
                    yield
                stream = self._streams.readable(key.topic)
                if stream is None:
                    behind = self._groups.topics.behind(key.topic, committed.offset, MOST_COUNTED)
                    if behind is None:
                        light.append(_CommittedLight(len(rows), key.topic, committed.offset))
                    else:
                        lag_records += behind.records
                        yield  # the row took a count of records
                    continue
                if not 0 <= key.partition < len(stream.partitions):
                    continue
                partition = stream.partitions[key.partition]
                if partition.leads:
                    lag_records += lag_of(partition.log, committed.offset).records
                else:
                    wanted = ListOffsetsPartition(partition.place.stream_id.bytes, key.partition)
                    elsewhere.append(_Committed(len(rows), committed.offset, wanted))
            rows.append(
                GroupRow(
                    group_id, described.state.value, snapshot.protocol_type, snapshot.protocol,
                    len(snapshot.members), lag_records, described.kind.value,
                )
            )  # fmt: skip
            looked += 1
            if looked % _AT_ONCE == 0:
                yield


class _Committed(NamedTuple):
    """A group's committed offset in a partition that another node leads."""

    row: int
    offset: int
    wanted: ListOffsetsPartition


class _CommittedLight(NamedTuple):
    """A group's committed offset in a light topic whose records another node may hold."""

    row: int
    stored: str
    offset: int


def _add_lags(
    rows: list[GroupRow], committed: Sequence[_Committed], found: Sequence[PartitionBounds | DuramenError]
) -> None:
    """Add the lag in partitions of other nodes; if one is unknown, the lag of its group is unknown."""
    for one, bounds in zip(committed, found, strict=True):
        lag = rows[one.row].lag_records
        if isinstance(bounds, DuramenError):
            lag = None
        elif lag is not None:
            lag += lag_between(bounds.start_offset, bounds.end_offset, one.offset).records
        rows[one.row] = msgspec.structs.replace(rows[one.row], lag_records=lag)


def _with_light(
    rows: list[GroupRow], committed: Sequence[_CommittedLight], found: Sequence[LightFound | None]
) -> list[GroupRow]:
    """The rows with the lag in light topics added; deleted topics do not count."""
    for one, there in zip(committed, found, strict=True):
        lag = rows[one.row].lag_records
        if there is not None and lag is not None:
            lag = None if there.lag is None else lag + there.lag.records
        rows[one.row] = msgspec.structs.replace(rows[one.row], lag_records=lag)
    return rows
