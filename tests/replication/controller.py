"""A controller for tests: one that is always right and always there, but for what gets lost on the way to it."""

from collections.abc import Callable
from typing import NamedTuple

from duramen.base.insync import least_in_sync
from duramen.replication.messages import AlterPartition, AlterPartitionAnswer, ReplicaRefusal
from duramen.replication.partition import PartitionConfig, ReplicatedPartition

SESSION_MS = 120
VOID = -2
"""In the place of a registration that is over."""


class Register(NamedTuple):
    """A node was started: this is its `incarnation`, and its disk."""

    node_id: int
    incarnation: int
    directory: int


class Heartbeat(NamedTuple):
    """A node is alive, and asks what is new."""

    node_id: int
    broker_epoch: int


class PartitionUpdate(NamedTuple):
    """What the controller's log says, up to now, to the node of that registration."""

    broker_epoch: int
    incarnation: int
    state: ReplicatedPartition
    live: frozenset[int]


class _Node:
    def __init__(self) -> None:
        self.incarnation = -1
        self.broker_epoch = -1
        self.directory = 0
        self.fenced = True
        self.heard_ms = 0


class Controller:
    """Elects from the in-sync set, then from the eligible leader replicas (KIP-966), and from nobody else."""

    def __init__(self, state: ReplicatedPartition, config: PartitionConfig, chance: Callable[[int], int]) -> None:
        self.state = state
        self.eligible: frozenset[int] = frozenset()
        self._least = least_in_sync(config.min_insync_replicas, len(state.replicas))
        self._nodes = {node_id: _Node() for node_id in state.nodes}
        self._registrations = 0
        self._chance = chance
        self.elections = 0
        self.alterations = 0

    @property
    def live(self) -> frozenset[int]:
        """Who is not fenced."""
        return frozenset(node_id for node_id, node in self._nodes.items() if not node.fenced)

    @property
    def may_lead(self) -> frozenset[int]:
        """Who may be elected, now or when it is back."""
        return self.state.in_sync | self.eligible

    def directory_of(self, node_id: int) -> int:
        """The disk with which a node registered last."""
        return self._nodes[node_id].directory

    def register(self, asked: Register, now_ms: int) -> PartitionUpdate:
        """A node was started: whatever it led or had promised to have synced under its last registration is over."""
        node = self._nodes[asked.node_id]
        if asked.incarnation > node.incarnation:
            if node.incarnation >= 0:
                self._fence(asked.node_id)
            if asked.directory != node.directory:
                self._lost_disk(asked.node_id)
            self._registrations += 1
            node.incarnation, node.directory = asked.incarnation, asked.directory
            node.broker_epoch = self._registrations
        node.heard_ms = now_ms
        return self._told(asked.node_id)

    def heartbeat(self, beat: Heartbeat, now_ms: int) -> PartitionUpdate | None:
        """A sign of life; a fenced node is in again."""
        node = self._nodes[beat.node_id]
        if beat.broker_epoch != node.broker_epoch:
            return None
        node.heard_ms = now_ms
        if node.fenced:
            node.fenced = False
            self._settle(self.state.in_sync)
        return self._told(beat.node_id)

    def tick(self, now_ms: int) -> None:
        """Fence the silent."""
        for node_id, node in self._nodes.items():
            if not node.fenced and now_ms - node.heard_ms > SESSION_MS:
                self._fence(node_id)

    def alter(self, asked: AlterPartition) -> AlterPartitionAnswer:
        """The leader proposes an in-sync set (KIP-497, KIP-841, KIP-903)."""
        refusal = self._refusal(asked)
        if refusal is not None:
            return AlterPartitionAnswer(asked, refusal=refusal)
        self.alterations += 1
        self._settle(frozenset(member.node_id for member in asked.in_sync), always=True)
        return AlterPartitionAnswer(asked, self.state)

    def move_from(self, leader_epoch: int) -> None:
        """The leader of that epoch finds itself slow."""
        if leader_epoch == self.state.leader_epoch:
            self.move()

    def move(self) -> None:
        """Another in-sync replica leads, for no reason."""
        others = sorted((self.state.in_sync & self.live) - {self.state.leader_id})
        if others:
            self._lead(others[self._chance(len(others))])

    def lead(self, node_id: int) -> None:
        """Make this in-sync replica the leader."""
        self._lead(node_id)

    def fence(self, node_id: int) -> None:
        """Take a node for gone."""
        self._fence(node_id)

    def lost(self, node_id: int) -> None:
        """A node's disk is lost, and the controller knows at once that this registration is over."""
        self._fence(node_id)
        self._nodes[node_id].broker_epoch = VOID

    # -- steps --------------------------------------------------------------------------------------

    def _told(self, node_id: int) -> PartitionUpdate:
        node = self._nodes[node_id]
        return PartitionUpdate(node.broker_epoch, node.incarnation, self.state, self.live)

    def _refusal(self, asked: AlterPartition) -> ReplicaRefusal | None:
        state = self.state
        if asked.leader_epoch != state.leader_epoch or asked.node_id != state.leader_id:
            return ReplicaRefusal.FENCED_LEADER_EPOCH
        if asked.partition_epoch != state.partition_epoch:
            return ReplicaRefusal.INVALID_UPDATE_VERSION
        for member in asked.in_sync:
            node = self._nodes[member.node_id]
            if node.fenced or member.broker_epoch != node.broker_epoch:
                return ReplicaRefusal.INELIGIBLE_REPLICA
        return None

    def _fence(self, node_id: int) -> None:
        self._nodes[node_id].fenced = True
        self._settle(self.state.in_sync - {node_id})

    def _lost_disk(self, node_id: int) -> None:
        self.eligible -= {node_id}

    def _settle(self, in_sync: frozenset[int], *, always: bool = False) -> None:
        """Make this the in-sync set; who left it while it is too small stays eligible. Elect where nobody leads."""
        before = self.state.in_sync
        if in_sync != before or always:
            left = before | self.eligible
            self.eligible = left - in_sync if len(in_sync) < self._least else frozenset()
            self._change(in_sync=in_sync)
        if self.state.leader_id not in self.state.in_sync:
            self._elect()

    def _elect(self) -> None:
        state, live = self.state, self.live
        candidates = sorted(self._candidates() & live)
        if candidates:
            leader_id = candidates[self._chance(len(candidates))]
            if leader_id not in state.in_sync:
                self.eligible -= {leader_id}
                self._change(in_sync=state.in_sync | {leader_id})
            self._lead(leader_id)
        elif state.leader_id is not None:
            self._lead(None)

    def _candidates(self) -> frozenset[int]:
        return self.state.in_sync if self.state.in_sync & self.live else self.eligible

    def _lead(self, leader_id: int | None) -> None:
        self.elections += 1
        self._change(leader_id=leader_id, leader_epoch=self.state.leader_epoch + 1)

    def _change(self, **fields: object) -> None:
        self.state = self.state._replace(partition_epoch=self.state.partition_epoch + 1, **fields)  # type: ignore[arg-type]
