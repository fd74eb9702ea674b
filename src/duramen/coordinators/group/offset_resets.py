"""Resets the offsets of a group without members. They are stored like a commit by a client outside the group."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import DuramenError, GroupNotEmpty, GroupNotFound, StreamNotFound
from duramen.base.ports import Clock
from duramen.base.positions import At, Last, Position, Since
from duramen.broker.list_offsets import BoundsOf, ListOffsetsPartition, PartitionBounds
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams, Stream
from duramen.coordinators.group.coordinator import CommitMember, Coordinator
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.groups.values import GroupState

__all__ = ["OffsetReset", "PlannedOffsets", "Resets"]

_STRANGER: Final = CommitMember("", None, -1)


class OffsetReset(NamedTuple):
    """Where a group is to go on. `streams` None: those it has committed offsets of; `partition` None: all of them."""

    group_id: str
    to: Position
    streams: Sequence[str] | None = None
    partition: int | None = None
    dry_run: bool = False


class PlannedOffsets(NamedTuple):
    """A partition, the offset that the group had committed of it (None: none), and the one it has now."""

    stream: str
    partition: int
    before: int | None
    after: int


Done = Callable[[list[PlannedOffsets] | DuramenError], None]


class Resets:
    """Carries out resets."""

    def __init__(
        self,
        streams: BrokerStreams,
        groups: Coordinator,
        clock: Clock,
        ensure_offsets: Callable[[Callable[[DuramenError | None], None]], None],
        bounds: BoundsOf,
    ) -> None:
        self._bounds = bounds
        self._streams = streams
        self._groups = groups
        self._clock = clock
        self._ensure = ensure_offsets

    def reset(self, wish: OffsetReset, done: Done) -> None:
        """Move the group; `done` with every partition's move once they are durable, with `dry_run` before that.

        An offset outside a log becomes its start or its end, as Kafka's tool has it; a time is looked up as ListOffsets
        does. Or `done` with GroupNotFound (unless streams are named: then the group is made), GroupNotEmpty,
        StreamNotFound, or what else kept it from being done; nothing is changed then.
        """
        try:
            self._check_empty(wish)
            targets = self._targets(wish)
        except DuramenError as error:
            done(error)
            return
        since_ms = max(0, wish.to.timestamp_ms) if isinstance(wish.to, Since) else -1
        last = wish.to.count if isinstance(wish.to, Last) else -1
        wanted = [
            ListOffsetsPartition(partition.place.stream_id.bytes, partition.index, since_ms, last=last)
            for _, partition in targets
        ]
        self._bounds.find(wanted, partial(self._resolved, wish, targets, done))

    def _check_empty(self, wish: OffsetReset) -> None:
        try:
            described = self._groups.describe(wish.group_id)
        except GroupNotFound:
            if wish.streams is None:
                raise
            return
        members = len(described.snapshot.members)
        if members or described.state is not GroupState.EMPTY:
            raise GroupNotEmpty(f"group {wish.group_id} has {members} members: stop them first")

    def _targets(self, wish: OffsetReset) -> list[tuple[str, Partition]]:
        """The names of topics, live ones too, with their partitions. Raises StreamNotFound."""
        if wish.streams is not None:
            named = [self._readable(name) for name in dict.fromkeys(wish.streams)]
        else:
            known = dict.fromkeys(key.topic for key, _ in self._groups.all_committed(wish.group_id))
            named = [stream for name in known if (stream := self._streams.readable(name)) is not None]
        if wish.partition is None:
            return [(stream.name, partition) for stream in named for partition in stream.partitions]
        index = wish.partition
        found = [(stream.name, stream.partitions[index]) for stream in named if 0 <= index < len(stream.partitions)]
        if not found or (wish.streams is not None and len(found) < len(named)):
            which = ", ".join(stream.name for stream in named) or f"what group {wish.group_id} reads"
            raise StreamNotFound(f"there is no partition {index} in {which}")
        return found

    def _readable(self, name: str) -> Stream:
        return self._streams.readable(name) or self._streams.get(name)

    def _resolved(
        self,
        wish: OffsetReset,
        targets: list[tuple[str, Partition]],
        done: Done,
        found: list[PartitionBounds | DuramenError],
    ) -> None:
        moves = []
        for (name, partition), bounds in zip(targets, found, strict=True):
            if isinstance(bounds, DuramenError):
                done(bounds)
                return
            after = _resolve(wish.to, bounds)
            key = OffsetKey(wish.group_id, name, partition.index)
            committed = self._groups.committed(key)
            moves.append(
                PlannedOffsets(key.topic, key.partition, None if committed is None else committed.offset, after)
            )
        if wish.dry_run or not moves:
            done(moves)
        else:
            self._ensure(lambda error: done(error) if error is not None else self._commit(wish, moves, done))

    def _commit(self, wish: OffsetReset, moves: list[PlannedOffsets], done: Done) -> None:
        try:
            self._check_empty(wish)  # somebody may have joined meanwhile
        except DuramenError as error:
            done(error)
            return
        now_ms = self._clock.wall_ms()
        offsets = [
            (OffsetKey(wish.group_id, move.stream, move.partition), CommittedOffset(move.after, -1, "", now_ms))
            for move in moves
        ]

        def committed(results: list[DuramenError | None] | DuramenError) -> None:
            errors = [results] if isinstance(results, DuramenError) else results
            error = next((error for error in errors if error is not None), None)
            done(moves if error is None else error)

        self._groups.commit(wish.group_id, _STRANGER, offsets, committed)


def _resolve(to: Position, bounds: PartitionBounds) -> int:
    start, end = bounds.start_offset, bounds.end_offset
    match to:
        case At(offset):
            return max(start, min(offset, end))
        case Last(count):
            return max(start, end - count if bounds.since_offset < 0 else bounds.since_offset)
        case Since():
            return end if bounds.since_offset < 0 else max(bounds.since_offset, start)
        case "start":
            return start
        case _:
            return end
