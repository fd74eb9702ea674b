"""Executes a request about one partition here, or sends it to the leader by the retry rule."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from duramen.base.errors import DuramenError, NotLeader, OutcomeUnknown
from duramen.broker.partition import Partition
from duramen.rpc.methods import Method
from duramen.rpc.retry import KnownLeader, Retrying, RetryPace, Underway
from duramen.service.forwarding.router import FIRST_RETRY_MS, LAST_RETRY_MS, Router

__all__ = ["PartitionRequest", "asking"]

Found = TypeVar("Found")
Found_co = TypeVar("Found_co", covariant=True)


class PartitionRequest(Protocol[Found_co]):
    """A request about a partition."""

    @property
    def partition(self) -> Partition:
        """The partition."""

    @property
    def method(self) -> Method[Any, Any]:
        """The rpc method for the leader; its response is the result."""

    def begin(self, done: Callable[[Found_co | DuramenError | OSError], None]) -> Callable[[], None] | None:
        """Execute it here if possible: returns a function that cancels it. None if another node has to be asked."""

    def message(self, spent_ms: int) -> Any:
        """The request to another node, after this much of the time."""


def asking(
    router: Router, request: PartitionRequest[Found], within_ms: int,
    done: Callable[[Found | DuramenError | OSError], None],
) -> Retrying[Found | OSError]:  # fmt: skip
    """A request that is ready to begin. `done` gets the result once, or NotLeader if no leader was found in time."""
    method = request.method

    def attempt(
        known: KnownLeader, left_ms: int, answered: Callable[[Found | DuramenError | OSError], None]
    ) -> Underway:  # fmt: skip
        cancel = request.begin(answered)
        if cancel is not None:
            return Underway(None, cancel)
        if known.node_id is None or known.node_id == router.broker.node_id:
            raise NotLeader("the partition has no leader now: retry")
        router.caller.call(known.node_id, method, request.message(within_ms - left_ms), answered, left_ms)
        return Underway(known.node_id)

    def told(outcome: Found | DuramenError | OSError) -> None:
        if method.idempotent and isinstance(outcome, OutcomeUnknown):
            outcome = NotLeader(f"the partition's leader does not answer: {outcome}: ask again")
        done(outcome)

    pace = RetryPace(within_ms, FIRST_RETRY_MS, LAST_RETRY_MS)
    return Retrying(
        attempt, lambda: router.leader(request.partition), pace, router.caller.clock, router.caller.deadlines, told,
        idempotent=method.idempotent,
    )  # fmt: skip
