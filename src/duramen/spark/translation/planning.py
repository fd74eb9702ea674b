"""What of a stream goes into its table next: spans of offsets, in bounded pieces, shared out to tasks. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from duramen.base.errors import RecordsLost
from duramen.spark.tables.port import Span

__all__ = ["PIECE_BYTES", "Plan", "piece_records", "plan"]

PIECE_BYTES: Final = 128 * 1024 * 1024
"""About so many bytes of records, not compressed, make a piece: what one task writes into one file, or a few."""

_GUESSED_RECORD_BYTES: Final = 1024
_LEAST_RECORDS: Final = 1000
_MOST_RECORDS: Final = 16_000_000


class Plan(NamedTuple):
    """A round: how far each partition goes, and the pieces that each task translates, in order.

    `behind`: records are left for another round. `lost` are offsets that are gone, and that nothing can bring back.
    """

    spans: Sequence[Span]
    tasks: Sequence[Sequence[Span]]
    behind: bool
    lost: Sequence[Span] = ()

    @property
    def records(self) -> int:
        """How many offsets it covers."""
        return sum(span.end - span.begin for span in self.spans)


def piece_records(record_bytes: float | None) -> int:
    """How many records make a piece, where one takes `record_bytes` on average; None where that is not known yet."""
    return max(_LEAST_RECORDS, min(_MOST_RECORDS, int(PIECE_BYTES / max(1.0, record_bytes or _GUESSED_RECORD_BYTES))))


def plan(
    ends: Mapping[int, int],
    bounds: Mapping[int, tuple[int, int]],
    *,
    piece: int,
    slots: int,
    whole: bool = False,
    skip_lost: bool = False,
) -> Plan:
    """The next round of a table with these `ends` and a log with these `bounds` (first offset, end) by partition.

    Tasks have at most `piece` records, and there are about `slots` of them at most, unless there are more partitions
    than that in an upserted table, for which partitions must stay `whole`. Raises RecordsLost where the log has no
    records that the table should have next, unless they are to be skipped, or ends before the table does.
    """
    spans, starts, lost = [], {}, []
    for partition, (first, end) in sorted(bounds.items()):
        begin = ends.get(partition, first)
        if begin > end:
            raise RecordsLost(
                f"partition {partition} ends at {end}, and its table has records up to {begin}: the log lost records"
            )
        if begin < first:
            lost.append(Span(partition, begin, min(first, end)))
        if begin < end:
            spans.append(Span(partition, begin, end))
            starts[partition] = max(begin, first)
    if lost and not skip_lost:
        raise RecordsLost(
            ", ".join(f"partition {one.partition}: the records {one.begin} to {one.end - 1}" for one in lost[:5])
            + " are gone from the log (retention) before they were in the table; `duramen table run --skip-lost` goes"
            " on with what is left"
        )
    most = _share(spans, piece, slots, whole=whole)
    cut = [span._replace(end=min(span.end, starts[span.partition] + most)) for span in spans]
    pieces = [
        one
        for span in cut
        for one in _pieces(Span(span.partition, starts[span.partition], span.end), most if whole else piece)
    ]
    return Plan(
        cut, _packed(pieces, piece), any(one.end < all_.end for one, all_ in zip(cut, spans, strict=True)), lost
    )


def _share(spans: Sequence[Span], piece: int, slots: int, *, whole: bool) -> int:
    """How many records of each partition a round takes: `slots` pieces in all."""
    if whole or not spans:
        return piece
    return max(piece // 8, piece * slots // len(spans), 1)


def _pieces(span: Span, most: int) -> list[Span]:
    if span.end <= span.begin:
        return []
    count = math.ceil((span.end - span.begin) / most)
    edges = [span.begin + (span.end - span.begin) * index // count for index in range(count + 1)]
    return [Span(span.partition, edges[index], edges[index + 1]) for index in range(count)]


def _packed(pieces: Sequence[Span], most: int) -> list[list[Span]]:
    """Small pieces together, in their order, so that a task is worth its while."""
    tasks: list[list[Span]] = []
    room = 0
    for piece in pieces:
        size = piece.end - piece.begin
        if not tasks or size > room:
            tasks.append([])
            room = most
        tasks[-1].append(piece)
        room -= size
    return tasks
