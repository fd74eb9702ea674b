"""What the tests of transactions do to a broker on doubles: begin, write, end, and read as a client does."""

from collections.abc import Sequence
from typing import Protocol

from duramen.base.errors import ConcurrentTransactions
from duramen.broker.fetch import FetchResult, PartitionFetch
from duramen.codec.batch import CONTROL, TRANSACTIONAL, BatchInput, batches, encode, records
from duramen.coordinators.group.coordinator import CommitMember
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.service.broker import Broker
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.storage.scan import read_slice
from duramen.storage.store import Store
from duramen.transactions.values import PartitionName, ProducerIdentity

__all__ = ["Writer", "broker_for", "committed_values"]

_TIMEOUT_MS = 60_000


def broker_for(**settings: object) -> ManualBroker:
    """A broker with small streams for transactions and offsets, which are there."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    hand = ManualBroker({"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2, **given})
    for ensure in (hand.broker.internal_streams.ensure_transactions, hand.broker.internal_streams.ensure_offsets):
        ready: CallbackResult[None] = CallbackResult()
        ensure(ready)
        hand.settle()
        assert ready.error is None
    return hand


class Writer:
    """A transactional producer that speaks the protocol of one version (KIP-890): 0 or 2."""

    def __init__(self, hand: ManualBroker, name: str, version: int, expected: ProducerIdentity | None = None) -> None:
        self.hand = hand
        self.name = name
        self.version = version
        self._sequences: dict[tuple[str, int], int] = {}
        self.identity = self.initialise(expected)

    def initialise(self, expected: ProducerIdentity | None = None, timeout_ms: int = _TIMEOUT_MS) -> ProducerIdentity:
        """Ask for an identity, and again where the broker wants that."""
        while True:
            answer: CallbackResult[ProducerIdentity] = CallbackResult()
            self.hand.broker.transactions.initialise(self.name, timeout_ms, expected, answer)
            self.hand.settle()
            if not isinstance(answer.error, ConcurrentTransactions):
                break
        self.identity = answer.value
        self._sequences.clear()
        return self.identity

    def add(self, *partitions: tuple[str, int]) -> CallbackResult[None]:
        """Partitions join, where that is how this version does it; answered at once otherwise."""
        answer: CallbackResult[None] = CallbackResult()
        if self.version >= 2:
            answer(None)
        else:
            wanted = [PartitionName(*partition) for partition in partitions]
            self.hand.broker.transactions.add_partitions(self.name, self.identity, wanted, answer)
        return answer

    def write(self, stream: str, partition: int, *values: bytes) -> CallbackResult[int]:
        """One batch; nothing is settled."""
        return self.write_keyed(stream, partition, *((None, value) for value in values))

    def write_keyed(
        self, stream: str, partition: int, *records: tuple[bytes | None, bytes | None]
    ) -> CallbackResult[int]:
        """One batch with keys; nothing is settled."""
        sequence = self._sequences.get((stream, partition), 0)
        self._sequences[stream, partition] = sequence + len(records)
        batch = encode(
            (BatchInput(self.hand.clock.wall_ms(), key, value) for key, value in records),
            attributes=TRANSACTIONAL, producer_id=self.identity.producer_id, producer_epoch=self.identity.epoch,
            base_sequence=sequence,
        )  # fmt: skip
        answer: CallbackResult[int] = CallbackResult()
        admit = self.hand.broker.transactions.admission(self.name, joins=self.version >= 2)
        self.hand.broker.streams.get(stream).partition(partition).append(batch, answer, admit)
        return answer

    def commit_offset(self, group: str, stream: str, offset: int) -> CallbackResult[list[BaseException | None]]:
        """An offset of a group for partition 0 of a stream; nothing is settled after the group has joined."""
        transactions = self.hand.broker.transactions
        if self.version < 2:
            joined: CallbackResult[None] = CallbackResult()
            transactions.add_group(self.name, self.identity, group, joined)
            self.hand.settle()
            assert joined.error is None
        answer: CallbackResult[list[BaseException | None]] = CallbackResult()
        offsets = [(OffsetKey(group, stream, 0), CommittedOffset(offset, -1, "", self.hand.clock.wall_ms()))]
        transactions.commit_offsets(
            self.name, self.identity, group, CommitMember("", None, -1), offsets, answer, joins=self.version >= 2
        )
        return answer

    def end(self, *, commit: bool) -> CallbackResult[ProducerIdentity]:
        """Commit or abort; nothing is settled."""
        answer: CallbackResult[ProducerIdentity] = CallbackResult()
        self.hand.broker.transactions.end(self.name, self.identity, commit=commit, version=self.version, done=answer)
        return answer

    def settle_end(self, *, commit: bool) -> None:
        """Commit or abort, and take over the identity to go on with."""
        answer = self.end(commit=commit)
        self.hand.settle()
        self.take_over(answer.value)

    def take_over(self, identity: ProducerIdentity) -> None:
        """Go on with this identity; in a new epoch from sequence 0 on."""
        if identity != self.identity:
            self.identity = identity
            self._sequences.clear()


class Hand(Protocol):
    """A broker whose work is done when a test says so."""

    broker: Broker
    store: Store

    def settle(self) -> None:
        """Do all of it."""


def committed_values(hand: Hand, stream: str, partition: int) -> list[bytes | None]:
    """What a reader of committed records sees, which leaves out what it is told was aborted."""
    found: list[bytes | None] = []
    offset = hand.broker.streams.get(stream).partition(partition).log.start_offset
    while True:
        answer: CallbackResult[list[FetchResult]] = CallbackResult()
        wanted = PartitionFetch(hand.broker.streams.get(stream).partition(partition), offset, 1 << 20, isolation=1)
        hand.broker.fetches.fetch([wanted], min_bytes=1, max_bytes=1 << 20, max_wait_ms=0, done=answer)
        hand.settle()
        fetched = answer.value[0]
        if fetched.slice is None:
            return found
        data: CallbackResult[bytes] = CallbackResult()
        read_slice(hand.store, fetched.slice, data)
        hand.settle()
        found += _visible(data.value, fetched.aborted)
        offset = fetched.slice.next_offset


def _visible(data: bytes, aborted: Sequence[tuple[int, int]]) -> list[bytes | None]:
    ahead = sorted(aborted, key=lambda row: row[1], reverse=True)
    aborting: set[int] = set()
    found: list[bytes | None] = []
    for position, head in batches(data):
        while ahead and ahead[-1][1] <= head.base_offset:
            aborting.add(ahead.pop()[0])
        if head.attributes & CONTROL:
            aborting.discard(head.producer_id)
        elif not (head.attributes & TRANSACTIONAL and head.producer_id in aborting):
            found += [record.value for record in records(data[position : position + head.size])]
    return found
