"""Calls from clients to nodes: a request on its own connection, a response, or the end of either.

They call the broker's functions, which is faster than the Kafka door; the door has its own tests and runs.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from duramen.base.errors import DuramenError, OutcomeUnknown
from duramen.broker.partition import Partition
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.checkers.history import Book
from duramen.sim.cluster.checkers.invariants import Witness
from duramen.sim.cluster.checkers.offsets import Bookmarks
from duramen.sim.cluster.checkers.quorum import is_coordinated
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.draws import below
from duramen.sim.machine.scheduler import VirtualClock
from duramen.sim.machine.trace import BrokenPromise, Trace

__all__ = ["ClientCalls", "partition_at"]

_TIMEOUT_US: Final = 1_500_000
_SLOW_US: Final = 500

Reply = Callable[[Any], None]
Ask = Callable[[Broker, Reply], None]


class _Call:
    """A request under way."""

    __slots__ = ("done", "life", "node_id")

    def __init__(self, node_id: int, life: int, done: Reply) -> None:
        self.node_id = node_id
        self.life = life
        self.done: Reply | None = done


class ClientCalls:
    """All requests of all clients: `done` gets the response, or an error, OutcomeUnknown without a response."""

    def __init__(
        self, nodes: dict[int, SimulatedNode], chance: random.Random, true: VirtualClock,
        at: Callable[[int, Callable[[], None]], None], witness: Witness, trace: Trace,
    ) -> None:  # fmt: skip
        self.nodes = nodes
        self.chance = chance
        self.true = true
        self.at = at
        self.witness = witness
        self.trace = trace
        self.book = Book()
        self.bookmarks = Bookmarks()
        self.ended: Counter[str] = Counter()  # transactions, by how
        self.answered = 0  # with any outcome
        self.well = 0  # of them, without an error
        self.open = True  # whether clients go on
        self._under_way: dict[_Call, None] = {}
        self._producer_ids: set[int] = set()
        self._seen = (-1, -1)
        self._places: list[PartitionId] = []
        self._all_places: list[PartitionId] = []

    def ask(self, node_id: int, ask: Ask, done: Reply) -> None:
        """Send a request to a node."""
        node = self.nodes[node_id]
        call = _Call(node_id, node.life, done)
        self._under_way[call] = None
        if node.process is None:
            self.at(self._late_us(), partial(self._end, call, OutcomeUnknown("nobody listens there")))
            return
        node.process.after(self._late_us(), partial(self._arrive, call, ask))
        self.at(_TIMEOUT_US, partial(self._end, call, OutcomeUnknown("nothing came in time")))

    @property
    def idle(self) -> bool:
        """Whether no client waits for a response."""
        return not self._under_way

    def reset(self, node_id: int) -> None:
        """The process of a node was killed: requests to it get an error."""
        for call in [call for call in self._under_way if call.node_id == node_id]:
            self.at(self._late_us(), partial(self._end, call, OutcomeUnknown("the connection ended")))

    def _late_us(self) -> int:
        return 50 + below(self.chance, _SLOW_US)

    def _arrive(self, call: _Call, ask: Ask) -> None:
        node = self.nodes[call.node_id]
        if node.broker is None or not node.ready or node.life != call.life:
            self.at(self._late_us(), partial(self._end, call, OutcomeUnknown("the node is not ready")))
            return
        life = node.life
        replied: list[Any] = []

        def reply(value: Any) -> None:
            if replied:
                raise AssertionError(f"answered {replied[0]} and then {value}")
            replied.append(value)
            if node.life == life:
                self.at(self._late_us(), partial(self._end, call, value))

        try:
            ask(node.broker, reply)
        except DuramenError as error:
            reply(error)

    def _end(self, call: _Call, value: Any) -> None:
        done, call.done = call.done, None
        if done is not None:
            del self._under_way[call]
            self.answered += 1
            self.well += not isinstance(value, DuramenError)
            done(value)

    def handed_out(self, producer_id: int) -> None:
        """A producer got that id, which must be unique."""
        if producer_id in self._producer_ids:
            raise BrokenPromise(f"the producer id {producer_id} was handed out twice")
        self._producer_ids.add(producer_id)

    # -- views of clients ---------------------------------------------------------------------------

    def any_node(self) -> int:
        """Some node."""
        return self.chance.choice(list(self.nodes))

    def places(self) -> list[PartitionId]:
        """The partitions there are for clients to write to."""
        self._look()
        return self._places

    def all_places(self) -> list[PartitionId]:
        """The partitions there are, the brokers' own included."""
        self._look()
        return self._all_places

    def _look(self) -> None:
        """The known partitions: they change with committed metadata only."""
        council = self.witness.council
        seen = council.end_offset, len(council.lost)
        if seen != self._seen:
            self._seen = seen
            self._all_places = [place for place, _ in council.state.partitions if place not in council.lost]
            self._places = [place for place in self._all_places if not self.is_internal(place)]

    def is_internal(self, place: PartitionId) -> bool:
        """Whether it is of a stream that no producer writes to."""
        return is_coordinated(self.witness.council.state.stream_by_id(place.stream_id))


def partition_at(broker: Broker, place: PartitionId) -> Partition:
    """A partition as a node has it. Raises StreamNotFound."""
    return Broker.partition(broker, place)
