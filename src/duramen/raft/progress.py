"""The progress of the replicas that fetch from a leader, for commits, silent replicas and successors. Pure."""

from typing import NamedTuple

from duramen.raft.voters import ReplicaId, Voters

__all__ = ["VoterProgress"]


class _Reached(NamedTuple):
    """The offset below which all entries are on the replica's disk, and its last fetch in ms."""

    synced_offset: int
    fetched_ms: int


class VoterProgress:
    """The leader's knowledge of voters and other fetching replicas, since its leadership began at `since_ms`."""

    __slots__ = ("_me", "replicas", "since_ms")

    def __init__(self, me: ReplicaId, now_ms: int) -> None:
        self._me = me
        self.since_ms = now_ms
        self.replicas: dict[ReplicaId, _Reached] = {}

    def heard(self, replica: ReplicaId, now_ms: int) -> None:
        """Note a fetch as a sign of life only."""
        self.replicas[replica] = _Reached(self.synced_offset(replica), now_ms)

    def reached(self, replica: ReplicaId, synced_offset: int) -> bool:
        """Note that a replica has synced the leader's history up to an offset; returns whether this is new."""
        known = self.replicas.get(replica, _Reached(0, self.since_ms))
        if synced_offset <= known.synced_offset:
            return False
        self.replicas[replica] = known._replace(synced_offset=synced_offset)
        return True

    def synced_offset(self, replica: ReplicaId) -> int:
        """The offset below which all entries are known to be on the replica's disk."""
        known = self.replicas.get(replica)
        return 0 if known is None else known.synced_offset

    def fetched_ms(self, replica: ReplicaId) -> int:
        """The time of the replica's last fetch; the start of the leadership if there was none."""
        known = self.replicas.get(replica)
        return self.since_ms if known is None else known.fetched_ms

    def majority_offset(self, voters: Voters, own_synced_offset: int) -> int:
        """The highest offset below which all entries are on the disks of a majority."""
        offsets = [own_synced_offset if voter == self._me else self.synced_offset(voter) for voter in voters.ids]
        offsets.sort(reverse=True)
        return offsets[len(offsets) // 2] if offsets else 0

    def majority_ms(self, voters: Voters, now_ms: int) -> int:
        """The latest time since which a majority has fetched; the leader counts if it is a voter."""
        times = [now_ms if voter == self._me else self.fetched_ms(voter) for voter in voters.ids]
        times.sort(reverse=True)
        return times[len(times) // 2] if times else now_ms

    def successors(self, voters: Voters) -> tuple[ReplicaId, ...]:
        """The other voters, by descending synced offset."""
        others = [voter for voter in voters.ids if voter != self._me]
        return tuple(sorted(others, key=lambda voter: (-self.synced_offset(voter), voter)))

    def forget(self, before_ms: int, voters: Voters) -> None:
        """Forget replicas that do not vote and have not fetched since then."""
        self.replicas = {
            replica: known
            for replica, known in self.replicas.items()
            if replica in voters or known.fetched_ms >= before_ms
        }
