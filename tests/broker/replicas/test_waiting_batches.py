"""A replica whose log has no room yet for batches of the leader before it: it leads once the log has them."""

import errno
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.broker.replicas.node import PLACE
from tests.broker.replicas.test_roles import Around
from tests.examples import examples
from tests.storage.test_full_disk import Disk

from duramen.base.errors import DuramenError, NotLeader, StorageFailed
from duramen.base.leader_epochs import Takeover
from duramen.codec.batch import BatchInput, encode, stamp
from duramen.metadata.partitions import PartitionState
from duramen.replication.messages import ReplicaFetch, ReplicaFetchAnswer
from duramen.sim.machine.store import SMALL, StoreOnDoubles

MUCH: Final = 1 << 40
"""A log of so many records is taken in bulk: its batches wait until its durability has changed."""
Outcome = list[tuple[int, DuramenError | None]]


def record(sequence: int, value: bytes = b"") -> bytearray:
    """A batch of an idempotent producer."""
    return encode(
        [BatchInput(1, None, value or b"%d" % sequence)], producer_id=7, producer_epoch=0, base_sequence=sequence
    )


class NewLeader(Around):
    """Node 1, which leads after node 2: its log has room for one batch at a time."""

    def __init__(self, pending_bytes: int = 1) -> None:
        super().__init__(1)
        self.doubles = StoreOnDoubles(SMALL._replace(pending_bytes=pending_bytes))
        self.start()

    def follow(self, batches: int, value: bytes = b"", *, high_watermark: int = 0) -> None:
        """Get the batches up to this number from node 2, the first with this value."""
        self.told(2, 1, (1, 2), 1)
        _, fetch, _ = self.sent[-1]
        assert isinstance(fetch, ReplicaFetch)
        data = bytearray()
        for number in range(fetch.end.offset, batches):
            batch = record(number, value if number == fetch.end.offset else b"")
            stamp(batch, number, 1)
            data += batch
        answer = ReplicaFetchAnswer(2, 1, fetch, high_watermark=high_watermark, takeovers=(Takeover(1, 2, 0),))
        self.replicas.receive(PLACE, answer, data)

    def lead(self) -> None:
        self.replicas.on_partition_state(PLACE, PartitionState((1, 2, 3), (1,), 1, 2, 2))

    def retry(self, sequence: int) -> Outcome:
        """What the producer is told, in the end, of the batch with that sequence number."""
        outcome: Outcome = []
        self.replica.partition.append(record(sequence), lambda *answer: outcome.append(answer))
        return outcome

    def values(self) -> Sequence[bytes]:
        """The content of the log, once everything is written."""
        for _ in range(3):
            self.doubles.advance(SMALL.copy_interval_ms)
        return self.doubles.values(self.replica.partition.log)


@pytest.mark.parametrize("high_watermark", [0, MUCH], ids=["memory", "bulk"])
@settings(max_examples=examples(10))
@given(st.integers(2, 5), st.integers(0, 4), st.integers(0, 3))
@example(5, 0, 2)
def test_a_batch_that_waits_for_room_is_not_stored_twice(
    high_watermark: int, batches: int, again: int, more: int
) -> None:
    """The producer repeats its last batches, and sends some more."""
    node = NewLeader()
    node.follow(batches, high_watermark=high_watermark)
    node.lead()
    assert node.replica.partition.log.end_offset < batches
    first = max(0, batches - 1 - again)
    for sequence in range(first, batches + more):
        ((_, error),) = node.retry(sequence)
        assert isinstance(error, NotLeader)
    assert node.values() == [b"%d" % number for number in range(batches)]
    outcomes = [node.retry(sequence) for sequence in range(first, batches + more)]
    assert node.values() == [b"%d" % number for number in range(batches + more)]
    assert outcomes == [[(offset, None)] for offset in range(first, batches + more)]
    assert node.led == [2]


def test_a_full_disk_stores_neither_the_batch_nor_its_repeat() -> None:
    node = NewLeader()
    node.follow(1)
    Disk(node.doubles, 0)
    node.doubles.advance(SMALL.copy_interval_ms)
    node.follow(3)
    node.lead()
    outcome = node.retry(2)
    node.doubles.settle()
    assert node.replica.partition.log.end_offset == 1
    assert [type(error) for error in node.failures] == [StorageFailed]
    assert [(offset, type(error)) for offset, error in outcome] == [(-1, NotLeader)]


def test_the_batches_behind_a_refused_one_are_refused_too() -> None:
    """A disk with errors has room in memory for the second batch, and not for the first."""
    node = NewLeader(pending_bytes=400)
    node.follow(1)
    Disk(node.doubles, 0, errno.EIO)
    node.doubles.advance(SMALL.copy_interval_ms)
    node.follow(3, b"x" * 1000)
    node.doubles.settle()
    assert node.replica.partition.log.end_offset == 1
    assert [type(error) for error in node.failures] == [StorageFailed]
