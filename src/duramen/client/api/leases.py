"""Leases on snapshots over HTTP, for both clients. Pure except for the clock."""

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from duramen.client.api.arguments import text
from duramen.client.api.http import Program, Question
from duramen.client.api.values import value_of
from duramen.client.http import path_of, vector_text

__all__ = ["HeldLease", "close_lease", "find_lease", "open_lease", "renew_lease"]


class HeldLease:
    """A lease that a program has opened (`own`) or was given, and its renewal time."""

    def __init__(
        self, answer: object, *, own: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        """`answer` is the node's description of the lease."""
        facts = value_of(answer, dict[str, Any])
        parts = value_of(facts.get("partitions"), list[dict[str, Any]])
        self.lease = value_of(facts.get("lease"), str)
        self.stream = value_of(facts.get("stream"), str)
        self.at = {value_of(part.get("partition"), int): value_of(part.get("at"), int) for part in parts}
        self.own = own
        self._clock = clock
        self._lease_s = value_of(facts.get("lease_ms"), int) / 1000
        # What it was given may end soon.
        self._due_s = clock() + self._lease_s / 3 if own else clock()

    @property
    def due(self) -> bool:
        """Whether a third of its time has passed."""
        return self._clock() >= self._due_s

    def renewed(self) -> None:
        """Its whole time starts again now."""
        self._due_s = self._clock() + self._lease_s / 3


def _path(stream: str, lease: str = "") -> str:
    path = path_of("streams", text("stream", stream)) + "/snapshot/leases"
    return f"{path}/{quote(lease, safe='')}" if lease else path


def open_lease(stream: str, at: Mapping[int, int]) -> Program[HeldLease]:
    """Open a lease on a snapshot."""
    return HeldLease((yield Question("POST", _path(stream), {"at": vector_text(at)})), own=True)


def find_lease(stream: str, lease: str) -> Program[HeldLease]:
    """A lease by its id."""
    return HeldLease((yield Question("GET", _path(stream, text("lease", lease)))), own=False)


def renew_lease(held: HeldLease) -> Program[None]:
    """Renew a lease."""
    yield Question("POST", _path(held.stream, held.lease))
    held.renewed()


def close_lease(held: HeldLease) -> Program[None]:
    """End a lease."""
    yield Question("DELETE", _path(held.stream, held.lease))
