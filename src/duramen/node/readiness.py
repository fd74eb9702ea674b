"""Readiness of a node: each part reports its obstacle as one line."""

from collections.abc import Callable

from duramen.base.ports import Clock

__all__ = ["Lasting", "Readiness"]


class Readiness:
    """What `/readyz` and the metric `duramen_ready` go by. Whoever knows of an obstacle adds itself with `add`."""

    def __init__(self) -> None:
        self._obstacles: list[Callable[[], str]] = []

    def add(self, obstacle: Callable[[], str]) -> None:
        """Have `obstacle` asked from here on: why the node is not ready, in one line; empty where it is."""
        self._obstacles.append(obstacle)

    def problem(self) -> str:
        """Why the node is not ready, all that is known of it; empty where it is."""
        return "; ".join(filter(None, (obstacle() for obstacle in self._obstacles)))


class Lasting:
    """An obstacle that counts once it has lasted: an election of a controller takes moments, and is none."""

    def __init__(self, obstacle: Callable[[], str], for_ms: int, clock: Clock) -> None:
        self._obstacle = obstacle
        self._for_ms = for_ms
        self._clock = clock
        self._since_ms: int | None = None

    def problem(self) -> str:
        """The obstacle, where it has been there for that long; it has to be asked often."""
        words = self._obstacle()
        if not words:
            self._since_ms = None
            return ""
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        return words if now_ms - self._since_ms >= self._for_ms else ""
