"""The NATS door: keeps a connection to the server, subscribes to the subjects of streams, and records gaps."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from duramen.base.errors import DuramenError, ServerUnreachable
from duramen.base.ports import FileSystem, Randomness
from duramen.broker.streams import Stream
from duramen.codec.nats import Message
from duramen.coordinators.inventory.shard import INVENTORY_STREAM
from duramen.coordinators.inventory.topics import BoundNamespace
from duramen.doors.nats.address import ServerAddress
from duramen.doors.nats.capture import Capture
from duramen.doors.nats.connection import NatsClientConnection
from duramen.doors.nats.duplicates import ENTRY_BYTES
from duramen.doors.nats.inventory_requests import INVENTORY_PREFIX, INVENTORY_SUBJECT, NatsInventory
from duramen.doors.nats.led_partitions import LedPartitions
from duramen.doors.nats.namespaces import NamespaceCapture
from duramen.doors.nats.presence import Presence
from duramen.doors.nats.queue_requests import QUEUE_PREFIX, QUEUE_SUBJECT, NatsQueues
from duramen.doors.nats.recall import recall
from duramen.doors.nats.requests import LARGEST_REQUEST_BYTES
from duramen.doors.nats.subscriptions import Subscriptions
from duramen.service.admission import Service
from duramen.service.broker import Broker
from duramen.service.queues import QueueRequests

__all__ = ["NatsDoor"]

_log = logging.getLogger("duramen.nats")

_INFLIGHT_SHARE: Final = 8  # messages under way may hold an eighth of memory.limit.bytes
_DUPLICATE_SHARE: Final = 8  # and the message ids that are remembered another eighth
_CONNECT_S: Final = 5.0
_FIRST_BACKOFF_S: Final = 0.02
_LONGEST_BACKOFF_S: Final = 2.0
_TICK_S: Final = 1.0
_BEHIND_MS: Final = 2500
_PURGES_A_TICK: Final = 4
_PURGE_SHARE: Final = 64
_DRAIN_S: Final = 1.0
_COMPLAINT_S: Final = 1.0
_COMPLAINT_LENGTH: Final = 1000
_SERVER_RESTART: Final = "server restart"
_OVERLAPPING: Final = (b">", b"*", QUEUE_PREFIX.split(b".")[0])
"""First tokens of subjects that requests may match."""


class NatsDoor:
    """A client of one NATS server that stores messages on bound subjects."""

    def __init__(
        self,
        broker: Broker,
        service: Service,
        files: FileSystem,
        randomness: Randomness,
        address: ServerAddress,
        queues: QueueRequests,
        *,
        server_name: str = "",
    ) -> None:
        """`server_name` is the required name of the server, if not empty. Raises OSError."""
        self._broker = broker
        self._service = service
        self._randomness = randomness
        self._address = address
        self._server_name = server_name
        self._presence = Presence(files)
        self._loop = asyncio.get_running_loop()
        memory_bytes = broker.settings.integer("memory.limit.bytes")
        self._capture = Capture(
            broker,
            service,
            fingerprint_key=randomness.token(16),
            duplicate_entries=memory_bytes // _DUPLICATE_SHARE // ENTRY_BYTES,
            limit_bytes=memory_bytes // _INFLIGHT_SHARE,
            soon=self._loop.call_soon,
            send=self._send,
            on_room=self._on_room,
        )
        self._capture.on_resolved = self._on_resolved
        self._queues = NatsQueues(broker, service, queues, self._send)
        self._has_spaces = False
        self._inventory = NatsInventory(broker, service, self._send)
        self._has_inventory = False
        self._takes_inventory = False  # whether requests about the inventory are subscribed to
        self._namespaces = NamespaceCapture(
            broker, service, limit_bytes=memory_bytes // _INFLIGHT_SHARE, soon=self._loop.call_soon, send=self._send
        )
        self._takes_queues = False  # whether requests about queues are subscribed to
        self._followed: dict[Stream, tuple[bytes, ...]] = {}  # the streams of which messages are taken
        self._subscriptions = Subscriptions(address)
        self._leading: LedPartitions | None = None  # None: the node is alone
        self._leading_shards: LedPartitions | None = None  # of the topics of the inventory
        self._namespaces_bound: tuple[bytes, ...] = ()  # the subscriptions of namespaces
        self._connection: NatsClientConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ready = asyncio.Event()
        self._stopping = False
        self._complain_from = 0.0
        self._forgetful = False  # whether the last moment could not be written
        self._trouble = "NATS is not connected yet"
        self._server_gone = False  # whether the server that belongs to this node ended while we were connected
        self._listened_ms = 0  # until when nothing can have been missed
        self._connected_gauge = broker.metrics.counter("duramen_nats_connected")

    # -- life ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Restore the state of the last run, then connect, and stay connected. Raises OSError."""
        listened_ms = self._presence.read()
        if self._broker.membership.first_role is not None:
            self._leading = LedPartitions(
                self._broker, self._capture,
                listened_ms=listened_ms, report=_report, follow=self._follow, ready=self._when_come,
            )  # fmt: skip
            self._leading_shards = LedPartitions(
                self._broker, self._namespaces, listened_ms=listened_ms, report=_report,
                follow=lambda _: self._follow_namespaces(), ready=self._when_come, records_gaps=False,
            )  # fmt: skip
        for stream in self._service.resolver.every():
            self._changed(stream)
        self._broker.streams.listeners.append(self._changed)
        self._broker.when_listening = self._when_listening
        for leading in self._all_leading:
            leading.start()
        self._broker.inventory.when_bound = self._when_bound
        self._when_bound(_nothing)
        if self._leading is None:
            self._broker.gaps.begin(listened_ms, "restart")
            await self._recall()
        self._task = self._loop.create_task(self._stay_connected())
        self._tick()

    async def _recall(self) -> None:
        recalled = self._loop.create_future()
        places = [(bound, partition) for bound in self._capture.streams() for partition in bound.stream.partitions]
        recall(self._broker, self._capture, places, _report, lambda: recalled.set_result(None))
        await recalled

    async def wait_ready(self, timeout_s: float) -> bool:
        """Wait until all bindings are subscribed; False on a timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            return False
        return True

    def problem(self) -> str:
        """Why the door does not accept messages now; empty if it does."""
        if not self._ready.is_set():
            return self._trouble
        return self._subscriptions.problem

    async def drain(self) -> None:
        """Take no more messages, and answer those that were taken. The connection stays."""
        self._stopping = True
        connection = self._connection
        if connection is None or not self._ready.is_set():
            return
        listened_ms = self._broker.now_ms()
        connection.unsubscribe_all()
        if await self._settle(connection):
            self._listened_ms = listened_ms
        await self._queues.drain(_DRAIN_S)
        await self._inventory.drain(_DRAIN_S)
        for capture in (self._capture, self._namespaces):
            if capture.idle:
                continue
            idle = asyncio.Event()
            capture.on_idle = idle.set
            try:
                async with asyncio.timeout(_DRAIN_S):
                    await idle.wait()
            except TimeoutError:
                _log.error("some NATS messages were not stored in time; their publishers get an error")
        self._write_presence()

    async def close(self) -> None:
        """Send the pending replies and end the connection."""
        self._stopping = True
        connection = self._connection
        if connection is not None and connection.open:
            self._capture.flush()
            self._namespaces.flush()
            await self._settle(connection)
            connection.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _settle(self, connection: NatsClientConnection) -> bool:
        """Wait until both sides have processed everything sent; False if the server does not respond."""
        settled = self._loop.create_future()
        connection.barrier(lambda answered: None if settled.done() else settled.set_result(answered))
        try:
            async with asyncio.timeout(_DRAIN_S):
                return bool(await settled)
        except TimeoutError:
            return False

    # -- the connection -----------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        backoff_s = _FIRST_BACKOFF_S
        while not self._stopping:
            connection = NatsClientConnection(
                self, self._address, name=f"duramen-{self._broker.node_id}", server_name=self._server_name,
                queue=b"duramen-" + self._randomness.token(8).hex().encode(),
                keep_bytes=self._keep_bytes, shared=self._shared,
            )  # fmt: skip
            self._connection = connection
            error = await self._live(connection)
            self._subscriptions.disconnected(subscribed=self._ready.is_set())
            if self._ready.is_set():
                backoff_s = _FIRST_BACKOFF_S
                self._disconnected(connection, error)
            elif str(error) != self._trouble:
                _log.warning("%s; trying on", error)
            self._trouble = str(error)
            self._connection = None
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)

    async def _live(self, connection: NatsClientConnection) -> DuramenError:
        """Connect and wait until the connection is over; returns why it is."""
        host, port = self._address.host, self._address.port
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self._loop.create_connection(lambda: connection, host, port)
        except TimeoutError:
            return ServerUnreachable(f"NATS at {self._address} does not answer")
        except OSError as error:
            return ServerUnreachable(f"NATS at {self._address} cannot be reached: {error.strerror or error}")
        return await connection.lost

    def connected(self) -> None:
        """The server has taken us in."""
        connection = self._connection
        if connection is None or self._stopping:
            return
        self._subscriptions.connected(connection)
        connection.barrier(lambda answered: self._subscribed(connection) if answered else None)

    def _subscribed(self, connection: NatsClientConnection) -> None:
        self._listened_ms = self._broker.now_ms()
        for leading in self._all_leading:
            leading.listening()
        if self._leading is None:
            self._broker.gaps.end(self._listened_ms)
        self._connected_gauge.value = 1
        self._ready.set()
        connection.lagged = False
        _log.info("subscribed to %d subjects at %s", len(self._subscriptions), self._address)

    def _disconnected(self, connection: NatsClientConnection, error: DuramenError) -> None:
        self._ready.clear()
        self._connected_gauge.value = 0
        if not self._stopping:
            _log.warning("%s; connecting again", error)
            # A node that was stopped or starved asks for nothing either: then the last answer is old.
            behind_ms = self._broker.now_ms() - self._listened_ms
            slow = connection.lagged or (behind_ms > _BEHIND_MS and not connection.silent)
            cause = _SERVER_RESTART if self._server_gone else "slow consumer" if slow else "reconnect"
            self._server_gone = False
            for leading in self._all_leading:
                leading.deaf(self._listened_ms, cause)
            if self._leading is None:
                self._broker.gaps.begin(self._listened_ms, cause)

    def server_died(self) -> None:
        """The server that belongs to this node has ended and is started again."""
        # Its end and that of the connection to it are reported in any order.
        self._server_gone = self._ready.is_set()
        self._broker.gaps.blame(_SERVER_RESTART)

    def server_error(self, text: str) -> None:
        """The server complains."""
        text = text[:_COMPLAINT_LENGTH]
        if self._loop.time() >= self._complain_from:  # every message may bring another
            self._complain_from = self._loop.time() + _COMPLAINT_S
            _log.warning("NATS at %s says: %s", self._address, text)
        if not self._subscriptions.refused(text) and not self._ready.is_set() and self._connection is not None:
            self._subscriptions.disconnecting(text)
            self._connection.abort(ServerUnreachable(f"NATS at {self._address} says: {text}"))

    # -- time ---------------------------------------------------------------------------------------

    def _tick(self, count: int = 0) -> None:
        self._timer = self._loop.call_later(_TICK_S / _PURGES_A_TICK, self._tick, count + 1)
        self._capture.purge(_PURGE_SHARE)
        connection = self._connection
        if count % _PURGES_A_TICK or connection is None:
            return
        if connection.tick() and self._ready.is_set() and not self._stopping:
            self._ask(connection)

    def _ask(self, connection: NatsClientConnection) -> None:
        """Ask for a sign of life: when it comes, everything that the server had before has come too."""
        asked_ms = self._broker.now_ms()

        def answered(answered: bool) -> None:
            if answered and connection is self._connection:
                self._listened_ms = asked_ms
                connection.lagged = connection.paused
                self._write_presence()

        connection.barrier(answered)

    def _write_presence(self) -> None:
        oldest_ms = self._capture.oldest_ms()
        moment_ms = self._listened_ms if oldest_ms is None else min(self._listened_ms, oldest_ms)
        try:
            self._presence.write(moment_ms)
        except OSError as error:
            if not self._forgetful:
                _log.warning("the time of the last received NATS message cannot be stored: %s", error.strerror or error)
            self._forgetful = True
        else:
            self._forgetful = False

    # -- streams and messages -----------------------------------------------------------------------

    def _changed(self, stream: Stream) -> None:
        self._capture.bind(stream)
        self._has_spaces = self._queues.follow(stream)
        self._has_inventory = self._has_inventory or stream.name == INVENTORY_STREAM
        self._follow_requests()
        if self._connection is not None:
            self._connection.keep(self._keep_bytes)
        if self._leading is not None and stream.deleted:
            self._leading.deleted(stream)
        self._follow(stream)

    def _follow(self, stream: Stream) -> None:
        """Subscribe to the subjects of a stream if its messages are accepted here."""
        bound, known = self._capture.find(stream), self._followed.get(stream)
        wanted = bound is not None and (self._leading is None or self._leading.leads(stream))
        if bound is not None and wanted and known is None:
            self._followed[stream] = bound.subjects
            self._follow_requests()
            self._subscriptions.add(bound.subjects)
        elif known is not None and not wanted:
            del self._followed[stream]
            self._subscriptions.remove(known)
            self._follow_requests()

    def _follow_requests(self) -> None:
        """Be subscribed to requests about queues while there are spaces, and about the inventory once there is one.

        Any node of a cluster accepts a request, except one that stores messages on such subjects: it would get requests
        twice.
        """
        overlaps = self._leading is not None and any(one.split(b".")[0] in _OVERLAPPING for one in self._subjects())
        takes_queues, takes_inventory = self._has_spaces and not overlaps, self._has_inventory and not overlaps
        changes = [(QUEUE_SUBJECT, self._takes_queues, takes_queues)]
        changes.append((INVENTORY_SUBJECT, self._takes_inventory, takes_inventory))
        self._takes_queues, self._takes_inventory = takes_queues, takes_inventory
        for subject, before, wanted in changes:
            if wanted != before:
                (self._subscriptions.add if wanted else self._subscriptions.remove)((subject,))

    def _subjects(self) -> Iterator[bytes]:
        return (subject for subjects in self._followed.values() for subject in subjects)

    @property
    def _shared(self) -> Mapping[bytes, bytes]:
        """The queue groups that this node shares with the others of its cluster."""
        if self._leading is None:
            return {}
        cluster_id = self._broker.metadata_state.cluster_id.encode()
        return {
            QUEUE_SUBJECT: b"duramen-queues-" + cluster_id,
            INVENTORY_SUBJECT: b"duramen-inventory-" + cluster_id,
        }

    def _bound_namespaces(self) -> list[BoundNamespace]:
        return self._broker.inventory.bound(self._broker.settings.text("inventory.account"))

    def _bind_namespaces(self, found: list[BoundNamespace] | DuramenError) -> bool:
        """Take messages for these namespaces; whether they are others than before."""
        if isinstance(found, DuramenError):
            if self._leading is None:
                _log.error("namespaces with NATS subjects cannot be read: %s", found)
            return False  # a member of a cluster asks again
        before = bool(self._namespaces.subjects)
        if not self._namespaces.bind(found):
            return False
        leading = self._leading_shards
        if leading is not None and bool(self._namespaces.subjects) != before:
            for space in self._namespaces.spaces:
                (leading.deleted if before else leading.bound)(space)
        self._follow_namespaces()
        return True

    def _follow_namespaces(self) -> None:
        """Subscribe to the subjects of namespaces, if messages for topics are accepted."""
        leading = self._leading_shards
        takes = leading is None or any(map(leading.leads, self._namespaces.spaces))
        before, self._namespaces_bound = self._namespaces_bound, self._namespaces.subjects if takes else ()
        self._subscriptions.add(self._namespaces_bound)
        self._subscriptions.remove(before)
        if self._connection is not None:
            self._connection.keep(self._keep_bytes)

    def _when_bound(self, done: Callable[[], None]) -> None:
        """Namespaces may have changed."""

        def read(found: list[BoundNamespace] | DuramenError) -> None:
            if self._bind_namespaces(found):
                self._when_listening(done)
            else:
                done()

        self._broker.inventory.read(self._bound_namespaces, read)

    @property
    def _all_leading(self) -> Iterator[LedPartitions]:
        return (one for one in (self._leading, self._leading_shards) if one is not None)

    @property
    def _keep_bytes(self) -> int:
        """The most bytes that are kept of a message."""
        requests = LARGEST_REQUEST_BYTES if self._takes_requests else 0
        return max(self._capture.largest_message, self._namespaces.largest_message, requests)

    @property
    def _takes_requests(self) -> bool:
        return self._takes_queues or self._takes_inventory

    def _when_come(self, action: Callable[[], None]) -> None:
        """Run an action once everything that the server has sent has arrived; nothing without a connection."""
        if self._connection is not None and self._ready.is_set():
            self._connection.barrier(lambda answered: action() if answered else None)

    def _when_listening(self, done: Callable[[], None]) -> None:
        if self._connection is None or not self._ready.is_set():
            done()
        else:
            self._connection.barrier(lambda _: done())

    def take(self, messages: list[Message]) -> None:
        """Messages came."""
        if self._takes_requests:
            messages = self._without_requests(messages)
        self._namespaces.take(messages)
        self._capture.take(messages)
        if self._capture.full and self._connection is not None:
            self._connection.pause("memory")
        if self._capture.waits and self._connection is not None:
            self._connection.pause("names")

    def _without_requests(self, messages: list[Message]) -> list[Message]:
        """The messages that are to be stored; one that no stream takes comes without its payload."""
        left, largest = list[Message](), max(self._capture.largest_message, self._namespaces.largest_message)
        for message in messages:
            subject, reply, headers, payload = message
            if subject.startswith(QUEUE_PREFIX):
                self._queues.take(message)
            elif subject.startswith(INVENTORY_PREFIX):
                self._inventory.take(message)
            elif len(payload or b"") + len(headers or b"") > largest:
                left.append((subject, reply, headers, None))
            else:
                left.append(message)
        return left

    def _on_resolved(self) -> None:
        if self._connection is not None:
            self._connection.resume("names")

    def _on_room(self) -> None:
        if self._connection is not None:
            self._connection.resume("memory")

    def _send(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.write(data)


def _nothing() -> None:
    """No message waits for it."""


def _report(message: str) -> None:
    _log.warning("%s", message)
