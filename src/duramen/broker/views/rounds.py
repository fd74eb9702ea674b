"""When a view with its table in files starts a round, and the age of its newest snapshot."""

from collections import deque
from typing import Final

from duramen.base.ports import Clock
from duramen.keyed.view import KeyedView

__all__ = ["RoundSchedule", "SnapshotAge", "round_bytes"]

_PAUSES: Final = 4
_APART_MS: Final = 250
_MOST_MOVES: Final = 1000


def round_bytes(limit_bytes: int) -> int:
    """The most memory that a view gathers if all views may take that; the rest is for the partition being rewritten."""
    return limit_bytes // 8 * 5


class RoundSchedule:
    """A round rewrites the table: so it begins when enough is gathered, or after a while, longer where rounds are."""

    def __init__(self, clock: Clock, round_ms: int, round_bytes: int) -> None:
        self._clock = clock
        self._round_ms = round_ms
        self._round_bytes = round_bytes
        self._since_ms = self._began_ms = -1
        self._took_ms = 0

    def is_due(self, view: KeyedView, *, crowded: bool) -> bool:
        """Whether a round of the view continues or begins; if memory is short, with everything gathered so far."""
        if view.filed is None:
            return False
        if view.filed.in_round:
            return True
        if view.reached == view.position:
            self._since_ms = -1
            return False
        now_ms = self._clock.monotonic_ms()
        if self._since_ms < 0:
            self._since_ms = now_ms
        waited = now_ms - self._since_ms >= max(self._round_ms, _PAUSES * self._took_ms)
        return waited or crowded or view.filed.gathered_bytes >= self._round_bytes

    def begin(self) -> None:
        """A round begins or continues."""
        if self._began_ms < 0:
            self._began_ms = self._clock.monotonic_ms()

    def end(self) -> None:
        """It has ended."""
        self._took_ms = self._clock.monotonic_ms() - self._began_ms
        self._since_ms = self._began_ms = -1


class SnapshotAge:
    """Since when there is something committed that the newest snapshot has not."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moves: deque[tuple[int, int]] = deque()

    def moved(self, high_watermark: int, position: int) -> None:
        """So much is committed now, and applied."""
        now_ms, moves = self._clock.wall_ms(), self._moves
        while moves and moves[0][1] <= position:
            moves.popleft()
        if not moves or now_ms - moves[-1][0] >= _APART_MS:
            moves.append((now_ms, high_watermark))
        if len(moves) > _MOST_MOVES:
            self._moves = deque(list(moves)[::2])

    def age_ms(self, position: int, since_ms: int) -> int:
        """How long ago everything that was committed was below the position; `since_ms` where that is not known."""
        since_ms = next((time_ms for time_ms, high_watermark in self._moves if high_watermark > position), since_ms)
        return max(0, self._clock.wall_ms() - since_ms)
