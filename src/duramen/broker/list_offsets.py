"""ListOffsets for partitions with any leader: a node answers for those that it leads, and asks other leaders.

The time of a record is taken from its batch: that of the first record, or the append time if the broker sets
timestamps.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from duramen.base.errors import DuramenError, LogDamaged, NotLeader, RequestTimedOut, StorageFailed
from duramen.broker.membership import NodeMembership
from duramen.broker.partition import LATEST, Partition
from duramen.broker.streams import BrokerStreams
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller, Gathered
from duramen.rpc.errors import Refused
from duramen.rpc.methods import Method
from duramen.rpc.server import Done as Answered
from duramen.storage.log.log import Log
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

__all__ = [
    "FIND_BOUNDS",
    "BoundsOf",
    "FindBounds",
    "FoundBounds",
    "ListOffsetsPartition",
    "PartitionBounds",
    "TimeFound",
    "find_time",
]

_NONE: Final = -1
_AT_ONCE: Final = 20  # partitions looked at before others get their turn: half a millisecond


class ListOffsetsPartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition whose bounds are requested, and further lookups; -1: not requested.

    The first offset at or after `since_ms`, the start of the last `last` records, or the time of the first record at or
    after `offset`; `roughly`: as far as known without the disk, which may be too early.
    """

    stream_id: bytes
    partition: int
    since_ms: int = _NONE
    offset: int = _NONE
    roughly: bool = False
    last: int = _NONE


class PartitionBounds(msgspec.Struct, frozen=True, array_like=True):
    """A partition's start and its high watermark; `since_offset` is the start of the requested records.

    -1: no record is that young, or the node's version does not count records.

    `timestamp_ms` is that of the record at the requested offset; -1: there is none yet, or it has no time.
    """

    start_offset: int
    end_offset: int
    since_offset: int = _NONE
    timestamp_ms: int = _NONE


class FindBounds(msgspec.Struct, frozen=True, array_like=True):
    """Asks the leader of partitions for their bounds."""

    wanted: list[ListOffsetsPartition]


class FoundBounds(msgspec.Struct, frozen=True, array_like=True):
    """The bounds of each partition, or the error."""

    partitions: list[tuple[PartitionBounds | None, Refused | None]]


FIND_BOUNDS: Final = Method("find-bounds", FindBounds, FoundBounds, idempotent=True)

TimeFound = Callable[[int | None], None]
"""Called with a timestamp in ms since 1970; None where it is not known."""

Found = PartitionBounds | DuramenError
Done = Callable[[list[Found]], None]


def find_time(store: Store, log: Log, offset: int, done: TimeFound) -> None:
    """The timestamp of the batch that contains the record at `offset`, which is below the high watermark.

    It is exact, and may wait for the disk.
    """

    def go_on(error: BaseException | None) -> None:
        try:
            plan = log.plan_header(offset) if error is None else None
        except LogDamaged:
            plan = None
        if isinstance(plan, Blocked):
            store.unblock(plan, go_on)
        else:
            done(plan.first_timestamp if plan is not None and plan.first_timestamp >= 0 else None)

    go_on(None)


class BoundsOf:
    """Finds the bounds of partitions."""

    def __init__(self, membership: NodeMembership, streams: BrokerStreams, store: Store, caller: Caller) -> None:
        self._membership = membership
        self._streams = streams
        self._store = store
        self._caller = caller
        caller.server.handle(FIND_BOUNDS, self._serve)

    def find(self, wanted: Sequence[ListOffsetsPartition], done: Done) -> None:
        """The bounds of each partition, in order, or the error; `done` may be called at once.

        RequestTimedOut if a leader does not respond, NotLeader if there is none.
        """
        found: list[Found] = [NotLeader(f"partition {one.partition} has no leader at present: retry") for one in wanted]
        by_leader: dict[int, list[int]] = {}
        for at, request in enumerate(wanted):
            leader = self._membership.partition(PartitionId(UUID(bytes=request.stream_id), request.partition)).leader
            if leader is not None:
                by_leader.setdefault(leader, []).append(at)

        def gathered(result: Gathered[FoundBounds]) -> None:
            for leader, places in by_leader.items():
                answer = result.answers.get(leader) or result.missing[leader]
                for at, one in zip(places, _bounds(leader, answer, len(places)), strict=True):
                    found[at] = one
            done(found)

        requests = {leader: FindBounds([wanted[at] for at in places]) for leader, places in by_leader.items()}
        self._caller.gather(FIND_BOUNDS, requests, gathered)

    # -- here ---------------------------------------------------------------------------------------

    def _serve(self, request: FindBounds, done: Answered[FoundBounds]) -> None:
        """Tell of partitions that this node leads."""
        _Looking(self._store, self._look, request.wanted, done).step(0)

    def _look(self, request: ListOffsetsPartition, put: Callable[[Found], None]) -> None:
        stream = self._streams.find_id(UUID(bytes=request.stream_id)) if len(request.stream_id) == 16 else None
        if stream is None or not 0 <= request.partition < len(stream.partitions):
            put(NotLeader(f"partition {request.partition} is not there"))
            return
        partition = stream.partitions[request.partition]
        try:
            partition.check_leads()
        except DuramenError as error:
            put(error)
            return
        partition.find_offset(LATEST, partial(self._ended, request, partition, put))

    def _ended(
        self, request: ListOffsetsPartition, partition: Partition, put: Callable[[Found], None], end_offset: int,
        _: int, error: DuramenError | OSError | None,
    ) -> None:  # fmt: skip
        bounds = PartitionBounds(partition.log.start_offset, end_offset)
        if error is not None:
            put(_as_ours(error))
        elif request.since_ms >= 0:
            partition.find_offset(request.since_ms, partial(_since, bounds, put))
        elif request.last >= 0:
            partition.find_last(request.last, partial(_since, bounds, put))
        elif 0 <= request.offset < end_offset:
            offset = max(request.offset, bounds.start_offset)
            if request.roughly:
                _timed(bounds, put, partition.log.time_before(offset))
            else:
                find_time(self._store, partition.log, offset, partial(_timed, bounds, put))
        else:
            put(bounds)


def _since(
    bounds: PartitionBounds, put: Callable[[Found], None], offset: int, _: int, error: DuramenError | OSError | None
) -> None:
    found = msgspec.structs.replace(bounds, since_offset=offset)
    put(found if error is None else _as_ours(error))


def _timed(bounds: PartitionBounds, put: Callable[[Found], None], timestamp_ms: int | None) -> None:
    put(msgspec.structs.replace(bounds, timestamp_ms=_NONE if timestamp_ms is None else timestamp_ms))


def _as_ours(error: DuramenError | OSError) -> DuramenError:
    return error if isinstance(error, DuramenError) else StorageFailed(f"reading failed: {error}")


def _bounds(leader: int, answer: FoundBounds | DuramenError, count: int) -> list[Found]:
    """A leader's response for each partition."""
    if isinstance(answer, DuramenError):
        silent = f"node {leader}, the leader of the partition, does not respond: {answer}"
        return [RequestTimedOut(silent) for _ in range(count)]
    if len(answer.partitions) != count:
        short = f"node {leader} has answered for {len(answer.partitions)} partitions, and was asked for {count}"
        return [RequestTimedOut(short) for _ in range(count)]
    return [_not_there(leader, refused) if bounds is None else bounds for bounds, refused in answer.partitions]


def _not_there(leader: int, refused: Refused | None) -> DuramenError:
    return NotLeader(f"node {leader} says: {'nothing' if refused is None else refused.message}")


class _Looking:
    """Looks up partitions of this node, a few at a time; `done` gets all results once."""

    def __init__(
        self, store: Store, look: Callable[[ListOffsetsPartition, Callable[[Found], None]], None],
        wanted: Sequence[ListOffsetsPartition],
        done: Answered[FoundBounds],
    ) -> None:  # fmt: skip
        self._store = store
        self._look = look
        self._wanted = wanted
        self._found: list[tuple[PartitionBounds | None, Refused | None]] = [(None, None)] * len(wanted)
        self._left = len(wanted) + 1
        self._done = done

    def step(self, begin: int) -> None:
        """Look up those from `begin` on."""
        end = begin + _AT_ONCE
        for at, request in enumerate(self._wanted[begin:end], begin):
            self._look(request, partial(self._put, at))
        if end < len(self._wanted):
            self._store.soon(partial(self.step, end))
        else:
            self._over()

    def _put(self, at: int, found: Found) -> None:
        self._found[at] = (None, Refused.of(found)) if isinstance(found, DuramenError) else (found, None)
        self._over()

    def _over(self) -> None:
        self._left -= 1
        if not self._left:
            self._done(FoundBounds(self._found))
