"""Lets any node accept requests about any partition: it executes them or asks the leader. For HTTP."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from duramen.base.errors import DuramenError, NodeStopping
from duramen.base.ports import Buffer
from duramen.base.positions import Position
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.coordinators.inventory.cluster.inventory import ClusterInventory
from duramen.queues.usage import UsagePage
from duramen.rpc.caller import PeerTransport
from duramen.rpc.retry import Retrying
from duramen.rpc.server import Handler
from duramen.service.broker import Broker
from duramen.service.forwarded_requests import (
    AppendResult,
    AskSnapshot,
    Bytes,
    DeleteRecordsResponse,
    Manage,
    Managed,
)
from duramen.service.forwarding.appends import Delivery, PartitionBatch
from duramen.service.forwarding.client import PartitionRequest, asking
from duramen.service.forwarding.exports import RoutedExports
from duramen.service.forwarding.handlers import ForwardedRequestHandlers
from duramen.service.forwarding.local import LocalSlice
from duramen.service.forwarding.memory import Room
from duramen.service.forwarding.partition_requests import Deleting, Managing, ReadRequest, Snapshotting
from duramen.service.forwarding.queues import RoutedShards
from duramen.service.forwarding.router import Router
from duramen.service.inventory_names import drop_records, own_records
from duramen.service.led_queues import LedQueues
from duramen.service.queues import LocalShards, QueueRequests
from duramen.service.shard_queries import UsageQuery

__all__ = ["WITHIN_MS", "Forwarding", "NoPeers"]

T = TypeVar("T")

WITHIN_MS: Final = 10_000
"""How long a leader is looked for, where nothing else is said."""


def _ask_usage(
    shards: RoutedShards, space: Stream, shard: int, known: UsagePage, done: Callable[[UsagePage | DuramenError], None]
) -> None:
    shards.ask(space, shard, UsageQuery(known.life, known.version), done)


class NoPeers:
    """The Way of a node that is alone."""

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """There are no other nodes."""
        del node_id, body, done
        return False


class Forwarding:
    """Appends, reads and deletions, wherever they have to be done; and those of other nodes."""

    def __init__(self, broker: Broker, way: PeerTransport, room: Room) -> None:
        """`room` is the memory budget of clients' waiting requests."""
        self.room = room
        self._router = Router(broker, broker.caller.over(way), room)
        self._serving = ForwardedRequestHandlers(self._router)
        self._open: dict[Delivery | Retrying[Any], None] = {}
        local = LocalShards(broker)
        routed = RoutedShards(local, self._ask)
        self.queues = QueueRequests(local if broker.alone else routed)
        """The queues of spaces."""
        broker.groups.topics.find_bounds_by(LedQueues(broker, self.queues.shards).find_bounds)
        self.exports = RoutedExports(self._router, self._ask)
        """All queues of a space as they were at one moment."""
        if isinstance(broker.inventory, ClusterInventory):
            records = (partial(action, broker.streams, routed.submit) for action in (own_records, drop_records))
            broker.inventory.tell_records_by(*records)
            broker.usage.ask_by(partial(_ask_usage, routed))

    def append(
        self, batches: Sequence[PartitionBatch], within_ms: int, done: Callable[[list[AppendResult]], None]
    ) -> None:
        """Append batches of one stream, as with acks=all; `done` gets the result of each, in their order."""

        def told(results: list[AppendResult]) -> None:
            self._open.pop(delivery, None)
            done(results)

        delivery = Delivery(self._router, batches, within_ms, told)
        self._open[delivery] = None
        delivery.begin()

    def read(
        self, partition: Partition, position: Position, max_bytes: int, max_wait_ms: int,
        done: Callable[[LocalSlice | Bytes | DuramenError | OSError], None],
    ) -> Callable[[], None]:  # fmt: skip
        """Read from a place on, as soon as there is something; returns what cancels it.

        `done` gets a slice of this node's own log, or the bytes that another node has sent.
        """
        request: PartitionRequest[LocalSlice | Bytes] = ReadRequest(
            self._router.broker.fetches, partition, position, max_bytes, max_wait_ms
        )
        return self._ask(request, max_wait_ms + WITHIN_MS, done)

    def delete(
        self, partition: Partition, before: int, done: Callable[[DeleteRecordsResponse | DuramenError | OSError], None]
    ) -> None:
        """Delete the records before an offset, -1: before the high watermark."""
        self._ask(Deleting(partition, before), WITHIN_MS, done)

    def manage(self, request: Managing, done: Callable[[Managed | DuramenError | OSError], None]) -> Callable[[], None]:
        """Let a group's coordinator execute the request; returns a function that cancels it."""
        return self._ask(request, WITHIN_MS, done)

    def snapshot(
        self, request: Snapshotting, wait_ms: int, done: Callable[[Managed | DuramenError | OSError], None]
    ) -> Callable[[], None]:
        """Execute a snapshot request, which may wait this long; returns a function that cancels it."""
        return self._ask(request, wait_ms + WITHIN_MS, done)

    def serve_snapshots(self, answer: Handler[AskSnapshot, Managed]) -> None:
        """From now on `answer` serves snapshot requests of other nodes for partitions led here."""
        self._serving.serve_snapshots(answer)

    def serve_groups(self, manage: Handler[Manage, Managed]) -> None:
        """From now on `manage` serves group requests of other nodes for groups coordinated here."""
        self._serving.serve_groups(manage)

    def handle_request(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """A request of another node for its clients: served within the memory budget."""
        self._serving.handle_request(body, answer)

    def stop(self) -> None:
        """Send no more requests; waiting ones fail."""
        for one in list(self._open):
            one.stop(NodeStopping("this node is stopping"))

    def _ask(
        self, request: PartitionRequest[T], within_ms: int, done: Callable[[T | DuramenError | OSError], None]
    ) -> Callable[[], None]:
        def told(outcome: T | DuramenError | OSError) -> None:
            self._open.pop(one, None)
            done(outcome)

        one = asking(self._router, request, within_ms, told)
        self._open[one] = None
        one.begin()
        return partial(self._cancel, one)

    def _cancel(self, one: Retrying[Any]) -> None:
        self._open.pop(one, None)
        one.cancel()
