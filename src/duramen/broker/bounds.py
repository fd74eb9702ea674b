"""How far partitions reach, wherever they are led: a node tells of those that it leads, and asks others for theirs.

The time of a record is that of the batch that holds it: of its first record, or the append's where the broker sets
times. What nodes say begins with a byte that no other request or answer begins with; MessagePack follows.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, LogDamaged, NotLeader, RequestInvalid, RequestTimedOut, StorageFailed
from duramen.base.ports import Buffer, Clock
from duramen.broker.partition import LATEST, Partition
from duramen.broker.standing import Standing
from duramen.broker.streams import Streams
from duramen.controller.partitions import PartitionId
from duramen.storage.log import Log
from duramen.storage.reader import Blocked
from duramen.storage.store import Store

__all__ = ["Bounds", "BoundsOf", "TimeFound", "Wanted", "find_time", "is_about_bounds"]

_MARK: Final = b"\2"  # a number to MessagePack, where others have arrays
_NONE: Final = -1
_ANSWER_MS: Final = 3_000
_AT_ONCE: Final = 20  # partitions looked at before others get their turn: half a millisecond


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """A partition whose bounds are wanted, and what besides: -1, that is not.

    Where the records at or after `since_ms` begin, or the last `last` records, or the time of the first record at
    `offset` or behind it; `roughly`: as far as that is known without the disk, which may be earlier than it is.
    """

    stream_id: bytes
    partition: int
    since_ms: int = _NONE
    offset: int = _NONE
    roughly: bool = False
    last: int = _NONE


class Bounds(msgspec.Struct, frozen=True, array_like=True):
    """A partition's start and its high watermark; `since_offset` is where the records begin that were asked for.

    -1: no record is as young, or the node that was asked is of a version that counts no records.

    `timestamp_ms` is that of the record at the offset that was asked for; -1: there is none yet, or it has no time.
    """

    start_offset: int
    end_offset: int
    since_offset: int = _NONE
    timestamp_ms: int = _NONE


TimeFound = Callable[[int | None], None]
"""Called with a timestamp in ms since 1970; None where it is not known."""

Found = Bounds | DuramenError
Done = Callable[[list[Found]], None]

_encoder: Final = msgspec.msgpack.Encoder()
_wishes: Final = msgspec.msgpack.Decoder(list[Wanted])
_answers: Final = msgspec.msgpack.Decoder(list[Bounds | str])


def is_about_bounds(body: Buffer) -> bool:
    """Whether a request of another node is for `BoundsOf.asked`."""
    return bytes(body[:1]) == _MARK


def find_time(store: Store, log: Log, offset: int, done: TimeFound) -> None:
    """The timestamp of the batch that holds the record at `offset`, which lies below the high watermark.

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

    def __init__(
        self, node_id: int, standing: Standing, streams: Streams, store: Store, clock: Clock, deadlines: Deadlines,
    ) -> None:  # fmt: skip
        self._node_id = node_id
        self._standing = standing
        self._streams = streams
        self._store = store
        self._clock = clock
        self._deadlines = deadlines

    def find(self, wanted: Sequence[Wanted], done: Done) -> None:
        """The bounds of each partition, in their order, or why they are not known; `done` may be called at once.

        RequestTimedOut where its leader does not answer, NotLeader where nobody leads.
        """
        by_leader: dict[int | None, list[int]] = {}
        for at, wish in enumerate(wanted):
            by_leader.setdefault(self._leader(wish), []).append(at)
        answers = _Answers(len(wanted), done)
        here, nowhere = by_leader.pop(self._node_id, []), by_leader.pop(None, [])
        if by_leader:
            answers.over = self._deadlines.at(self._clock.monotonic_ms() + _ANSWER_MS, answers.end).cancel
        for leader, places in by_leader.items():
            if leader is not None:
                self._ask(leader, [wanted[at] for at in places], partial(answers.put_all, places))
        for at in nowhere:
            answers.put(at, NotLeader(f"nobody leads partition {wanted[at].partition} now: ask again"))
        self._look_at(wanted, here, answers)

    def _leader(self, wish: Wanted) -> int | None:
        return self._standing.partition(PartitionId(UUID(bytes=wish.stream_id), wish.partition)).leader

    def _ask(self, node_id: int, wanted: list[Wanted], put: Callable[[list[Found]], None]) -> None:
        def answered(body: Buffer | None) -> None:
            put(_decoded(node_id, body, len(wanted)))

        if not self._standing.ask_node(node_id, _MARK + _encoder.encode(wanted), answered):
            answered(None)

    def asked(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """Another node asks for partitions that this one leads. Raises RequestInvalid."""
        try:
            wanted = _wishes.decode(body[len(_MARK) :])
        except (msgspec.MsgspecError, ValueError) as error:
            raise RequestInvalid(f"a request for the bounds of partitions cannot be read: {error}") from None

        def found(results: list[Found]) -> None:
            answer(_encoder.encode([str(one) if isinstance(one, DuramenError) else one for one in results]))

        self._look_at(wanted, range(len(wanted)), _Answers(len(wanted), found))

    # -- here ---------------------------------------------------------------------------------------

    def _look_at(self, wanted: Sequence[Wanted], places: Sequence[int], answers: "_Answers") -> None:
        """Look at those at `places`, some at a time: they are the last that are asked for."""
        for at in places[:_AT_ONCE]:
            self._look(wanted[at], partial(answers.put, at))
        if len(places) > _AT_ONCE:
            self._store.soon(partial(self._look_at, wanted, places[_AT_ONCE:], answers))
        else:
            answers.begun()

    def _look(self, wish: Wanted, put: Callable[[Found], None]) -> None:
        stream = self._streams.find_id(UUID(bytes=wish.stream_id)) if len(wish.stream_id) == 16 else None
        if stream is None or not 0 <= wish.partition < len(stream.partitions):
            put(NotLeader(f"partition {wish.partition} is not there"))
            return
        partition = stream.partitions[wish.partition]
        try:
            partition.check_leads()
        except DuramenError as error:
            put(error)
            return
        partition.find_offset(LATEST, partial(self._ended, wish, partition, put))

    def _ended(
        self, wish: Wanted, partition: Partition, put: Callable[[Found], None], end_offset: int, _: int,
        error: DuramenError | OSError | None,
    ) -> None:  # fmt: skip
        bounds = Bounds(partition.log.start_offset, end_offset)
        if error is not None:
            put(_as_ours(error))
        elif wish.since_ms >= 0:
            partition.find_offset(wish.since_ms, partial(_since, bounds, put))
        elif wish.last >= 0:
            partition.find_last(wish.last, partial(_since, bounds, put))
        elif 0 <= wish.offset < end_offset:
            offset = max(wish.offset, bounds.start_offset)
            if wish.roughly:
                _timed(bounds, put, partition.log.time_before(offset))
            else:
                find_time(self._store, partition.log, offset, partial(_timed, bounds, put))
        else:
            put(bounds)


def _since(
    bounds: Bounds, put: Callable[[Found], None], offset: int, _: int, error: DuramenError | OSError | None
) -> None:
    found = msgspec.structs.replace(bounds, since_offset=offset)
    put(found if error is None else _as_ours(error))


def _timed(bounds: Bounds, put: Callable[[Found], None], timestamp_ms: int | None) -> None:
    put(msgspec.structs.replace(bounds, timestamp_ms=_NONE if timestamp_ms is None else timestamp_ms))


def _as_ours(error: DuramenError | OSError) -> DuramenError:
    return error if isinstance(error, DuramenError) else StorageFailed(f"reading failed: {error}")


def _decoded(node_id: int, body: Buffer | None, count: int) -> list[Found]:
    """What a node has answered; of each partition the error, where it is nothing that can be used."""
    found: list[Bounds | str] = []
    if body:
        try:
            found = _answers.decode(body)
        except (msgspec.MsgspecError, ValueError):
            found = []
    if len(found) != count:
        return [_silent(node_id)] * count
    return [NotLeader(f"node {node_id} says: {one}") if isinstance(one, str) else one for one in found]


def _silent(node_id: int) -> DuramenError:
    return RequestTimedOut(f"node {node_id}, which leads the partition, does not answer: ask again")


class _Answers:
    """What was found so far; `done` is called once, when all is, or when it is too late."""

    def __init__(self, count: int, done: Done) -> None:
        self._found: list[Found] = [RequestTimedOut("the partition's leader does not answer: ask again")] * count
        self._left = count + 1
        self._done: Done | None = done
        self.over: Callable[[], None] = lambda: None

    def put(self, at: int, found: Found) -> None:
        """What was found at a place."""
        self._found[at] = found
        self.begun()

    def put_all(self, places: Sequence[int], found: Sequence[Found]) -> None:
        """What a node has found."""
        for at, one in zip(places, found, strict=True):
            self.put(at, one)

    def begun(self) -> None:
        """One less is waited for: the last is that all have been asked."""
        self._left -= 1
        if not self._left:
            self.end()

    def end(self) -> None:
        """Answer with what there is."""
        done, self._done = self._done, None
        if done is not None:
            self.over()
            done(self._found)
