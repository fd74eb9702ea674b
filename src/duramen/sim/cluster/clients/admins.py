"""Admin clients of a cluster: create, extend, change and delete streams, delete records, move leaders and replicas."""

from collections.abc import Callable
from itertools import count
from typing import Any, Final

from duramen.base.errors import DuramenError
from duramen.broker.control import requests
from duramen.broker.control.responses import Value
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.checkers.quorum import is_coordinated
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.cluster.clients.client import ClusterClient

__all__ = ["ClusterAdminClient"]

_MOST_STREAMS: Final = 4
_MOST_PARTITIONS: Final = 3
_REPLICAS: Final = (3, 3, 4)
_TOPOLOGIES: Final = (
    ("fanout", "fanout", "fanout", "chain"), ("fanout", "chain", "tree"), ("chain",), ("chain", "tree"),
)  # fmt: skip


class ClusterAdminClient(ClusterClient):
    """Wants one change at a time, of whichever node."""

    def __init__(self, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(calls, seed, think_us)
        self._names = map("s{}".format, count(1))
        self._topologies = self.chance.choice(_TOPOLOGIES)
        self._actions: tuple[tuple[int, Callable[[], None]], ...] = (
            (2, self._create), (1, self._delete), (1, self._grow), (3, self._configure), (3, self._trim),
            (4, self._move_leader), (2, self._elect), (3, self._reassign), (1, self._rebalance), (3, self._await),
        )  # fmt: skip

    def step(self) -> None:
        if len(self._streams()) < 2:
            self._create()
            return
        weights = [weight for weight, _ in self._actions]
        self.chance.choices([action for _, action in self._actions], weights)[0]()

    def _ask(self, request: requests.Request) -> None:
        self.calls.trace("an admin asks for %s", request)

        def ask(broker: Broker, reply: Reply) -> None:
            broker.membership.ask(request, reply)

        self.calls.ask(self.calls.any_node(), ask, self._answered)

    def _answered(self, value: Value | DuramenError | Any) -> None:
        self.calls.trace("an admin is answered %s", repr(value))
        self.next()

    def _streams(self) -> list[str]:
        return [name for name, one in self.calls.witness.council.state.streams.items() if not is_coordinated(one)]

    # -- streams ------------------------------------------------------------------------------------

    def _create(self) -> None:
        if len(self._streams()) >= _MOST_STREAMS:
            self._delete()
            return
        config = {
            "min.insync.replicas": self.chance.choice(("1", "2", "2")),
            "replication.topology": self.chance.choice(self._topologies),
            "segment.bytes": self.chance.choice(("1048576", "16384")),
        }
        definition = Definition(next(self._names), self.chance.choice((1, 2, 3)), config)
        self._ask(requests.CreateStream(definition, self._replicas()))

    def _replicas(self) -> int:
        return min(self.chance.choice(_REPLICAS), len(self.calls.nodes))

    def _delete(self) -> None:
        name = self.chance.choice(self._streams())
        self.calls.witness.council.deleting.add(name)
        self._ask(requests.DeleteStream(name))

    def _grow(self) -> None:
        name = self.chance.choice(self._streams())
        now = self.calls.witness.council.state.streams[name].partitions
        self._ask(requests.GrowStream(name, min(now + 1, _MOST_PARTITIONS)))

    def _configure(self) -> None:
        least = self.chance.choice(("1", "2", None))
        self._ask(requests.ConfigureStream(self.chance.choice(self._streams()), {"min.insync.replicas": least}))

    def _trim(self) -> None:
        """Records are deleted, up to some committed offset."""
        place = self.some_place()
        committed = [] if place is None else self.calls.witness.ledger(place).committed
        if place is None or not committed:
            self.next()
            return
        offset = self.chance.choice(committed[-20:]).first_offset
        page, ledger = self.calls.book.page(place), self.calls.witness.ledger(place)
        page.trimmed_offset = ledger.trimmed_offset = max(page.trimmed_offset, offset)
        self.leader(place, lambda node_id, _: self._delete_before(node_id, place, offset))

    def _delete_before(self, node_id: int, place: PartitionId, offset: int) -> None:
        def ask(broker: Broker, reply: Reply) -> None:
            partition = partition_at(broker, place)
            partition.delete_before(offset, lambda start, error: reply(start if error is None else error))

        def answered(value: Any) -> None:
            if isinstance(value, DuramenError):
                self.forget(place, value)
            self.next()

        self.calls.ask(node_id, ask, answered)

    # -- places -------------------------------------------------------------------------------------

    def _of_some_place(self, request: Callable[[PartitionId], requests.Request]) -> None:
        places = self.calls.all_places()
        if places:
            self._ask(request(self.chance.choice(places)))
        else:
            self.next()

    def _move_leader(self) -> None:
        self._of_some_place(lambda place: requests.MoveLeader(place, self.calls.any_node()))

    def _elect(self) -> None:
        self._of_some_place(requests.ElectLeader)

    def _reassign(self) -> None:
        nodes = list(self.calls.nodes)
        self.chance.shuffle(nodes)
        self._of_some_place(lambda place: requests.Reassign(place, tuple(nodes[: self._replicas()])))

    def _rebalance(self) -> None:
        self._ask(requests.RebalanceLeaders(3))

    def _await(self) -> None:
        self._ask(requests.AwaitApplied(self.calls.witness.council.end_offset, 1_000))
