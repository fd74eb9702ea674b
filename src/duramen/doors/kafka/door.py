"""The Kafka door: listens, hands requests to their handlers, and closes."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import RequestInvalid
from duramen.base.hosts import host_port
from duramen.base.memory import memory_share_bytes
from duramen.base.ports import Clock
from duramen.broker.broker import Broker
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.header import encode_response
from duramen.codec.kafka.messages import RESPONSES
from duramen.codec.kafka.names import no_api
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.doors.kafka import (
    batches,
    configs,
    consumer_groups,
    deleting,
    fetch,
    group_admin,
    group_offsets,
    groups,
    logdirs,
    metadata,
    offsets,
    paging,
    produce,
    quorum,
    quotas,
    reassigning,
    share_groups,
    shares,
    topics,
    transactions,
)
from duramen.doors.kafka.cold import ColdReads
from duramen.doors.kafka.connection import KafkaConnection
from duramen.doors.kafka.context import Context, Handler
from duramen.doors.kafka.exchange import Exchange
from duramen.doors.kafka.faults import Faults
from duramen.doors.kafka.injecting import Injector
from duramen.doors.kafka.measuring import Measuring
from duramen.doors.kafka.memory import RequestMemory
from duramen.doors.kafka.sessions import CACHED_PARTITION_BYTES, FetchSessions
from duramen.doors.kafka.share_sessions import ShareSessions

__all__ = ["KafkaDoor"]

_log = logging.getLogger("duramen.kafka")

_RECEIVE_BYTES: Final = 64 * 1024  # what a connection that has to wait for memory may hold beside it
_IDLE_CHECKS: Final = 10
_SESSIONS_SHARE: Final = 32  # what is kept for fetch sessions may take a thirty-second of memory.limit.bytes
_LARGEST_SESSION_ID: Final = (1 << 31) - 1
_UNANSWERED_BYTES: Final = 4 * 1024 * 1024
_UNANSWERED_SHARE: Final = 4  # one connection's requests may hold a quarter of what all may
_ANSWERS_SHARE: Final = 4  # one answer that is put together in memory may hold a quarter of what requests may
_PIECES_SHARE: Final = 8  # an eighth of what requests may hold is shared by the answers that sockets do not take
_SMALLEST_PIECE: Final = 8 * 1024
_LARGEST_PIECE: Final = 128 * 1024
_SHARES_SHARE: Final = 64  # the partitions of share sessions may take a 64th of memory.limit.bytes
_SESSION_PARTITION_BYTES: Final = 256
_LARGEST_COLD_PIECE: Final = 512 * 1024
_BATCH_BYTES: Final = 1024 * 1024  # of a large producer

_HANDLERS: Final[Mapping[ApiKey, Handler]] = {
    ApiKey.PRODUCE: produce.handle_produce,
    ApiKey.FETCH: fetch.handle_fetch,
    ApiKey.LIST_OFFSETS: offsets.handle_list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offsets.handle_offset_for_leader_epoch,
    ApiKey.METADATA: metadata.handle_metadata,
    ApiKey.API_VERSIONS: metadata.handle_api_versions,
    ApiKey.DESCRIBE_CLUSTER: metadata.handle_describe_cluster,
    ApiKey.FIND_COORDINATOR: groups.handle_find_coordinator,
    ApiKey.JOIN_GROUP: groups.handle_join_group,
    ApiKey.SYNC_GROUP: groups.handle_sync_group,
    ApiKey.HEARTBEAT: groups.handle_heartbeat,
    ApiKey.LEAVE_GROUP: groups.handle_leave_group,
    ApiKey.OFFSET_COMMIT: group_offsets.handle_offset_commit,
    ApiKey.OFFSET_FETCH: group_offsets.handle_offset_fetch,
    ApiKey.OFFSET_DELETE: group_offsets.handle_offset_delete,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_groups.handle_consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_groups.handle_consumer_group_describe,
    ApiKey.LIST_GROUPS: group_admin.handle_list_groups,
    ApiKey.DESCRIBE_GROUPS: group_admin.handle_describe_groups,
    ApiKey.DELETE_GROUPS: group_admin.handle_delete_groups,
    ApiKey.CREATE_TOPICS: topics.handle_create_topics,
    ApiKey.DELETE_TOPICS: topics.handle_delete_topics,
    ApiKey.DELETE_RECORDS: deleting.handle_delete_records,
    ApiKey.ALTER_CONFIGS: configs.handle_alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: logdirs.handle_alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: logdirs.handle_describe_log_dirs,
    ApiKey.CREATE_PARTITIONS: topics.handle_create_partitions,
    ApiKey.INIT_PRODUCER_ID: transactions.handle_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.handle_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.handle_add_offsets_to_txn,
    ApiKey.END_TXN: transactions.handle_end_txn,
    ApiKey.TXN_OFFSET_COMMIT: transactions.handle_txn_offset_commit,
    ApiKey.DESCRIBE_PRODUCERS: transactions.handle_describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.handle_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.handle_list_transactions,
    ApiKey.DESCRIBE_CONFIGS: configs.handle_describe_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.handle_incremental_alter_configs,
    ApiKey.ELECT_LEADERS: reassigning.handle_elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassigning.handle_alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: reassigning.handle_list_partition_reassignments,
    ApiKey.DESCRIBE_QUORUM: quorum.handle_describe_quorum,
    ApiKey.UNREGISTER_BROKER: quorum.handle_unregister_broker,
    ApiKey.ADD_RAFT_VOTER: quorum.handle_add_raft_voter,
    ApiKey.REMOVE_RAFT_VOTER: quorum.handle_remove_raft_voter,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: quotas.handle_describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: quotas.handle_alter_client_quotas,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: paging.handle_describe_topic_partitions,
    ApiKey.SHARE_GROUP_HEARTBEAT: share_groups.handle_share_group_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: share_groups.handle_share_group_describe,
    ApiKey.SHARE_FETCH: shares.handle_share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: shares.handle_share_acknowledge,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: share_groups.handle_describe_share_group_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: share_groups.handle_alter_share_group_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: share_groups.handle_delete_share_group_offsets,
    ApiKey.BEGIN_BATCH: batches.handle_begin_batch,
    ApiKey.DECIDE_BATCH: batches.handle_decide_batch,
}


class KafkaDoor:
    """A listening socket and its connections."""

    def __init__(
        self, broker: Broker, clock: Clock, deadlines: Deadlines, *, cluster_id: str, advertise: str,
        faults: Faults | None = None, admit: Callable[[int], bool] = lambda _: True,
    ) -> None:  # fmt: skip
        """`advertise` is the HOST:PORT clients are told; empty: where it listens. `faults` are what a test asks for.

        `admit` says whether a connection with that descriptor may stay.
        """
        settings, metrics = broker.settings, broker.metrics
        self.broker = broker
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
        self._measuring = Measuring(metrics)
        self._paused = {
            cause: metrics.counter("duramen_kafka_paused_reads_total", cause)
            for cause in ("slow reader", "unanswered", "throttled")
        }
        self._servers: list[asyncio.Server] = []
        self._listeners: tuple[str, ...] = ()
        self._injector = Injector(faults, clock, deadlines) if faults is not None else None

    def context(self, host: str, port: int) -> Context:
        """What handlers are handed for clients that come through this address."""
        answer_bytes = self._request_bytes // _ANSWERS_SHARE
        return Context(
            self.broker, self._cluster_id, host, port, self._shares, self._sessions, answer_bytes, self._listeners
        )  # fmt: skip

    async def start(self, listeners: Sequence[socket.socket]) -> str:
        """Take connections from bound sockets; returns the address of the first. Raises OSError.

        Without an address to advertise, clients are told the one that they came to.
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
        return self._listeners[0]

    async def stop(self) -> None:
        """Take no more connections; those there are end once their answers have gone."""
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.close()

    def drop_connections(self) -> int:
        """Break all connections there are, whatever they wait for; returns how many."""
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def opened(self, connection: KafkaConnection) -> None:
        """A connection is there."""
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
        """How much of an answer is read from the log at once: less where many sockets do not take theirs.

        More of what is `cold`: for each piece of it a thread has to be woken.
        """
        share = self._request_bytes // _PIECES_SHARE // (1 + self.slow_readers)
        return min(_LARGEST_COLD_PIECE if cold else _LARGEST_PIECE, max(_SMALLEST_PIECE, share))

    @property
    def pieces_are_copied(self) -> bool:
        """Whether so many sockets do not take theirs that none may keep a whole batch for a piece of it."""
        return self.slow_readers * _BATCH_BYTES > self._request_bytes // _PIECES_SHARE

    def _watch_idle(self) -> None:
        now_ms = self.clock.monotonic_ms()
        for connection in list(self._connections):
            if connection.idle and now_ms - connection.last_progress_ms > self._idle_ms:
                connection.close()
        self._deadlines.at(now_ms + max(1, self._idle_ms // _IDLE_CHECKS), self._watch_idle)

    def handle(self, context: Context, exchange: Exchange) -> None:
        """Answer a request, now or later. Raises RequestInvalid where the connection cannot go on."""
        header = exchange.header
        api = APIS.get(header.api_key)
        if api is None:
            raise RequestInvalid(no_api(header.api_key))
        if not api.low <= header.version <= api.high:
            self._refuse_version(exchange)
            return
        self._measuring.came(api.key)
        handler = _HANDLERS[api.key]
        if self._injector is None:
            handler(context, exchange)
        else:
            self._injector.handle(handler, context, exchange)

    def fed(self) -> None:
        """What came through a connection has been handled."""
        self.broker.store.flush_early()

    def answered(self, exchange: Exchange) -> None:
        """A request has its answer."""
        took_s = self.clock.seconds() - exchange.began_s
        self._measuring.answered(exchange.header.api_key, took_s, exchange.errors)
        if self._injector is not None and exchange.errors:
            self._injector.answered(exchange)

    def _refuse_version(self, exchange: Exchange) -> None:
        header = exchange.header
        if header.api_key == ApiKey.API_VERSIONS:
            # So that a newer client can fall back: version 0 with the list of what there is (KIP-511).
            body = RESPONSES[ApiKey.API_VERSIONS].encode(0, metadata.api_versions(ErrorCode.UNSUPPORTED_VERSION))
            exchange.failed(ErrorCode.UNSUPPORTED_VERSION)
            exchange.send(encode_response(ApiKey.API_VERSIONS, 0, header.correlation_id, body))
            return
        name = ApiKey(header.api_key).name
        raise RequestInvalid(f"version {header.version} of {name} is not supported")
