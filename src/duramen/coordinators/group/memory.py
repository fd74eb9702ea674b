"""The memory of the members of all groups, and its limit. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from duramen.base.errors import GroupFull
from duramen.base.ports import Clock

__all__ = ["LARGEST_MEMBER_BYTES", "GroupRoom"]

LARGEST_MEMBER_BYTES: Final = 1024 * 1024
"""The largest subscription that a member may send with its join, and its largest assignment."""

_COMPLAINT_MS: Final = 60_000


class GroupRoom:
    """An account in bytes by group. Groups that were stored before a restart count and are never refused."""

    def __init__(self, limit_bytes: int, clock: Clock, report: Callable[[str], None]) -> None:
        """`report` receives, at a limited rate, a message about refused members."""
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._report = report
        self._complain_from_ms = clock.monotonic_ms()
        self._held: dict[str, int] = {}
        self._held_bytes = 0

    def account(self, group_id: str, held_bytes: int) -> None:
        """Set the bytes that the group uses now."""
        self._held_bytes += held_bytes - self._held.pop(group_id, 0)
        if held_bytes:
            self._held[group_id] = held_bytes

    def check(self, group_id: str, sizes: Sequence[int], replaced: int = 0) -> None:
        """Raise GroupFull unless there is room for things of these sizes in place of `replaced` bytes."""
        largest = max(sizes, default=0)
        if largest > LARGEST_MEMBER_BYTES:
            why = f"{largest} bytes for one member; {LARGEST_MEMBER_BYTES} are allowed for what it subscribes to"
            self._refuse(f"group {group_id} brings {why}, and as many for its assignment")
        more = sum(sizes) - replaced
        if more > 0 and self._held_bytes + more > self._limit_bytes:
            self._refuse(
                f"group {group_id} needs {more} bytes more for a member: the members of all groups have"
                f" {self._held_bytes} of the {self._limit_bytes} available bytes: raise memory.limit.bytes"
            )

    def _refuse(self, why: str) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._complain_from_ms:
            self._complain_from_ms = now_ms + _COMPLAINT_MS
            self._report(why)
        raise GroupFull(why)
