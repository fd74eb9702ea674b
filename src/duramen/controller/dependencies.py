"""Dependencies of a node's controller: its identity, its ports, and timeouts."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from duramen.base.deadlines import Deadlines
from duramen.base.ports import Clock, Randomness
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import When
from duramen.metadata.leader_reports import WINDOW_MS
from duramen.metadata.sessions import SESSIONS, Sessions

__all__ = ["PRODUCERS_MS", "TIMING", "ControlKit", "ControllerEffects", "ControllerTiming"]

PRODUCERS_MS: Final = 86_400_000
"""The default of producer.id.expiration.ms."""


class ControllerTiming(NamedTuple):
    """How long a node waits, in ms.

    `heartbeat_ms` between heartbeats, `applied_ms` at least between those that tell of what was applied; `answer_ms`
    for an answer; `retry_ms` before it asks again, twice as long each time up to `retry_most_ms`; `duplicate_ms`: how
    long it asks again where its id is taken, which may be by its own past.
    """

    heartbeat_ms: int = 2_000
    applied_ms: int = 50
    answer_ms: int = 3_000
    retry_ms: int = 50
    retry_most_ms: int = 1_000
    duplicate_ms: int = 20_000


TIMING: Final = ControllerTiming()


class ControllerEffects(Protocol):
    """What a node's part in the controller needs of those around it."""

    def call(self, node_id: int, request: Request, done: When, within_ms: int) -> None:
        """Ask the controller of a node, this one's too; `done` gets the outcome as of `Caller.call`."""

    def report(self, finding: str) -> None:
        """Something that an operator must hear of."""


class ControlKit(NamedTuple):
    """Ports and bounds. `chance` draws a number from 0 to the one it is given, that not included.

    `rebalance_ms` is how often leaders return to preferred replicas by themselves; None: never.

    `producers_ms` is how long idempotent producers are remembered.

    `cluster_id` and `feature_level` are what a cluster without an id gets from its first active controller.
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
