"""Quarantine of damaged ranges in segments: not served, logged once, counted, and listed on request.

A range stays in quarantine until its segment is deleted, another replica has supplied the right bytes (`repairing`), or
the node restarts; then the next read finds it again.
"""

from collections.abc import Callable

from duramen.base.metrics import Counter, Metrics
from duramen.storage.segment.damage import Damage
from duramen.storage.segment.segment import Segment

__all__ = ["Quarantine"]


def _nobody(_: Segment) -> None:
    """Ignore the damage."""


class Quarantine:
    """The damaged ranges of a node's segments."""

    def __init__(self) -> None:
        self._segments: dict[Segment, None] = {}
        self._unnamed: list[str] = []
        self._report: Callable[[str], None] | None = None
        self._watch: Callable[[Segment], None] = _nobody
        self._found_total = Counter()

    def begin(self, metrics: Metrics) -> None:
        """Use these metrics from now on."""
        found = metrics.counter("duramen_damaged_ranges_total")
        found.value += self._found_total.value
        self._found_total = found
        metrics.compute("duramen_quarantined_ranges", lambda: [((), self.ranges)])

    def report_to(self, report: Callable[[str], None]) -> None:
        """Send past and future reports to the operator."""
        self._report = report
        unnamed, self._unnamed = self._unnamed, []
        for message in unnamed:
            report(message)

    def watch(self, action: Callable[[Segment], None]) -> None:
        """Call `action`, in the middle of a read, with each damaged segment."""
        self._watch = action

    def found(self, segment: Segment, damage: list[Damage]) -> None:
        """Damage was found in these ranges of a segment: they are no longer served."""
        self._segments[segment] = None
        self._found_total.value += len(damage)
        for one in damage:
            self.report(f"{segment.name_damage(one)}; it is not served, the records around it are")
        self._watch(segment)

    def named(self, segment: Segment, _: list[Damage]) -> None:
        """Like `found`, but counted and reported elsewhere."""
        self._segments[segment] = None

    def report(self, message: str) -> None:
        """Report a message to the operator."""
        if self._report is None:
            self._unnamed.append(message)
        else:
            self._report(message)

    def forget(self, segment: Segment) -> None:
        """The segment is deleted, or repaired."""
        self._segments.pop(segment, None)

    @property
    def ranges(self) -> int:
        """The number of ranges that are not served."""
        return sum(len(segment.damage) for segment in self._segments)
