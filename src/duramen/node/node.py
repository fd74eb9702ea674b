"""A node: the directory, the store, the broker and the doors, from settings to running and back."""

import asyncio
import contextlib
import json
import logging
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import StorageFull
from duramen.base.ids import shown_cluster_id
from duramen.base.memory import memory_share_bytes
from duramen.base.metrics import Metrics
from duramen.base.ports import FileSystem
from duramen.base.settings import Settings
from duramen.base.units import MIB
from duramen.base.usage import Usage
from duramen.broker.stream_configs import compaction_limits
from duramen.coordinators.runtime.shard import ShardKind
from duramen.doors.completion import completion, outcome
from duramen.doors.kafka.connection.faults import RequestFaults
from duramen.doors.kafka.door import KafkaDoor
from duramen.doors.nats.address import ServerAddress
from duramen.host.clock import HostClock, HostRandomness
from duramen.host.descriptors import Descriptors, allow_descriptors
from duramen.host.files import HostFileSystem
from duramen.host.memory import return_large_blocks
from duramen.host.watch import PathWatch
from duramen.host.worker import HostWorker
from duramen.node.addresses import Address, bind_all, listen_all, parse_address
from duramen.node.banner import banner
from duramen.node.coordinators import CoordinatorRows
from duramen.node.garbage import GarbageCollection
from duramen.node.http import HttpSide
from duramen.node.listeners import Listening, data_dir, listening
from duramen.node.metrics import ProcessMetrics
from duramen.node.overlaps import check_overlaps, resolved
from duramen.node.readiness import Lasting, Readiness
from duramen.node.timer import DeadlineTimer
from duramen.service.admission import Service
from duramen.service.assembly import Ports
from duramen.service.broker import Broker
from duramen.service.forwarding.forwarding import Forwarding, NoPeers
from duramen.storage.directory import DataDirectory, open_directory
from duramen.storage.recovery.progress import RecoveryProgress
from duramen.storage.recovery.recovery import Recovered, recover
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store, StoreLimits
from duramen.storage.wal.wal import WAL_DIRECTORY

if TYPE_CHECKING:
    from duramen.controller.membership.member import ClusterMember
    from duramen.coordinators.runtime.runtime import Runtime
    from duramen.node.cluster.join import ClusterJoin
    from duramen.node.nats import NatsSide
    from duramen.node.nats_routes import Routing

__all__ = ["NodeAssembly"]

_log = logging.getLogger("duramen.node")

_OPEN_SEGMENTS: Final = 512
_DESCRIPTORS_A_SEGMENT: Final = 4  # its two files; and as many again for connections and jobs
_WAL_FILES: Final = 4  # the minimum: while some are copied into segments, others receive appends
_SMALL_MEMORY_BYTES: Final = 256 * MIB  # below this, resident memory matters more than speed
_ROWS_SHARE: Final = 8  # blocks of coordinators' rows use at most an eighth of memory.limit.bytes
_ADDRESSES: Final = "addresses.json"
_RUN: Final = "run"
_OLD_VIEWS: Final = "views"  # of earlier versions: coordinators rebuild their state from logs
_ELECTION_MS: Final = 3_000  # a longer absence of a controller is more than an election
_KAFKA: Final = ("Kafka", "--kafka-listen")
_HTTP: Final = ("HTTP", "--http-listen")


class NodeAssembly:
    """One node with its settings. `start` ends when every door accepts requests, `stop` when everything is on disk."""

    def __init__(
        self,
        settings: Settings,
        faults: RequestFaults | None = None,
        through: Callable[[FileSystem], FileSystem] | None = None,
        kinds: Sequence[ShardKind[Any]] = (),
    ) -> None:
        """Check the settings against each other; with `faults` it is a test's own node. Raises SettingInvalid.

        `through` wraps the files of the data directory: another disk in tests. `kinds` are additional coordinators.
        """
        self.settings = settings
        self._faults = faults
        self._through = through
        self._kinds = kinds
        self._rows: CoordinatorRows | None = None
        self.addresses: dict[str, str] = {}
        self.data_dir = data_dir(settings)
        self._metrics = Metrics()
        self._descriptors = Descriptors(allow_descriptors(), _report)
        self._measuring = ProcessMetrics(self._metrics, self._look)
        self._readiness = Readiness()
        self._readiness.add(self._descriptors.problem)
        self._quorum: Lasting | None = None
        self._collecting = GarbageCollection()
        self._clock = HostClock()
        self._began_ms = self._clock.monotonic_ms()
        self._deadlines = Deadlines()
        self._ticking = DeadlineTimer(self._deadlines, self._clock)
        self._worker: HostWorker | None = None
        self._wal_watch: PathWatch | None = None
        self._directory: DataDirectory | None = None
        self._recovery: asyncio.Future[Recovered] | None = None
        self._broker: Broker | None = None
        self._kafka: KafkaDoor | None = None
        self._http: HttpSide | None = None
        self._progress = RecoveryProgress()
        self._listening = listening(settings)
        place = self._listening.nats
        self._joining: ClusterJoin | None = None
        self._nats = None if place is None else _nats_side(place, self.data_dir / _RUN, self._metrics)
        if self._nats is not None:
            self._readiness.add(self._nats.problem)

    # -- starting -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the directory and open the doors. Raises DuramenError or OSError."""
        if self.settings.integer("memory.limit.bytes") < _SMALL_MEMORY_BYTES:
            return_large_blocks()
        loop = asyncio.get_running_loop()
        check_overlaps(self._listening.listeners(), resolved)
        kafka_sockets = bind_all(*_KAFKA, self._listening.kafka)
        http_sockets = bind_all(*_HTTP, self._listening.http)
        if self._listening.cluster is not None:
            self._joining = _joining(self.settings, self._listening.cluster, self._listening)
        host_files = HostFileSystem(str(self.data_dir))
        files: FileSystem = host_files if self._through is None else self._through(host_files)
        self._directory = open_directory(files, HostRandomness(), str(self.data_dir))
        (self.data_dir / _RUN).mkdir(exist_ok=True)
        self._forget_addresses()  # of a killed node
        if self._nats is not None:
            await self._nats.launch(self._nats_routing())
        self._ticking.start()
        # A cluster node must send heartbeats however slow its disk is.
        self._worker = HostWorker(loop, at_once=self._joining is None)
        self._http = HttpSide(
            self._metrics, self.addresses, self.settings, self.how_far, on_demand=self._faults is not None
        )
        listen_all(*_HTTP, http_sockets)
        self.addresses["http"] = self._http.start(http_sockets)
        store = await self._open_store(files, self._directory)
        self._watch_wal(host_files)
        doors = {"kafka": self._advertised(kafka_sockets[0]), "http": _address(http_sockets[0])}
        if self._listening.nats_reached is not None:
            from duramen.node.nats_routes import ENDPOINT

            doors[ENDPOINT] = self._listening.nats_reached
        membership = await self._come_to_cluster(files, store, self._directory, doors)
        self._progress.begin("reading streams and groups")
        self._broker = self._make_broker(store, self._directory, membership)
        self._add_obstacles(store, membership)
        service = Service(self._broker)  # before the start: groups are loaded with the light topics that they read
        await completion(self._broker.start)
        cluster_id = shown_cluster_id(self._broker.membership.cluster_id)
        self._kafka = KafkaDoor(
            self._broker, self._clock, self._deadlines, service=service,
            cluster_id=cluster_id, advertise=self.settings.text("kafka.advertise"),
            faults=self._faults, admit=self._descriptors.admit,
        )  # fmt: skip
        listen_all(*_KAFKA, kafka_sockets)
        self.addresses["kafka"] = await self._kafka.start(kafka_sockets)
        self._progress.begin("opening the doors")
        forwarding = Forwarding(self._broker, self._joining or NoPeers(), self._http.room)
        if self._joining is not None:
            self._joining.serve_records(forwarding.handle_request)
        if self._nats is not None:
            await self._nats.open(self._broker, service, files, forwarding.queues)
            self.addresses["nats"] = self._nats.address
        self._write_addresses()
        self._http.ready(self._broker, service, cluster_id, self.problem, forwarding, self._usage)
        # A test's node does not live long enough to gain from a collection.
        self._collecting.start(collect=self._faults is None)
        self._measuring.start()

    def _watch_wal(self, files: HostFileSystem) -> None:
        # Without a watch the store looks for its files at each sync.
        with contextlib.suppress(OSError):
            self._wal_watch = PathWatch(asyncio.get_running_loop(), str(self.data_dir / WAL_DIRECTORY))
            files.rely_on(self._wal_watch.quiet)

    def _add_obstacles(self, store: Store, membership: "ClusterMember | None") -> None:
        self._readiness.add(partial(_storage_problem, store, membership))
        self._readiness.add(self._rows_problem)
        if membership is not None:
            self._readiness.add(partial(_cut_off_problem, membership))
            self._quorum = Lasting(partial(_quorum_problem, membership), _ELECTION_MS, self._clock)
            self._readiness.add(self._quorum.problem)

    def _rows_problem(self) -> str:
        problem = None if self._broker is None else self._broker.coordinators.problem
        return "" if problem is None else str(problem)

    async def _open_store(self, files: FileSystem, directory: DataDirectory) -> Store:
        handles = Handles(files, min(_OPEN_SEGMENTS, allow_descriptors() // _DESCRIPTORS_A_SEGMENT))
        loop = asyncio.get_running_loop()
        started = time.perf_counter()
        self._recovery = loop.run_in_executor(None, recover, files, directory.id, handles, _report, self._progress)
        recovered = await asyncio.shield(self._recovery)
        self._account_recovery(recovered, time.perf_counter() - started)
        pending = memory_share_bytes(self.settings.integer("memory.limit.bytes"))
        wal_max_bytes = self.settings.integer("wal.max.bytes")
        store = Store(
            files, self._require_worker(), self._clock, self._deadlines, self._metrics, directory, recovered, handles,
            node_id=self.settings.integer("node.id"),
            limits=StoreLimits(
                wal_file_bytes=min(self.settings.integer("wal.file.bytes"), max(wal_max_bytes // _WAL_FILES, MIB)),
                wal_max_bytes=wal_max_bytes,
                pending_bytes=pending,
                copy_bytes=min(self.settings.integer("wal.copy.bytes"), pending // 2),
                copy_interval_ms=self.settings.integer("wal.copy.interval.ms"),
                compaction=compaction_limits(self.settings),
            ),
        )  # fmt: skip
        store.when_full(self._log_full_disk, self._log_free_space)
        return store

    def _log_full_disk(self, reason: StorageFull, waiting_bytes: int) -> None:
        _log.warning(
            "writes to %s are refused: %s; %d bytes of its disk are free, and %d bytes of records wait in memory for "
            "the copy into segments",
            self.data_dir, reason, self._free_bytes(), waiting_bytes,
            extra={"fields": {
                "directory": str(self.data_dir), "free_bytes": self._free_bytes(), "waiting_bytes": waiting_bytes,
            }},
        )  # fmt: skip

    def _log_free_space(self) -> None:
        _log.info(
            "writes to %s continue: %d bytes of its disk are free", self.data_dir, self._free_bytes(),
            extra={"fields": {"directory": str(self.data_dir), "free_bytes": self._free_bytes()}},
        )  # fmt: skip

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.data_dir).free

    def _usage(self) -> Usage:
        uptime_ms = self._clock.monotonic_ms() - self._began_ms
        return Usage(uptime_ms, self._free_bytes(), self._descriptors.count, self._descriptors.limit)

    def _look(self) -> None:
        """Make periodic observations."""
        self._descriptors.problem()
        if self._quorum is not None:
            self._quorum.problem()

    def _account_recovery(self, recovered: Recovered, seconds: float) -> None:
        self._metrics.counter("duramen_recovery_seconds").value = seconds
        self._metrics.counter("duramen_damaged_ranges_total").value = len(recovered.findings)
        _log.info(
            "recovered %d logs in %.3f s, %d bytes replayed, epoch %d",
            len(recovered.logs), seconds, recovered.replayed_bytes, recovered.node_epoch,
            extra={"fields": {
                "logs": len(recovered.logs), "seconds": round(seconds, 6),
                "replayed_bytes": recovered.replayed_bytes, "epoch": recovered.node_epoch,
            }},
        )  # fmt: skip

    def _require_worker(self) -> HostWorker:
        if self._worker is None:
            raise AssertionError("the node is not starting")
        return self._worker

    async def _come_to_cluster(
        self, files: FileSystem, store: Store, directory: DataDirectory, doors: dict[str, Address]
    ) -> "ClusterMember | None":
        """The node's membership in its cluster; None if it is standalone."""
        if self._joining is None:
            return None
        if self._nats is not None:
            # A node that cannot serve must not join the formation of a cluster and leave.
            await self._nats.launched()
        from duramen.controller.membership.metrics import ClusterMeasures
        from duramen.node.cluster.quorum import ClusterParts

        parts = ClusterParts(files, store, self._require_worker(), self._clock, self._deadlines, HostRandomness())
        member = await self._joining.come(parts, directory.id, doors, self._progress.begin)
        ClusterMeasures(member, self._metrics)
        return member

    def _nats_routing(self) -> "Routing | None":
        """The routing of this node's nats-server to those of other nodes, if any. Raises SecretUnusable."""
        if self._listening.nats_cluster is None:
            return None
        from duramen.doors.cluster.secret import read_secret
        from duramen.node.nats_routes import routing

        return routing(self._listening.nats_cluster, read_secret(self.settings.text("cluster.secret.file")))

    def _advertised(self, listener: socket.socket) -> Address:
        """The advertised address for Kafka clients."""
        text = self.settings.text("kafka.advertise")
        return parse_address("kafka.advertise", text) if text else _address(listener)

    def _make_broker(self, store: Store, directory: DataDirectory, membership: "ClusterMember | None") -> Broker:
        shutil.rmtree(self.data_dir / _OLD_VIEWS, ignore_errors=True)
        cache_bytes = self.settings.integer("memory.limit.bytes") // _ROWS_SHARE
        self._rows = CoordinatorRows(self.data_dir, cache_bytes)
        ports = Ports(self._require_worker(), self._clock, HostRandomness(), self._rows.open)
        return Broker(
            ports, self._deadlines, store, self.settings, self._metrics,
            directory_id=str(directory.id), report=_report, membership=membership, kinds=self._kinds,
        )  # fmt: skip

    def _write_addresses(self) -> None:
        run = self.data_dir / _RUN
        temporary = run / (_ADDRESSES + ".new")
        temporary.write_text(json.dumps(self.addresses))
        temporary.replace(run / _ADDRESSES)

    def _forget_addresses(self) -> None:
        # Files of another node are its own: only the holder of the directory may remove them.
        if self._directory is not None:
            (self.data_dir / _RUN / _ADDRESSES).unlink(missing_ok=True)

    def banner(self) -> list[str]:
        """All addresses, for people, with a command to try for each door."""
        return banner(self.data_dir, self.addresses, self.settings.text("kafka.advertise"), self.problem())

    def how_far(self) -> str:
        """The progress of the start, and its present obstacle."""
        said, obstacle = self._progress.words(), "" if self._joining is None else self._joining.obstacle
        return f"{said}: {obstacle}" if said and obstacle else said

    def reload(self, settings: Settings) -> frozenset[str]:
        """Apply the settings that may change; returns those that keep values set on the running node."""
        self.settings.take(settings)
        if self._broker is None:
            return frozenset()
        changed = self._broker.node_configs.changed
        self._broker.streams.reconfigure(changed)
        return frozenset({*changed.own, *changed.every})

    def problem(self) -> str:
        """The reason why this node is not ready; empty if it is."""
        return self._readiness.problem()

    @property
    def coordinators(self) -> "Runtime":
        """The coordinator runtime of this node, once it has started. Raises LookupError before."""
        if self._broker is None:
            raise LookupError("the node has not started")
        return self._broker.coordinators

    def drop_connections(self) -> int:
        """Break all connections to the Kafka door; returns how many there were."""
        return self._kafka.drop_connections() if self._kafka is not None else 0

    # -- stopping -----------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Move leadership away from this node, while it continues to serve."""
        if self._joining is not None:
            await self._joining.drain()

    async def stop(self) -> None:
        """Accept no more requests, acknowledge accepted ones, and leave the directory clean."""
        self._measuring.stop()
        self._forget_addresses()
        await self._close_doors()
        if self._broker is not None:
            error = await outcome(self._broker.stop)
            if error is not None:
                _log.error("the directory was not closed cleanly: %s; the next start recovers it", error)
        if self._nats is not None:
            await self._nats.close()
        if self._http is not None:
            await self._http.stop()
        await self._quiesce()
        if self._wal_watch is not None:
            self._wal_watch.close()
        if self._rows is not None:
            self._rows.close()
        if self._recovery is not None:
            # An abandoned one continues in its thread: until it ends the directory must stay locked.
            await asyncio.gather(self._recovery, return_exceptions=True)
        if self._directory is not None:
            self._directory.lock.release()
        self._collecting.stop()  # last: stopped parts are garbage, which each collection would visit

    async def _quiesce(self) -> None:
        """Run no more actions on the rows and files, which are closed next."""
        self._ticking.stop()
        if self._worker is not None:
            self._worker.stop()
            await asyncio.sleep(0)  # its last results are delivered

    async def _close_doors(self) -> None:
        """Accept no more requests; then leave the other nodes."""
        if self._nats is not None:
            await self._nats.drain()
        if self._kafka is not None:
            await self._kafka.stop()
        if self._joining is not None:
            await self._joining.stop()


def _nats_side(place: Address | ServerAddress, run_directory: Path, metrics: Metrics) -> "NatsSide":
    from duramen.node.nats import NatsSide  # imported only if needed

    return NatsSide(place, run_directory, HostRandomness(), metrics)


def _joining(settings: Settings, listen: Address, addresses: Listening) -> "ClusterJoin":
    from duramen.node.cluster.join import ClusterJoin  # not imported on a standalone node

    return ClusterJoin(settings, listen, addresses.seeds, reached_at=addresses.cluster_reached or listen)


def _address(listener: socket.socket) -> Address:
    host, port = listener.getsockname()[:2]
    return Address(host, port)


def _storage_problem(store: Store, membership: "ClusterMember | None") -> str:
    problem = store.condition.problem if membership is None else membership.problem
    return "" if problem is None else str(problem)


def _cut_off_problem(membership: "ClusterMember") -> str:
    deposed = len(membership.replicating.deposed())
    return (
        f"this node is cut off: other nodes may now lead {deposed} of the partitions that it leads" if deposed else ""
    )


def _quorum_problem(membership: "ClusterMember") -> str:
    if membership.controller.leader_id is not None:
        return ""
    return "no controller is known: this node does not reach a majority of the voters, or they do not reach each other"


def _report(message: str) -> None:
    _log.warning("%s", message)
