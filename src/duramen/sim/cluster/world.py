"""One run: a cluster forms, clients use it during faults, faults end, and it has to be healthy then."""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from duramen.base.errors import DirectoryRolledBack, DuramenError, LogDamaged
from duramen.raft.voters import Voter, Voters
from duramen.sim.checkers.memberships import GroupModel
from duramen.sim.cluster.bootstrap import Beginning
from duramen.sim.cluster.checkers.inspection import ills, inspect, lacks_a_replica
from duramen.sim.cluster.checkers.invariants import Witness
from duramen.sim.cluster.clients.admins import ClusterAdminClient
from duramen.sim.cluster.clients.calls import ClientCalls
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.clients.committers import Committer
from duramen.sim.cluster.clients.consumers import ClusterConsumer, Inquirer
from duramen.sim.cluster.clients.members import MEMBERS_GROUP, ClusterGroupMember
from duramen.sim.cluster.clients.operators import Operator
from duramen.sim.cluster.clients.producers import ClusterProducer
from duramen.sim.cluster.clients.transactors import Transactor
from duramen.sim.cluster.faults.abandoned import Abandoned
from duramen.sim.cluster.faults.faults import ClusterFaults
from duramen.sim.cluster.faults.idleness import IDLE_US, FirstRecords
from duramen.sim.cluster.faults.isolation import Isolated
from duramen.sim.cluster.faults.slowness import SlowLeader
from duramen.sim.cluster.faults.trial import DiskTrial
from duramen.sim.cluster.faults.unclean import UncleanElection
from duramen.sim.cluster.inventory import InventoryBook
from duramen.sim.cluster.join import address_of
from duramen.sim.cluster.keyed import KeyedBook
from duramen.sim.cluster.keyed_transactions import JointBook
from duramen.sim.cluster.network import SimulatedNetwork
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.process import NEVER_US
from duramen.sim.cluster.queues import BoundedQueueBook, QueueBook
from duramen.sim.cluster.shards import ShardBook
from duramen.sim.machine.disk import Crashed
from duramen.sim.machine.scheduler import VirtualClock
from duramen.sim.machine.trace import BrokenPromise, Stuck, Trace

__all__ = ["FAULTS", "OPERATIONS", "ClusterOutcome", "ClusterWorld", "Stuck"]

OPERATIONS: Final = 2_000
"""Requests of clients in each run, at least, and half as many that are answered well."""

FAULTS: Final = 5
"""Things that go wrong in each run, at least."""

_LONGEST_US: Final = 1_800_000_000
_WINDOWS: Final = 0.25  # of the runs: idempotent producers send several batches at once, and some are refused
_PATIENCE_US: Final = 120_000_000
_FORMING: Final = 0.4  # of all runs, how many begin with empty disks
_CHANGING: Final = 0.4  # the share of runs with an operator that changes the nodes of the cluster
_SLOW_LEADERS: Final = 0.6  # of all runs, how many have a leader with a slow disk
_UNATTENDED_US: Final = 3_000_000
_UNDRAINED_US: Final = 5_000_000
_BACK_US: Final = (20_000, 500_000, 4_000_000)


class ClusterOutcome(NamedTuple):
    """The outcome of a run: `broken` is empty if every promise was kept."""

    seed: int
    broken: str
    stuck: bool
    trace: list[str]
    operations: int
    well: int
    faults: Counter[str]
    counts: Counter[str]
    seconds: float  # of the cluster's own time


class ClusterWorld:
    """A cluster of three voters, and perhaps nodes without a vote. `run` is all there is to do."""

    def __init__(
        self, seed: int, write: Callable[[str], object] | None = None, faults: Collection[str] = (), *,
        shards: bool = False, queues: bool = False, keyed: bool = False, keyed_transactions: bool = False,
        inventory: bool = False, bounded_queues: bool = False,
    ) -> None:  # fmt: skip
        """`write` gets each line of the trace; `faults` are the kinds that come, where the seed does not draw them.

        With `shards` two kinds of coordinators run beside the broker's own; with `queues` clients use queues, with
        `bounded_queues` queues with retention, with `inventory` the inventory, with `keyed` a keyed stream, with
        `keyed_transactions` two, also in transactions.
        """
        self.seed = seed
        self.true = VirtualClock()
        self.trace = Trace(self.true, write)
        self.counts: Counter[str] = Counter()
        self.nodes: dict[int, SimulatedNode] = {}
        self._chance = random.Random(f"{seed}/cluster")
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._batches = count()
        self.witness = Witness(self.nodes, self.trace, self._failed, self._voted, self._led)
        self.network = SimulatedNetwork(self.nodes, random.Random(f"{seed}/network"), self._later, self.true)
        self.calls = ClientCalls(
            self.nodes, random.Random(f"{seed}/calls"), self.true, self._later, self.witness, self.trace
        )  # fmt: skip
        self._attended = True  # whether failed nodes are restarted
        self._think_us = self._chance.choice((20_000, 80_000, 200_000))
        self.faults = ClusterFaults(self, random.Random(f"{seed}/faults"), self._think_us, faults)
        self.forms = random.Random(f"{seed}/forming").random() < _FORMING
        self._members = random.Random(f"{seed}/members").choice((0, 0, 3, 4))
        self._windows = random.Random(f"{seed}/windows").random() < _WINDOWS
        self._group = GroupModel(MEMBERS_GROUP)
        self._membership = random.Random(f"{seed}/membership")
        self.changes = self._membership.random() < _CHANGING
        self.shards: ShardBook | None = None
        for wanted, book in (
            (queues, QueueBook), (bounded_queues, BoundedQueueBook), (inventory, InventoryBook), (shards, ShardBook),
        ):  # fmt: skip
            if wanted and self.shards is None:
                self.shards = book(self)
        self.keyed = JointBook(self) if keyed_transactions else KeyedBook(self, seed) if keyed else None
        others = self._chance.choice((0, 0, 1, 2))
        self._make_nodes(3, max(others, self._membership.choice((1, 2))) if self.changes else others)

    def _make_nodes(self, voters: int, others: int) -> None:
        for node_id in range(1, voters + others + 1):
            node = self.nodes[node_id] = SimulatedNode(node_id, f"{self.seed}", self.true, self.witness)
            node.peers, node.network = self.nodes, self.network
            if self.shards is not None:
                self.shards.equip(node)
            if self.keyed is not None:
                self.keyed.equip(node)
        self._founders = {node_id: node for node_id, node in self.nodes.items() if node_id <= voters}
        known = Voters(Voter(node.replica_id, address_of(node_id)) for node_id, node in self._founders.items())
        if not self.forms:
            for node in self._founders.values():
                node.founders = known
            return
        for node in self.nodes.values():
            node.seeds = tuple(self._founders)

    # -- a run --------------------------------------------------------------------------------------

    def run(self) -> ClusterOutcome:
        """Live through it all."""
        self.trace("seed %d, %d nodes", self.seed, len(self.nodes))
        broken, stuck = "", False
        try:
            self._live()
        except BrokenPromise as promise:
            broken, stuck = str(promise), isinstance(promise, Stuck)
            self.trace("BROKEN: %s", broken)
        self.counts["delivered"] = self.network.delivered
        self.counts["cuts"], self.counts["restarts"] = self.witness.cuts, self.witness.restarts
        self.counts["partitions lost"] = len(self.witness.council.lost)
        self.counts["elections"] = self.witness.council.elections
        self.counts["quorum epochs"] = self.witness.council.epochs
        self.counts["committed"] = sum(len(ledger.committed) for ledger in self.witness.ledgers.values())
        self.counts["acknowledged"] = sum(page.acknowledged for page in self.calls.book.pages.values())
        self.counts["transactions committed"] = self.calls.ended["committed"]
        self.counts["epochs raised"] = self.calls.ended["epochs raised"]
        self.counts["transactions aborted"] = self.calls.ended["aborted"]
        self.counts["generations of a group"] = self._group.assigned
        self.counts["read"] = sum(page.read_records for page in self.calls.book.pages.values())
        return ClusterOutcome(
            self.seed, broken, stuck, self.trace.last(), self.calls.answered, self.calls.well, self.faults.counts,
            self.counts, self.true.seconds(),
        )  # fmt: skip

    def _live(self) -> None:
        if self.forms:
            self.counts["clusters formed"] += 1
            Beginning(self, self._founders.values(), random.Random(f"{self.seed}/beginning")).begin()
        else:
            for node in self._founders.values():
                self.start(node)
        self.go_on(lambda: not ills(self._founders, self.witness.council), "the cluster does not form")
        self.trace("the cluster is there")
        for node in self.nodes.values():
            if node.process is None:
                self.at(self._chance.randrange(60 * self._think_us), partial(self._join, node))
        clients = self._clients()
        for client in clients:
            client.next()
        self.faults.begin()
        self.go_on(self._has_seen_enough, "clients get nothing done", _LONGEST_US)
        self.trace("all is mended")
        self.calls.open = False
        self.faults.mend()
        self._end_drained()
        for node in self.nodes.values():
            node.out = False
            if node.process is None:
                self.at(1, partial(self.start, node))
            elif lacks_a_replica(node):
                self.end(node, power=False, soon=True)
        self.go_on(lambda: self._are_done(clients) and not self._ills(), "the cluster is not well again")
        self._idle()
        self._isolate_leader()
        if self.shards is not None:
            self.go_on(lambda: self.shards is None or not self.shards.behind(), "shards are not applied everywhere")
            self.shards.inspect()
        inspect(self.nodes, self.witness, self.calls.book)
        self._try_a_disk()
        self._try_a_slow_leader()
        self._abandon()
        self._elect_unclean()

    def _try_a_disk(self) -> None:
        """One disk more fails, or is full, and nothing else is wrong."""
        trial = DiskTrial(self, random.Random(f"{self.seed}/trial"), self.go_on)
        if not trial.possible:
            return
        self._attended = False
        self.counts["failed disks tried" if trial.breaks else "full disks tried"] += 1
        trial.run()
        self.go_on(lambda: not self._ills(), "the cluster is not well again after a disk")
        inspect(self.nodes, self.witness, self.calls.book)

    def _idle(self) -> None:
        """A long time without writes, and then some."""
        self.trace("the cluster is idle")
        idle_until_us = self.true.now_us + IDLE_US
        self.go_on(
            lambda: self.true.now_us >= idle_until_us and not self._ills(), "an idle cluster is not well", 2 * IDLE_US
        )
        first = FirstRecords(self.calls, self._batches)
        first.send()
        self.go_on(lambda: first.done and not self._ills(), "the first records after an idle period do not arrive")
        first.check()

    def _isolate_leader(self) -> None:
        """A leader is cut off from the other nodes, and clients still reach it; then it is one of them again."""
        node_id = self._chance.choice(list(self.nodes))
        self.trace("node %d is alone", node_id)
        others = [other_id for other_id in self.nodes if other_id != node_id]
        self.network.change_cut(frozenset(way for other in others for way in ((node_id, other), (other, node_id))))
        isolated = Isolated(self.calls, node_id)
        isolated.begin()
        self.go_on(lambda: isolated.over, "time stands still")
        self.network.change_cut(frozenset())
        self.go_on(
            lambda: self.calls.idle and self._is_controlled() and not self._ills(),
            "the cluster is not well after a node was alone",
        )

    def _try_a_slow_leader(self) -> None:
        """The disk of a leader is slow, and nothing else is wrong: another leads."""
        chance = random.Random(f"{self.seed}/slow leader")
        if chance.random() >= _SLOW_LEADERS:
            return
        trial = SlowLeader(self, self.calls, chance, self._batches, self.go_on)
        if trial.possible:
            self.counts["slow leaders"] += 1
            trial.run()
            self.go_on(lambda: self.calls.idle and not self._ills(), "the cluster is not well after a leader was slow")
            inspect(self.nodes, self.witness, self.calls.book)

    def _abandon(self) -> None:
        """A member of a group and a transaction are abandoned, and a node with their coordinators ends."""
        if self.witness.council.lost or not self.calls.places():
            return
        self.counts["abandoned"] += 1
        Abandoned(self, self.calls, random.Random(f"{self.seed}/abandoned"), self._group, self._batches).run(
            self.go_on, lambda: not ills(self.nodes, self.witness.council, whole=True, opened=True)
        )
        inspect(self.nodes, self.witness, self.calls.book)

    def _elect_unclean(self) -> None:
        """An operator has a leader elected where the only replica in sync is gone, and another has everything."""
        if self.witness.council.lost:
            return
        chance = random.Random(f"{self.seed}/unclean")
        election = UncleanElection(self, chance, self.go_on, self.calls.places())
        self.counts["unclean elections tried"] += election.run()
        election.mend()
        self.go_on(lambda: not self._ills(), "the cluster is not well after an unclean election")
        inspect(self.nodes, self.witness, self.calls.book)

    def _is_controlled(self) -> bool:
        """Whether a controller is active: a quorum that needed the node which was alone has none for a while."""
        members = [node.member for node in self.nodes.values() if node.member is not None]
        return any(member.controller.active_epoch is not None for member in members)

    def _end_drained(self) -> None:
        """Drained nodes are restarted, each time a late request of an operator drains them."""
        for node in self.witness.council.state.registrations:
            if node.draining and not node.unwritable and self.nodes[node.id].ready:
                self.end(self.nodes[node.id], power=False, soon=True)
        if self.changes:
            self.at(_UNDRAINED_US, self._end_drained)

    def _join(self, node: SimulatedNode) -> None:
        """A node comes to the cluster that there is."""
        self.trace("node %d comes", node.node_id)
        self.counts["nodes that came later"] += 1
        self.start(node)

    def _clients(self) -> list[ClusterClient]:
        numbers, think_us = self._batches, self._think_us

        def seed(what: str) -> str:
            return f"{self.seed}/{what} {next(self._numbers)}"

        producers = [
            ClusterProducer(
                self.calls, seed("producer"), think_us, numbers, idempotent=number % 2 == 0, windows=self._windows
            )
            for number in range(5)
        ]
        operators = [self._operator(seed("operator"))] if self.changes else []
        return [
            *producers,
            *(ClusterConsumer(self.calls, seed("consumer"), think_us) for _ in range(3)),
            Inquirer(self.calls, seed("inquirer"), think_us),
            *(Transactor(self.calls, seed("transactor"), think_us, numbers, f"t{number}") for number in range(2)),
            Committer(self.calls, seed("committer"), think_us, "g"),
            ClusterAdminClient(self.calls, seed("admin"), 15 * think_us),
            *operators,
            *(ClusterGroupMember(self.calls, seed("member"), think_us, self._group) for _ in range(self._members)),
            *([] if self.shards is None else self.shards.clients(self.calls, seed, think_us)),
            *([] if self.keyed is None else self.keyed.clients(self.calls, seed, think_us)),
        ]

    def _operator(self, seed: str) -> Operator:
        # With two voters the remaining one cannot decide anything after a lost disk.
        least = 3 if self.faults.loses_disks else self._membership.choice((3, 3, 2, 1))
        return Operator(self.calls, seed, 4 * self._think_us, self, least)

    def _has_seen_enough(self) -> bool:
        done = self.calls.answered >= OPERATIONS and self.calls.well >= OPERATIONS // 2
        used = self.shards is None or self.shards.used
        return done and used and self.faults.counts.total() >= FAULTS

    def _are_done(self, clients: Iterable[ClusterClient]) -> bool:
        return self.calls.idle and all(client.finished for client in clients)

    def _ills(self) -> list[str]:
        return ills(self.nodes, self.witness.council, whole=True)

    # -- time ---------------------------------------------------------------------------------------

    def spoil(self) -> bool:
        return self.faults.spoil()

    def at(self, delay_us: int, act: Callable[[], None]) -> None:
        """Do `act` after that time, which may affect any process."""
        self._later(delay_us, partial(self._interfere, act))

    def _interfere(self, act: Callable[[], None]) -> None:
        act()
        for node in self.nodes.values():
            if node.process is not None:
                node.process.look_again()

    def _later(self, delay_us: int, act: Callable[[], None]) -> None:
        """Like `at`, for an action that only starts something in a process later."""
        heapq.heappush(self._events, (self.true.now_us + delay_us, next(self._numbers), act))

    def go_on(self, condition: Callable[[], bool], otherwise: str, patience_us: int = _PATIENCE_US) -> None:
        """Let things happen until it is so."""
        end_us, look_us = self.true.now_us + patience_us, 0
        while True:
            if self.true.now_us >= look_us:
                if condition():
                    return
                look_us = self.true.now_us + 20_000
            if self.true.now_us > end_us:
                raise Stuck(f"{otherwise}: {'; '.join(self._ills()[:6])}")
            self._happen()

    def _happen(self) -> None:
        """The next thing happens."""
        events, nodes = self._events, self.nodes.values()
        at_us = events[0][0] if events else NEVER_US
        found: SimulatedNode | None = None
        for node in nodes:
            process = node.process
            if process is not None:
                next_us = process.known_us
                if next_us < 0:
                    next_us = process.find_next_us()
                if next_us < at_us:
                    at_us, found = next_us, node
        if at_us == NEVER_US:
            raise Stuck("nothing is left to happen")
        if at_us > self.true.now_us:
            self.true.now_us = at_us
        if found is None:
            heapq.heappop(events)[2]()
        elif found.process is not None:
            self._guarded(found, found.process.turn)

    def _guarded(self, node: SimulatedNode, act: Callable[[], object]) -> None:
        """Do something of a node's process, which may end in the middle of it."""
        try:
            act()
        except Crashed as crashed:
            self.trace("node %d crashes in %s", node.node_id, crashed)
            self.counts["torn"] += 1
            self.end(node, power=self._chance.random() < 0.7)
        except Exception as error:
            raise BrokenPromise(f"node {node.node_id}: {type(error).__name__} where none may be: {error}") from error

    # -- processes ----------------------------------------------------------------------------------

    def start(self, node: SimulatedNode) -> None:
        """The process of a node begins, if it does not run."""
        if node.process is None and not node.out:
            self._guarded(node, partial(self._start, node))

    def _start(self, node: SimulatedNode) -> None:
        self.counts["starts"] += 1
        self.witness.starts(node)
        life = node.life + 1

        def started(error: DuramenError | None) -> None:
            self.trace("node %d has started: %s", node.node_id, error)
            if error is not None:
                self._failed(node.node_id, error)

        try:
            node.start(started)
        except (OSError, DuramenError) as error:
            self.trace("node %d does not start: %s", node.node_id, error)
            if node.life == life:
                self._failed(node.node_id, error)

    def _failed(self, node_id: int, error: DuramenError | OSError) -> None:
        """A node takes no part any more: its process is ended and restarted."""
        if isinstance(error, LogDamaged):
            raise BrokenPromise(f"node {node_id}: {error}") from error
        self.counts["failures"] += 1
        node = self.nodes[node_id]
        life = node.life

        def end() -> None:
            if node.life == life and node.process is not None:
                if isinstance(error, DirectoryRolledBack):
                    self.counts["older disks found out"] += 1
                    self.wipe(node)  # as it told its operator
                else:
                    self.end(node, power=self._chance.random() < 0.5)

        delay_us = self._chance.choice((1, 50_000))
        if self._attended:
            self.at(_UNATTENDED_US if self.counts["failures"] % 3 == 0 else delay_us, end)

    def _voted(self, node_id: int) -> None:
        self.faults.voted(node_id)

    def _led(self, node_id: int) -> None:
        self.faults.led(node_id)

    def end(self, node: SimulatedNode, *, power: bool, soon: bool = False) -> None:
        self.trace("node %d ends by a %s", node.node_id, "loss of power" if power else "kill")
        self._gone(node, silently=power, back_us=_BACK_US[0] if soon else self._chance.choice(_BACK_US))
        if power:
            node.disk.crash(self._chance)
            node.rows.crash(self._chance)
            if self.shards is not None:
                self.shards.crash(node)
        self.faults.ended(node)

    def _gone(self, node: SimulatedNode, *, silently: bool, back_us: int = _BACK_US[0]) -> None:
        self.witness.ends(node)
        self.network.down(node, silently=silently)
        if not silently:
            self.calls.reset(node.node_id)
        node.end()
        self.at(back_us, partial(self.start, node))

    def stop(self, node: SimulatedNode) -> None:
        life = node.life
        self.trace("node %d is to stop", node.node_id)

        def stopped(error: OSError | None) -> None:
            if node.life == life:
                self.trace("node %d has stopped: %s", node.node_id, error)
                self.at(0, lambda: self._gone(node, silently=False) if node.life == life else None)

        self._guarded(node, partial(node.stop, stopped))

    def take_out(self, node: SimulatedNode) -> None:
        node.out = True
        if node.process is not None:
            self.stop(node)

    def bring_back(self, node: SimulatedNode, *, blank: bool) -> None:
        if blank and node.process is None:
            self.trace("node %d gets an empty disk", node.node_id)
            node.blank()
            self.witness.emptied(node)
        node.out = False
        self.start(node)

    def roll_back(self, node: SimulatedNode) -> None:
        if node.process is not None:
            self.end(node, power=True)
        self.trace("the disk of node %d is rolled back", node.node_id)
        node.roll_back()
        self.witness.doubts(node)

    def wipe(self, node: SimulatedNode) -> None:
        self.trace("node %d loses its disk", node.node_id)
        if node.process is not None:
            self.end(node, power=True)
        node.blank()
        self.witness.blank(node)
