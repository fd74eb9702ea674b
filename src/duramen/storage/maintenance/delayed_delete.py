"""Delayed deletion of files: `file.delete.delay.ms`, as in Kafka.

Files of segments are renamed meanwhile, so that no start takes them for a log's; a start after a crash removes them.
"""

from collections.abc import Callable
from typing import Final

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.ports import Clock, FileSystem

__all__ = ["DELETED_ENDING", "Lingering", "set_aside"]

DELETED_ENDING: Final = ".deleted"


def set_aside(files: FileSystem, paths: list[str]) -> list[str]:
    """Rename the existing files, and return their new names. Blocking. Raises OSError."""
    aside = []
    for path in paths:
        if files.exists(path):
            files.rename(path, path + DELETED_ENDING)
            aside.append(path + DELETED_ENDING)
    return aside


class Lingering:
    """Pending removals, each at its time, or all of them when the node stops."""

    def __init__(self, clock: Clock, deadlines: Deadlines) -> None:
        self._clock = clock
        self._deadlines = deadlines
        self._waiting: dict[Deadline, Callable[[], None]] = {}
        self._ended = False

    def after(self, delay_ms: int, remove: Callable[[], None]) -> None:
        """Call `remove` after that many milliseconds, immediately if there is no delay."""
        if delay_ms <= 0 or self._ended:
            remove()
            return

        def due() -> None:
            self._waiting.pop(deadline)()

        deadline = self._deadlines.at(self._clock.monotonic_ms() + delay_ms, due)
        self._waiting[deadline] = remove

    def end(self) -> None:
        """Remove everything now: a start after a clean stop does not look for orphaned files."""
        self._ended = True
        waiting, self._waiting = self._waiting, {}
        for deadline, remove in waiting.items():
            deadline.cancel()
            remove()
