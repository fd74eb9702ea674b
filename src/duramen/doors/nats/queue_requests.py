"""Requests about queues over NATS: `$DURAMEN.Q.<space>.<operation>`, with the JSON of the HTTP door."""

import asyncio
from collections.abc import Callable
from typing import Final

from duramen.base.errors import DuramenError, RequestInvalid, StreamNotFound
from duramen.base.principal import ANONYMOUS
from duramen.broker.streams import Stream
from duramen.doors.nats.actions import QUEUE_ACTIONS
from duramen.doors.nats.requests import LARGEST_ANSWER_BYTES, NatsRequests, decode_request
from duramen.doors.queues.operations import OPERATIONS, QueueOperations
from duramen.service.admission import Admitted, Service
from duramen.service.broker import Broker
from duramen.service.queues import QueueRequests, space_of

__all__ = ["QUEUE_PREFIX", "QUEUE_SUBJECT", "NatsQueues"]

QUEUE_PREFIX: Final = b"$DURAMEN.Q."
QUEUE_SUBJECT: Final = QUEUE_PREFIX + b">"


class NatsQueues(NatsRequests):
    """Answers requests about queues."""

    def __init__(
        self, broker: Broker, service: Service, requests: QueueRequests, send: Callable[[bytes], None]
    ) -> None:
        super().__init__(send)
        self._broker = broker
        self._service = service
        self._requests = requests
        self._spaces: set[Stream] = set()

    def follow(self, stream: Stream) -> bool:
        """A stream is new, changed or deleted; returns whether there are queue spaces now."""
        if stream.shards and not stream.deleted:
            self._spaces.add(stream)
        else:
            self._spaces.discard(stream)
        return bool(self._spaces)

    async def run(self, subject: bytes, instance: str, payload: bytes | None) -> object:
        """As of `NatsRequests`."""
        name, _, said = instance[len(QUEUE_PREFIX) :].rpartition(".")
        operation = OPERATIONS.get(said)
        if operation is None:
            raise RequestInvalid(
                f"{subject[:200].decode(errors='replace')} does not fit: a subject is"
                f" $DURAMEN.Q.SPACE.OPERATION, and the operations are {', '.join(OPERATIONS)}"
            )
        request = decode_request(payload, operation.request_type)
        space = await self._admitted(name, said)
        operations = QueueOperations(self._broker, self._requests, space, self.polls, instance, LARGEST_ANSWER_BYTES)
        return await operation.run(operations, request)

    async def _admitted(self, name: str, said: str) -> Stream:
        """The space, if it may be used. Raises QueueSpaceNotFound, TopicNotAuthorized, NameNotResolved."""
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
