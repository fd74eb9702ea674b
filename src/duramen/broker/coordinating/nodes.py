"""Asks this node or another about transactions, and does not wait for ever."""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, OutcomeUnknown
from duramen.base.ports import Buffer, Clock
from duramen.broker.coordinating.requests import Answer, Request, decode, decode_answer, encode
from duramen.broker.refusals import Refused

__all__ = ["AnswerDone", "Nodes", "Serve", "Way"]

AnswerDone = Callable[[Answer | DuramenError], None]
Serve = Callable[[Request, AnswerDone], None]

_ANSWER_MS: Final = 3_000


class Way(Protocol):
    """How to reach the other nodes."""

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """Ask another node; `done` gets the answer, or None where the connection ends. False where there is none."""


class Nodes:
    """Requests to the nodes of a cluster. `serve` answers those to this one."""

    def __init__(self, node_id: int, way: Way, clock: Clock, deadlines: Deadlines, serve: Serve) -> None:
        self._node_id = node_id
        self._way = way
        self._clock = clock
        self._deadlines = deadlines
        self._serve = serve

    def ask(self, node_id: int, request: Request, done: AnswerDone) -> None:
        """Ask a node; `done` gets its answer or why there is none, once.

        OutcomeUnknown where it cannot be reached or does not answer in time: it may have been done all the same.
        """
        once = _Once(done)
        late = OutcomeUnknown(f"node {node_id} has not answered in {_ANSWER_MS} ms")
        deadline = self._deadlines.at(self._clock.monotonic_ms() + _ANSWER_MS, partial(once, late))
        once.over = deadline.cancel
        if node_id == self._node_id:
            self._serve(request, once)
        elif not self._way.ask_node(node_id, encode(request), partial(_answered, node_id, once)):
            once(OutcomeUnknown(f"there is no connection to node {node_id}"))

    def asked(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """Another node asks this one. Raises RequestInvalid where that cannot be read."""
        self._serve(
            decode(body),
            lambda found: answer(encode(Refused.of(found) if isinstance(found, DuramenError) else found)),
        )


class _Once:
    def __init__(self, done: AnswerDone) -> None:
        self._done: AnswerDone | None = done
        self.over: Callable[[], None] = _nothing

    def __call__(self, answer: Answer | DuramenError) -> None:
        done, self._done = self._done, None
        if done is not None:
            self.over()
            done(answer)


def _answered(node_id: int, done: AnswerDone, body: Buffer | None) -> None:
    if body is None:
        done(OutcomeUnknown(f"node {node_id} was asked, and the connection ended before it answered"))
        return
    try:
        found: Answer | DuramenError = decode_answer(body)
    except DuramenError as error:
        found = error
    done(found)


def _nothing() -> None:
    """There is no deadline."""
