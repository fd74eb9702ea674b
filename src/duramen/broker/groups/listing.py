"""The groups of all nodes, page by page: each lists those that it coordinates, and whoever is asked asks the others.

What nodes say begins with a byte that no other request or answer begins with; MessagePack follows.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from duramen.base.deadlines import Deadlines
from duramen.base.errors import CoordinatorLoading, DuramenError, GroupNotFound, NotCoordinator, RequestInvalid
from duramen.base.ports import Buffer, Clock
from duramen.broker.bounds import Bounds, BoundsOf, Wanted
from duramen.broker.groups.coordinator import Coordinator
from duramen.broker.groups.lag import lag_of
from duramen.broker.groups.lag_values import lag_between
from duramen.broker.groups.offsets import OFFSETS_STREAM
from duramen.broker.standing import Standing
from duramen.broker.streams import Streams
from duramen.controller.partitions import PartitionId
from duramen.storage.store import Store

__all__ = ["GroupRow", "Listed", "Listing", "is_about_groups"]

_MARK: Final = b"\0"  # a number to MessagePack, where others have arrays
_AT_ONCE: Final = 200  # offsets that are looked at before others get their turn: a few milliseconds
_MOST_ROWS: Final = 10_001
_ANSWER_MS: Final = 3_000


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    """A group in a list: how many members it has, and how many records it has not committed past in all, if known."""

    id: str
    state: str
    protocol_type: str
    protocol: str | None
    members: int
    lag_records: int | None
    kind: str


class _Wish(msgspec.Struct, frozen=True, array_like=True):
    after: str
    limit: int


class Listed(NamedTuple):
    """Groups by id; those are missing of nodes that did not answer, and of partitions without a leader.

    The `leaderless` partitions are of `__consumer_offsets`.
    """

    rows: Sequence[GroupRow]
    silent: Sequence[int]
    leaderless: Sequence[int] = ()


_encoder: Final = msgspec.msgpack.Encoder()
_wishes: Final = msgspec.msgpack.Decoder(_Wish)
_rows: Final = msgspec.msgpack.Decoder(list[GroupRow])

RowsDone = Callable[[Sequence[GroupRow]], None]


def is_about_groups(body: Buffer) -> bool:
    """Whether a request of another node is for `Listing.asked`."""
    return bytes(body[:1]) == _MARK


class Listing:
    """Lists groups."""

    def __init__(
        self, node_id: int, standing: Standing, groups: Coordinator, streams: Streams, store: Store, clock: Clock,
        deadlines: Deadlines, bounds: BoundsOf,
    ) -> None:  # fmt: skip
        self._bounds = bounds
        self._node_id = node_id
        self._standing = standing
        self._groups = groups
        self._streams = streams
        self._store = store
        self._clock = clock
        self._deadlines = deadlines

    def everywhere(self, after: str, limit: int, done: Callable[[Listed], None]) -> None:
        """The first `limit` groups of all nodes whose ids come behind `after`. Who does not answer in time is named."""
        others = [node.id for node in self._standing.nodes if node.id != self._node_id and node.holds_partitions]
        leaderless = self._leaderless()
        gathering = _Gathering(others, limit, lambda listed: done(listed._replace(leaderless=leaderless)))
        deadline = self._deadlines.at(self._clock.monotonic_ms() + _ANSWER_MS, gathering.end)
        gathering.over = deadline.cancel
        body = _MARK + _encoder.encode(_Wish(after, limit))
        for node_id in others:
            if not self._standing.ask_node(node_id, body, partial(_answered, gathering, node_id)):
                gathering.put(node_id, None)
        self._here(after, limit, partial(gathering.put, self._node_id))

    def asked(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """Another node asks for the groups that are coordinated here. Raises RequestInvalid."""
        try:
            wish = _wishes.decode(body[len(_MARK) :])
        except (msgspec.MsgspecError, ValueError) as error:
            raise RequestInvalid(f"a request for groups cannot be read: {error}") from None
        limit = min(max(wish.limit, 0), _MOST_ROWS)
        self._here(wish.after, limit, lambda rows: answer(_encoder.encode(rows)))

    def _leaderless(self) -> list[int]:
        stream = self._streams.find(OFFSETS_STREAM)
        if stream is None:
            return []
        places = (PartitionId(stream.id, index) for index in range(len(stream.partitions)))
        return [place.partition for place in places if self._standing.partition(place).leader is None]

    def _here(self, after: str, limit: int, done: RowsDone) -> None:
        ids = heapq.nsmallest(limit, (group.group_id for group in self._groups.listing() if group.group_id > after))
        rows: list[GroupRow] = []
        lags: list[_Committed] = []
        steps = self._describe(ids, rows, lags)

        def go_on() -> None:
            if next(steps, rows) is rows:
                self._bounds.find([lag.wanted for lag in lags], lambda found: done(_with_lags(rows, lags, found)))
            else:
                self._store.soon(go_on)

        go_on()

    def _describe(self, ids: Sequence[str], rows: list[GroupRow], elsewhere: "list[_Committed]") -> Iterator[None]:
        """Add a row for each group that is still here, with its lag in partitions that this node leads.

        What it has committed in others is put to `elsewhere`. Others get their turn at every step.
        """
        looked = 0
        for group_id in ids:
            try:
                described = self._groups.describe(group_id)
            except (GroupNotFound, CoordinatorLoading, NotCoordinator):
                continue  # deleted meanwhile, or coordinated elsewhere
            snapshot, lag_records = described.snapshot, 0
            for key, committed in self._groups.all_committed(group_id):
                looked += 1
                if looked % _AT_ONCE == 0:
                    yield
                stream = self._streams.find(key.topic)
                if stream is None or not 0 <= key.partition < len(stream.partitions):
                    continue
                if stream.partitions[key.partition].leads:
                    lag_records += lag_of(stream.partitions[key.partition].log, committed.offset).records
                else:
                    wanted = Wanted(stream.id.bytes, key.partition)
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
    """What the group of a row has committed in a partition that another node leads."""

    row: int
    offset: int
    wanted: Wanted


def _with_lags(
    rows: list[GroupRow], committed: Sequence[_Committed], found: Sequence[Bounds | DuramenError]
) -> list[GroupRow]:
    """The rows with what their groups lack elsewhere; where that is not known, neither is the group's lag."""
    for one, bounds in zip(committed, found, strict=True):
        lag = rows[one.row].lag_records
        if isinstance(bounds, DuramenError):
            lag = None
        elif lag is not None:
            lag += lag_between(bounds.start_offset, bounds.end_offset, one.offset).records
        rows[one.row] = msgspec.structs.replace(rows[one.row], lag_records=lag)
    return rows


class _Gathering:
    """What nodes have answered so far; `done` is called once, when all have, or when it is too late."""

    def __init__(self, others: Sequence[int], limit: int, done: Callable[[Listed], None]) -> None:
        self._waiting = {*others}
        self._has_own = False
        self._rows: dict[str, GroupRow] = {}
        self._silent: list[int] = []
        self._limit = limit
        self._done: Callable[[Listed], None] | None = done
        self.over: Callable[[], None] = lambda: None

    def put(self, node_id: int, rows: Sequence[GroupRow] | None) -> None:
        """What a node has; None: nothing was heard of it."""
        if node_id not in self._waiting:
            self._has_own = True
        elif rows is None:
            self._silent.append(node_id)
        self._waiting.discard(node_id)
        for row in rows or ():
            self._rows[row.id] = row
        if self._has_own and not self._waiting:
            self.end()

    def end(self) -> None:
        """Answer with what there is."""
        done, self._done = self._done, None
        if done is not None:
            self.over()
            rows = heapq.nsmallest(self._limit, self._rows.values(), key=lambda row: row.id)
            done(Listed(rows, sorted({*self._silent, *self._waiting})))


def _answered(gathering: _Gathering, node_id: int, body: Buffer | None) -> None:
    try:
        gathering.put(node_id, _rows.decode(body) if body else None)
    except (msgspec.MsgspecError, ValueError):
        gathering.put(node_id, None)
