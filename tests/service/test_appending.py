"""The outcome of appends for clients, and of entries for several shards: whether each may be stored."""

from typing import cast

import pytest

from duramen.base.errors import (
    DuramenError,
    NodeStopping,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OutcomeUnknown,
    StorageFailed,
    StorageFull,
)
from duramen.base.ids import Position
from duramen.broker.partition import Partition
from duramen.service.appending import append
from duramen.service.forwarded_requests import AppendResult
from duramen.service.queues import Enqueued
from duramen.storage.store import AppendDone

Kind = type[DuramenError]
KINDS = (NodeStopping, NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeader, StorageFailed, StorageFull)


class FakePartition:
    """Fails each append with an error, immediately or later."""

    def __init__(self, error: DuramenError, *, at_once: bool) -> None:
        self.error = error
        self.at_once = at_once
        self.waiting: list[AppendDone] = []

    def append(self, batch: bytearray, done: AppendDone) -> None:
        del batch
        if self.at_once:
            done(-1, self.error)
        else:
            self.waiting.append(done)


def result(error: DuramenError, *, at_once: bool) -> AppendResult:
    partition = FakePartition(error, at_once=at_once)
    results: list[AppendResult] = []
    append(cast("Partition", partition), bytearray(), results.append)
    for done in partition.waiting:
        done(-1, error)
    (found,) = results
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_may_be_stored_if_it_was_taken_and_the_error_leaves_that_open(kind: Kind) -> None:
    error = kind("failed")
    assert result(error, at_once=True) == AppendResult(-1, error)
    later = result(error, at_once=False)
    assert later.unknown is not kind.outcome_known
    # Another leader may have the batch: NotLeader would make the node that forwards it send it there again.
    assert type(later.error) is (OutcomeUnknown if kind is NotLeader else kind)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_may_be_stored_if_their_shard_leaves_that_open(kind: Kind) -> None:
    unknown = not kind.outcome_known and kind is not NotLeader  # which says here that no leader was found
    answers: dict[int, Position | DuramenError] = {
        0: Position(1, 7), 1: kind("failed"), 2: StorageFull("no room"), 3: NotCoordinator("it moved"),
    }  # fmt: skip
    found = Enqueued(5, {0: [0], 1: [1, 3], 2: [2], 3: [4]}, answers)
    assert found.unknown == ([1, 3, 4] if unknown else [4])
    assert found.error is answers[1 if unknown else 3]
