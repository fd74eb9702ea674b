"""Asks this node or another, and does not wait for ever."""

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, OutcomeUnknown
from duramen.base.ports import Buffer, Clock
from duramen.broker.refusals import Refused

__all__ = ["Nodes", "Way", "Words"]

Request = TypeVar("Request")
Answer = TypeVar("Answer")

_ANSWER_MS: Final = 3_000


class Way(Protocol):
    """How to reach the other nodes."""

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """Ask another node; `done` gets the answer, or None where the connection ends. False where there is none."""


class Words(NamedTuple, Generic[Request, Answer]):
    """Values as bytes. `decode` raises RequestInvalid, `decode_answer` what the answer says, or OutcomeUnknown."""

    encode: Callable[[Request | Answer | Refused], bytes]
    decode: Callable[[Buffer], Request]
    decode_answer: Callable[[Buffer], Answer]


class Nodes(Generic[Request, Answer]):
    """Requests to the nodes of a cluster. `serve` answers those to this one."""

    def __init__(
        self, node_id: int, way: Way, clock: Clock, deadlines: Deadlines, words: Words[Request, Answer],
        serve: Callable[[Request, Callable[[Answer | DuramenError], None]], None],
    ) -> None:  # fmt: skip
        self._node_id = node_id
        self._words = words
        self._way = way
        self._clock = clock
        self._deadlines = deadlines
        self._serve = serve

    def ask(self, node_id: int, request: Request, done: Callable[[Answer | DuramenError], None]) -> None:
        """Ask a node; `done` gets its answer or why there is none, once.

        OutcomeUnknown where it cannot be reached or does not answer in time: it may have been done all the same.
        """
        once = _Once[Answer](done)
        late = OutcomeUnknown(f"node {node_id} has not answered in {_ANSWER_MS} ms")
        deadline = self._deadlines.at(self._clock.monotonic_ms() + _ANSWER_MS, partial(once, late))
        once.over = deadline.cancel
        if node_id == self._node_id:
            self._serve(request, once)
        elif not self._way.ask_node(node_id, self._words.encode(request), partial(self._answered, node_id, once)):
            once(OutcomeUnknown(f"there is no connection to node {node_id}"))

    def asked(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """Another node asks this one. Raises RequestInvalid where that cannot be read."""
        self._serve(
            self._words.decode(body),
            lambda found: answer(self._words.encode(Refused.of(found) if isinstance(found, DuramenError) else found)),
        )

    def _answered(self, node_id: int, done: Callable[[Answer | DuramenError], None], body: Buffer | None) -> None:
        if body is None:
            done(OutcomeUnknown(f"node {node_id} was asked, and the connection ended before it answered"))
            return
        try:
            found: Answer | DuramenError = self._words.decode_answer(body)
        except DuramenError as error:
            found = error
        done(found)


class _Once(Generic[Answer]):
    def __init__(self, done: Callable[[Answer | DuramenError], None]) -> None:
        self._done: Callable[[Answer | DuramenError], None] | None = done
        self.over: Callable[[], None] = _nothing

    def __call__(self, answer: Answer | DuramenError) -> None:
        done, self._done = self._done, None
        if done is not None:
            self.over()
            done(answer)


def _nothing() -> None:
    """There is no deadline."""
