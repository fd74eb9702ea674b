"""Resets the offsets of a group without members. They are stored like a commit of a client without a group member.

Share groups commit no offsets: their start offsets are reset.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError, GroupNotEmpty, GroupNotFound, StreamNotFound
from duramen.base.ports import Clock
from duramen.base.positions import At, Last, Position, Since
from duramen.broker.list_offsets import BoundsOf, ListOffsetsPartition, PartitionBounds
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams, Stream
from duramen.coordinators.group.coordinator import CommitMember, Coordinator
from duramen.coordinators.group.kinds import GroupKind
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.groups.values import GroupState

__all__ = ["OffsetReset", "PlannedOffsets", "Resets", "StartOffsets"]

_STRANGER: Final = CommitMember("", None, -1)


class OffsetReset(NamedTuple):
    """The target of a reset. `streams` None: those with committed offsets; `partition` None: all partitions."""

    group_id: str
    to: Position
    streams: Sequence[str] | None = None
    partition: int | None = None
    dry_run: bool = False


class PlannedOffsets(NamedTuple):
    """A partition, its offset before the reset (None: none), and after it."""

    stream: str
    partition: int
    before: int | None
    after: int


class _Target(NamedTuple):
    """A partition of a topic, and the key name of its offsets; light topics have no log."""

    name: str
    stored: str
    number: int
    partition: Partition | None


class StartOffsets(Protocol):
    """The start offsets of share groups in partitions, by the key names of their topics."""

    def stored(self, group_id: str) -> list[str]:
        """The key names of the topics of a group."""

    def find(self, keys: Sequence[OffsetKey], done: Callable[[list[int | None] | DuramenError], None]) -> None:
        """Where a group starts in partitions; None: it has read nothing of one."""

    def store(
        self, group_id: str, starts: Sequence[tuple[OffsetKey, int]], done: Callable[[DuramenError | None], None]
    ) -> None:
        """Have a group without members start at these offsets; `done` is called once that is durable."""


Done = Callable[[list[PlannedOffsets] | DuramenError], None]


class Resets:
    """Executes resets."""

    def __init__(
        self,
        streams: BrokerStreams,
        groups: Coordinator,
        clock: Clock,
        ensure_offsets: Callable[[Callable[[DuramenError | None], None]], None],
        bounds: BoundsOf,
    ) -> None:
        self.starts: StartOffsets | None = None
        self._bounds = bounds
        self._streams = streams
        self._groups = groups
        self._clock = clock
        self._ensure = ensure_offsets

    def reset(self, request: OffsetReset, done: Done) -> None:
        """Reset a group; calls `done` with the change of every partition once durable, or at once with `dry_run`.

        An offset outside a log becomes the log's start or end, as with Kafka's tool; a time is looked up as in
        ListOffsets. On an error (GroupNotFound unless streams are named, which creates the group; GroupNotEmpty;
        StreamNotFound; or another) nothing changes.
        """
        try:
            topics, stored = self._groups.topics, self._stored(request.group_id)
        except DuramenError as error:
            done(error)
            return

        def known(error: DuramenError | None) -> None:
            if error is None:
                self._reset(request, {name: one for one in stored if (name := topics.shown(one)) is not None}, done)
            else:
                done(error)

        def found(answer: Mapping[str, str] | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            else:
                self._reset(request, {name: answer.get(name, name) for name in request.streams or ()}, done)

        if request.streams is None:
            topics.when_known(stored, known)
        else:
            topics.find_stored([*dict.fromkeys(request.streams)], found)

    def _stored(self, group_id: str) -> list[str]:
        """The key names of a group's offsets. Raises BatchCorrupt."""
        starts = self._starts(group_id)
        if starts is not None:
            return starts.stored(group_id)
        return [*dict.fromkeys(key.topic for key, _ in self._groups.all_committed(group_id))]

    def _starts(self, group_id: str) -> StartOffsets | None:
        """The start offsets, if it is a share group."""
        found = self._groups.kinds.of(group_id)
        return self.starts if found is not None and found.kind is GroupKind.SHARE else None

    def _reset(self, request: OffsetReset, named: Mapping[str, str], done: Done) -> None:
        """Reset the offsets of topics, which are stored under these key names."""
        try:
            self._check_empty(request)
            targets = self._targets(request, named)
        except DuramenError as error:
            done(error)
            return
        found: list[PartitionBounds | DuramenError] = [StreamNotFound("")] * len(targets)
        parts = Countdown(lambda: self._resolved(request, targets, done, found))

        def got(places: Sequence[int], bounds: Sequence[PartitionBounds | DuramenError]) -> None:
            for place, one in zip(places, bounds, strict=True):
                found[place] = one
            parts.count_down()

        def got_light(place: int, bounds: PartitionBounds | DuramenError) -> None:
            got((place,), (bounds,))

        since_ms = max(0, request.to.timestamp_ms) if isinstance(request.to, Since) else -1
        last = request.to.count if isinstance(request.to, Last) else -1
        logs = {at: one.partition for at, one in enumerate(targets) if one.partition is not None}
        wanted = [
            ListOffsetsPartition(partition.place.stream_id.bytes, partition.index, since_ms, last=last)
            for partition in logs.values()
        ]
        for at, one in enumerate(targets):
            if one.partition is None:
                parts.add()
                self._groups.topics.bounds(one.stored, since_ms, last, partial(got_light, at))
        self._bounds.find(wanted, partial(got, [*logs]))

    def _check_empty(self, request: OffsetReset) -> None:
        try:
            described = self._groups.describe(request.group_id)
        except GroupNotFound:
            if request.streams is None:
                raise
            return
        members = len(described.snapshot.members)
        if members or described.state.value != GroupState.EMPTY.value:
            raise GroupNotEmpty(f"group {request.group_id} has {members} members: stop them first")

    def _targets(self, request: OffsetReset, named: Mapping[str, str]) -> list[_Target]:
        """The partitions of the topics, including live and light ones. Raises StreamNotFound."""
        topics, found = self._groups.topics, list[_Target]()
        for name, stored in named.items():
            if topics.is_light(stored):
                found.append(_Target(name, stored, 0, None))
            elif request.streams is not None or self._streams.readable(name) is not None:
                stream = self._readable(name)
                found += [_Target(stream.name, stream.name, one.index, one) for one in stream.partitions]
        if request.partition is None:
            return found
        index, there = request.partition, {one.name for one in found}
        found = [one for one in found if one.number == index]
        if not found or (request.streams is not None and len(found) < len(there)):
            which = ", ".join(sorted(there)) or f"what group {request.group_id} reads"
            raise StreamNotFound(f"there is no partition {index} in {which}")
        return found

    def _readable(self, name: str) -> Stream:
        return self._streams.readable(name) or self._streams.get(name)

    def _resolved(
        self,
        request: OffsetReset,
        targets: Sequence[_Target],
        done: Done,
        found: Sequence[PartitionBounds | DuramenError],
    ) -> None:
        afters = list[int]()
        for bounds in found:
            if isinstance(bounds, DuramenError):
                done(bounds)
                return
            afters.append(_resolve(request.to, bounds))
        keys = [OffsetKey(request.group_id, target.stored, target.number) for target in targets]

        def known(befores: list[int | None] | DuramenError) -> None:
            if isinstance(befores, DuramenError):
                done(befores)
                return
            moves = [
                PlannedOffsets(target.name, target.number, before, after)
                for target, before, after in zip(targets, befores, afters, strict=True)
            ]
            if request.dry_run or not moves:
                done(moves)
            else:
                self._ensure(
                    lambda error: done(error) if error is not None else self._commit(request, keys, moves, done)
                )

        starts = self._starts(request.group_id)
        if starts is not None:
            starts.find(keys, known)
        else:
            known([None if (one := self._groups.committed(key)) is None else one.offset for key in keys])

    def _commit(
        self, request: OffsetReset, keys: Sequence[OffsetKey], moves: list[PlannedOffsets], done: Done
    ) -> None:  # fmt: skip
        try:
            self._check_empty(request)  # a member may have joined meanwhile
        except DuramenError as error:
            done(error)
            return
        starts = self._starts(request.group_id)
        if starts is not None:
            wanted = [(key, move.after) for key, move in zip(keys, moves, strict=True)]
            starts.store(request.group_id, wanted, lambda error: done(moves if error is None else error))
            return
        now_ms = self._clock.wall_ms()
        offsets = [
            (key, CommittedOffset(move.after, -1, "", now_ms)) for key, move in zip(keys, moves, strict=True)
        ]  # fmt: skip

        def committed(results: list[DuramenError | None] | DuramenError) -> None:
            errors = [results] if isinstance(results, DuramenError) else results
            error = next((error for error in errors if error is not None), None)
            done(moves if error is None else error)

        self._groups.commit(request.group_id, _STRANGER, offsets, committed)


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
