"""The state of a log in the checkpoint. Pure."""

import msgspec

from duramen.storage.log.producers import ProducerRow
from duramen.storage.log.transactions import AbortedTransaction
from duramen.storage.segment.segment import SegmentState, TailState

__all__ = ["LogState"]


class LogState(msgspec.Struct, array_like=True, frozen=True):
    """The checkpoint entry of a log. `end_offset` is the first offset not in `segments`.

    `obsolete` are base offset and generation of files that compaction has replaced and that may still exist; `opened`
    are producer id and first offset of transactions that are open at `end_offset`; `marked_offset` is the offset after
    the last marker, -1 in older versions; `forgotten_producer_id` is that of the log's `ProducerTable`, None in older
    versions; the replacements of records that compaction dropped from a keyed log are below `superseded_offset`.
    """

    id: int
    stream_id: bytes
    partition: int
    durability: str
    start_offset: int
    end_offset: int
    segments: list[SegmentState]
    tail: TailState
    takeovers: list[tuple[int, int, int]]
    producers: list[ProducerRow]
    damage: list[tuple[int, int]]
    cleaned_offset: int = 0
    dirty_offset: int = 0
    obsolete: list[tuple[int, int]] = []
    opened: list[tuple[int, int]] = []
    aborted: list[AbortedTransaction] = []
    marked_offset: int = -1
    forgotten_producer_id: int | None = None
    superseded_offset: int = 0
