"""The logs that retention examines: those that changed since, and those with records that have aged enough. Pure."""

import heapq
from collections.abc import Iterable

from duramen.storage.log.floors import floors_of
from duramen.storage.log.log import Log
from duramen.storage.planning.floors import Floor, retention_multiple

__all__ = ["DueLogs"]


class DueLogs:
    """Logs by the time of their next deletion: idle logs cost nothing."""

    def __init__(self, logs: Iterable[Log]) -> None:
        self.changed: dict[Log, None] = dict.fromkeys(logs)
        """Logs with appends or config changes since their last look, or with pending work."""
        self._due: list[tuple[int, int, Log]] = []  # due time in ms since 1970, and the log's id

    def take(self, now_ms: int) -> list[Log]:
        """The logs to look at now, in the order of their ids; the caller calls `looked_at` for each."""
        found, self.changed = self.changed, {}
        while self._due and self._due[0][0] <= now_ms:
            found[heapq.heappop(self._due)[2]] = None
        return sorted((log for log in found if not log.deleted), key=lambda log: log.id)

    def looked_at(self, log: Log) -> None:
        """The log was looked at: it is due again once more may be deleted."""
        config, floors = log.config, floors_of(log)
        limits = config.retention_ms, config.retention_bytes, config.retention_records
        waits = any(floor.retention and not floor.multiple and floor.offset < log.end_offset for floor in floors)
        if waits or (config.compact and max(limits) >= 0):  # changes of segments by compaction are not appends
            self.changed[log] = None
            return
        due_ms = _due_ms(log, floors)
        if due_ms is not None:
            heapq.heappush(self._due, (due_ms, log.id, log))


def _due_ms(log: Log, floors: Iterable[Floor]) -> int | None:
    """When its oldest records have aged enough, or its active segment closes; None: not unless it changes."""
    times = []
    for segment, end_offset in log.with_ends():
        if segment.size and segment.max_timestamp >= 0:
            if log.config.retention_ms >= 0:
                aged_ms = log.config.retention_ms * retention_multiple(floors, end_offset)
                times.append(segment.max_timestamp + aged_ms + 1)
            break
    if log.active.size and log.active.first_timestamp >= 0:
        times.append(log.active.first_timestamp + log.roll_ms + 1)
    return min(times, default=None)
