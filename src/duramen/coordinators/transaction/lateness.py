"""Open transactions that exceed their timeout. Pure.

The start time of a transaction comes from the wall clock of its first coordinator. If that clock is ahead of the next
coordinator's, or one is set back, the transaction would stay open for the difference; so the time for which it has been
known as open here counts too.
"""

from collections.abc import Iterable

from duramen.base.ports import Clock
from duramen.transactions import machine
from duramen.transactions.values import TransactionalId

__all__ = ["Lateness"]

_Key = tuple[str, int, int, int]


class Lateness:
    """The open transactions, and since when this node knows them as open."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[_Key, int] = {}

    def look(self, opened: Iterable[TransactionalId]) -> None:
        """These transactions are open now."""
        now_ms = self._clock.monotonic_ms()
        keys = [_key(one) for one in opened]
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in keys}

    def is_late(self, one: TransactionalId) -> bool:
        """Whether a transaction exceeds its timeout."""
        if machine.timed_out(one, self._clock.wall_ms()):
            return True
        since_ms = self._since_ms.get(_key(one))
        return since_ms is not None and since_ms + one.timeout_ms < self._clock.monotonic_ms()


def _key(one: TransactionalId) -> _Key:
    return one.id, one.producer_id, one.epoch, one.started_ms
