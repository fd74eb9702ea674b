"""The result of a fetch for one partition: whole batches, optionally without those of aborted transactions. Pure."""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from duramen.client.cluster import TopicPartition
from duramen.codec.batch import CONTROL, TRANSACTIONAL, Header, batches
from duramen.codec.kafka.fetch import PartitionRecords

__all__ = ["FetchedPartition", "Isolation", "whole_batches"]


class Isolation(IntEnum):
    """The records of transactions that a consumer sees."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchedPartition(NamedTuple):
    """The result for one partition: whole batches in `pieces`; the next fetch starts at `next_offset`."""

    at: TopicPartition
    pieces: Sequence[memoryview]
    next_offset: int
    high_watermark: int


class _Aborted:
    """Aborted transactions as batches go by in order: each begins at its first offset and ends with a marker."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._ahead = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._begun: set[int] = set()

    def takes(self, head: Header) -> bool:
        """Whether the batch is part of one."""
        while self._ahead and self._ahead[-1][1] < head.next_offset:
            self._begun.add(self._ahead.pop()[0])
        if head.attributes & CONTROL:
            self._begun.discard(head.producer_id)
            return False
        return bool(head.attributes & TRANSACTIONAL) and head.producer_id in self._begun


def whole_batches(
    at: TopicPartition, position: int, answer: PartitionRecords, isolation: Isolation
) -> FetchedPartition:
    """The batches in an answer to a fetch at `position`; one that is cut off at the end is left out."""
    next_offset = position
    start = end = 0
    pieces = []
    aborted = _Aborted(answer.aborted)
    for place, head in batches(answer.records):
        next_offset = max(next_offset, head.next_offset)
        if isolation is Isolation.READ_COMMITTED and aborted.takes(head):
            if end > start:
                pieces.append(answer.records[start:end])
            start = place + head.size
        end = place + head.size
    if end > start:
        pieces.append(answer.records[start:end])
    return FetchedPartition(at, pieces, next_offset, answer.high_watermark)
