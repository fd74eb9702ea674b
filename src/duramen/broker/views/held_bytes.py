"""The bytes that open snapshots keep from compaction."""

from collections.abc import Callable, Sequence

from duramen.broker.views.running_view import RunningView
from duramen.keyed.view import KeyedView

__all__ = ["held_bytes"]


def held_bytes(view: RunningView, positions: Sequence[int], done: Callable[[list[int]], None]) -> None:
    """About how many bytes of superseded records a snapshot at each position keeps from compaction, by itself."""
    log = view.partition.log

    def job(keyed: KeyedView) -> list[int]:
        many = keyed.prev.superseding_from(positions, min(view.unheld_s0(keyed), keyed.position))
        records = min(log.end_offset - log.start_offset, keyed.keys + keyed.prev.records)
        return [one * log.size_bytes() // max(1, records) for one in many]

    view.ask(job, lambda found: done(found or [0] * len(positions)))
