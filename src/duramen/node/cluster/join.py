"""Joins a cluster and makes the node a member, from before its doors open until the last of them is closed."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from duramen.base.errors import DuramenError, StorageFailed
from duramen.base.ports import Buffer
from duramen.base.settings import Settings
from duramen.broker.replicas.configs import ReplicaPatience
from duramen.controller.dependencies import TIMING, ControllerTiming
from duramen.controller.membership.incarnations import IncarnationFile
from duramen.controller.membership.member import ClusterMember, MemberDependencies
from duramen.doors.cluster.secret import read_secret
from duramen.metadata.events import Endpoint
from duramen.metadata.features import LATEST_LEVEL, LEAST_LEVEL
from duramen.metadata.nodes import BROKER_ROLE
from duramen.metadata.registration import Registration
from duramen.metadata.sessions import SESSIONS, Sessions
from duramen.node.addresses import Address, bind, listen_all
from duramen.node.cluster.assembly import CLUSTER, Candidate, ClusterAssembly
from duramen.node.cluster.quorum import ClusterParts, chance_of
from duramen.service.methods import wires_by

__all__ = ["ClusterJoin"]

_log = logging.getLogger("duramen.cluster")

_UNANSWERED_S: Final = 2.0
_DRAIN_S: Final = 30.0
_SAY_S: Final = 2.0
_DOOR: Final = ("cluster", "--cluster-listen")


class ClusterJoin:
    """The cluster side of a node with these settings."""

    def __init__(self, settings: Settings, listen: Address, seeds: Sequence[Address], *, reached_at: Address) -> None:
        """Binds the address; `reached_at` is the address for other nodes. Raises SecretUnusable, AddressInUse."""
        self._settings = settings
        self._reached_at = reached_at
        self._seeds = tuple(seeds)
        self._secret = read_secret(settings.text("cluster.secret.file"))
        self._socket: socket.socket | None = bind(*_DOOR, listen)
        self._side: ClusterAssembly | None = None
        self._member: ClusterMember | None = None

    async def come(
        self, parts: ClusterParts, directory_id: UUID, doors: Mapping[str, Address], waits: Callable[[str], None]
    ) -> ClusterMember:
        """Form a cluster with others, or join one, however long that takes.

        `doors` are the addresses for clients, by the name of the door; `waits` gets the reason of a wait. Raises
        DirectoryUnusable, StorageFailed.
        """
        node_id = self._settings.integer("node.id")
        if self._socket is None:
            raise AssertionError("a node comes to a cluster once")
        sockets, self._socket = [self._socket], None
        listen_all(*_DOOR, sockets)
        candidate = Candidate(
            node_id, directory_id, self._seeds, self._secret, grows=self._seeds == (self._reached_at,),
            endpoint=str(self._reached_at),
        )  # fmt: skip
        side = self._side = await ClusterAssembly.start(candidate, parts, sockets)
        waits("looking for the nodes of the cluster")
        cluster_id = await side.joined()
        rack = self._settings.text("broker.rack") or None
        endpoints = [Endpoint(name, *address) for name, address in {**doors, CLUSTER: self._reached_at}.items()]
        incarnations, incarnation_id = IncarnationFile(parts.files), str(UUID(bytes=parts.randomness.token(16)))
        registration = Registration(
            node_id, str(directory_id), incarnation_id, str(cluster_id), rack,
            (BROKER_ROLE,), tuple(endpoints), LEAST_LEVEL, LATEST_LEVEL,
            tried=await _on_disk(parts, partial(incarnations.begin, incarnation_id)),
        )  # fmt: skip
        kit = MemberDependencies(
            registration, side.runner, side.view, parts.store, parts.worker, parts.clock, parts.deadlines,
            parts.randomness, chance_of(parts.randomness), side, wires_by, report=_report, failed=_failed,
            patience=_patience(self._settings), sessions=_sessions(self._settings),
            report_window_ms=self._settings.integer("leader.report.window.ms"), timing=_timing(self._settings),
            tell=_tell, throttled_rate=self._settings.integer("leader.replication.throttled.rate"),
            incarnations=incarnations, producers_ms=self._settings.integer("producer.id.expiration.ms"),
            rebalance_ms=_rebalance_ms(self._settings),
        )  # fmt: skip
        self._member = ClusterMember(kit)
        side.take_part(self._member)
        waits("waiting for the controller of the cluster")
        return self._member

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """The transport to the other nodes."""
        return self._side is not None and self._side.ask_records(node_id, body, done)

    def serve_records(self, asked: Callable[[Buffer, Callable[[bytes], None]], None]) -> None:
        """Let `asked` serve requests of other nodes on behalf of their clients."""
        if self._side is not None:
            self._side.records = asked

    @property
    def obstacle(self) -> str:
        """The reason why the node is in no cluster yet, in one line."""
        return "" if self._side is None else self._side.obstacle

    async def drain(self) -> None:
        """Move leadership away, while the controller responds and works on it, up to half a minute."""
        member = self._member
        if member is None:
            return
        drained = asyncio.Event()
        member.drain(drained.set)
        begun_s = asyncio.get_running_loop().time()
        while not await _within(drained, _SAY_S):
            drains_s = asyncio.get_running_loop().time() - begun_s
            if min(drains_s, member.unanswered_ms / 1000) > _UNANSWERED_S:
                _log.warning(
                    "the controller does not respond, so the leaderships of this node were not moved; it stops anyway"
                )
                return
            if drains_s > _DRAIN_S:
                _log.warning("after %.0f s not all leaderships of this node have moved; it stops anyway", drains_s)
                return
            _log.info("moving leaderships to other nodes: %d partitions are left", member.leads)

    async def stop(self) -> None:
        """Close all connections. The storage may be stopped then."""
        if self._socket is not None:
            self._socket.close()
        if self._member is not None:
            self._member.stop()
        if self._side is not None:
            await self._side.stop()


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event happens in that time."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


async def _on_disk(parts: ClusterParts, job: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """The result of a job on the disk. Raises DirectoryUnusable, StorageFailed."""
    done: asyncio.Future[tuple[str, ...] | BaseException] = asyncio.get_running_loop().create_future()
    parts.worker.submit("disk", job, lambda result: None if done.done() else done.set_result(result))
    result = await done
    if isinstance(result, DuramenError):
        raise result
    if isinstance(result, BaseException):
        raise StorageFailed(f"the incarnations of this node cannot be stored: {result}")
    return result


def _patience(settings: Settings) -> ReplicaPatience:
    return ReplicaPatience(
        settings.integer("replica.lag.time.max.ms"), settings.integer("replica.eject.latency.ms") or None
    )  # fmt: skip


def _rebalance_ms(settings: Settings) -> int | None:
    if not settings.flag("auto.leader.rebalance.enable"):
        return None
    return 1_000 * settings.integer("leader.imbalance.check.interval.seconds")


def _sessions(settings: Settings) -> Sessions:
    timeout_ms = settings.integer("broker.session.timeout.ms")
    return Sessions(timeout_ms, min(timeout_ms, SESSIONS.grace_ms), min(timeout_ms, SESSIONS.absent_ms))


def _timing(settings: Settings) -> ControllerTiming:
    session_ms = settings.integer("broker.session.timeout.ms")
    return TIMING._replace(
        heartbeat_ms=min(settings.integer("broker.heartbeat.interval.ms"), max(1, session_ms // 2)),
        duplicate_ms=max(TIMING.duplicate_ms, 2 * session_ms),
    )


def _report(finding: str) -> None:
    _log.warning("%s", finding)


def _tell(line: str) -> None:
    _log.info("%s", line)


def _failed(error: DuramenError) -> None:
    _log.error("this node has left the cluster until it is restarted: %s", error)
