"""Reads as a member of a consumer group: shares the partitions with other members, and commits processed records.

Blocking; used by one thread at a time.
"""

import contextlib
from typing import Final

from duramen.base.errors import DuramenError, RequestInvalid
from duramen.client.api.arguments import text
from duramen.client.api.offset_ranges import OffsetRange, find_stream, spans
from duramen.client.api.reader import RecordReader, WantedRecords
from duramen.client.api.records import Batch
from duramen.client.cluster import BrokerCluster, TopicPartition
from duramen.client.coordinator import GroupCoordinatorClient
from duramen.client.group import GroupMembership
from duramen.codec.kafka.versions import ApiKey

__all__ = ["GroupReader", "reader_of"]

_SESSION_TIMEOUT_MS: Final = 60_000
_LEAVE_TIMEOUT_S: Final = 2.0
_PAUSE_S: Final = 0.5


class GroupReader(RecordReader):
    """Reads from the group's committed offsets; without one, from the requested position."""

    leaves = True

    def __init__(self, kafka: str, wanted: WantedRecords, group: str, *, timeout_s: float) -> None:
        """Raises RequestInvalid if a partition is given: the group assigns them."""
        if wanted.partition is not None:
            raise RequestInvalid("a group shares out the partitions: leave out partition= or group=")
        super().__init__(kafka, wanted, timeout_s=timeout_s)
        self._kafka = kafka
        self._group = group
        self._member = GroupMembership(self._cluster, group, [wanted.stream], session_timeout_ms=_SESSION_TIMEOUT_MS)
        self._ends: dict[TopicPartition, int] = {}
        self._processed: dict[TopicPartition, int] = {}

    def next(self) -> list[Batch]:
        """The next batches of the member's partitions. Commits the processed ones."""
        self.commit()
        if not self._member.heartbeat():
            if not self._ends:
                find_stream(self._cluster, self._wanted.stream)  # a stream that is not there is said at once
            self._member.join()
            self._spans = None
        return super().next()

    def _begin(self) -> None:
        assigned = list(self._member.assigned)
        there = spans(self._consumer, assigned, self._wanted.first, self._wanted.end) if assigned else {}
        committed = self._member.committed()
        for at, span in there.items():
            self._ends.setdefault(at, span.end)
        self._start({at: OffsetRange(committed.get(at, span.first), self._ends[at]) for at, span in there.items()})

    def _is_done(self) -> bool:
        if self._positions or self._wanted.end is not None:
            return super()._is_done()
        # Others have all partitions for now.
        self.interrupt.wait(_PAUSE_S)
        return self._is_idle()

    def processed(self, batch: Batch) -> None:
        """Mark the batch as processed, for the next `commit`."""
        self._processed[TopicPartition(batch.topic, batch.partition)] = batch.next_offset

    def commit(self) -> None:
        """Commit processed batches; if the group has removed this member, another one reads them again.

        Raises ServerUnreachable …
        """
        if self._processed:
            self._member.commit(self._processed)
            self._processed = {}

    def close(self) -> None:
        """Commit processed batches and leave the group, over a new connection, because others may be in use."""
        super().close()
        member = self._member.identity
        if not member.member_id:
            return
        with contextlib.suppress(DuramenError), BrokerCluster(self._kafka, timeout_s=_LEAVE_TIMEOUT_S) as cluster:
            coordinator = GroupCoordinatorClient(cluster, self._group)
            if self._processed:
                with contextlib.suppress(DuramenError):
                    coordinator.commit(self._processed, member)
            leaving = {"group_id": self._group, "member_id": member.member_id}
            coordinator.ask(ApiKey.LEAVE_GROUP, leaving | {"members": [{"member_id": member.member_id}]})


def reader_of(kafka: str, wanted: WantedRecords, group: str | None, *, timeout_s: float) -> RecordReader:
    """A reader for a group or for itself. Raises RequestInvalid."""
    if group is None:
        return RecordReader(kafka, wanted, timeout_s=timeout_s)
    return GroupReader(kafka, wanted, text("group", group), timeout_s=timeout_s)
