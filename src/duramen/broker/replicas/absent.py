"""A partition without an open replica on this node: requests get the leader instead."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from duramen.base.errors import NotLeader
from duramen.base.ids import Position
from duramen.replication.replication_wait import ReplicationWaitOutcome
from duramen.storage.store import AppendDone

__all__ = ["UNKNOWN", "Absent"]


class Absent(NamedTuple):
    """A Role: neither leader nor follower. `leader_id` is None if the partition has no leader."""

    epoch: int
    leader_id: int | None

    @property
    def latest_offset(self) -> int | None:
        return None

    @property
    def in_sync(self) -> Collection[int]:
        return ()

    @property
    def deposed(self) -> bool:
        return False

    def check_leads(self) -> None:
        known = "no leader is known" if self.leader_id is None else f"node {self.leader_id} does"
        raise NotLeader(f"this node has no replica of the partition that takes part: {known}")

    def check_holds(self) -> None:
        self.check_leads()

    def accept(self, done: AppendDone, *, all_replicas: bool) -> AppendDone:
        del all_replicas
        self.check_leads()
        return done

    def wait_replicated(
        self, record: Position, done: Callable[[ReplicationWaitOutcome], None], deadline_ms: int
    ) -> None:
        del record, done, deadline_ms
        self.check_leads()


UNKNOWN = Absent(-1, None)
"""Nothing is known of the partition yet."""
