"""Server-side assignors for groups of every kind: they assign partitions to members. Pure.

Both give every subscribed partition to exactly one subscriber. `uniform` (KIP-848) balances and keeps as many
assignments as possible; `range` gives each member a run of every topic's partitions.
"""

import heapq
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from duramen.groups.topics import TopicPartition

__all__ = ["ASSIGNORS", "Assignor", "Subscriber", "assign_range", "assign_uniform"]


class Subscriber(NamedTuple):
    """A member as an assignor sees it; `owned` is its last assignment."""

    instance_id: str | None
    topics: frozenset[UUID]
    owned: frozenset[TopicPartition]


Assignor = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], dict[str, frozenset[TopicPartition]]]
"""From members by id and partitions by topic to the partitions of each member."""


def assign_range(
    members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]
) -> dict[str, frozenset[TopicPartition]]:
    """Runs of each topic's partitions, the first members getting one more where it does not come out even.

    Static members stand first, by their instance ids: one that comes back under another member id gets the same.
    """
    ordered = sorted(members, key=lambda one: (members[one].instance_id is None, members[one].instance_id or one, one))
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic, subscribers in _subscribers(members, ordered, partitions).items():
        share, more = divmod(partitions[topic], len(subscribers))
        first = 0
        for at, member in enumerate(subscribers):
            end = first + share + (at < more)
            assigned[member] += [(topic, index) for index in range(first, end)]
            first = end
    return {member: frozenset(places) for member, places in assigned.items()}


def _subscribers(
    members: Mapping[str, Subscriber], ordered: list[str], partitions: Mapping[UUID, int]
) -> dict[UUID, list[str]]:
    """The subscribers of each existing topic, in the order given; topics by their ids."""
    found: dict[UUID, list[str]] = {}
    for member in ordered:
        for topic in members[member].topics:
            if topic in partitions:
                found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))


def assign_uniform(
    members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]
) -> dict[str, frozenset[TopicPartition]]:
    """Balanced and sticky: members keep their partitions unless that leaves the assignment unbalanced.

    Balanced means: no partition can go from a member to a subscriber of its topic that has at least two fewer.
    """
    return _Uniform(members, partitions).assign()


class _Uniform:
    def __init__(self, members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]) -> None:
        self._members = members
        self._partitions = partitions
        self._subscribers = _subscribers(members, sorted(members), partitions)
        self._load = dict.fromkeys(members, 0)
        self._held: dict[str, dict[UUID, list[int]]] = {member: {} for member in members}

    def assign(self) -> dict[str, frozenset[TopicPartition]]:
        left = self._keep()
        # Topics with few subscribers come first, before these are full of partitions that others could take.
        for topic in sorted(left, key=lambda one: (len(self._subscribers[one]), one)):
            self._hand_out(topic, left[topic])
        while any(self._balance(topic) for topic in self._subscribers):
            pass
        return {
            member: frozenset((topic, index) for topic, held in topics.items() for index in held)
            for member, topics in self._held.items()
        }

    def _give(self, member: str, topic: UUID, index: int) -> None:
        self._held[member].setdefault(topic, []).append(index)
        self._load[member] += 1

    def _keep(self) -> dict[UUID, list[int]]:
        """Leave members the partitions that they had and may keep; returns the remaining partitions, by topic."""
        left = {topic: set(range(self._partitions[topic])) for topic in self._subscribers}
        for member in sorted(self._members):
            subscriber = self._members[member]
            for topic, index in sorted(subscriber.owned):
                if topic in subscriber.topics and topic in left and index in left[topic]:
                    left[topic].discard(index)
                    self._give(member, topic, index)
        return {topic: sorted(indexes) for topic, indexes in left.items()}

    def _hand_out(self, topic: UUID, indexes: list[int]) -> None:
        """Give those with the least as many as evens them out, each a run of the partitions."""
        heap = [(self._load[member], member) for member in self._subscribers[topic]]
        heapq.heapify(heap)
        shares = dict.fromkeys(self._subscribers[topic], 0)
        for _ in indexes:
            load, member = heap[0]
            shares[member] += 1
            heapq.heapreplace(heap, (load + 1, member))
        left = iter(indexes)
        for member, share in shares.items():
            for index in islice(left, share):
                self._give(member, topic, index)

    def _balance(self, topic: UUID) -> bool:
        """Move partitions of one topic as far as that balances its subscribers; whether any was moved."""
        subscribers = self._subscribers[topic]
        poor = [(self._load[member], member) for member in subscribers]
        # Of the members with equally many the first keep it.
        place = {member: -at for at, member in enumerate(subscribers)}
        rich = [(-self._load[member], place[member]) for member in subscribers if self._held[member].get(topic)]
        heapq.heapify(poor)
        heapq.heapify(rich)
        moved = False
        while rich:
            from_load, at = rich[0]
            giver = subscribers[-at]
            if -from_load != self._load[giver]:
                heapq.heapreplace(rich, (-self._load[giver], at))
                continue
            to_load, taker = poor[0]
            if to_load != self._load[taker]:
                heapq.heapreplace(poor, (self._load[taker], taker))
                continue
            if self._load[giver] < self._load[taker] + 2:
                break
            held = self._held[giver][topic]
            self._load[giver] -= 1
            self._give(taker, topic, held.pop())
            moved = True
            if held:
                heapq.heapreplace(rich, (-self._load[giver], at))
            else:
                heapq.heappop(rich)
            heapq.heapreplace(poor, (self._load[taker], taker))
            heapq.heappush(poor, (self._load[giver], giver))
        return moved


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"uniform": assign_uniform, "range": assign_range})
"""By Kafka's names; the first is the default."""
