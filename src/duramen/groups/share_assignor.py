"""The assignor `simple` of share groups: every partition has at least one member, spread evenly. Pure."""

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

__all__ = ["Place", "assign"]

Place = tuple[UUID, int]
"""A partition: topic id and number."""


def assign(
    members: Mapping[str, Collection[UUID]], partitions: Mapping[UUID, int], current: Mapping[str, frozenset[Place]]
) -> dict[str, frozenset[Place]]:
    """The partitions of each member, by its subscription; it keeps its present ones if the result is even.

    Topics with the same subscribers are assigned together: with fewer members than partitions a partition has one
    member, with more of them as many as it takes for every member to have one.
    """
    wanted_by: dict[frozenset[str], list[UUID]] = {}
    for topic in sorted(partitions):
        wanting = frozenset(member for member, topics in members.items() if topic in topics)
        if wanting:
            wanted_by.setdefault(wanting, []).append(topic)
    assigned: dict[str, set[Place]] = {member: set() for member in members}
    for wanting, topics in wanted_by.items():
        places = [(topic, index) for topic in topics for index in range(partitions[topic])]
        for member, got in _deal(sorted(wanting), places, current).items():
            assigned[member] |= got
    return {member: frozenset(got) for member, got in assigned.items()}


def _deal(members: list[str], places: list[Place], current: Mapping[str, frozenset[Place]]) -> dict[str, set[Place]]:
    got: dict[str, set[Place]] = {member: set() for member in members}
    if not places:
        return got
    sharing = -(-len(members) // len(places))
    quota = -(-len(places) * sharing // len(members))
    has: dict[Place, set[str]] = {place: set() for place in places}
    for member in members:
        for place in sorted(current.get(member, frozenset()) & has.keys()):
            if len(got[member]) < quota and len(has[place]) < sharing:
                _give(got, has, member, place)
    for place in places:
        while len(has[place]) < sharing:
            others = [member for member in members if member not in has[place]]
            _give(got, has, min(others, key=lambda member: (len(got[member]), member)), place)
    _even_out(got, has, members)
    return got


def _give(got: dict[str, set[Place]], has: dict[Place, set[str]], member: str, place: Place) -> None:
    got[member].add(place)
    has[place].add(member)


def _even_out(got: dict[str, set[Place]], has: dict[Place, set[str]], members: Iterable[str]) -> None:
    """Move partitions from the member with most to the one with least, until no two differ by two or more."""
    order = list(members)
    while True:
        least = min(order, key=lambda member: (len(got[member]), member))
        most = max(order, key=lambda member: (len(got[member]), member))
        free = sorted(got[most] - got[least])
        if len(got[most]) - len(got[least]) < 2 or not free:
            return
        got[most].remove(free[0])
        has[free[0]].remove(most)
        _give(got, has, least, free[0])
