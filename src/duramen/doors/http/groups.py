"""Consumer groups: list, describe with lag, set offsets, delete."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from duramen.base import errors
from duramen.base.errors import DuramenError, RequestInvalid
from duramen.base.positions import parse_position
from duramen.broker.list_offsets import ListOffsetsPartition, PartitionBounds
from duramen.codec.kafka.membership import decode_assignment
from duramen.coordinators.group.coordinator import GroupDescription
from duramen.coordinators.group.kinds import GroupKind
from duramen.coordinators.group.lag_values import lag_between, seconds_since
from duramen.coordinators.group.listing import ListedGroups
from duramen.coordinators.group.offset_resets import OffsetReset, PlannedOffsets
from duramen.coordinators.group.topics import MOST_COUNTED, LightFound
from duramen.coordinators.share.shares import ShareOffset
from duramen.doors.completion import completion
from duramen.doors.http.completions import call_back
from duramen.doors.http.coordinator_requests import Work, coordinated
from duramen.doors.http.serving.routes import Call, HttpRoute, on_cluster, on_group, topics_named
from duramen.doors.http.types.groups import (
    AssignedPartition,
    GroupInfo,
    GroupList,
    GroupOffset,
    GroupsQuery,
    GroupSummary,
    MemberInfo,
    OffsetMove,
    OffsetMoves,
    OffsetsRequest,
)
from duramen.groups.records import OffsetKey
from duramen.groups.share_records import ShareKey
from duramen.groups.values import MemberSnapshot
from duramen.service.admission import Refuses
from duramen.service.authorize import Operation
from duramen.service.broker import Broker
from duramen.service.forwarded_requests import Manage

__all__ = ["ROUTES", "WORKS"]

Done = Callable[[DuramenError | None], None]

_AT_ONCE: Final = 200  # offsets that are looked at before others get their turn: a few milliseconds
_CONSUMERS: Final = "consumer"  # the protocol type whose assignments are lists of partitions


async def _list(call: Call, query: GroupsQuery) -> GroupList:
    listed: ListedGroups = await call_back(partial(call.broker.listing.everywhere, query.after, query.limit + 1))
    rows, silent, leaderless = listed
    page = rows[: query.limit]
    groups = [GroupSummary(*msgspec.structs.astuple(row)) for row in page]
    return GroupList(groups, page[-1].id if len(rows) > len(page) else None, [*silent], [*leaderless])


async def _committed(broker: Broker, group_id: str) -> list[GroupOffset]:
    """The committed offsets of a group in existing partitions, and its lag."""
    found = ((key, committed.offset) for key, committed in broker.groups.all_committed(group_id))
    return [offset for offset, _ in await _offsets(broker, found)]


async def _shared(broker: Broker, group_id: str) -> list[GroupOffset]:
    """The start offsets of a share group in partitions, and its lag: the records that it is not done with."""
    keys, nodes = broker.share_groups.keys(group_id), broker.share_nodes
    stored = {key.topic_id: nodes.topics.key_name(key.topic_id) for key in keys}
    await completion(partial(broker.groups.topics.when_known, [name for name in stored.values() if name]))
    located: Mapping[ShareKey, ShareOffset | DuramenError | None] = await call_back(partial(nodes.locate, keys))
    starts = {
        OffsetKey(group_id, name, key.partition): found if isinstance(found, ShareOffset) else None
        for key, found in located.items() if (name := stored[key.topic_id])
    }  # fmt: skip
    known = {key: start for key, start in starts.items() if start is not None and start.start_offset >= 0}
    bounds = await _offsets(broker, ((key, known[key].start_offset if key in known else 0) for key in starts))
    return sorted(
        (_share_offset(offset, known.get(key)) for offset, key in bounds), key=lambda one: (one.stream, one.partition)
    )


def _share_offset(bounds: GroupOffset, start: ShareOffset | None) -> GroupOffset:
    """Between the bounds of a partition; without a start nothing was read yet, or the leader did not answer."""
    lag = None if start is None else start.lag
    seconds = bounds.lag_seconds if lag else None if lag is None else 0.0
    return msgspec.structs.replace(
        bounds, committed_offset=None, start_offset=None if start is None else start.start_offset, lag_records=lag,
        lag_seconds=seconds,
    )  # fmt: skip


async def _offsets(broker: Broker, offsets: Iterable[tuple[OffsetKey, int]]) -> list[tuple[GroupOffset, OffsetKey]]:
    """Offsets of a group between the bounds of their partitions; those of partitions that do not exist are left out."""
    places, wanted = list[tuple[OffsetKey, int]](), list[ListOffsetsPartition]()
    light, elsewhere = list[tuple[GroupOffset, OffsetKey]](), list[tuple[OffsetKey, int]]()
    for at, (key, offset) in enumerate(offsets, 1):
        if at % _AT_ONCE == 0:
            await asyncio.sleep(0)
        stream = broker.streams.readable(key.topic)
        if stream is None:
            lag = broker.groups.topics.behind(key.topic, offset, MOST_COUNTED)
            if lag is None:
                elsewhere.append((key, offset))
            else:
                name = broker.groups.topics.shown(key.topic) or key.topic
                light.append((_light_offset(broker, key, offset, LightFound(name, lag)), key))
        elif 0 <= key.partition < len(stream.partitions):
            place = stream.partitions[key.partition].place
            places.append((key, offset))
            wanted.append(ListOffsetsPartition(place.stream_id.bytes, place.partition, offset=offset))
    bounds: list[PartitionBounds | DuramenError] = await call_back(partial(broker.bounds.find, wanted))
    found = zip(places, bounds, strict=True)
    here = [(_offset(key, offset, one, broker.now_ms()), key) for (key, offset), one in found]
    return here + light + await _light_elsewhere(broker, elsewhere)


async def _light_elsewhere(
    broker: Broker, committed: Sequence[tuple[OffsetKey, int]]
) -> list[tuple[GroupOffset, OffsetKey]]:  # fmt: skip
    """The offsets of a group in light topics whose records other nodes may have."""
    wanted = [(key.topic, offset) for key, offset in committed]
    there: Sequence[LightFound | None] = await call_back(partial(broker.groups.topics.find_behind, wanted))
    pairs = zip(committed, there, strict=True)
    return [(_light_offset(broker, key, offset, found), key) for (key, offset), found in pairs if found is not None]


def _light_offset(broker: Broker, key: OffsetKey, offset: int, found: LightFound) -> GroupOffset:
    """The offset of a group in a light topic, under the topic's present name."""
    lag = found.lag
    if lag is None:
        return GroupOffset(found.name, key.partition, offset, None, None, None, None)
    seconds = seconds_since(lag.first_ms, broker.now_ms()) if lag.records else 0.0
    return GroupOffset(found.name, key.partition, offset, lag.start, lag.end, lag.records, seconds)


def _offset(key: OffsetKey, committed_offset: int, bounds: PartitionBounds | DuramenError, now_ms: int) -> GroupOffset:
    if isinstance(bounds, DuramenError):
        return GroupOffset(key.topic, key.partition, committed_offset, None, None, None, None)
    start, end = bounds.start_offset, bounds.end_offset
    lag = lag_between(start, end, committed_offset)
    seconds: float | None = 0.0
    if lag.records:
        seconds = seconds_since(bounds.timestamp_ms, now_ms) if bounds.timestamp_ms >= 0 else None
    return GroupOffset(key.topic, key.partition, committed_offset, start, end, lag.records, seconds)


async def _show(call: Call) -> GroupInfo:
    answer = await coordinated(call, _describe, Manage("show", call.path["id"], b""))
    return msgspec.json.decode(answer, type=GroupInfo)


async def _describe(broker: Broker, group_id: str, _: bytes) -> GroupInfo:
    described = broker.groups.describe(group_id)
    offsets = await (_shared if described.kind is GroupKind.SHARE else _committed)(broker, group_id)
    snapshot = described.snapshot
    return GroupInfo(
        group_id,
        described.state.value,
        snapshot.protocol_type,
        snapshot.protocol,
        snapshot.generation,
        [_member(member, described) for member in snapshot.members],
        offsets,
        described.kind.value,
    )


def _member(member: MemberSnapshot, described: GroupDescription) -> MemberInfo:
    partitions: list[AssignedPartition] = []
    if described.snapshot.protocol_type == _CONSUMERS:
        try:
            assigned = decode_assignment(member.assignment)
        except RequestInvalid:
            assigned = {}  # the subscription and assignment of a member, in the format of its leader
        partitions = [AssignedPartition(name, index) for name, indexes in assigned.items() for index in indexes]
    host = member.client_host.removeprefix("/")
    return MemberInfo(member.member_id, member.instance_id, member.client_id, host, partitions)


def _moved(call: Call) -> Sequence[str]:
    """The streams in which a request sets offsets, if it names them."""
    streams: Sequence[str] | None = call.body.streams
    return streams or ()


async def _move(call: Call, body: OffsetsRequest) -> OffsetMoves:
    await completion(call.broker.internal_streams.ensure_offsets)  # it may be the first group
    answer = await coordinated(call, _reset, Manage("move", call.path["id"], msgspec.json.encode(body)))
    return msgspec.json.decode(answer, type=OffsetMoves)


async def _reset(broker: Broker, group_id: str, content: bytes) -> OffsetMoves:
    try:
        body = msgspec.json.decode(content, type=OffsetsRequest)
    except msgspec.MsgspecError as error:
        raise RequestInvalid(f"the request about a group cannot be decoded: {error}") from None
    try:
        position = parse_position(body.to, broker.now_ms())
    except ValueError as error:
        raise RequestInvalid(f"`to` does not fit: {error}") from None
    reset = OffsetReset(group_id, position, body.streams, body.partition, body.dry_run)
    moves: list[PlannedOffsets] = []

    def begin(done: Done) -> None:
        broker.resets.reset(reset, partial(_settle, moves, done))

    await completion(begin)
    return OffsetMoves([OffsetMove(*move) for move in moves])


def _settle(moves: list[PlannedOffsets], done: Done, result: list[PlannedOffsets] | DuramenError) -> None:
    if isinstance(result, DuramenError):
        done(result)
    else:
        moves += result
        done(None)


async def _delete(call: Call) -> None:
    await coordinated(call, _remove, Manage("delete", call.path["id"], b""))


async def _remove(broker: Broker, group_id: str, _: bytes) -> None:
    await completion(lambda done: broker.groups.delete(group_id, done))


WORKS: Final[Mapping[str, Work]] = {"show": _describe, "move": _reset, "delete": _remove}
"""An operation on a group, and its implementation on the coordinator."""


_ELSEWHERE: Final = (errors.CoordinatorLoading, errors.NotCoordinator, errors.NodeBusy, errors.NotLeader)
_WRITING: Final = (*_ELSEWHERE, errors.NodeStopping, errors.OutcomeUnknown, errors.StorageFull, errors.StorageFailed)

ROUTES = (
    HttpRoute("GET", "/v1/groups", _list, on_cluster(Operation.DESCRIBE), "Consumer groups by id, page by page"),
    HttpRoute(
        "POST", "/v1/groups/{id:any}/offsets", _move,
        on_group(Operation.READ, topics_named(Operation.READ, _moved, Refuses.REQUEST)),
        "Set the committed offsets of a group that has no members",
        (errors.GroupNotFound, errors.GroupNotEmpty, errors.StreamNotFound, errors.LogDamaged, *_WRITING), by_body=True,
    ),
    HttpRoute(
        "GET", "/v1/groups/{id:any}", _show, on_group(Operation.DESCRIBE),
        "One group: its members, committed offsets and lag",
        (errors.GroupNotFound, *_ELSEWHERE),
    ),
    HttpRoute(
        "DELETE", "/v1/groups/{id:any}", _delete, on_group(Operation.DELETE),
        "Delete a group that has no members, and its committed offsets",
        (errors.GroupNotFound, errors.GroupNotEmpty, *_WRITING), (204,),
    ),
)  # fmt: skip
