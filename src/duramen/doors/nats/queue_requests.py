"""Requests about queues over NATS: `$DURAMEN.Q.<space>.<operation>`, with the JSON of the HTTP door."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from duramen.base.errors import BodyTooLarge, DuramenError, NodeBusy, NodeStopping, RequestInvalid, StreamNotFound
from duramen.base.principal import ANONYMOUS
from duramen.broker.streams import Stream
from duramen.codec.nats import Message, encode_hpub, encode_pub
from duramen.doors.nats.actions import QUEUE_ACTIONS
from duramen.doors.problems import PartlyStored, Problem, problem_of
from duramen.doors.queues.operations import OPERATIONS, QueueOperations
from duramen.service.admission import Admitted, Service
from duramen.service.broker import Broker
from duramen.service.queues import QueueRequests, space_of

__all__ = ["LARGEST_REQUEST_BYTES", "QUEUE_PREFIX", "QUEUE_SUBJECT", "NatsQueues"]

QUEUE_PREFIX: Final = b"$DURAMEN.Q."
QUEUE_SUBJECT: Final = QUEUE_PREFIX + b">"
LARGEST_REQUEST_BYTES: Final = 1024 * 1024
_LARGEST_ANSWER_BYTES: Final = 1024 * 1024 - 1024  # what a server takes by default, less the headers
_PAGE_BYTES: Final = 512 * 1024  # of entries: as JSON they are larger
_UNDER_WAY_BYTES: Final = 16 * 1024 * 1024
_MOST_REQUESTS: Final = 1000


class NatsQueues:
    """Answers requests, each in a task of its own. `send` is handed commands for the server."""

    def __init__(
        self, broker: Broker, service: Service, requests: QueueRequests, send: Callable[[bytes], None]
    ) -> None:
        self._broker = broker
        self._service = service
        self._send = send
        self._requests = requests
        self._spaces: set[Stream] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._polls: set[asyncio.Future[Any]] = set()
        self._bytes = 0

    def follow(self, stream: Stream) -> bool:
        """A stream is new, changed or deleted; returns whether there are queue spaces now."""
        if stream.shards and not stream.deleted:
            self._spaces.add(stream)
        else:
            self._spaces.discard(stream)
        return bool(self._spaces)

    def take(self, message: Message) -> None:
        """A message to a subject of `QUEUE_PREFIX`."""
        subject, reply, _, payload = message
        size = len(payload or b"")
        if len(self._tasks) >= _MOST_REQUESTS or self._bytes + size > _UNDER_WAY_BYTES:
            error = NodeBusy(f"{len(self._tasks)} requests with {self._bytes} bytes are under way already")
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
        """Answer what was taken; requests that wait for entries are answered that the node stops."""
        for poll in list(self._polls):
            if not poll.done():
                poll.set_exception(NodeStopping("the node stops"))
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout_s)

    async def _answer(self, subject: bytes, reply: bytes | None, payload: bytes | None) -> None:
        instance = subject.decode(errors="replace")
        try:
            answer = msgspec.json.encode(await self._run(subject, instance, payload))
            if len(answer) > _LARGEST_ANSWER_BYTES:
                raise RequestInvalid(f"the answer has {len(answer)} bytes: ask for fewer entries at a time")
        except PartlyStored as error:
            problem = problem_of(error.error, instance)
            problem.stored = error.stored or msgspec.UNSET
            problem.unknown = error.unknown or msgspec.UNSET
            self._refuse(reply, problem)
        except DuramenError as error:
            self._refuse(reply, problem_of(error, instance))
        else:
            if reply is not None:
                self._send(encode_pub(reply, answer))

    def _refuse(self, reply: bytes | None, problem: Problem) -> None:
        """An error as services of NATS answer it, with the problem as HTTP has it."""
        if reply is not None:
            said = f"{problem.type}: {problem.detail}".replace("\r", " ").replace("\n", " ").encode(errors="replace")
            headers = [(b"Nats-Service-Error", said), (b"Nats-Service-Error-Code", b"%d" % problem.status)]
            self._send(encode_hpub(reply, headers, msgspec.json.encode(problem)))

    async def _run(self, subject: bytes, instance: str, payload: bytes | None) -> object:
        name, _, said = instance[len(QUEUE_PREFIX) :].rpartition(".")
        operation = OPERATIONS.get(said)
        if operation is None:
            raise RequestInvalid(
                f"{subject[:200]!r} does not fit: a subject is $DURAMEN.Q.SPACE.OPERATION, and the operations are"
                f" {', '.join(OPERATIONS)}"
            )
        if payload is None:
            raise BodyTooLarge(f"a request has at most {LARGEST_REQUEST_BYTES} bytes here")
        try:
            wish = msgspec.json.decode(payload or b"{}", type=operation.wish)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RequestInvalid(f"the request does not fit: {error}") from None
        space = await self._admitted(name, said)
        operations = QueueOperations(self._broker, self._requests, space, self._polls, instance, _PAGE_BYTES)
        return await operation.run(operations, wish)

    async def _admitted(self, name: str, said: str) -> Stream:
        """The space, where it may be used. Raises QueueSpaceNotFound, TopicNotAuthorized, NameNotResolved."""
        future: asyncio.Future[Admitted | DuramenError] = asyncio.get_running_loop().create_future()
        rules = QUEUE_ACTIONS[said]
        self._service.admit(ANONYMOUS, rules, (name,), future.set_result)
        found = await future
        if isinstance(found, DuramenError):
            raise found
        try:
            topic: Stream | None = found.topics.get(name)
        except StreamNotFound:
            topic = None
        return space_of(topic, name)
