"""Requests over NATS with JSON responses, or with problems in the form of NATS services' errors."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from duramen.base.errors import BodyTooLarge, DuramenError, NodeBusy, NodeStopping, RequestInvalid
from duramen.codec.jsonbytes import why_unreadable
from duramen.codec.nats import Message, encode_hpub, encode_pub
from duramen.doors.problems import PartlyStored, Problem, problem_of, unexpected_problem

__all__ = ["LARGEST_ANSWER_BYTES", "LARGEST_REQUEST_BYTES", "NatsRequests", "decode_request"]

_T = TypeVar("_T")

LARGEST_REQUEST_BYTES: Final = 1024 * 1024
LARGEST_ANSWER_BYTES: Final = 1024 * 1024 - 1024  # the server's default limit, less the headers
_UNDER_WAY_BYTES: Final = 16 * 1024 * 1024
_MOST_REQUESTS: Final = 1000


def decode_request(payload: bytes | None, type_: type[_T]) -> _T:
    """The decoded request. Raises BodyTooLarge, RequestInvalid."""
    if payload is None:
        raise BodyTooLarge(f"a request has at most {LARGEST_REQUEST_BYTES} bytes here")
    try:
        return msgspec.json.decode(payload or b"{}", type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestInvalid(f"the request does not fit: {why_unreadable(payload or b'', error)}") from None


class NatsRequests(ABC):
    """Answers requests, each in a task of its own. `send` is handed commands for the server."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes = 0
        self.polls: set[asyncio.Future[Any]] = set()
        """Requests that wait for something."""

    @abstractmethod
    async def run(self, subject: bytes, instance: str, payload: bytes | None) -> object:
        """The response to a request on a subject. Raises DuramenError, PartlyStored."""

    def take(self, message: Message) -> None:
        """A message that is a request."""
        subject, reply, _, payload = message
        size = len(payload or b"")
        if len(self._tasks) >= _MOST_REQUESTS or self._bytes + size > _UNDER_WAY_BYTES:
            error = NodeBusy(f"{len(self._tasks)} requests with {self._bytes} bytes are already in progress")
            self._refuse(reply, problem_of(error, subject.decode(errors="replace")))
            return
        self._bytes += size
        task = asyncio.get_running_loop().create_task(self._answer(subject, reply, payload))
        self._tasks.add(task)

        def ended(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._bytes -= size

        task.add_done_callback(ended)

    async def drain(self, timeout_s: float) -> None:
        """Answer accepted requests; waiting ones get the error that the node stops."""
        for poll in list(self.polls):
            if not poll.done():
                poll.set_exception(NodeStopping("the node stops"))
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout_s)

    async def _answer(self, subject: bytes, reply: bytes | None, payload: bytes | None) -> None:
        instance = subject.decode(errors="replace")
        try:
            answer = msgspec.json.encode(await self.run(subject, instance, payload))
            if len(answer) > LARGEST_ANSWER_BYTES:
                raise RequestInvalid(
                    f"the response has {len(answer)} bytes, and one over NATS has {LARGEST_ANSWER_BYTES} at most:"
                    " request less at a time, or use HTTP"
                )
        except PartlyStored as error:
            problem = problem_of(error.error, instance)
            problem.stored = error.stored or msgspec.UNSET
            problem.unknown = error.unknown or msgspec.UNSET
            self._refuse(reply, problem)
        except DuramenError as error:
            self._refuse(reply, problem_of(error, instance))
        except Exception:
            self._refuse(reply, unexpected_problem(instance))
            raise  # the loop writes it to the node's log
        else:
            if reply is not None:
                self._send(encode_pub(reply, answer))

    def _refuse(self, reply: bytes | None, problem: Problem) -> None:
        """An error as services of NATS answer it, with the problem as HTTP has it."""
        if reply is not None:
            said = f"{problem.type}: {problem.detail}".replace("\r", " ").replace("\n", " ").encode(errors="replace")
            headers = [(b"Nats-Service-Error", said), (b"Nats-Service-Error-Code", b"%d" % problem.status)]
            self._send(encode_hpub(reply, headers, msgspec.json.encode(problem)))
