"""A transactional producer among scripted nodes: as clients do it looks for whom to ask, and asks again."""

import contextlib
from collections.abc import Callable
from typing import Any

from tests.coordinators.transaction.cluster.world import Node, World

from duramen.base.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    DuramenError,
    NodeStopping,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OutcomeUnknown,
    StreamNotFound,
)
from duramen.broker.partition import Partition
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM, transaction_partition
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.sim.broker import CallbackResult
from duramen.transactions.values import PartitionName, ProducerIdentity

RETRIED = (
    ConcurrentTransactions, CoordinatorLoading, NotCoordinator, NotEnoughReplicas, NotEnoughReplicasAfterAppend,
    NotLeader, NodeStopping, OutcomeUnknown, StreamNotFound,
)  # fmt: skip
_TIMEOUT_MS = 60_000
_PATIENCE = 20  # attempts, after which every node is started that is down


class Asking:
    """Looks for whom to ask, and asks again."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    def until(self, place: tuple[str, int], attempt: Callable[[Node, Partition, CallbackResult[Any]], None]) -> Any:
        """Ask the leader of that partition, whoever it is, until it answers."""
        for attempts in range(300):
            if attempts == _PATIENCE:
                self.world.start_all()
            answer: CallbackResult[Any] = CallbackResult()
            leader = self.world.leader(*place)
            if leader is not None and self.world.node(leader).up:
                node = self.world.node(leader)
                with contextlib.suppress(StreamNotFound):
                    attempt(node, node.broker.streams.get(place[0]).partition(place[1]), answer)
                self.world.settle()
            if answer.there and not isinstance(answer.error, RETRIED):
                return answer.value
            self.world.advance(50)
        raise AssertionError(f"{self.name} gets no answer from the leader of {place}")


class Writer(Asking):
    """Speaks the protocol of one version (KIP-890): 0 or 2."""

    def __init__(self, world: World, name: str, version: int) -> None:
        super().__init__(world, name)
        self.version = version
        self._sequences: dict[tuple[str, int], int] = {}
        self.initialise()

    @property
    def coordinator(self) -> tuple[str, int]:
        return TRANSACTIONS_STREAM, transaction_partition(self.name, 2)

    def initialise(self) -> None:
        """Ask for an identity."""

        def attempt(node: Node, _: Partition, answer: CallbackResult[ProducerIdentity]) -> None:
            node.broker.transactions.initialise(self.name, _TIMEOUT_MS, None, answer)

        self.identity: ProducerIdentity = self.until(self.coordinator, attempt)
        self._sequences.clear()

    def write(self, stream: str, index: int, value: bytes) -> None:
        """One record, acknowledged by all replicas."""
        if self.version < 2:
            wanted = [PartitionName(stream, index)]
            self.until(
                self.coordinator,
                lambda node, _, answer: node.broker.transactions.add_partitions(
                    self.name, self.identity, wanted, answer
                ),
            )
        sequence = self._sequences.get((stream, index), 0)
        self._sequences[stream, index] = sequence + 1

        def attempt(node: Node, partition: Partition, answer: CallbackResult[int]) -> None:
            admit = node.broker.transactions.admission(self.name, joins=self.version >= 2)
            partition.append(self.batch(sequence, value), answer, admit)

        self.until((stream, index), attempt)

    def batch(self, sequence: int, value: bytes, key: bytes | None = None) -> bytearray:
        """One record of its transaction."""
        return encode(
            [BatchInput(self.world.clock.wall_ms(), key, value)],
            attributes=TRANSACTIONAL, producer_id=self.identity.producer_id, producer_epoch=self.identity.epoch,
            base_sequence=sequence,
        )  # fmt: skip

    def commit_offset(self, group: str, stream: str, offset: int) -> None:
        """An offset of a group for partition 0 of a stream."""
        if self.version < 2:
            self.until(
                self.coordinator,
                lambda node, _, answer: node.broker.transactions.add_group(self.name, self.identity, group, answer),
            )

        def attempt(node: Node, _: Partition, answer: CallbackResult[Any]) -> None:
            def done(result: list[DuramenError | None] | DuramenError) -> None:
                answer(result if isinstance(result, DuramenError) else result[0])

            offsets = [(OffsetKey(group, stream, 0), CommittedOffset(offset, -1, "", self.world.clock.wall_ms()))]
            node.broker.transactions.commit_offsets(
                self.name, self.identity, group, CommitMember("", None, -1), offsets, done, joins=self.version >= 2
            )

        self.until((OFFSETS_STREAM, 0), attempt)

    def end(self, *, commit: bool) -> None:
        """Commit or abort, and take over the identity to go on with."""

        def attempt(node: Node, _: Partition, answer: CallbackResult[ProducerIdentity]) -> None:
            node.broker.transactions.end(self.name, self.identity, commit=commit, version=self.version, done=answer)

        identity = self.until(self.coordinator, attempt)
        if identity != self.identity:
            self.identity = identity
            self._sequences.clear()
