"""The role of a node for a partition of a cluster, as the partition sees it."""

from collections.abc import Callable, Collection
from typing import Protocol

from duramen.base.ids import Position
from duramen.replication.replication_wait import ReplicationWaitOutcome
from duramen.storage.store import AppendDone

__all__ = ["Role"]


class Role(Protocol):
    """The role of this node for a partition of a cluster: its leader, a follower, or neither."""

    @property
    def epoch(self) -> int:
        """The newest leader epoch that is known here; -1 where none is."""

    @property
    def latest_offset(self) -> int | None:
        """The end that a leader tells clients; None if it is unknown yet, or this node does not lead."""

    @property
    def in_sync(self) -> Collection[int]:
        """The nodes that may lead next, as a leader knows; none where this node does not lead."""

    @property
    def deposed(self) -> bool:
        """Whether it leads as far as it knows, while it reaches neither controller nor some replica in sync."""

    def check_leads(self) -> None:
        """Raise NotLeader unless this node leads the partition and is not `deposed`."""

    def check_holds(self) -> None:
        """Raise NotLeader unless consumers may read here: a replica is here, and no leader that is `deposed`."""

    def accept(self, done: AppendDone, *, all_replicas: bool) -> AppendDone:
        """The callback with which an arriving batch is stored; it calls `done` once the batch is acknowledged.

        With `all_replicas` (acks=all) once all in-sync replicas have it. An error comes with the batch's base offset if
        it was appended in a leadership that may continue, otherwise with -1. Raises NotLeader, NotEnoughReplicas.
        """

    def wait_replicated(
        self, record: Position, done: Callable[[ReplicationWaitOutcome], None], deadline_ms: int
    ) -> None:
        """Tell `done` once this node's replica has a record, or never will; until then. Raises NotLeader."""
