"""The floors of a log by name: the one list that bounds retention and compaction."""

from typing import Final

from duramen.storage.log.log import Log
from duramen.storage.planning.floors import Floor

__all__ = ["floors_of", "stream_floors"]

_COMMITTED: Final = "high watermark"
_TRANSACTION: Final = "open transaction"
_COPY: Final = "copy"
_SNAPSHOTS: Final = "snapshots"


def floors_of(log: Log) -> list[Floor]:
    """The high watermark limits both; the others exist if a reader needs records above them."""
    high_watermark = log.high_watermark
    floors = [Floor(_COMMITTED, high_watermark)]
    if log.last_stable_offset < high_watermark:
        floors.append(Floor(_TRANSACTION, log.last_stable_offset, retention=False))
    # A segment with a pending copy is deleted later: the copy comes within a second.
    waiting = next((one.base_offset for one in log.segments if one.copied < one.size and not one.in_memory), None)
    if waiting is not None:
        floors.append(Floor(_COPY, waiting, compaction=False))
    if log.view_floor is not None:
        floors.append(Floor(_SNAPSHOTS, log.view_floor, retention=False))
    return [*floors, *stream_floors(log)]


def stream_floors(log: Log) -> list[Floor]:
    """The floors that the stream's config sets."""
    partition = log.key.partition
    return [
        Floor(floor.name, floor.offsets.get(partition, 0), compaction=False, multiple=floor.multiple)
        for floor in log.config.floors
    ]
