"""Vanished clients: no group and no transaction hangs for longer than its timeouts.

A member of a group and a transactional producer vanish, and their coordinators' nodes end. Once the cluster is healthy
again, the other member owns everything after a session and a rebalance. The transaction is aborted after its timeout
and two checks, whatever the clocks say; until then read_committed readers would wait.
"""

import random
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from duramen.base.errors import DuramenError
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode, header
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.checkers.memberships import GroupModel
from duramen.sim.checkers.transaction import SimulatedTransaction
from duramen.sim.cluster.checkers.history import SentBatch
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.cluster.clients.coordinators import CoordinatedClient
from duramen.sim.cluster.clients.members import MEMBERS_GROUP, PARTITIONS, REBALANCE_MS, SESSION_MS, ClusterGroupMember
from duramen.sim.cluster.faults.trial import GoOn, see
from duramen.sim.cluster.victim import Victim
from duramen.sim.machine.trace import BrokenPromise
from duramen.transactions.values import ProducerIdentity

__all__ = ["Abandoned"]

_THINK_US: Final = 50_000
_TRANSACTION_MS: Final = 2_000
_LOOKS_MS: Final = 10_000
"""The default of `transaction.abort.timed.out.transaction.cleanup.interval.ms`."""
_SLACK_MS: Final = 2_000
_GROUP_US: Final = (SESSION_MS + REBALANCE_MS + _SLACK_MS) * 1_000
_TRANSACTION_US: Final = (_TRANSACTION_MS + 2 * _LOOKS_MS + _SLACK_MS) * 1_000
_ID: Final = "abandoned"


class _Member(ClusterGroupMember):
    """A member that takes part for good, or until it vanishes."""

    vanished = False

    def take_part(self, place: PartitionId, node_id: int) -> None:
        self.heartbeat(place, node_id)

    def step(self) -> None:
        if not self.vanished:
            super().step()


class _Transactor(CoordinatedClient):
    """Begins a transaction, writes one batch, and vanishes: then it is `done`."""

    def __init__(self, calls: ClientCalls, seed: str, number: int, place: PartitionId) -> None:
        super().__init__(calls, seed, _THINK_US)
        self.done = False
        self.place = place
        self._number = number
        self._batch: SentBatch | None = None

    def step(self) -> None:
        if self._batch is None:
            self.of_transactional_id(_ID, self._initialise)
        elif not self.done:
            batch = self._batch
            self.leader(self.place, lambda node_id, _: self._send(node_id, batch))

    def _failed(self, place: PartitionId, value: Any) -> bool:
        if isinstance(value, DuramenError):
            self.calls.trace("%s: %s: %s", _ID, type(value).__name__, value)
            if not self.refused(place, value):
                raise BrokenPromise(f"{_ID} is refused with {type(value).__name__}: {value}")
            self.next()
        return isinstance(value, DuramenError)

    def _initialise(self, place: PartitionId, node_id: int) -> None:
        def ask(broker: Broker, reply: Reply) -> None:
            def done(identity: ProducerIdentity | None, error: DuramenError | None) -> None:
                reply(identity if error is None else error)

            broker.transactions.initialise(_ID, _TRANSACTION_MS, None, done)

        def answered(value: Any) -> None:
            if not self._failed(place, value):
                self._batch = self._new(value)
                self.next()

        self.calls.ask(node_id, ask, answered)

    def _new(self, identity: ProducerIdentity) -> SentBatch:
        transaction = SimulatedTransaction(self._number)
        transaction.fate = "aborted"  # no other request is sent
        data = encode(
            [BatchInput(self.calls.true.wall_ms(), None, b"%d/" % self._number)], attributes=TRANSACTIONAL,
            base_sequence=0, producer_id=identity.producer_id, producer_epoch=identity.epoch,
        )  # fmt: skip
        return SentBatch(
            self._number, bytes(data), header(data).crc, 1, acks_all=True, producer_id=identity.producer_id,
            sequence=0, producer_epoch=identity.epoch, transaction=transaction,
        )  # fmt: skip

    def _send(self, node_id: int, batch: SentBatch) -> None:
        self.calls.book.page(self.place).sent(batch)

        def append(broker: Broker, reply: Reply) -> None:
            def done(base_offset: int, error: DuramenError | None) -> None:
                reply(base_offset if error is None else error)

            admit = broker.transactions.admission(_ID, joins=True)
            partition_at(broker, self.place).append(bytearray(batch.data), done, admit, all_replicas=True)

        def answered(value: Any) -> None:
            if not self._failed(self.place, value):
                self.calls.book.page(self.place).acknowledged_at(batch, value)
                self.done = True

        self.calls.ask(node_id, append, answered)


class Abandoned:
    """Two members of a group and a transaction. `numbers` are those of batches."""

    def __init__(
        self, cluster: Victim, calls: ClientCalls, chance: random.Random, group: GroupModel, numbers: "count[int]"
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._calls = calls
        self._chance = chance
        seed = f"{cluster.seed}/abandoned"
        self._stays, self._vanishes = (_Member(calls, f"{seed} {at}", _THINK_US, group) for at in range(2))
        self._transactor = _Transactor(calls, seed, next(numbers), chance.choice(calls.places()))

    def run(self, go_on: GoOn, is_well: Callable[[], bool]) -> None:
        """Let them vanish while the nodes of their coordinators end, and check the others."""
        cluster, calls = self._cluster, self._calls
        calls.open = True
        for client in (self._stays, self._vanishes, self._transactor):
            client.next()
        go_on(self._have_begun, "a group and a transaction do not begin")
        generation = self._stays.generation
        self._vanishes.vanished = True
        ended = self._end_coordinators()
        go_on(lambda: self._are_back(ended) and is_well(), "the cluster is not well again after coordinators ended")
        well_us = cluster.true.now_us
        see(go_on, lambda: self._owns_all(generation), f"group {MEMBERS_GROUP} hangs without a member", _GROUP_US)
        calls.open = False
        left_us = well_us + _TRANSACTION_US - cluster.true.now_us
        see(go_on, self._is_ended, f"a transaction hangs in {self._transactor.place}", left_us)
        go_on(lambda: calls.idle and is_well(), "the cluster is not well after clients vanished")

    def _have_begun(self) -> bool:
        generation = self._stays.generation
        return self._transactor.done and generation >= 0 and generation == self._vanishes.generation

    def _end_coordinators(self) -> dict[int, int]:
        """End the nodes that lead the streams of coordinators, or some; their lives before that."""
        state = self._cluster.witness.council.state
        leaders = {
            partition.leader
            for place, partition in state.partitions
            if self._calls.is_internal(place) and partition.leader is not None
        }
        node_id = self._chance.choice(sorted(leaders))
        node = self._cluster.nodes[node_id]
        lives = {node_id: node.life}
        self._cluster.end(node, power=self._chance.random() < 0.5, soon=True)
        return lives

    def _are_back(self, ended: dict[int, int]) -> bool:
        nodes = self._cluster.nodes
        return all(nodes[node_id].ready and nodes[node_id].life > life for node_id, life in ended.items())

    def _owns_all(self, generation: int) -> bool:
        return self._stays.generation > generation and len(self._stays.owned) == PARTITIONS

    def _is_ended(self) -> bool:
        place = self._transactor.place
        known = self._cluster.witness.council.state.partitions.get(place)
        broker = None if known is None or known.leader is None else self._cluster.nodes[known.leader].broker
        if broker is None:
            return False
        log = partition_at(broker, place).log
        return log.last_stable_offset == log.high_watermark
