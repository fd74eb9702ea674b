"""The cluster side of a node: its door, cluster discovery, and its part in the quorum."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, Self, TypeVar
from uuid import UUID

from duramen.base.errors import DirectoryUnusable, DuramenError, RequestInvalid, StorageFailed
from duramen.base.hosts import host_port
from duramen.base.ids import shown_cluster_id
from duramen.base.ports import Buffer
from duramen.codec.cluster import nodes
from duramen.codec.cluster.channels import PeerChannel, Subject
from duramen.codec.cluster.handshake import HandshakeIdentity
from duramen.controller.quorum.applier import ControllerView
from duramen.controller.quorum.ballot_file import BallotFile
from duramen.controller.quorum.dependencies import LIMITS, QuorumLimits
from duramen.controller.quorum.recovery import QuorumIdentity
from duramen.controller.quorum.runner import Runner
from duramen.doors.cluster.dialer import Dialer
from duramen.doors.cluster.discovery import Gathering
from duramen.doors.cluster.door import ClusterDoor
from duramen.doors.cluster.link import PeerLink
from duramen.doors.cluster.timer import Timer
from duramen.metadata.events import Event, NodeEvent, PartitionChanged
from duramen.metadata.nodes import Node
from duramen.metadata.state import ControllerState
from duramen.node.addresses import Address
from duramen.node.cluster.identity import BelongingFile
from duramen.node.cluster.peers import PeerConnections
from duramen.node.cluster.quorum import ClusterParts, QuorumReplica, chance_of
from duramen.raft.description import QuorumDescription
from duramen.raft.effects import Commit, Effect
from duramen.raft.forming.values import FormationDiskState
from duramen.raft.timeouts import TIMEOUTS, RaftTimeouts
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voter, Voters
from duramen.service.methods import NOT_READY

__all__ = ["CLUSTER", "Candidate", "ClusterAssembly", "ClusterPart"]

T = TypeVar("T")

CLUSTER = "cluster"
"""The name of the endpoint under which a node registers its address for other nodes."""

_log = logging.getLogger("duramen.cluster")


class Candidate(NamedTuple):
    """The identity of the node, its seeds, and its secret.

    `grows`: it has no seeds, and may bring its data as a standalone node. `endpoint` is its address for others.
    """

    node_id: int
    directory_id: UUID
    seeds: tuple[Address, ...]
    secret: bytes
    timeouts: RaftTimeouts = TIMEOUTS
    limits: QuorumLimits = LIMITS
    grows: bool = False
    endpoint: str = ""


class ClusterPart(Protocol):
    """The node's part in the cluster, besides the quorum: `controller.membership.member`."""

    @property
    def stands_for_another(self) -> bool:
        """Whether it is registered as its node, and a directory that the node no longer has is a voter."""

    def on_event(self, event: Event, epoch: int) -> None:
        """An event is applied to the view; the quorum ordered it in that epoch."""

    def restored(self) -> None:
        """The whole state of the view was replaced."""

    def carried_out(self, effect: Effect) -> None:
        """The quorum's replica has executed an effect."""

    def quorum_failed(self) -> None:
        """The quorum's replica has stopped, or only follows."""

    def opened(self, node_id: int) -> None:
        """There is a connection to a node."""

    def closed(self, node_id: int) -> None:
        """The last connection to a node is closed."""

    def reachable(self, node_id: int) -> None:
        """Messages of replicas to a node use a new connection."""

    def handle_controller_request(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """A request of another node to this one's controller. Raises RequestInvalid."""

    def handle_broker_request(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """A request of another node to this one's broker. Raises RequestInvalid."""

    def heard(self, node_id: int, body: Buffer) -> None:
        """Messages of another node's replicas. Raises RequestInvalid."""


class ClusterAssembly:
    """Joins a cluster, and runs the replica of its quorum until it is stopped. A Quorum port.

    `failure` is done once the node has failed permanently; the log has the reason.
    """

    def __init__(
        self,
        member: Candidate,
        parts: ClusterParts,
        kept: FormationDiskState,
    ) -> None:
        """`kept` is the directory's content; see `start`."""
        loop = asyncio.get_running_loop()
        identity = HandshakeIdentity(member.node_id, member.directory_id, kept.cluster_id)
        self._member = member
        self._parts = parts
        self._me = ReplicaId(member.node_id, str(member.directory_id))
        self.member: ClusterPart | None = None
        self.records: Callable[[Buffer, Callable[[bytes], None]], None] | None = None  # serves requests for records
        self._view = ControllerView(self._on_event, self._restored)
        self._door = ClusterDoor(
            self, identity, member.secret,
            token=parts.randomness.token, chance=chance_of(parts.randomness), later=_later,
        )  # fmt: skip
        self._gathering = Gathering(
            self._door, self._me, kept, member.seeds, persist=self._persist, belongs=self._belongs, later=_later
        )
        self._neighbours = PeerConnections(self._door, member.node_id)
        self._belonging = BelongingFile(parts.files)
        self._agreeing = QuorumReplica(
            parts, self._door, self._view, voters=self._reach, carried_out=self._carried_out, failed=self._fail
        )
        self._replaces = kept.replaces
        self._stopping = False
        self._voters = NO_VOTERS
        self._heard: dict[int, str] = {}  # addresses of voters, from another node
        self._told: asyncio.Future[None] = loop.create_future()
        self._seeds: dict[str, Dialer] = {}
        self._opening: asyncio.Task[None] | None = None
        self._joined: asyncio.Future[UUID | DuramenError] = loop.create_future()
        self.failure: asyncio.Future[DuramenError] = loop.create_future()

    @classmethod
    async def start(
        cls,
        member: Candidate,
        parts: ClusterParts,
        sockets: Sequence[socket.socket],
    ) -> Self:
        """Listen on the bound sockets, and look for a cluster.

        Raises DirectoryUnusable or StorageFailed if the directory does not allow that.
        """
        kept = await _read(parts, grows=member.grows)
        side = cls(member, parts, kept)
        await side._door.listen(sockets)
        side._gathering.start()
        return side

    async def stop(self) -> None:
        """Give up leadership, and close all connections. The storage may be stopped then."""
        self._stopping = True
        self._told.cancel()
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._agreeing.runner is not None:
            self._agreeing.runner.stop()
        self._gathering.stop()
        await self._door.close()

    # -- state and requests -------------------------------------------------------------------------

    async def joined(self) -> UUID:
        """Wait until the node has joined a cluster; returns its id. Raises the reason if it never will."""
        result = await asyncio.shield(self._joined)
        if isinstance(result, DuramenError):
            raise result
        return result

    @property
    def obstacle(self) -> str:
        """The reason why the node is in no cluster, in one line; empty if it is in one."""
        return self._gathering.obstacle

    @property
    def runner(self) -> Runner:
        """The replica of the quorum on this node. Raises RuntimeError before the node has joined."""
        if self._agreeing.runner is None:
            raise RuntimeError("this node has not joined a cluster yet")
        return self._agreeing.runner

    @property
    def view(self) -> ControllerView:
        """The cluster's state, as applied on this node."""
        return self._view

    @property
    def state(self) -> ControllerState:
        """The cluster's state, as far as this node knows."""
        return self._view.state

    def describe(self) -> QuorumDescription | None:
        """The quorum as known to this node; None before it joins."""
        return None if self._agreeing.runner is None else self._agreeing.runner.describe()

    # -- the broker's ways to other nodes -----------------------------------------------------------

    def ask(
        self,
        node_id: int,
        body: Buffer,
        done: Callable[[Buffer | None], None],
        *,
        subject: Subject = Subject.CONTROLLER,
    ) -> bool:
        """Send a request to another node: see `PeerNetwork`."""
        link = self._door.peers.link(node_id, PeerChannel.CONTROL)
        return link is not None and link.request(subject, done, body)

    def say(self, node_id: int, pieces: Sequence[Buffer]) -> bool:
        """Send messages of replicas: see `PeerNetwork`."""
        link = self._door.peers.link(node_id, PeerChannel.DATA)
        return link is None or link.send(Subject.REPLICAS, *pieces) or not link.open

    def ask_records(self, node_id: int, body: Buffer, done: Callable[[Buffer | None], None]) -> bool:
        """Send a request to another node on behalf of a client."""
        link = self._door.peers.link(node_id, PeerChannel.DATA)
        return link is not None and link.request(Subject.RECORDS, done, body)

    def _on_event(self, event: Event, epoch: int) -> None:
        if self.member is not None:
            self.member.on_event(event, epoch)
        if not isinstance(event, PartitionChanged) and isinstance(event, NodeEvent):  # the most frequent event
            self._connect()

    def _restored(self) -> None:
        if self.member is not None:
            self.member.restored()
        self._connect()

    def _carried_out(self, effect: Effect) -> None:
        runner = self._agreeing.runner
        if isinstance(effect, Commit) and runner is not None:
            self._vote_again(runner)
        if self.member is not None:
            self.member.carried_out(effect)

    def _vote_again(self, runner: Runner) -> None:
        """Once this is a stored voter: from now on a removal of its vote is intended.

        A node that at first learned nothing of its earlier directory's vote may find it in the log.
        """
        if self._replaces:
            if self._me in runner.voters:
                self._replaces = False
                self._parts.worker.submit("disk", partial(self._belonging.replace, replaces=False), _noted)
        elif self.member is not None and self.member.stands_for_another:
            self._replaces = True

            def kept(result: object) -> None:
                if isinstance(result, BaseException):
                    self._fail(
                        StorageFailed(f"the file with this node's cluster membership cannot be written: {result}")
                    )
                else:
                    runner.join(Voter(self._me, self._member.endpoint))

            self._parts.worker.submit("disk", partial(self._belonging.replace, replaces=True), kept)

    # -- coming to a cluster ------------------------------------------------------------------------

    def _persist(self, kept: FormationDiskState, done: Callable[[], None]) -> None:
        def written(result: object) -> None:
            if self._stopping:
                return
            if isinstance(result, BaseException):
                _log.error("the file with this node's cluster membership cannot be written: %s", result)
                self._fail(StorageFailed(f"the file with this node's cluster membership cannot be written: {result}"))
            else:
                done()

        self._parts.worker.submit("disk", partial(self._belonging.write, kept), written)

    def _belongs(self, cluster_id: UUID, founders: Voters) -> None:
        _log.info(
            "this node belongs to cluster %s; clients see the cluster id %s", cluster_id, shown_cluster_id(cluster_id)
        )
        self._reach(founders)
        self._dial_seeds(founders)
        self._opening = asyncio.get_running_loop().create_task(self._open(cluster_id, founders))

    async def _open(self, cluster_id: UUID, founders: Voters) -> None:
        """Open the replica. A later node without knowledge first asks for the voters."""
        if not founders and not self._agreeing.log.end_offset:
            await self._told
            await self._keep_replacing()
        member, known = self._member, tuple(self._neighbours.addresses)
        # A disk that replaced a voter's does not know its promises: it votes once it has caught up.
        joins = Voter(self._me, member.endpoint) if self._replaces else None
        plan = QuorumIdentity(self._me, founders, known, joins, member.timeouts, member.limits)
        opened: asyncio.Future[Runner | DuramenError] = asyncio.get_running_loop().create_future()
        self._agreeing.open(plan, partial(_settle, opened))
        result = await opened
        if isinstance(result, DuramenError):
            self._fail(result)
        else:
            _settle(self._joined, cluster_id)

    async def _keep_replacing(self) -> None:
        """Record that this directory is to vote, before the log has any other entry about it."""
        self._replaces = self._member.node_id in self._heard
        if not self._replaces:
            return
        kept: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._parts.worker.submit("disk", partial(self._belonging.replace, replaces=True), partial(_settle, kept))
        result = await kept
        if isinstance(result, BaseException):
            self._fail(StorageFailed(f"the file with this node's cluster membership cannot be written: {result}"))

    def _fail(self, error: DuramenError) -> None:
        _settle(self.failure, error)
        _settle(self._joined, error)
        if self.member is not None:
            self.member.quorum_failed()

    # -- endpoints of voters ------------------------------------------------------------------------

    def _reach(self, voters: Voters) -> None:
        """The voters, or the leader, have changed: keep connections to them, and notify all connected nodes."""
        if voters and voters != self._voters:
            self._voters = voters
            for link in self._door.peers:
                self._tell(link)
        self._connect()

    def _connect(self) -> None:
        """Keep connections to the voters in the log, and to those reported by others.

        The log may be old after a long absence. Once the leader is among them, the reported ones are dropped.
        """
        runner = self._agreeing.runner
        if runner is not None and runner.machine.leader in self._voters:
            self._heard = {}
            self._leave_seeds()
        registered = {node.id: where for node in self.state.registrations if (where := _cluster_address(node))}
        voters = {voter.id.node_id: voter.endpoint for voter in self._voters}
        self._neighbours.reach(self._heard | voters | registered)

    def _tell(self, link: PeerLink) -> None:
        if self._voters and link.channel is PeerChannel.CONTROL:
            link.send(Subject.NODES, nodes.encode(tuple((one.id.node_id, one.endpoint) for one in self._voters)))

    def _hear(self, body: Buffer) -> None:
        """Another node reports the addresses of the voters."""
        heard = dict(nodes.decode(body))
        if heard and self._opening is not None:
            self._heard = heard
            self._connect()
            _settle(self._told, None)

    def _dial_seeds(self, founders: Voters) -> None:
        known = {voter.endpoint for voter in founders}
        for seed in self._member.seeds:
            where = host_port(*seed)
            if where not in known:
                self._seeds[where] = self._door.dial(*seed, PeerChannel.CONTROL)

    def _leave_seeds(self) -> None:
        for dialer in self._seeds.values():
            dialer.stop()
        self._seeds = {}

    def take_part(self, member: ClusterPart) -> None:
        """Notify the member of later connections, and of the present ones."""
        self.member = member
        for node_id in self._neighbours.there:
            member.opened(node_id)

    # -- events of the door -------------------------------------------------------------------------

    def opened(self, link: PeerLink) -> None:
        """A node is connected."""
        self._gathering.opened(link)
        if link.me.cluster_id is not None and link.peer.identity.cluster_id is not None:
            if self._neighbours.opened(link) and self.member is not None:
                self.member.opened(link.peer.identity.node_id)
            if link.channel is PeerChannel.DATA and self.member is not None:
                self.member.reachable(link.peer.identity.node_id)
            self._tell(link)
            self._agreeing.connected(link.peer.identity.node_id)

    def closed(self, link: PeerLink, why: str) -> None:
        """Handle the end of a connection."""
        self._gathering.closed(link)
        node_id = link.peer.identity.node_id
        if self._neighbours.closed(link, why) and self.member is not None:
            self.member.closed(node_id)
        if node_id not in self._door.peers.node_ids():
            self._agreeing.disconnected(node_id)

    def found_itself(self, where: str) -> None:
        """The listener at that address is this node."""
        self._gathering.found_itself(where)
        if where in self._seeds:
            self._seeds.pop(where).stop()

    def message(self, link: PeerLink, subject: Subject, body: Buffer) -> None:
        """Handle a message. Raises RequestInvalid if it is unreadable."""
        match subject:
            case Subject.QUORUM:
                self._agreeing.message(link, body)
            case Subject.NODES:
                self._hear(body)
            case Subject.REPLICAS:
                if self.member is not None:
                    self.member.heard(link.peer.identity.node_id, body)
            case _:
                raise RequestInvalid(f"a message about {subject.name}, which this node does not accept")

    def request(self, link: PeerLink, subject: Subject, number: int, body: Buffer) -> None:
        """Handle a request. Raises RequestInvalid if it is unreadable."""
        match subject:
            case Subject.FORMING:
                self._gathering.request(link, number, body)
            case Subject.CONTROLLER if self.member is not None:
                self.member.handle_controller_request(body, partial(link.answer, Subject.CONTROLLER, number))
            case Subject.BROKER if self.member is not None:
                self.member.handle_broker_request(body, partial(link.answer, Subject.BROKER, number))
            case Subject.RECORDS if self.records is not None:
                self.records(body, partial(link.answer, Subject.RECORDS, number))
            case Subject.CONTROLLER | Subject.BROKER | Subject.RECORDS:
                NOT_READY.serve(body, partial(link.answer, subject, number))
            case _:
                raise RequestInvalid(f"a request about {subject.name}, which this node does not accept")


def _settle(future: asyncio.Future[T], value: T) -> None:
    """Set the result, unless it is set, or nothing waits any more."""
    if not future.done():
        future.set_result(value)


def _noted(result: object) -> None:
    """The next start tries again."""
    if isinstance(result, BaseException):
        _log.warning("the file with this node's cluster membership cannot be written: %s", result)


def _cluster_address(node: Node) -> str:
    return next((host_port(one.host, one.port) for one in node.endpoints if one.name == CLUSTER), "")


def _later(delay_ms: int, action: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(delay_ms / 1000, action)


async def _read(parts: ClusterParts, *, grows: bool) -> FormationDiskState:
    """The directory's membership in a cluster, unless other files contradict it."""
    read: asyncio.Future[tuple[FormationDiskState, bool] | BaseException] = asyncio.get_running_loop().create_future()
    belonging, ballots = BelongingFile(parts.files), BallotFile(parts.files)
    parts.worker.submit("disk", lambda: (belonging.read(), ballots.read() is not None), partial(_settle, read))
    result = await read
    if isinstance(result, DuramenError):
        raise result
    if isinstance(result, BaseException):
        raise StorageFailed(f"the file with this node's cluster membership cannot be read: {result}")
    kept, voted = result
    if kept.cluster_id is None and voted:
        raise DirectoryUnusable(
            "this directory belongs to a quorum, but its file quorum/cluster is missing: restore that file from a"
            " backup, or start the node with an empty directory"
        )
    if kept.cluster_id is None and not grows and any(log.end_offset for log in parts.store.each_log()):
        raise DirectoryUnusable(
            "this directory has streams of a standalone node: start it once with itself as its only seed to make it a "
            "cluster that others can join; to form or join a cluster with others, use an empty directory"
        )
    return kept
