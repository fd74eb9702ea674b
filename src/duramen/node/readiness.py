"""Readiness of a node: each part reports its obstacle as one line."""

from collections.abc import Callable

from duramen.base.ports import Clock

__all__ = ["Lasting", "Readiness"]


class Readiness:
    """The state for `/readyz` and the metric `duramen_ready`. Parts with possible obstacles call `add`."""

    def __init__(self) -> None:
        self._obstacles: list[Callable[[], str]] = []

    def add(self, obstacle: Callable[[], str]) -> None:
        """Call `obstacle` from here on: the reason why the node is not ready, in one line, or an empty text."""
        self._obstacles.append(obstacle)

    def problem(self) -> str:
        """All known reasons why the node is not ready; empty if it is."""
        return "; ".join(filter(None, (obstacle() for obstacle in self._obstacles)))


class Lasting:
    """An obstacle that counts once it has lasted: an election of a controller is short, and is none."""

    def __init__(self, obstacle: Callable[[], str], for_ms: int, clock: Clock) -> None:
        self._obstacle = obstacle
        self._for_ms = for_ms
        self._clock = clock
        self._since_ms: int | None = None

    def problem(self) -> str:
        """The obstacle, if it has lasted that long; call this often."""
        words = self._obstacle()
        if not words:
            self._since_ms = None
            return ""
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        return words if now_ms - self._since_ms >= self._for_ms else ""
