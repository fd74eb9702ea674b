"""The Kafka door: listens, dispatches requests to their handlers, closes."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import RequestInvalid
from duramen.base.hosts import host_port
from duramen.base.memory import memory_share_bytes
from duramen.base.native import is_installed
from duramen.base.ports import Clock
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.header import encode_response
from duramen.codec.kafka.messages import RESPONSES
from duramen.codec.kafka.names import no_api
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.doors.kafka.admin import metadata
from duramen.doors.kafka.connection.admission import enter
from duramen.doors.kafka.connection.cold_reads import ColdReads
from duramen.doors.kafka.connection.connection import KafkaConnection, TakeHot
from duramen.doors.kafka.connection.fault_injection import Injector
from duramen.doors.kafka.connection.faults import RequestFaults
from duramen.doors.kafka.connection.memory import RequestMemory
from duramen.doors.kafka.handlers import HANDLERS
from duramen.doors.kafka.records.hot_produce import HotPath
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.fetch_sessions import CACHED_PARTITION_BYTES, FetchSessions
from duramen.doors.kafka.request.metrics import RequestMetrics
from duramen.doors.kafka.request.share_sessions import ShareSessions
from duramen.service.admission import Service
from duramen.service.broker import Broker

__all__ = ["KafkaDoor"]

_log = logging.getLogger("duramen.kafka")

_RECEIVE_BYTES: Final = 64 * 1024  # the memory of a connection that waits for more memory
_IDLE_CHECKS: Final = 10
_SESSIONS_SHARE: Final = 32  # fetch sessions may take a thirty-second of memory.limit.bytes
_LARGEST_SESSION_ID: Final = (1 << 31) - 1
_UNANSWERED_BYTES: Final = 4 * 1024 * 1024
_UNANSWERED_SHARE: Final = 4  # one connection's requests may take a quarter of the memory of all
_ANSWERS_SHARE: Final = 4  # one response that is assembled in memory may take a quarter of the requests' memory
_PIECES_SHARE: Final = 8  # an eighth of the requests' memory is shared by responses that sockets do not accept
_SMALLEST_PIECE: Final = 8 * 1024
_LARGEST_PIECE: Final = 128 * 1024
_SHARES_SHARE: Final = 64  # the partitions of share sessions may take a 64th of memory.limit.bytes
_SESSION_PARTITION_BYTES: Final = 256
_LARGEST_COLD_PIECE: Final = 512 * 1024
_BATCH_BYTES: Final = 1024 * 1024  # of a large producer


class KafkaDoor:
    """A listening socket and its connections."""

    def __init__(
        self, broker: Broker, clock: Clock, deadlines: Deadlines, *, service: Service, cluster_id: str, advertise: str,
        faults: RequestFaults | None = None, admit: Callable[[int], bool] = lambda _: True,
    ) -> None:  # fmt: skip
        """`advertise` is the HOST:PORT for clients; empty: the listening address. `faults` are those of a test.

        `admit` tells whether a connection with that descriptor may stay.
        """
        settings, metrics = broker.settings, broker.metrics
        self.broker = broker
        self._service = service
        self.clock = clock
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._request_bytes = memory_share_bytes(settings.integer("memory.limit.bytes"))
        self.largest_request = min(settings.integer("socket.request.max.bytes"), self._request_bytes)
        self.unanswered_bytes = min(_UNANSWERED_BYTES, self._request_bytes // _UNANSWERED_SHARE)
        self.memory = RequestMemory(self._request_bytes, clock, deadlines, metrics)
        self.slow_readers = 0
        self.cold_reads = ColdReads(broker.store, clock, deadlines, float(settings["fetch.cold.share"]))
        self.bad_requests = metrics.counter("duramen_kafka_errors_total")
        self._sessions = FetchSessions(
            settings.integer("max.incremental.fetch.session.cache.slots"),
            settings.integer("memory.limit.bytes") // _SESSIONS_SHARE // CACHED_PARTITION_BYTES,
            lambda: int.from_bytes(broker.random_bytes(4), "big") % _LARGEST_SESSION_ID + 1,
        )
        self._deadlines = deadlines
        self._shares = ShareSessions(
            broker.sharing,
            metrics.counter("duramen_share_sessions"),
            most=settings.integer("group.share.max.share.sessions"),
            most_partitions=settings.integer("memory.limit.bytes") // _SHARES_SHARE // _SESSION_PARTITION_BYTES,
        )
        self._cluster_id = cluster_id
        self._advertise = advertise
        self.admit = admit
        self._idle_ms = settings.integer("connections.max.idle.ms")
        self._connections: set[KafkaConnection] = set()
        self._gauge = metrics.counter("duramen_kafka_connections")
        self._measuring = RequestMetrics(metrics)
        self._paused = {
            cause: metrics.counter("duramen_kafka_paused_reads_total", cause)
            for cause in ("slow reader", "unanswered", "throttled", "names")
        }
        self._servers: list[asyncio.Server] = []
        self._listeners: tuple[str, ...] = ()
        self._injector = Injector(faults, clock, deadlines) if faults is not None else None
        self.fed: Callable[[], None] = broker.store.flush_early
        hot = HotPath(broker, service, self.memory, self._measuring, self.largest_request)
        self.take_hot: TakeHot = hot.take if faults is None else _takes_none
        self._end_turn = hot.end_turn

    def context(self, host: str, port: int) -> Context:
        """The context of handlers for clients of this address."""
        answer_bytes = self._request_bytes // _ANSWERS_SHARE
        return Context(
            self.broker, self._service, self._cluster_id, host, port, self._shares, self._sessions, answer_bytes,
            self._listeners,
        )  # fmt: skip

    async def start(self, listeners: Sequence[socket.socket]) -> str:
        """Accept connections on bound sockets; returns the address of the first. Raises OSError.

        Without an advertised address, clients get the address to which they connected.
        """
        advertised_host, _, advertised_port = self._advertise.rpartition(":")
        loop = asyncio.get_running_loop()
        self._listeners = tuple(host_port(*listener.getsockname()[:2]) for listener in listeners)
        for listener in listeners:
            host, port = listener.getsockname()[:2]
            address = (advertised_host.strip("[]") or host, int(advertised_port) if self._advertise else port)
            connected = partial(KafkaConnection, self, self.context(*address))
            self._servers.append(await loop.create_server(connected, sock=listener, backlog=1024))
        self._watch_idle()
        way = "by the native package" if is_installed() else "in Python: the native package is not installed"
        _log.info("Produce requests are read %s", way)
        return self._listeners[0]

    async def stop(self) -> None:
        """Take no more connections; those there are end once their answers have gone."""
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.close()

    def drop_connections(self) -> int:
        """Close all connections, whatever they wait for; returns their number."""
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def opened(self, connection: KafkaConnection) -> None:
        """A connection is open."""
        self._connections.add(connection)
        self.memory.holders.add(connection)
        self._gauge.value += 1

    def closed(self, connection: KafkaConnection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        self.memory.forget(connection)
        self._shares.closed(connection)
        self._gauge.value -= 1

    def paused(self, cause: str) -> None:
        """Reading from a connection pauses."""
        self._paused[cause].value += 1

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Have something done after a while."""
        self._deadlines.at(self.clock.monotonic_ms() + delay_ms, action)

    def piece_bytes(self, *, cold: bool) -> int:
        """How much of a response is read from the log at once: less if many sockets are full.

        More if it is `cold`: each piece wakes a thread.
        """
        share = self._request_bytes // _PIECES_SHARE // (1 + self.slow_readers)
        return min(_LARGEST_COLD_PIECE if cold else _LARGEST_PIECE, max(_SMALLEST_PIECE, share))

    @property
    def pieces_are_copied(self) -> bool:
        """Whether so many sockets are full that none may keep a whole batch for a piece of it."""
        return self.slow_readers * _BATCH_BYTES > self._request_bytes // _PIECES_SHARE

    def _watch_idle(self) -> None:
        now_ms = self.clock.monotonic_ms()
        for connection in list(self._connections):
            if connection.idle and now_ms - connection.last_progress_ms > self._idle_ms:
                connection.close()
        self._deadlines.at(now_ms + max(1, self._idle_ms // _IDLE_CHECKS), self._watch_idle)

    def handle(self, context: Context, exchange: Exchange) -> None:
        """Answer a request, now or later. Raises RequestInvalid if the connection cannot continue."""
        self._end_turn()  # earlier requests are complete first
        header = exchange.header
        api = APIS.get(header.api_key)
        if api is None:
            raise RequestInvalid(no_api(header.api_key))
        if not api.low <= header.version <= api.high:
            self._refuse_version(exchange)
            return
        self._measuring.came(api.key)
        if self._injector is None:
            enter(HANDLERS[api.key], context, exchange)
        else:
            self._injector.handle(partial(enter, HANDLERS[api.key]), context, exchange)

    def answered(self, exchange: Exchange) -> None:
        """A request has its answer."""
        took_s = self.clock.seconds() - exchange.began_s
        self._measuring.answered(exchange.header.api_key, took_s, exchange.errors)
        if self._injector is not None and exchange.errors:
            self._injector.answered(exchange)

    def _refuse_version(self, exchange: Exchange) -> None:
        header = exchange.header
        if header.api_key == ApiKey.API_VERSIONS:
            # So that a newer client can fall back: version 0 with the list of supported versions (KIP-511).
            body = RESPONSES[ApiKey.API_VERSIONS].encode(0, metadata.api_versions(ErrorCode.UNSUPPORTED_VERSION))
            exchange.failed(ErrorCode.UNSUPPORTED_VERSION)
            exchange.send(encode_response(ApiKey.API_VERSIONS, 0, header.correlation_id, body))
            return
        name = ApiKey(header.api_key).name
        raise RequestInvalid(f"version {header.version} of {name} is not supported")


def _takes_none(*_: object) -> int:
    """The faults of a test may affect any request."""
    return 0
