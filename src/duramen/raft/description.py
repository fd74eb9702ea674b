"""The quorum as DescribeQuorum returns it: the leader, and each replica's progress and last fetch (KIP-836). Pure."""

from typing import NamedTuple

from duramen.raft.machine import RaftMachine
from duramen.raft.messages import Fetch
from duramen.raft.roles import RaftRole
from duramen.raft.voters import ReplicaId, Voters

__all__ = ["UNKNOWN", "FetchTimes", "QuorumDescription", "ReplicaProgress"]

UNKNOWN = -1
"""An unknown offset or time: only the leader knows the offsets and times of the other replicas."""


class ReplicaProgress(NamedTuple):
    """A replica: its log end, its synced offset, its last fetch and when it last was caught up (ms since 1970).

    `synced_offset` is Duramen's extension: the entries below it are on the replica's disk.
    """

    replica: ReplicaId
    log_end_offset: int = UNKNOWN
    synced_offset: int = UNKNOWN
    fetched_ms: int = UNKNOWN
    caught_up_ms: int = UNKNOWN


class QuorumDescription(NamedTuple):
    """The quorum; `leader_id` is -1 if this replica knows no leader. Observers fetch and do not vote."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaProgress, ...]
    observers: tuple[ReplicaProgress, ...]
    endpoints: Voters


class _Fetched(NamedTuple):
    progress: ReplicaProgress
    leader_end: int  # of the leader's log when it came


class FetchTimes:
    """The leader's record of the other replicas' fetches in its epoch."""

    def __init__(self) -> None:
        self._seen: dict[ReplicaId, _Fetched] = {}

    def clear(self) -> None:
        """Forget all fetches: a new leadership begins."""
        self._seen.clear()

    def heard(self, fetch: Fetch, leader_end: int, now_ms: int) -> None:
        """Record a fetch that arrived when the leader's log ended at `leader_end`.

        A replica was caught up at its previous fetch if it now fetches from the leader's end of that time, as in Kafka.
        """
        known = self._seen.get(fetch.sender)
        caught_up_ms = UNKNOWN if known is None else known.progress.caught_up_ms
        if fetch.end.offset >= leader_end:
            caught_up_ms = now_ms
        elif known is not None and fetch.end.offset >= known.leader_end:
            caught_up_ms = max(caught_up_ms, known.progress.fetched_ms)
        progress = ReplicaProgress(fetch.sender, fetch.end.offset, fetch.synced_offset, now_ms, caught_up_ms)
        self._seen[fetch.sender] = _Fetched(progress, leader_end)

    def describe(self, machine: RaftMachine, now_ms: int) -> QuorumDescription:
        """The quorum from the machine's state and its fetches; `now_ms` is the time since 1970."""
        leads = machine.role is RaftRole.LEADER
        voters = machine.voters
        rows = {voter: self._row(voter) for voter in voters.ids}
        if leads and machine.me in rows:
            end = machine.end.offset
            rows[machine.me] = ReplicaProgress(machine.me, end, machine.synced_offset, now_ms, now_ms)
        observers = tuple(sorted(seen.progress for replica, seen in self._seen.items() if replica not in voters))
        leader_id = UNKNOWN if machine.leader is None else machine.leader.node_id
        return QuorumDescription(
            leader_id, machine.epoch, machine.high_watermark, tuple(rows.values()), observers if leads else (), voters
        )

    def _row(self, replica: ReplicaId) -> ReplicaProgress:
        seen = self._seen.get(replica)
        return ReplicaProgress(replica) if seen is None else seen.progress
