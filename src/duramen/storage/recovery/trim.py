"""Compares active segments' files with the checkpoint: truncates longer ones, reports shorter ones as damage.

Blocking.
"""

from duramen.storage.log.log import Log
from duramen.storage.recovery.logs import WRITE_BYTES, LogsFound
from duramen.storage.segment.blocks import ANY_OFFSET
from duramen.storage.segment.checks import ExpectedSegment, SegmentCheck
from duramen.storage.segment.damage import Damage, DamageCause
from duramen.storage.segment.segment import Segment

__all__ = ["Trimming"]


class Trimming:
    """Truncates segments before the replay, and reports those that are too short after it."""

    def __init__(self, found: LogsFound) -> None:
        self._found = found
        self._short: list[tuple[Log, Segment, int, ExpectedSegment]] = []

    def trim(self) -> None:
        """Truncate segments to their checkpointed positions, unless they are the only evidence."""
        for log in self._found.logs.values():
            if log.durability != "os":
                self._trim_segment(log)

    def _trim_segment(self, log: Log) -> None:
        segment = log.active
        if not segment.size:
            return
        path = segment.path + ".log"
        actual = 0
        if self._found.files.exists(path):
            file = self._found.files.open(path)
            actual = file.size()
            if actual > segment.size and not self._found.believing:
                file.truncate(segment.size)
                self._found.unsynced[segment] = log
        if actual < segment.size:
            self._short.append(
                (log, segment, actual, ExpectedSegment(segment.size, segment.base_offset, log.end_offset))
            )

    def name_short(self) -> None:
        """Report segments that lack synced bytes as damage."""
        # After the replay, because the WAL may truncate or delete the log or the segment. If a log was truncated more
        # than once, its files have the last truncation already, and lack the records between the earlier ones.
        for log, segment, actual, expected in self._short:
            if segment in log.segments and not log.deleted:
                segment.on_damage = self._found.handles.quarantine.named  # it is already in the findings
                segment.add_damage(self._look_into_short(segment, expected))
                segment.on_damage = self._found.handles.quarantine.found
                self._found.find(
                    f"{segment.path}.log has {actual} bytes where {expected.size} were synced: the rest is damaged"
                )

    def _look_into_short(self, segment: Segment, expected: ExpectedSegment) -> list[Damage]:
        path = segment.path + ".log"
        if not self._found.files.exists(path):
            return [Damage(0, expected.size, expected.base_offset, expected.end_offset - 1, DamageCause.MISSING_FILE)]
        expected = expected._replace(gaps_below=ANY_OFFSET, epoch_at=segment.epoch_at)
        check = SegmentCheck(self._found.files.open(path, read_only=True), expected)
        while check.step(WRITE_BYTES):
            pass
        return check.damage
