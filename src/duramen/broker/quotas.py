"""Client quotas: produce and consume rates per user and client, and throttle times of clients above them.

The arithmetic is Apache Kafka's. A rate is the amount recorded in the last `quota.window.num` windows of
`quota.window.size.seconds`, divided by the time since the oldest began, at least all windows but one. A client above
the bound is throttled until its rate equals the bound (KIP-13, KIP-219). Nothing here waits or knows a clock.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final

from duramen.base.settings import Settings
from duramen.metadata.quotas import CONSUMER_RATE, PRODUCER_RATE
from duramen.metadata.state import Entity

__all__ = ["ANONYMOUS", "Quotas", "RateTable", "RateWindows"]

ANONYMOUS: Final = "ANONYMOUS"
"""The user of every connection, while there is no authentication; Apache Kafka's name for such."""

_LONGEST_WAIT_MS: Final = (1 << 31) - 1  # throttle_time_ms is an int32
_MOST_RATES: Final = 10_000  # clients choose their names: the remembered ones are bounded


class RateWindows:
    """Amounts in the windows of the recent past."""

    __slots__ = ("_count", "_window_ms", "_windows")

    def __init__(self, count: int, window_ms: int) -> None:
        self._count = count
        self._window_ms = window_ms
        self._windows: deque[list[int]] = deque()  # [start in ms, amount], oldest first

    def record(self, now_ms: int, amount: int) -> None:
        """Add an amount now; a negative one takes back an amount that was recorded and did not happen."""
        self._forget(now_ms)
        if not self._windows or now_ms - self._windows[-1][0] >= self._window_ms:
            self._windows.append([now_ms, 0])
        self._windows[-1][1] += amount

    def _forget(self, now_ms: int) -> None:
        while self._windows and now_ms - self._windows[0][0] >= self._count * self._window_ms:
            self._windows.popleft()

    def total(self, now_ms: int) -> int:
        """The amount recorded in the windows that still count."""
        self._forget(now_ms)
        return sum(amount for _, amount in self._windows)

    def span_ms(self, now_ms: int) -> int:
        """The time that the rate is over: as if all windows but one were full, even where only part of one is."""
        self._forget(now_ms)
        elapsed_ms = now_ms - self._windows[0][0] if self._windows else 0
        missing = self._count - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)

    def rate(self, now_ms: int) -> float:
        """Amount a second."""
        return 1000 * self.total(now_ms) / self.span_ms(now_ms)

    def wait_ms(self, now_ms: int, bound: float) -> int:
        """The ms until the rate falls to `bound` a second without further traffic; 0 if it is not above."""
        excess = self.rate(now_ms) - bound
        return max(0, round(min(excess / bound * self.span_ms(now_ms), _LONGEST_WAIT_MS)))


class RateTable:
    """The rates of many quota entities; if there is no room, those that were idle longest are forgotten."""

    def __init__(self, settings: Settings) -> None:
        self._count = settings.integer("quota.window.num")
        self._window_ms = 1000 * settings.integer("quota.window.size.seconds")
        self._rates: dict[Hashable, RateWindows] = {}  # rates of the entity that was idle longest come first

    def __len__(self) -> int:
        return len(self._rates)

    def record(self, scope: Hashable, bound: float, size: int, now_ms: int) -> int:
        """Count an amount; how many ms to wait until the rate is `bound` a second."""
        rates = self._rates.pop(scope, None)
        if rates is None:
            if len(self._rates) >= _MOST_RATES:
                del self._rates[next(iter(self._rates))]
            rates = RateWindows(self._count, self._window_ms)
        self._rates[scope] = rates
        rates.record(now_ms, size)
        return rates.wait_ms(now_ms, bound)

    def wait_ms(self, scope: Hashable, bound: float, now_ms: int) -> int:
        """The ms until the rate falls to `bound` a second without further traffic."""
        rates = self._rates.get(scope)
        return 0 if rates is None else rates.wait_ms(now_ms, bound)

    def take_back(self, scope: Hashable, size: int, now_ms: int) -> bool:
        """Take back the last recorded amount; returns False, and keeps it, if it is the only one in all windows."""
        rates = self._rates[scope]
        if rates.total(now_ms) <= size:
            return False
        rates.record(now_ms, -size)
        return True

    def rate(self, scope: Hashable, now_ms: int) -> float:
        """Amount a second."""
        rates = self._rates.get(scope)
        return 0.0 if rates is None else rates.rate(now_ms)

    def largest(self, bound: float) -> int:
        """The amount that fits into all windows but one."""
        return int(bound * (self._count - 1) * self._window_ms / 1000)


_Scope = tuple[Entity, str]  # whose rate is bounded together, and by which quota


class Quotas:
    """Quotas from the metadata, and the rates of the entities that have any."""

    def __init__(self, settings: Settings) -> None:
        self.bounds: Mapping[Entity, Mapping[str, float]] = {}
        """The entities with rates: mostly none."""
        self._rates = RateTable(settings)
        self._found: dict[tuple[str, str], tuple[_Scope, float] | None] = {}

    @property
    def remembered(self) -> int:
        """The number of clients with recorded traffic."""
        return max(len(self._rates), len(self._found))

    def update(self, bounds: Mapping[Entity, Mapping[str, float]]) -> None:
        """The quotas are these from here on."""
        self.bounds = bounds
        self._found.clear()

    def produced(self, client_id: str, size: int, now_ms: int) -> int:
        """Count a produce request; how many ms its client is to wait before the next."""
        return self._record(PRODUCER_RATE, client_id, size, now_ms) if self.bounds else 0

    def consumed(self, client_id: str, size: int, now_ms: int) -> int:
        """Count an answer to a fetch; 0, or how many ms its client is to wait because it may not have it now.

        One that is larger than the quota of all windows together goes out where it is the only one in them.
        """
        if not self.bounds:
            return 0
        wait_ms = self._record(CONSUMER_RATE, client_id, size, now_ms)
        found = self._scope(CONSUMER_RATE, client_id)
        if wait_ms and found is not None and not self._rates.take_back(found[0], size, now_ms):
            return 0
        return wait_ms

    def given(self, client_id: str, size: int, now_ms: int) -> int:
        """Count an answer to a fetch that goes out in any case; how many ms its client is to wait before the next."""
        return self._record(CONSUMER_RATE, client_id, size, now_ms) if self.bounds else 0

    def largest_answer(self, client_id: str) -> int | None:
        """The most bytes that an answer to a fetch may have so that it fits the quota; None without one."""
        found = self._scope(CONSUMER_RATE, client_id) if self.bounds else None
        return None if found is None else self._rates.largest(found[1])

    def _record(self, name: str, client_id: str, size: int, now_ms: int) -> int:
        found = self._scope(name, client_id)
        if found is None:
            return 0
        return self._rates.record(*found, size, now_ms)

    def _scope(self, name: str, client_id: str) -> tuple[_Scope, float] | None:
        key = name, client_id
        if key not in self._found:
            if len(self._found) >= _MOST_RATES:
                self._found.clear()
            self._found[key] = self._resolve(name, ANONYMOUS, client_id)
        return self._found[key]

    def _resolve(self, name: str, user: str, client_id: str) -> tuple[_Scope, float] | None:
        """The nearest quota, in Kafka's order, and its entity: all clients of a user, or one client."""
        both: Entity = (("client-id", client_id), ("user", user))
        mine: Entity = (("user", user),)
        alone: Entity = (("client-id", client_id),)
        order: list[tuple[Entity, Entity]] = [
            (both, both),
            ((("client-id", None), ("user", user)), both),
            (mine, mine),
            ((("client-id", client_id), ("user", None)), both),
            ((("client-id", None), ("user", None)), both),
            ((("user", None),), mine),
            (alone, alone),
            ((("client-id", None),), alone),
        ]
        for entity, scope in order:
            bound = self.bounds.get(entity, {}).get(name)
            if bound is not None:
                return (scope, name), bound
        return None
