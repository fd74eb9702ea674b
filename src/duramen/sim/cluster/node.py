"""A node of a simulated cluster: its disk, and its process while it runs, assembled like `node.cluster`."""

import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Final
from uuid import UUID

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import DuramenError, StorageFailed
from duramen.base.ids import METADATA_STREAM_ID
from duramen.base.metrics import Metrics
from duramen.base.settings import Settings
from duramen.broker.replicas.bulk import BULK, BulkBytes
from duramen.broker.replicas.configs import PATIENCE, ReplicaPatience
from duramen.broker.views.parts import ViewLimits
from duramen.codec.cluster.channels import PeerChannel
from duramen.controller.membership.incarnations import IncarnationFile
from duramen.controller.membership.member import ClusterMember, MemberDependencies
from duramen.controller.quorum.dependencies import QuorumLimits
from duramen.controller.quorum.recovery import Opening, QuorumIdentity
from duramen.controller.quorum.runner import Runner
from duramen.controller.quorum.snapshot_chunks import Wire
from duramen.coordinators.runtime.rows import RowStates
from duramen.coordinators.runtime.shard import ShardKind
from duramen.doors.cluster.quorum import channel_of
from duramen.metadata.events import Event
from duramen.metadata.features import LATEST_LEVEL, LEAST_LEVEL
from duramen.metadata.nodes import BROKER_ROLE
from duramen.metadata.partitions import PartitionId
from duramen.metadata.registration import Registration
from duramen.raft.effects import Append as QuorumAppend
from duramen.raft.effects import Became, Commit
from duramen.raft.effects import Effect as QuorumEffect
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voter, Voters
from duramen.replication.effects import Effect
from duramen.service.admission import Service
from duramen.service.assembly import Ports
from duramen.service.broker import Broker
from duramen.service.forwarding.forwarding import Forwarding
from duramen.service.forwarding.memory import Room
from duramen.service.methods import wires_by
from duramen.sim.cluster.clocks import NodeClock
from duramen.sim.cluster.join import SimulatedDiscovery, address_of
from duramen.sim.cluster.network import SimulatedLink, SimulatedNetwork
from duramen.sim.cluster.peers import SimulatedPeers
from duramen.sim.cluster.process import Process
from duramen.sim.cluster.watch import NodeWatcher, Onlooker, WatchedBroker, WatchedStore, WatchedView
from duramen.sim.machine.clock import SeededRandomness
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.sim.machine.scheduler import VirtualClock
from duramen.sim.machine.trace import BrokenPromise
from duramen.sim.machine.views import MemoryStateStore
from duramen.storage.directory import open_directory
from duramen.storage.log.log import Log, LogConfig, LogKey
from duramen.storage.planning.compaction import CompactionLimits
from duramen.storage.recovery.recovery import recover
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store, StoreLimits

__all__ = ["SimulatedNode"]

_METADATA_LOG: Final = LogKey(METADATA_STREAM_ID, 0)
_OPEN_SEGMENTS: Final = 16
_DISK_US: Final = 1_000
_ROOM_BYTES: Final = 16 << 20

# The witness compares whole logs, and a replica that took an internal stream in bulk has closed segments of it.
_NO_COMPACTION: Final = CompactionLimits(enabled=False)
_COMPACTING: Final = CompactionLimits()
_STORES: Final = (
    StoreLimits(32 << 10, 256 << 10, 128 << 10, 4 << 10, 200, _NO_COMPACTION),
    StoreLimits(64 << 10, 1 << 20, 256 << 10, 16 << 10, 1000, _NO_COMPACTION),
)
_QUORUMS: Final = (
    QuorumLimits(),
    QuorumLimits(snapshot_bytes=4 << 10, chunk_bytes=1 << 10, kept_bytes=8 << 10),
    QuorumLimits(fetch_bytes=1, kept_bytes=8 << 10),
)
_OPTIONS: Final = {
    "offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2,
    "inventory.shards": 3, "inventory.queue.shards": 2,
    "group.initial.rebalance.delay.ms": 100, "group.min.session.timeout.ms": 500,
}  # fmt: skip
_VIEWS: Final = ViewLimits(page_records=16, read_bytes=2 << 10, pause_ms=2, sample_ms=200, save_ms=2_000)
_BULKS: Final = (BULK, BulkBytes(8 << 10, 2 << 10), BulkBytes(1 << 10, 1 << 8))
_PATIENCE: Final = (PATIENCE, PATIENCE, ReplicaPatience(600), ReplicaPatience(2_000, 100))


class SimulatedNode:
    """A node. It is a Station of the network; its process, if it runs, is made of what the attributes are.

    `founders` are the voters that its directory knows; a blank disk knows of none. `seeds` are the nodes with which it
    forms a cluster, or comes to one; where there are none it is of the cluster already.
    """

    def __init__(self, node_id: int, seed: str, true: VirtualClock, watcher: NodeWatcher) -> None:
        self.node_id = node_id
        self.chance = random.Random(f"{seed}/node {node_id}")
        self.clock = NodeClock(true, self.chance.randrange(-300, 301))
        self.disk_us = _DISK_US
        self.founders = NO_VOTERS
        self.seeds: tuple[int, ...] = ()
        self.process: Process | None = None
        self.life = 0
        self.out = False  # whether it is not to be started
        self.peers: dict[int, SimulatedNode] = {}
        self.network: SimulatedNetwork
        self._true = true
        self._watcher = watcher
        self._randomness = SeededRandomness(self.chance.randrange(1 << 30))
        self._store_limits = self.chance.choice(_STORES)
        self._quorum_limits = self.chance.choice(_QUORUMS)
        self._patience = self.chance.choice(_PATIENCE)
        self._bulk = random.Random(f"{seed}/bulk of node {node_id}").choice(_BULKS)
        self.requests = SimulatedPeers(self, lambda: self.peers)
        self._cluster_id = str(UUID(int=0xC))
        self._open_links: dict[int, int] = {}  # how many there are, by node
        self.kinds: Sequence[ShardKind[Any]] = ()  # coordinators that run beside the broker's
        self.has_light_topics = False  # whether clients use topics of the inventory
        self.onlooker: Onlooker | None = None
        self.compacts = False  # whether it compacts logs with a view
        self._image: tuple[MemoryFileSystem, MemoryStateStore] | None = None
        self.blank()

    def blank(self) -> None:
        """Its disk is a new one."""
        self.disk = MemoryFileSystem()
        self.rows = MemoryStateStore()
        self.founders = NO_VOTERS
        self.directory_id = str(open_directory(self.disk, self._randomness, "the disk").id)
        self.replica_id = ReplicaId(self.node_id, self.directory_id)  # what it is as a voter
        self.disk.locks.clear()
        self._image = None
        self._forget()

    def remember(self) -> None:
        """Keep an image of the disk as it is now; no process runs."""
        self._image = deepcopy((self.disk, self.rows))

    @property
    def has_image(self) -> bool:
        """Whether there is an image of the disk."""
        return self._image is not None

    def roll_back(self) -> None:
        """Its disk is what it was when the image was made, and is no fuller than now."""
        if self._image is not None:
            free_bytes = self.disk.free_bytes
            self.disk, self.rows = deepcopy(self._image)
            self.disk.free_bytes = free_bytes

    def _forget(self) -> None:
        self.store: Store | None = None
        self.runner: Runner | None = None
        self.member: ClusterMember | None = None
        self.broker: Broker | None = None
        self.service: Service | None = None
        self.ready = False
        self._coming: SimulatedDiscovery | None = None
        self._opens: Callable[[], None] | None = None  # once another has said who votes
        self._heard: Sequence[int] = ()
        self._told = NO_VOTERS
        self.requests.forget()
        self._open_links.clear()

    @property
    def states(self) -> RowStates | None:
        """The rows of its coordinators, while it runs."""
        return None if self.broker is None else self.broker.coordinators.states

    @property
    def ejects(self) -> bool:
        """Whether it looks for slow replicas of what it leads, itself included."""
        return self._patience.eject_latency_ms is not None

    @property
    def replaces(self) -> bool:
        """Whether it is to vote in the place of a disk that it has no more."""
        return self._coming is not None and self._coming.replaces

    @property
    def rack(self) -> str:
        """Where it stands: each node in a rack of its own."""
        return f"rack {self.node_id}"

    @property
    def _options(self) -> Mapping[str, object]:
        return _OPTIONS | {"node.id": self.node_id} | ({"log.cleaner.backoff.ms": 500} if self.compacts else {})

    @property
    def _limits(self) -> StoreLimits:
        return self._store_limits._replace(compaction=_COMPACTING) if self.compacts else self._store_limits

    # -- life ---------------------------------------------------------------------------------------

    def start(self, started: Callable[[DuramenError | None], None]) -> None:
        """The process starts; `started` is told when it takes requests. Raises OSError, DuramenError, Crashed."""
        self.life += 1
        process = self.process = Process(self._true, self.clock, self.chance, self.disk_us)
        directory = open_directory(self.disk, self._randomness, "the disk")
        handles = Handles(self.disk, _OPEN_SEGMENTS)
        recovered = recover(self.disk, directory.id, handles, self.report)
        metrics = Metrics()
        self.store = store = WatchedStore(
            self.disk, process, self.clock, process.deadlines, metrics, directory, recovered, handles,
            node_id=self.node_id, limits=self._limits,
        )  # fmt: skip
        store.cuts = self._cuts
        log = store.ensure(_METADATA_LOG, LogConfig(durability="sync", segment_bytes=32 << 10))
        self.network.up(self)
        view = WatchedView(self.node_id, self._watcher, self._on_event, self._restored)
        opens = partial(self._open, log, view, store, metrics, started)
        if self.seeds:
            self._coming = SimulatedDiscovery(
                self.replica_id, {address_of(seed): seed for seed in self.seeds}, self.disk, process,
                ask=self._ask_seed, belongs=partial(self._belongs, log, opens), failed=self.failed,
            )  # fmt: skip
        else:
            opens()

    def _belongs(self, log: Log, opens: Callable[[], None], cluster_id: UUID, founders: Voters) -> None:
        """It is of a cluster. Who has come later and knows nothing hears first who votes."""
        self._watcher.belongs(self.node_id, cluster_id, founders)
        self._cluster_id, self.founders = str(cluster_id), founders
        if founders or log.end_offset:
            opens()
        else:
            self._opens = opens
            self.receive_voters(self._heard)

    def _open(
        self, log: Log, view: WatchedView, store: Store, metrics: Metrics,
        started: Callable[[DuramenError | None], None],
    ) -> None:  # fmt: skip
        process, life = self.process, self.life
        if process is None:
            return
        others = tuple(node_id for node_id in self.peers if node_id != self.node_id)
        joins = Voter(self.replica_id, address_of(self.node_id)) if self.replaces else None
        plan = QuorumIdentity(self.replica_id, self.founders, others, joins, limits=self._quorum_limits)

        def opened(result: Runner | DuramenError) -> None:
            if self.life != life:
                return
            if isinstance(result, DuramenError):
                started(result)
                return
            self.runner = result
            self._send_voters()
            self._register_incarnation(
                process, partial(self._start_member, result, view, store, metrics, started), started
            )

        Opening(
            store, log, self.disk, process, self.clock, process.deadlines,
            plan=plan, view=view, outside=self, chance=self.chance.randrange,
        ).run(opened)  # fmt: skip

    def _register_incarnation(
        self, process: Process, then: Callable[[str, tuple[str, ...]], None],
        started: Callable[[DuramenError | None], None],
    ) -> None:  # fmt: skip
        """Go on with the incarnation of this process, and those that the directory knows from before."""
        life, incarnation_id = self.life, str(UUID(bytes=self._randomness.token(16)))

        def begun(tried: tuple[str, ...] | BaseException) -> None:
            if self.life != life:
                return
            if isinstance(tried, DuramenError):
                started(tried)
            elif isinstance(tried, BaseException):
                started(StorageFailed(f"the incarnation of this node cannot be kept: {tried}"))
            else:
                then(incarnation_id, tried)

        process.submit("disk", partial(IncarnationFile(self.disk).begin, incarnation_id), begun)

    def _start_member(
        self, runner: Runner, view: WatchedView, store: Store, metrics: Metrics,
        started: Callable[[DuramenError | None], None], incarnation_id: str, tried: tuple[str, ...],
    ) -> None:  # fmt: skip
        process, life = self.process, self.life
        if process is None:
            return
        registration = Registration(
            self.node_id, self.directory_id, incarnation_id, self._cluster_id, self.rack, (BROKER_ROLE,), (),
            LEAST_LEVEL, LATEST_LEVEL, tried=tried,
        )  # fmt: skip
        self.member = ClusterMember(
            MemberDependencies(
                registration, runner, view, store, process, self.clock, process.deadlines, self._randomness,
                self.chance.randrange, self.requests, wires_by, self.report, self.failed, self._carried_out,
                self._patience, bulk=self._bulk, incarnations=IncarnationFile(self.disk),
            )
        )  # fmt: skip
        for other_id in self._open_links:
            self.member.opened(other_id)
        ports = Ports(process, self.clock, self._randomness, lambda: self.rows)
        broker = WatchedBroker(
            ports, process.deadlines, store, Settings(BROKER, options=self._options), metrics,
            directory_id=self.directory_id, report=self.report, membership=self.member, kinds=self.kinds,
            view_limits=_VIEWS,
        )  # fmt: skip
        broker.watcher = self._watcher
        self.broker = broker
        if self.has_light_topics:
            self.service = Service(broker)
            Forwarding(broker, self.member, Room(_ROOM_BYTES))

        def ready(error: DuramenError | None) -> None:
            if self.life == life:
                self.ready = error is None
                started(error)

        broker.start(ready)

    def _cuts(self, log: Log, offset: int) -> None:
        """No leader deletes records that it does not know to be committed: others may still fetch them."""
        replicated = log.replicated
        if replicated is not None and replicated.leader_epoch is not None and offset > replicated.high_watermark:
            raise BrokenPromise(
                f"node {self.node_id} leads {log.directory} and deletes records up to {offset}, beyond what is"
                f" committed: {replicated.high_watermark}"
            )
        if self.onlooker is not None:
            self.onlooker.cuts(self.node_id, log, offset)

    def _carried_out(self, place: PartitionId, effect: Effect) -> None:
        self._watcher.carried_out(self.node_id, place, effect)
        if self.onlooker is not None:
            self.onlooker.carried_out(self.node_id, place, effect)

    def stop(self, done: Callable[[OSError | None], None]) -> None:
        """Stop in good order: others lead first."""
        member, broker, runner = self.member, self.broker, self.runner
        if member is None or broker is None or runner is None:
            done(None)
            return
        drained: list[None] = []

        def stop() -> None:
            if not drained:
                drained.append(None)
                runner.stop()
                broker.stop(done)

        member.drain(stop)
        if self.process is not None:
            self.process.after(3_000_000, stop)

    def end(self) -> None:
        """The process is gone."""
        self.life += 1
        self.process = None
        self.disk.end_process()
        self._forget()

    def pause(self, for_us: int) -> None:
        """The process stands still for so long."""
        if self.process is not None:
            self.process.paused_until_us = self._true.now_us + for_us

    # -- joining a cluster ---------------------------------------------------------------------------

    def _ask_seed(self, node_id: int, body: bytes, done: Callable[[int, str, bytes], None]) -> None:
        link = self.network.link(self.node_id, node_id, PeerChannel.CONTROL)
        if link is not None:
            asked = partial(self.peers[node_id].asked_seed, link, self.replica_id, body, done)
            self.network.say(link, self.node_id, asked)

    def asked_seed(
        self, link: SimulatedLink, sender: ReplicaId, body: bytes, done: Callable[[int, str, bytes], None]
    ) -> None:  # fmt: skip
        """Another node looks for a cluster. `sender` is who it was as it asked: its disk may be another one by now."""
        me, life = self.replica_id, self.life

        def answer(hello: bytes) -> None:
            if self.life == life and link.there[self.node_id]:
                self.network.say(link, self.node_id, partial(done, *me, hello))

        if self._coming is not None:
            self._coming.asked(sender, body, answer)

    def _send_voters(self) -> None:
        """Say who votes, if that is another set than before, to all who are connected."""
        voters = NO_VOTERS if self.runner is None else self.runner.machine.voters
        if self.seeds and voters != self._told:
            self._told = voters
            for node_id in self._open_links:
                self._send_voters_to(node_id)

    def _send_voters_to(self, node_id: int) -> None:
        link = self.network.link(self.node_id, node_id, PeerChannel.CONTROL)
        if link is not None and self._told:
            node_ids = tuple(voter.node_id for voter in self._told.ids)
            self.network.say(link, self.node_id, partial(self.peers[node_id].receive_voters, node_ids))

    def receive_voters(self, node_ids: Sequence[int]) -> None:
        """Another node says who votes."""
        self._heard = node_ids
        if self._opens is not None and node_ids:
            opens, self._opens = self._opens, None
            if self._coming is not None and self.node_id in node_ids:
                self._coming.replace(opens, replaces=True)
            else:
                opens()

    def _votes_again(self) -> None:
        """Once it is a voter that is kept no more: whoever takes its vote from here on means it.

        Who heard nothing of the vote of its last disk at first may find it in the log.
        """
        runner, member, coming = self.runner, self.member, self._coming
        if runner is None or coming is None:
            return
        if coming.replaces:
            if self.replica_id in runner.voters:
                coming.replace(lambda: None, replaces=False)
        elif member is not None and member.stands_for_another:
            voter = Voter(self.replica_id, address_of(self.node_id))
            coming.replace(partial(runner.join, voter), replaces=True)

    # -- dependencies of the quorum's replica --------------------------------------------------------

    def send(self, node_id: int, message: Wire) -> None:
        self._watcher.said(self.node_id, message)
        link = self.network.link(self.node_id, node_id, channel_of(message))
        if link is not None:
            self.network.say(link, self.node_id, partial(self.peers[node_id].receive, message))

    def receive(self, message: Wire) -> None:
        """A replica of the quorum says something to the one here."""
        if self.runner is not None:
            self.runner.receive(message)

    def carried_out(self, effect: QuorumEffect) -> None:
        self._watcher.governed(self.node_id, effect)
        if isinstance(effect, Became | QuorumAppend):
            self._send_voters()
        if isinstance(effect, Commit):
            self._votes_again()
        if self.member is not None:
            self.member.carried_out(effect)

    def failed(self, error: DuramenError) -> None:
        self._watcher.failed(self.node_id, error)
        if self.member is not None:
            self.member.quorum_failed()

    def report(self, finding: str) -> None:
        self._watcher.reported(self.node_id, finding)

    def _on_event(self, event: Event, epoch: int) -> None:
        if self.member is not None:
            self.member.on_event(event, epoch)

    def _restored(self) -> None:
        if self.member is not None:
            self.member.restored()

    # -- connections ---------------------------------------------------------------------------------

    def opened(self, link: SimulatedLink) -> None:
        """There is a connection."""
        peer_id = link.peer_of(self.node_id)
        self._open_links[peer_id] = self._open_links.get(peer_id, 0) + 1
        if link.channel is PeerChannel.CONTROL:
            self._send_voters_to(peer_id)
        if self.member is not None:
            if self._open_links[peer_id] == 1:
                self.member.opened(peer_id)
            if link.channel is PeerChannel.DATA:
                self.member.reachable(peer_id)
        if self.runner is not None:
            self.runner.connected(peer_id)

    def closed(self, link: SimulatedLink) -> None:
        """It is gone."""
        self.requests.closed(link)
        peer_id = link.peer_of(self.node_id)
        self._open_links[peer_id] -= 1
        if link.channel is PeerChannel.CONTROL and self._coming is not None:
            self._coming.lost(peer_id)
        if self._open_links[peer_id] == 0:
            del self._open_links[peer_id]
            if self.member is not None:
                self.member.closed(peer_id)
            if self.runner is not None:
                self.runner.disconnected(peer_id)
