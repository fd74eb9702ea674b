"""The voters: sets of them, and the changes of the set along the log (KIP-853). Pure.

A voter is a node *and* its data directory. A node that lost its disk has forgotten its promises. It returns as another
replica, which learns and does not vote.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

__all__ = ["NO_VOTERS", "ReplicaId", "Voter", "VoterHistory", "Voters"]


class ReplicaId(NamedTuple):
    """A node and the UUID of its data directory, as text."""

    node_id: int
    directory_id: str

    def __str__(self) -> str:
        return f"{self.node_id}/{self.directory_id}"


class Voter(NamedTuple):
    """A replica that votes, and its endpoint."""

    id: ReplicaId
    endpoint: str = ""


class Voters:
    """An immutable set of voters, at most one of each node."""

    __slots__ = ("_voters", "ids")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.id: voter for voter in sorted(voters)}
        self.ids: Final = tuple(self._voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, replica: object) -> bool:
        return replica in self._voters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Voters) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(self.ids)

    def __repr__(self) -> str:
        return "{" + " ".join(map(str, self.ids)) + "}"

    def of_node(self, node_id: int) -> ReplicaId | None:
        """The voter of this node, with any directory."""
        return next((replica for replica in self.ids if replica.node_id == node_id), None)

    def majority(self, agreeing: Collection[ReplicaId]) -> bool:
        """Whether more than half of the voters are in `agreeing`."""
        return 2 * sum(replica in agreeing for replica in self.ids) > len(self.ids)

    def including(self, voter: Voter) -> "Voters":
        """The set with this voter; it replaces a voter with the same id."""
        return Voters([*(other for other in self if other.id != voter.id), voter])

    def without(self, replica: ReplicaId) -> "Voters":
        """The set without this voter."""
        return Voters(voter for voter in self if voter.id != replica)


NO_VOTERS: Final = Voters()


class VoterHistory:
    """The sets of voters by the offset of their entry; a set is in force as soon as its entry is appended.

    `base` is in force before the first entry: the set of a snapshot, or the cluster's first voters.
    """

    __slots__ = ("_offsets", "_sets")

    def __init__(self, base: Voters) -> None:
        self._offsets = [-1]
        self._sets = [base]

    @property
    def latest(self) -> Voters:
        """The set in force."""
        return self._sets[-1]

    @property
    def previous(self) -> Voters:
        """The set that was in force before it; the same set if the log does not have the earlier one."""
        return self._sets[-2:][0]

    @property
    def latest_offset(self) -> int:
        """The offset of the entry that made the set in force; -1 if no entry of the log did."""
        return self._offsets[-1]

    def at(self, end_offset: int) -> Voters:
        """The set in force after the entries below `end_offset`."""
        return self._sets[max(0, bisect_left(self._offsets, end_offset) - 1)]

    def append(self, offset: int, voters: Voters) -> None:
        """Add the set of the entry at `offset`."""
        self._offsets.append(offset)
        self._sets.append(voters)

    def cut(self, end_offset: int) -> None:
        """Forget the sets of the entries from `end_offset` on."""
        keep = max(1, bisect_left(self._offsets, end_offset))
        del self._offsets[keep:], self._sets[keep:]

    def start_at(self, offset: int) -> None:
        """Move the start of the log to `offset`: the set of the earlier entries becomes the base."""
        base = max(0, bisect_left(self._offsets, offset) - 1)
        self._offsets[: base + 1] = [-1]
        del self._sets[:base]

    def restart(self, base: Voters) -> None:
        """Restart the log with a snapshot that has this set."""
        self._offsets, self._sets = [-1], [base]
