"""Invariants of a classic group: generations, their leaders, and the owner of each partition. Pure.

A generation of which a member learned an assignment is stored: no end of the process reverts it, and its partitions
keep their owners of that generation.
"""

from collections.abc import Iterable, Mapping

from duramen.sim.machine.trace import BrokenPromise

__all__ = ["GroupModel"]


class GroupModel:
    """One group, over all processes of a run. Raises BrokenPromise on an impossible response."""

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.told = 0  # the newest generation in a response of this process
        self.assigned = 0  # the newest generation with an assignment in a response
        self.lost = False  # whether damage has removed a part of its records
        self._leaders: dict[int, str] = {}
        self._given: dict[int, list[Mapping[str, bytes]]] = {}
        self._owners: dict[tuple[int, str], str] = {}
        self._disturbed = 0  # the newest generation in which something happened that makes the group rebalance
        self._members: dict[int, frozenset[str]] = {}
        self._unsynced: dict[int, set[str]] = {}  # members of a generation that do not know their partitions in it

    def _broken(self, words: str) -> BrokenPromise:
        return BrokenPromise(f"group {self.id}: {words}")

    def restarted(self, *, lost: bool) -> None:
        """A process begins: a generation without an assignment may never have existed. `lost` if its log is damaged."""
        self.lost = self.lost or lost
        self.told = self.assigned
        self._leaders = {at: leader for at, leader in self._leaders.items() if at <= self.assigned}

    def disturbed(self) -> None:
        """A member joins, leaves or is not heard of any more."""
        self._disturbed = self.told

    def is_settled(self, generation: int) -> bool:
        """Whether all members of a generation know their partitions in it, and it has not changed since."""
        return not self.lost and self._disturbed < generation and self._unsynced.get(generation) == set()

    def joined(self, generation: int, leader_id: str) -> None:
        """A member's response has this generation, led by that member."""
        if self.lost:
            return
        if generation < self.told:
            raise self._broken(f"generation {generation} follows {self.told}")
        if self._leaders.setdefault(generation, leader_id) != leader_id:
            raise self._broken(f"generation {generation} is led by {self._leaders[generation]} and by {leader_id}")
        self.told = generation

    def led(self, generation: int, member_ids: Iterable[str]) -> None:
        """The leader of a generation got its members."""
        members = frozenset(member_ids)
        if self._members.get(generation) != members:  # others where one of that number was lost with a process
            self._members[generation] = members
            self._unsynced[generation] = set(members)

    def gives(self, generation: int, assignments: Mapping[str, bytes]) -> None:
        """The leader of a generation asks for these assignments."""
        self._given.setdefault(generation, []).append(assignments)

    def synced(self, generation: int, member_id: str, assignment: bytes, partitions: Iterable[str]) -> None:
        """A member got its assignment, which has these partitions."""
        if self.lost:
            return
        if not any(given.get(member_id, b"") == assignment for given in self._given.get(generation, ())):
            raise self._broken(f"{member_id} has {assignment!r} in generation {generation}; its leader gave it another")
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                raise self._broken(f"{partition} is owned by {owner} and by {member_id} in generation {generation}")
        self.assigned = max(self.assigned, generation)
        self.told = max(self.told, generation)  # it was joined in a process before this one
        self._unsynced.get(generation, set()).discard(member_id)

    def accepted(self, what: str, generation: int, told: int) -> None:
        """A request of a member of that generation was accepted, sent when `told` was the newest one."""
        if not self.lost and generation < told:
            raise self._broken(f"{what} of generation {generation} is taken in generation {told}")
