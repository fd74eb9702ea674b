"""Three brokers that ask each other for their clients: what goes between them the test delivers, or loses."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests.broker.several import Several

from duramen.base.errors import DuramenError
from duramen.base.ports import Buffer
from duramen.base.positions import Position
from duramen.base.units import MIB
from duramen.broker.partition import Partition
from duramen.codec.batch import BatchInput, batches, encode, records
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionState
from duramen.rpc.wire import TableWire
from duramen.service.forwarded_requests import AppendResult, Bytes, Request
from duramen.service.forwarding.appends import PartitionBatch
from duramen.service.forwarding.forwarding import Forwarding
from duramen.service.forwarding.local import LocalSlice
from duramen.service.forwarding.memory import Room
from duramen.service.methods import TABLE
from duramen.sim.broker import CallbackResult
from duramen.storage.scan import read_slice

__all__ = ["ROOM_BYTES", "WIRE", "WITHIN_MS", "World"]

ROOM_BYTES = MIB
WITHIN_MS = 5000
WIRE = TableWire(TABLE)
"""What the nodes speak."""


class Asked(NamedTuple):
    """A request on its way."""

    sender: int
    receiver: int
    body: bytes
    done: Callable[[Buffer | None], None]


class Road:
    """The Way of one node."""

    def __init__(self, world: "World", node_id: int) -> None:
        self._world = world
        self._node_id = node_id

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """On its way, unless there is no connection."""
        if (self._node_id, node_id) in self._world.closed:
            return False
        asked = Asked(self._node_id, node_id, bytes(body), done)
        self._world.sent.append(asked)
        self._world.under_way.append(asked)
        return True


class World(Several):
    """A stream `s` of three partitions with three replicas; node N + 1 leads partition N."""

    def __init__(self) -> None:
        self.sent: list[Asked] = []
        """All that was asked."""
        self.under_way: list[Asked] = []
        self.closed: set[tuple[int, int]] = set()
        """From whom to whom there is no connection."""
        super().__init__()
        self.rooms = {number: Room(ROOM_BYTES) for number in self.hands}
        self.nodes = {
            number: Forwarding(self.broker(number), Road(self, number), self.rooms[number]) for number in self.hands
        }
        created: CallbackResult[None] = CallbackResult()
        self.broker(1).create_stream(Definition("s", 3), created)
        self.settle()
        assert created.value is None
        for index in range(3):
            self.lead(index, index + 1)

    # -- who leads ----------------------------------------------------------------------------------

    def lead(self, index: int, node_id: int | None) -> None:
        """A node leads from here on."""
        self.elect(self.place("s", index), node_id)
        self.settle()

    def only(self, index: int, node_id: int) -> None:
        """One node alone has a partition."""
        place = self.place("s", index)
        before = self.partitions[place]
        self.partitions[place] = PartitionState(
            (node_id,), (node_id,), node_id, before.leader_epoch + 1, before.partition_epoch + 1
        )
        self._say(place)
        self._tell(place)
        self.settle()

    def partition(self, node_id: int, index: int) -> Partition:
        return self.broker(node_id).streams.get("s").partition(index)

    # -- what clients want --------------------------------------------------------------------------

    def batch(self, node_id: int, index: int, *values: bytes) -> PartitionBatch:
        now_ms = self.broker(node_id).now_ms()
        return PartitionBatch(
            self.partition(node_id, index), encode([BatchInput(now_ms, None, value) for value in values])
        )

    def append(self, node_id: int, *batches: PartitionBatch) -> "CallbackResult[list[AppendResult]]":
        answer: CallbackResult[list[AppendResult]] = CallbackResult()
        self.nodes[node_id].append(batches, WITHIN_MS, answer)
        self.settle()
        return answer

    def read(
        self, node_id: int, index: int, position: Position = "start", max_wait_ms: int = 0
    ) -> "CallbackResult[LocalSlice | Bytes | DuramenError | OSError]":
        answer: CallbackResult[LocalSlice | Bytes | DuramenError | OSError] = CallbackResult()
        self.nodes[node_id].read(self.partition(node_id, index), position, MIB, max_wait_ms, answer)
        self.settle()
        return answer

    # -- the road -----------------------------------------------------------------------------------

    def requests(self) -> list[tuple[int, int, Request]]:
        """What was asked, of whom by whom."""
        return [(one.sender, one.receiver, WIRE.decode_request(one.body).request) for one in self.sent]

    def deliver(self, at: int = 0, *, answered: bool = True) -> None:
        """One request comes; its answer too, unless the connection ends before that."""
        asked = self.under_way.pop(at)
        told = partial(self._told, asked) if answered else _nothing
        self.nodes[asked.receiver].handle_request(bytearray(asked.body), told)
        self.settle()
        if not answered:
            asked.done(None)
            self.settle()

    def _told(self, asked: Asked, body: bytes) -> None:
        asked.done(bytearray(body))

    def lose(self, at: int = 0) -> None:
        """The connection ends before a request has come."""
        self.under_way.pop(at).done(None)
        self.settle()

    def deliver_all(self, within_ms: int = 0) -> None:
        """Deliver all there is, and all that comes within a time."""
        for _ in range(0, within_ms + 1, 100):
            while self.under_way:
                self.deliver()
            self.advance(100)

    # -- what there is ------------------------------------------------------------------------------

    def values(self, node_id: int, index: int) -> list[bytes | None]:
        """All records of a partition below the high watermark, as a node has them."""
        answer = CallbackResult[Any]()
        log = self.partition(node_id, index).log
        plan = log.plan_read(0, 1 << 30) if log.high_watermark else None
        if plan is None:
            return []
        read_slice(self.hands[node_id].store, plan, answer)  # type: ignore[arg-type]
        self.settle()
        return values_of(answer.value)


def values_of(data: bytes) -> list[bytes | None]:
    """The values of the records of whole batches."""
    return [
        record.value
        for at, head in batches(data)
        for record in records(memoryview(data)[at : at + head.size], limit_bytes=MIB)
    ]


def _nothing(_: bytes) -> None:
    """It goes nowhere."""
