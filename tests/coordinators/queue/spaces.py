"""A node with a queue space, in a test's hand."""

from collections.abc import Sequence
from typing import Any

from duramen.base.errors import DuramenError
from duramen.base.ids import Position
from duramen.broker.streams import Stream
from duramen.codec.batch import BatchInput, encode
from duramen.coordinators.queue.shard import queue_kind
from duramen.queues.leases import Leased, LeasedEntry
from duramen.queues.machine import Queue, QueueCommand
from duramen.queues.operations import NewEntry
from duramen.queues.reading import Counted, Retrieved, Where
from duramen.service.led_queues import FoundNames, FoundTotals, LedQueues, Refused
from duramen.service.queue_leases import LeasePoll, LeaseRequest
from duramen.service.queues import (
    Enqueued,
    LocalShards,
    QueueRequests,
    Read,
    ReadLimits,
    queue_of,
    request_of,
    space_of,
)
from duramen.sim.broker import CallbackResult, ManualBroker

__all__ = ["NAMES", "SHARDS", "SPACE", "Space"]

SPACE = "mail"
SHARDS = 2
NAMES = tuple(b"user-%d" % number for number in range(5))


class Space:
    """A node with a queue space."""

    def __init__(self, seed: int = 0, checkpoint_records: int = 100_000, **config: Any) -> None:
        self.hand = ManualBroker(seed=seed, kinds=(queue_kind(checkpoint_records),))
        self.hand.create(SPACE, SHARDS, kind="queues", **config)
        self.hand.settle()

    @property
    def stream(self) -> Stream:
        return space_of(self.hand.broker.streams.find(SPACE), SPACE)

    @property
    def requests(self) -> QueueRequests:
        return QueueRequests(LocalShards(self.hand.broker))

    @property
    def led(self) -> LedQueues:
        return LedQueues(self.hand.broker, LocalShards(self.hand.broker))

    def put(self, *entries: tuple[bytes, bytes | NewEntry], request: str = "") -> list[Position]:
        answer: CallbackResult[Enqueued] = CallbackResult()
        new = [(queue, value if isinstance(value, NewEntry) else NewEntry(value)) for queue, value in entries]
        self.requests.enqueue(self.stream, new, answer, request_of(self.stream, request))
        self.hand.settle()
        if answer.value.error is not None:
            raise answer.value.error
        return [position for position in answer.value.positions if position is not None]

    def submit(self, name: bytes, kind: Any, *more: object) -> Position:
        queue: Queue = queue_of(self.stream, name)
        command: QueueCommand = kind(queue, *more)
        answer: CallbackResult[Position] = CallbackResult()
        self.requests.submit(self.stream, queue, command, answer)
        self.hand.settle()
        return answer.value

    def poll(self, *reads: Read, limit: int = 1000, wait_ms: int = 0) -> CallbackResult[dict[bytes, Any]]:
        answer: CallbackResult[dict[bytes, Any]] = CallbackResult()
        self.requests.retrieve(self.stream, reads, ReadLimits(limit, 1 << 20, wait_ms), answer)
        self.hand.settle()
        return answer

    def read(self, name: bytes, where: Where = "start", limit: int = 1000) -> Retrieved:
        found = self.poll(Read(name, where), limit=limit).value[name]
        if isinstance(found, DuramenError):
            raise found
        retrieved: Retrieved = found
        return retrieved

    def values(self, name: bytes, where: Where = "start") -> list[bytes | None]:
        return [entry.value for entry in self.read(name, where).entries]

    def produce(self, records: Sequence[BatchInput], partition: int = 0, **header: int) -> DuramenError | None:
        answer: CallbackResult[int] = CallbackResult()
        self.stream.partition(partition).append(encode(records, **header), answer)
        self.hand.settle()
        error = answer.calls[0][-1]
        return error if isinstance(error, DuramenError) else None

    # -- leases -------------------------------------------------------------------------------------

    def poll_leases(self, request: LeaseRequest, turn: int = 0) -> CallbackResult[list[Leased]]:
        answer: CallbackResult[list[Leased]] = CallbackResult()
        LeasePoll(self.hand.broker, self.requests, self.stream, request, turn, answer).begin()
        self.hand.advance(0)
        return answer

    def lease(self, *queues: bytes, most: int = 10, lease_ms: int = 1_000, fifo: bool = False) -> list[Leased]:
        return self.poll_leases(LeaseRequest(queues, most, lease_ms, fifo=fifo)).value

    def ack(self, *leased: Leased, request: str = "", release_ms: int | None = None) -> Refused:
        answer: CallbackResult[Refused] = CallbackResult()
        entries = [(one.queue, LeasedEntry(one.entry.position, one.lease)) for one in leased]
        self.led.acknowledge(self.stream, entries, answer, request_of(self.stream, request), release_ms)
        self.hand.settle()
        return answer.value

    def extend(self, leased: Leased, lease_ms: int) -> Refused:
        answer: CallbackResult[Refused] = CallbackResult()
        self.led.extend(
            self.stream, [(leased.queue, LeasedEntry(leased.entry.position, leased.lease))], lease_ms, answer
        )
        self.hand.settle()
        return answer.value

    # -- queues -------------------------------------------------------------------------------------

    def names(self, prefix: bytes = b"", limit: int = 100) -> list[bytes]:
        return self.found_names(prefix, limit).names

    def found_names(self, prefix: bytes = b"", limit: int = 100, after: tuple[int, bytes] = (0, b"")) -> FoundNames:
        answer: CallbackResult[FoundNames] = CallbackResult()
        self.led.names(self.stream, prefix, after, limit, answer)
        self.hand.settle()
        return answer.value

    def totals(self) -> FoundTotals:
        answer: CallbackResult[FoundTotals] = CallbackResult()
        self.led.totals(self.stream, answer)
        self.hand.settle()
        return answer.value

    def count(self, name: bytes) -> tuple[Counted, int]:
        answer: CallbackResult[tuple[Counted, int]] = CallbackResult()
        self.led.count(self.stream, name, answer)
        self.hand.settle()
        return answer.value
