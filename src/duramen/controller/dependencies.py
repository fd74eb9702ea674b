"""Dependencies of a node's controller: its identity, its ports, and timeouts."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from duramen.base.deadlines import Deadlines
from duramen.base.ports import Clock, Randomness
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import When
from duramen.metadata.leader_reports import WINDOW_MS
from duramen.metadata.sessions import SESSIONS, Sessions

__all__ = ["PRODUCERS_MS", "TIMING", "ControllerDependencies", "ControllerEffects", "ControllerTiming"]

PRODUCERS_MS: Final = 86_400_000
"""The default of producer.id.expiration.ms."""


class ControllerTiming(NamedTuple):
    """Timeouts of a node, in ms.

    `heartbeat_ms` between heartbeats, `applied_ms` at least between those that report applied offsets; `answer_ms` for
    a response; `retry_ms` before a retry, twice as long each time up to `retry_most_ms`; `duplicate_ms`: how long it
    retries if its id is taken, perhaps by its own previous process.
    """

    heartbeat_ms: int = 2_000
    applied_ms: int = 50
    answer_ms: int = 3_000
    retry_ms: int = 50
    retry_most_ms: int = 1_000
    duplicate_ms: int = 20_000


TIMING: Final = ControllerTiming()


class ControllerEffects(Protocol):
    """The effects of a node's controller on its surroundings."""

    def call(self, node_id: int, request: Request, done: When, within_ms: int) -> None:
        """Send a request to a node's controller, also this one's; `done` gets the outcome as in `Caller.call`."""

    def report(self, finding: str) -> None:
        """Report a message to the operator."""


class ControllerDependencies(NamedTuple):
    """Ports and limits. `chance` draws a number from 0 up to its argument, exclusive.

    `rebalance_ms` is the interval at which leadership returns to preferred replicas; None: never.

    `producers_ms` is how long idempotent producers are remembered.

    `cluster_id` and `feature_level` are set by the first active controller of a cluster without an id.
    """

    node_id: int
    cluster_id: str
    clock: Clock
    deadlines: Deadlines
    randomness: Randomness
    chance: Callable[[int], int]
    outside: ControllerEffects
    feature_level: int = 0
    sessions: Sessions = SESSIONS
    report_window_ms: int = WINDOW_MS
    timing: ControllerTiming = TIMING
    producers_ms: int = PRODUCERS_MS
    rebalance_ms: int | None = None
