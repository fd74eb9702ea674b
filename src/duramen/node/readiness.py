"""Whether a node is ready: each part of it that may know of an obstacle is asked, and says it in a line."""

from collections.abc import Callable

__all__ = ["Readiness"]


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
