"""Sends the batches of one request to the leaders of their partitions: one request to each, an outcome per batch.

A batch that a node refuses because it is not the leader was not stored, and goes to the next leader. A batch that was
sent without a response is not sent again: it may be stored, and without a producer id it would be duplicated.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from duramen.base.deadlines import Deadline
from duramen.base.errors import DuramenError, NodeBusy, NotLeader, OutcomeUnknown
from duramen.broker.partition import Partition
from duramen.rpc.retry import may_repeat
from duramen.service.appending import append
from duramen.service.forwarded_requests import APPEND, AppendRequest, AppendResponse, AppendResult
from duramen.service.forwarding.router import FIRST_RETRY_MS, LAST_RETRY_MS, Router

__all__ = ["Delivery", "PartitionBatch"]


class PartitionBatch(NamedTuple):
    """A batch that its partition takes, as far as that can be known without leading it."""

    partition: Partition
    content: bytearray


class Delivery:
    """The batches of one request on their way."""

    def __init__(
        self, router: Router, batches: Sequence[PartitionBatch], within_ms: int,
        done: Callable[[list[AppendResult]], None],
    ) -> None:  # fmt: skip
        """`done` gets the results in the order of the batches, once: NotLeader if no leader was found in time."""
        self._router = router
        self._batches = batches
        self._done: Callable[[list[AppendResult]], None] | None = done
        self._results: dict[int, AppendResult] = {}
        self._asked: dict[int, int] = {}  # the node that has each batch and has not responded
        self._again: dict[int, DuramenError] = {}  # batches for the next leader, and the reasons
        self._held: dict[int, int] = {}  # bytes of each request on its way
        self._retry_ms = FIRST_RETRY_MS
        self._next: Deadline | None = None
        self._last = router.broker.later(within_ms, self._expire)

    def begin(self) -> None:
        """Send the remaining batches to the present leaders."""
        self._next = None
        waiting = [at for at in range(len(self._batches)) if at not in self._results and at not in self._asked]
        self._again = {}
        by_leader: dict[int | None, list[int]] = {}
        for at in waiting:
            by_leader.setdefault(self._router.leader(self._batches[at].partition).node_id, []).append(at)
        for leader, numbers in by_leader.items():
            if leader is None:
                self._refuse(numbers, NotLeader("the partition has no leader now: retry"))
            elif leader == self._router.broker.node_id:
                self._append(leader, numbers)
            else:
                self._send(leader, numbers)
        self._go_on()

    def stop(self, error: DuramenError) -> None:
        """Send no more requests."""
        self._end(error)

    # -- here ---------------------------------------------------------------------------------------

    def _append(self, node_id: int, numbers: Iterable[int]) -> None:
        for at in numbers:
            self._asked[at] = node_id
            append(*self._batches[at], partial(self._appended, at))

    def _appended(self, at: int, result: AppendResult) -> None:
        self._settle(at, result)
        self._go_on()

    # -- at other nodes -----------------------------------------------------------------------------

    def _send(self, leader: int, numbers: list[int]) -> None:
        stream_id = self._batches[numbers[0]].partition.log.key.stream_id
        batches = [(self._batches[at].partition.index, self._batches[at].content) for at in numbers]
        size = sum(len(content) for _, content in batches)
        if not self._router.room.take(size):
            limit = self._router.room.limit_bytes
            self._refuse(numbers, NodeBusy(f"what clients have sent takes {limit} bytes already"))
            return
        self._held[numbers[0]] = size
        for at in numbers:
            self._asked[at] = leader
        request = AppendRequest(stream_id.bytes, batches)
        self._router.caller.call(leader, APPEND, request, partial(self._heard, leader, numbers))

    def _heard(self, leader: int, numbers: list[int], answer: AppendResponse | DuramenError) -> None:
        if self._done is None:
            return
        self._give_back(numbers[0])
        results = _results(leader, answer, len(numbers))
        for at, result in zip(numbers, results, strict=True):
            self._settle(at, result)
        self._go_on()

    def _give_back(self, first: int) -> None:
        self._router.room.give(self._held.pop(first))

    # -- results --------------------------------------------------------------------------------------

    def _refuse(self, numbers: Iterable[int], error: DuramenError) -> None:
        for at in numbers:
            self._settle(at, AppendResult(-1, error))

    def _settle(self, at: int, result: AppendResult) -> None:
        self._asked.pop(at, None)
        if result.error is not None and not result.unknown and may_repeat(result.error, idempotent=APPEND.idempotent):
            self._again[at] = result.error
        else:
            self._results[at] = result

    def _go_on(self) -> None:
        """Answer where all is known; look for other leaders in a while where something waits for them."""
        if self._done is None:
            return
        if len(self._results) == len(self._batches):
            self._finish()
        elif self._again and self._next is None:
            self._next = self._router.broker.later(self._retry_ms, self.begin)
            self._retry_ms = min(2 * self._retry_ms, LAST_RETRY_MS)

    def _expire(self) -> None:
        self._end(None)

    def _end(self, error: DuramenError | None) -> None:
        """The time is over: batches in flight may be stored, waiting ones are not."""
        if self._done is None:
            return
        for at, why in self._again.items():
            self._results[at] = AppendResult(-1, error or why)
        for at, node_id in self._asked.items():
            self._results[at] = AppendResult(-1, _unanswered(node_id), True)
        self._finish()

    def _finish(self) -> None:
        done, self._done = self._done, None
        self._last.cancel()
        if self._next is not None:
            self._next.cancel()
        for first in list(self._held):
            self._give_back(first)
        if done is not None:
            done([self._results[at] for at in range(len(self._batches))])


def _results(leader: int, answer: AppendResponse | DuramenError, count: int) -> list[AppendResult]:
    """The results in a leader's response; if it is invalid, the batches may be stored."""
    if isinstance(answer, AppendResponse) and len(answer.results) == count:
        return answer.read()
    if isinstance(answer, DuramenError) and not isinstance(answer, OutcomeUnknown):
        return [AppendResult(-1, answer)] * count  # it was refused as a whole
    return [AppendResult(-1, _unanswered(leader), True)] * count


def _unanswered(node_id: int) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"node {node_id}, which leads, has the records, and has not said whether they are stored: look before you send"
        " them again"
    )
