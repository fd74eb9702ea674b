"""Partition assignment in a consumer group: Kafka's `range` and `roundrobin`, as in every client. Pure.

https://kafka.apache.org/documentation/#consumerconfigs_partition.assignment.strategy
"""

from collections.abc import Callable, Collection, Mapping
from itertools import cycle
from types import MappingProxyType
from typing import Final

from duramen.client.cluster import TopicPartition

__all__ = ["ASSIGNORS", "Assignor"]

Assignor = Callable[[Mapping[str, Collection[str]], Mapping[str, int]], dict[str, list[TopicPartition]]]
"""From each member's topics and each topic's count of partitions to each member's partitions."""


def _range(wanted: Mapping[str, Collection[str]], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Adjacent partitions of each topic for each member; the first members get the remainder, one more each."""
    given: dict[str, list[TopicPartition]] = {member: [] for member in wanted}
    for topic, count in sorted(counts.items()):
        members = sorted(member for member, topics in wanted.items() if topic in topics)
        first = 0
        for place, member in enumerate(members):
            size = count // len(members) + (place < count % len(members))
            given[member] += [TopicPartition(topic, index) for index in range(first, first + size)]
            first += size
    return given


def _round_robin(wanted: Mapping[str, Collection[str]], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Partitions in turn to the members that subscribe to their topic."""
    given: dict[str, list[TopicPartition]] = {member: [] for member in wanted}
    members = cycle(sorted(wanted))
    for topic, count in sorted(counts.items()):
        if not any(topic in topics for topics in wanted.values()):
            continue
        for index in range(count):
            member = next(member for member in members if topic in wanted[member])
            given[member].append(TopicPartition(topic, index))
    return given


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"range": _range, "roundrobin": _round_robin})
"""By the names that go over the wire, the preferred first."""
