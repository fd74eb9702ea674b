"""Plans the next round of a stream's table: spans of offsets, in bounded pieces, distributed to tasks. Pure.

At the end of a round the table has only whole transactions (`spark/read/transaction_boundaries.py`), and the records
that count in it: non-transactional ones, and all records of the transactions whose commit marker is in it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from duramen.base.errors import RecordsLost
from duramen.client import TopicPartition
from duramen.client.transaction_states import MarkedUpTo
from duramen.spark.read.plan import SnapshotRange
from duramen.spark.read.splits import Floors, ReadSplit, passed_over, share
from duramen.spark.read.transaction_boundaries import cut
from duramen.spark.tables.port import TableSpan

__all__ = [
    "PIECE_BYTES",
    "Filled",
    "RoundPiece",
    "RoundPlan",
    "needed_from",
    "piece_records",
    "plan",
    "plan_increment",
]

PIECE_BYTES: Final = 128 * 1024 * 1024
"""The approximate uncompressed bytes of a piece, which one task writes into one or a few files."""

_GUESSED_RECORD_BYTES: Final = 1024
_SMALLEST_PART: Final = 8
"""The smallest fraction of a piece that is worth its own task."""
_LEAST_RECORDS: Final = 1000
_MOST_RECORDS: Final = 16_000_000

_T = TypeVar("_T")
Offsets = Mapping[int, int]


class Filled(NamedTuple):
    """The state of a table, by partition: its ends, its starts, and the offsets below which only offsets count."""

    ends: Offsets
    begins: Offsets
    floors: Offsets


class RoundPiece(NamedTuple):
    """A span to translate, read according to `share` if it has transactional records.

    It includes records that count from `since` on: for an upserted table also those that counted before the span. For a
    keyed stream it is an `increment` instead, in which each key comes once.
    """

    span: TableSpan
    share: ReadSplit | None
    since: int
    increment: SnapshotRange | None = None


class RoundPlan(NamedTuple):
    """A round: the end of each partition, and the pieces of each task, in order.

    `behind`: records are left for another round. `lost` are offsets that are irrecoverably gone. `newest` is the last
    commit sequence of a transaction that counts in it, -1 without one.
    """

    spans: Sequence[TableSpan]
    tasks: Sequence[Sequence[RoundPiece]]
    behind: bool
    lost: Sequence[TableSpan] = ()
    newest: int = -1

    @property
    def records(self) -> int:
        """The number of its offsets."""
        return sum(span.end - span.begin for span in self.spans)


def piece_records(record_bytes: float | None) -> int:
    """The number of records of a piece, by the average size `record_bytes`; None if that is unknown yet."""
    return max(_LEAST_RECORDS, min(_MOST_RECORDS, int(PIECE_BYTES / max(1.0, record_bytes or _GUESSED_RECORD_BYTES))))


def plan(
    filled: Filled,
    bounds: Mapping[int, tuple[int, int]],
    marked: Mapping[int, MarkedUpTo],
    *,
    piece: int,
    slots: int,
    whole: bool = False,
    skip_lost: bool = False,
) -> RoundPlan:
    """The next round of a `filled` table and a log with these `bounds` (first offset, end) by partition.

    `marked` are the transactions found in the log after the table's ends. Tasks have at most `piece` records, and there
    are at most about `slots` of them, unless a transaction needs more, or there are more partitions than that in an
    upserted table, for which partitions must stay `whole`. Raises RecordsLost if the log lacks the next records of the
    table, unless they are to be skipped, or ends before the table.
    """
    begins = {partition: filled.ends.get(partition, first) for partition, (first, _) in sorted(bounds.items())}
    lost = _lost(begins, bounds, skip_lost=skip_lost)
    starts = {partition: max(begin, bounds[partition][0]) for partition, begin in begins.items()}
    farthest = _sound(starts, {partition: end for partition, (_, end) in bounds.items()}, marked)
    ends = _next(starts, farthest, marked, _share(starts, farthest, piece, slots, whole=whole))
    spans = [TableSpan(partition, begins[partition], end) for partition, end in ends.items() if begins[partition] < end]
    shares = _Shares(filled, starts, ends, marked, upserted=whole)
    pieces = [
        shares.piece(one)
        for span in spans
        for one in _pieces(
            TableSpan(span.partition, starts[span.partition], span.end), span.end - span.begin if whole else piece
        )
    ]
    behind = any(ends[one] < farthest[one] for one in ends)
    return RoundPlan(spans, _packed(pieces, piece, slots), behind, lost, newest_sequence(spans, marked))


def plan_increment(
    bounds: Mapping[int, tuple[int, int]],
    ends: Offsets,
    snapshot: Offsets,
    horizons: Offsets,
    *,
    piece: int,
    slots: int,
) -> RoundPlan:
    """The next round of an upserted table with these `ends`, to a snapshot of its stream: the changes, each key once.

    Below the `horizons`, where tombstones may be gone, it is the whole snapshot.
    """
    pieces = []
    for partition, upto in sorted(snapshot.items()):
        begin = ends.get(partition, bounds[partition][0])
        if begin >= upto:
            continue
        since = ends.get(partition)
        if since is not None and since < horizons[partition]:
            since = None
        increment = SnapshotRange(0, upto, upto, since)
        pieces.append(RoundPiece(TableSpan(partition, begin, upto), None, begin, increment))
    return RoundPlan([piece.span for piece in pieces], _packed(pieces, piece, slots), behind=False)


def newest_sequence(spans: Sequence[TableSpan], marked: Mapping[int, MarkedUpTo]) -> int:
    """The last commit sequence of a transaction that counts in these spans, -1 without one."""
    return max(
        (
            one.sequence
            for span in spans
            for one in marked[span.partition].ended
            if one.commit and span.begin <= one.offset < span.end
        ),
        default=-1,
    )


def needed_from(ends: Offsets, marked: Mapping[int, MarkedUpTo]) -> dict[int, int]:
    """The offset of each partition before which a table with these ends needs nothing of the log.

    Transactions that are open or end after these are added with their marker, from their start on.
    """
    return {
        partition: min([
            end,
            *(max(0, first) for _, first in marked[partition].open),
            *(one.first_offset for one in marked[partition].ended if one.offset >= end and one.first_offset >= 0),
        ])
        for partition, end in ends.items()
    }  # fmt: skip


def _lost(begins: Offsets, bounds: Mapping[int, tuple[int, int]], *, skip_lost: bool) -> list[TableSpan]:
    lost = []
    for partition, begin in begins.items():
        first, end = bounds[partition]
        if begin > end:
            raise RecordsLost(
                f"partition {partition} ends at {end}, and its table has records up to {begin}: the log lost records"
            )
        if begin < min(first, end):
            lost.append(TableSpan(partition, begin, min(first, end)))
    if lost and not skip_lost:
        raise RecordsLost(
            ", ".join(f"partition {one.partition}: the records {one.begin} to {one.end - 1}" for one in lost[:5])
            + " are gone from the log (retention) before they were in the table; `duramen table run --skip-lost` goes"
            " on with what is left"
        )
    return lost


def _sound(begin: Offsets, end: Offsets, marked: Mapping[int, MarkedUpTo], most: int | None = None) -> dict[int, int]:
    """Like `transaction_boundaries.cut`: the partitions are those of one stream."""
    found = cut(_of_stream(begin), _of_stream(end), _of_stream(marked), most)
    return {at.partition: found[at] for at in sorted(found)}


def _of_stream(values: Mapping[int, _T]) -> dict[TopicPartition, _T]:
    return {TopicPartition("", partition): value for partition, value in values.items()}


def _next(starts: Offsets, farthest: Offsets, marked: Mapping[int, MarkedUpTo], most: int) -> dict[int, int]:
    """A sound end with about `most` records of each partition, or a few more if a transaction requires it."""
    near_ends = {partition: min(end, starts[partition] + most) for partition, end in farthest.items()}
    near = _sound(starts, near_ends, marked)
    goes_on = any(near[one] > start for one, start in starts.items())
    return near if goes_on else _sound(starts, farthest, marked, most=1)


def _share(starts: Offsets, farthest: Offsets, piece: int, slots: int, *, whole: bool) -> int:
    """The number of records of each partition in a round: `slots` pieces in all."""
    there = sum(end > starts[partition] for partition, end in farthest.items())
    if whole or not there:
        return piece
    return max(piece // _SMALLEST_PART, piece * slots // there, 1)


class _Shares:
    """The transactions of a round, for its tasks.

    A transaction that started before the table is omitted, because part of it was gone already; in an upserted table
    its rest counts, because a key's row is the newest one.
    """

    def __init__(
        self, filled: Filled, starts: Offsets, ends: Offsets, marked: Mapping[int, MarkedUpTo], *, upserted: bool
    ) -> None:
        self._upserted = upserted
        self._marked = marked
        begins = {**starts, **dict.fromkeys(filled.ends, 0), **filled.begins}
        self._floors = {one: max(filled.floors.get(one, 0), begins[one] if upserted else 0) for one in starts}
        floors = Floors(whole={} if upserted else _of_stream(begins))
        self._over = passed_over(floors, _of_stream(starts), _of_stream(ends), _of_stream(marked))

    def piece(self, span: TableSpan) -> RoundPiece:
        over = self._over.get(TopicPartition("", span.partition), ())
        found = share(span.begin, span.end, self._marked[span.partition], self._floors[span.partition], over)
        return RoundPiece(span, found, span.begin if found is None or not self._upserted else found.base)


def _pieces(span: TableSpan, most: int) -> list[TableSpan]:
    if span.end <= span.begin:
        return []
    count = math.ceil((span.end - span.begin) / most)
    edges = [span.begin + (span.end - span.begin) * index // count for index in range(count + 1)]
    return [TableSpan(span.partition, edges[index], edges[index + 1]) for index in range(count)]


def _packed(pieces: Sequence[RoundPiece], most: int, slots: int) -> list[list[RoundPiece]]:
    """Small pieces joined, in order, so that each task is worthwhile and no slot is idle."""
    tasks: list[list[RoundPiece]] = []
    room = 0
    there = sum(piece.span.end - piece.span.begin for piece in pieces)
    share = min(most, max(most // _SMALLEST_PART, math.ceil(there / slots)))
    for piece in pieces:
        size = piece.span.end - piece.span.begin
        if not tasks or size > room:
            tasks.append([])
            room = share
        tasks[-1].append(piece)
        room -= size
    return tasks
