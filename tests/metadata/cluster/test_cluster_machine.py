"""Random lives of a cluster: nodes come, go, lose disks and drain, leaders propose, partitions move, configs change.

At every step the state is sound, whoever may be elected has every acknowledged record, and the log read again, as well
as a copy, says the same.
"""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import UnsetType
from tests.examples import examples
from tests.metadata.cluster.holders import Holders
from tests.metadata.cluster.site import SESSIONS, Site

from duramen.base.errors import DuramenError
from duramen.metadata.alter_partition import Altered, InSyncMember, InSyncProposal, alter_partition
from duramen.metadata.decisions import Definition, delete_stream
from duramen.metadata.elections import elect_preferred, elect_unclean, move_leader, rebalance_leaders
from duramen.metadata.events import Event, PartitionChanged, decode_event
from duramen.metadata.fencing import fence
from duramen.metadata.leader_reports import depose
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.reassignment import cancel, reassign
from duramen.metadata.rebalance import begin_moves, cancel_moves, plan
from duramen.metadata.registration import Registration, unregister
from duramen.metadata.snapshot import decode_snapshot, encode_snapshot
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import Loss, rules_of
from duramen.metadata.streams import configure_cluster, configure_replicated, create_replicated, grow_replicated

NODES = range(1, 6)
NODE = st.sampled_from(NODES)
NAME = st.sampled_from("ab")
INDEX = st.integers(0, 20)
MEMBERS = st.permutations(NODES).flatmap(lambda order: st.integers(1, 5).map(lambda count: tuple(order[:count])))
CONFIG = st.fixed_dictionaries(
    {},
    optional={
        "min.insync.replicas": st.sampled_from("123"),
        "unclean.leader.election.enable": st.just("true"),
        "durability": st.sampled_from(["os", "memory"]),
    },
)


class ClusterMachine(RuleBasedStateMachine):
    """One controller, five nodes on three racks, and what is on their disks."""

    def __init__(self) -> None:
        super().__init__()
        self.holders = Holders()
        self.site = Site(lambda event: self.holders.see(self.state, event))
        self.before: dict[PartitionId, PartitionState] = {}
        self.epochs: list[int] = []
        self.numbers = iter(range(1, 10_000))

    @property
    def state(self) -> ControllerState:
        return self.site.state

    def _at(self, index: int) -> PartitionId | None:
        places = [found for found, _ in self.state.partitions]
        return places[index % len(places)] if places else None

    # -- nodes --------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for node_id in NODES[:3]:
            self._register(node_id, f"{node_id}-0")

    def _register(self, node_id: int, directory_id: str, *, kept: bool = False) -> None:
        known = self.state.registrations.get(node_id)
        loss = Loss.MEMORY if kept else Loss.UNSYNCED
        if known is not None and known.directory_id != directory_id:
            loss = Loss.ALL
        wish = Registration(node_id, directory_id, str(next(self.numbers)), rack=str(node_id % 3), kept=kept)
        try:
            self.site.register(wish, lambda: self.holders.lose(self.state, node_id, loss))
        except DuramenError:
            return
        self.epochs.append(self.state.registrations.highest_epoch)
        if loss is Loss.ALL:
            assert not any(node_id in (*held.isr, *held.elr) for _, held in self.state.partitions)
        self.site.beat(node_id)

    @rule(node_id=NODE, kept=st.booleans())
    def restart(self, node_id: int, kept: bool) -> None:
        known = self.state.registrations.get(node_id)
        self._register(node_id, f"{node_id}-0" if known is None else known.directory_id, kept=kept)

    @rule(node_id=NODE, silent=st.booleans())
    def come_with_a_blank_disk(self, node_id: int, silent: bool) -> None:
        if silent:
            self.wait({node_id})
        self._register(node_id, f"{node_id}-{next(self.numbers)}")

    @rule(node_id=NODE, behind=st.sampled_from([0, 0, 1000]), stops=st.booleans(), wants_fence=st.booleans())
    def beat(self, node_id: int, behind: int, stops: bool, wants_fence: bool) -> None:
        if node_id in self.state.registrations:
            verdict = self.site.beat(node_id, behind=behind, stops=stops, wants_fence=wants_fence)
            assert verdict.fenced == (node_id not in self.state.registrations.live)

    @rule()
    def all_beat(self) -> None:
        for node in list(self.state.registrations):
            self.site.beat(node.id)

    @rule(silent=st.sets(NODE, max_size=5))
    def wait(self, silent: set[int]) -> None:
        self.site.now_ms += SESSIONS.timeout_ms - 1
        for node in list(self.state.registrations):
            if node.id not in silent:
                self.site.beat(node.id)
        self.site.now_ms += 1
        for node_id in self.site.membership.silent(self.site.now_ms):
            node_gone = self.state.registrations.get(node_id)
            if node_gone is not None:
                self.site.commit(fence(self.state, node_gone))
            self.site.membership.ended(node_id)
        assert all(self.site.membership.is_live(node.id, self.site.now_ms) for node in self.state.registrations
                   if not node.fenced)  # fmt: skip

    @rule(node_id=NODE)
    def leave(self, node_id: int) -> None:
        self._try(lambda: unregister(self.state, node_id))

    def _try(self, decide: object) -> None:
        assert callable(decide)
        try:
            events = decide()
        except DuramenError:
            return
        self.site.commit(events)

    # -- streams ------------------------------------------------------------------------------------

    @rule(name=NAME, partitions=st.integers(1, 3), factor=st.integers(1, 4), config=CONFIG)
    def create(self, name: str, partitions: int, factor: int, config: dict[str, str]) -> None:
        stream_id = UUID(int=next(self.numbers))

        def decide() -> list[Event]:
            events = create_replicated(
                self.state,
                Definition(name, partitions, config),
                stream_id=stream_id,
                now_ms=0,
                replication_factor=factor,
            )
            self._check_racks([event.replicas for event in events if isinstance(event, PartitionChanged)])
            return events

        self._try(decide)

    @rule(name=NAME, more=st.integers(1, 2))
    def grow(self, name: str, more: int) -> None:
        stream = self.state.streams.get(name)
        if stream is not None:
            self._try(lambda: grow_replicated(self.state, name, stream.partitions + more))

    def _check_racks(self, assignment: Sequence[tuple[int, ...] | UnsetType]) -> None:
        nodes = [node for node in self.state.registrations if node.takes_replicas]
        size = Counter(node.rack for node in nodes)
        for replicas in assignment:
            assert not isinstance(replicas, UnsetType)
            assert len(set(replicas)) == len(replicas)
            used = Counter(node.rack for node in nodes if node.id in replicas)
            fullest = max(used.values())
            assert all(used[rack] >= min(fullest - 1, size[rack]) for rack in size)

    @rule(name=NAME)
    def delete(self, name: str) -> None:
        self._try(lambda: delete_stream(self.state, name, now_ms=0, producers_ms=0))

    @rule(name=NAME, config=CONFIG)
    def configure(self, name: str, config: dict[str, str]) -> None:
        config = {key: value for key, value in config.items() if key != "durability"}
        self._try(lambda: configure_replicated(self.state, name, config))

    @rule(least=st.sampled_from(["1", "2", "3", None]))
    def configure_all(self, least: str | None) -> None:
        self._try(lambda: configure_cluster(self.state, {"min.insync.replicas": least}))

    @rule(informed=st.booleans())
    def acknowledge(self, informed: bool) -> None:
        if informed:
            self.catch_up(set(NODES))
        self.holders.acknowledge()

    @rule(node_ids=st.sets(NODE, min_size=1))
    def catch_up(self, node_ids: set[int]) -> None:
        for node_id in sorted(node_ids):
            self.holders.catch_up(self.state, node_id)

    # -- partitions ---------------------------------------------------------------------------------

    @rule(index=INDEX, node_id=NODE, members=MEMBERS, informed=st.booleans(), old=st.booleans())
    def alter(self, index: int, node_id: int, members: tuple[int, ...], informed: bool, old: bool) -> None:
        where = self._at(index)
        if where is None:
            return
        if informed:
            self.catch_up(set(NODES))
            node_id = self.state.partitions.of_stream(where.stream_id)[where.partition].leader or node_id
        partition, leader = self.holders.knows(where, node_id), self.state.registrations.get(node_id)
        if partition is None or leader is None or partition.leader != node_id:
            return
        known = {node.id: node.epoch for node in self.state.registrations}
        proposed = self.holders.propose(where, node_id, dict.fromkeys((node_id, *members)))
        proposal = InSyncProposal(
            where,
            InSyncMember(node_id, leader.epoch),
            partition.leader_epoch,
            partition.partition_epoch,
            tuple(InSyncMember(member, known.get(member, 0) - (old and member != node_id)) for member in proposed),
        )
        answer = alter_partition(self.state, proposal)
        if isinstance(answer, Altered):
            assert partition == self.state.partitions.get(where)
            self.site.commit(answer.events)

    @rule(index=INDEX)
    def report(self, index: int) -> None:
        where = self._at(index)
        if where is not None:
            self.site.commit(depose(self.state, where))

    @rule(index=INDEX, members=MEMBERS)
    def reassign(self, index: int, members: tuple[int, ...]) -> None:
        where = self._at(index)
        if where is not None:
            self._try(lambda: reassign(self.state, where, members))

    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        where = self._at(index)
        if where is not None:
            self._try(lambda: cancel(self.state, where))

    @rule(index=INDEX, unclean=st.booleans())
    def elect(self, index: int, unclean: bool) -> None:
        where = self._at(index)
        if where is not None:
            self._try(lambda: elect_unclean(self.state, where) if unclean else elect_preferred(self.state, where))

    @rule(index=INDEX, node_id=NODE)
    def move_leader(self, index: int, node_id: int) -> None:
        where = self._at(index)
        if where is not None:
            self._try(lambda: move_leader(self.state, where, node_id))

    @rule(most=st.integers(0, 3))
    def rebalance_leaders(self, most: int) -> None:
        events = rebalance_leaders(self.state, most)
        assert len(events) <= most
        self.site.commit(events)

    @rule(emptied=st.sets(NODE, max_size=1), at_once=st.integers(1, 3), cancels=st.booleans())
    def rebalance(self, emptied: set[int], at_once: int, cancels: bool) -> None:
        moves = plan(self.state, emptied)
        self.site.commit(begin_moves(self.state, moves, at_once))
        if cancels:
            self.site.commit(cancel_moves(self.state, moves))

    # -- what has to be so --------------------------------------------------------------------------

    @invariant()
    def partitions_are_sound(self) -> None:
        nodes = self.state.registrations
        for where, partition in self.state.partitions:
            replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
            assert len(replicas) == len(partition.replicas) > 0
            assert isr <= replicas
            assert elr <= replicas
            assert isr.isdisjoint(elr)
            assert (isr | elr).isdisjoint(partition.last_known_elr)
            assert set(partition.adding) | set(partition.removing) <= replicas
            assert set(partition.adding).isdisjoint(partition.removing)
            assert partition.leader in isr if isr else partition.leader is None
            assert isr <= nodes.live
            assert all(member in nodes for member in replicas)
            assert not elr or len(isr) < rules_of(self.state, where.stream_id).least_in_sync(partition)
            if partition.leader is None:
                assert elr.isdisjoint(nodes.live)
            elif partition.leader in nodes.draining:
                assert isr <= nodes.draining

    @invariant()
    def whoever_may_be_elected_has_everything(self) -> None:
        for where, partition in self.state.partitions:
            self.holders.check(where, partition)

    @invariant()
    def epochs_only_rise(self) -> None:
        now = dict(self.state.partitions)
        for where, partition in now.items():
            before = self.before.get(where, partition)
            assert partition.leader_epoch >= before.leader_epoch
            assert partition.partition_epoch >= before.partition_epoch
            assert partition == before or partition.partition_epoch > before.partition_epoch
            assert partition.leader == before.leader or partition.leader_epoch > before.leader_epoch
            joined = set(partition.replicas) - set(before.replicas)
            assert not joined or partition.leader_epoch > before.leader_epoch
        self.before = now
        assert all(earlier < later for earlier, later in zip(self.epochs, self.epochs[1:], strict=False))

    @invariant()
    def what_is_counted_is_so(self) -> None:
        partitions = self.state.partitions
        for node_id in NODES:
            holding = [where for where, partition in partitions if node_id in partition.replicas]
            assert sorted(where for where, _ in partitions.of_node(node_id)) == sorted(holding)
            assert partitions.replica_count(node_id) == len(holding)
            leading = sum(partition.leader == node_id for _, partition in partitions)
            assert partitions.leader_count(node_id) == leading
            preferring = sum(partition.target[0] == node_id for _, partition in partitions)
            assert partitions.preferred_count(node_id) == preferring

    def teardown(self) -> None:
        """The log read again says the same, and so do a copy and a snapshot."""
        again = ControllerState()
        for value in self.site.log:
            again.apply(decode_event(value))
        for other in (again, self.state.copy()):
            assert other.registrations == self.state.registrations
            assert other.partitions == self.state.partitions
            assert [where for where, _ in other.partitions] == [where for where, _ in self.state.partitions]
        restored = decode_snapshot(encode_snapshot(self.state))
        assert restored.registrations == self.state.registrations
        assert restored.partitions == self.state.partitions


ClusterMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=50)
TestCluster = ClusterMachine.TestCase
