"""Topics as groups see them: names, ids, numbers of partitions. Values only; used by groups of every kind."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

__all__ = ["GroupTopic", "TopicCatalogue", "TopicPartition", "hash_of"]

TopicPartition = tuple[UUID, int]
"""A partition by its topic's id: a recreated topic of the same name is another one."""


class GroupTopic(NamedTuple):
    """A topic that exists."""

    name: str
    id: UUID
    partitions: int


class TopicCatalogue(Protocol):
    """The topics that exist now."""

    def find(self, name: str) -> GroupTopic | None:
        """The topic of that name."""

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of the topic with that id."""

    def names(self, pattern: str) -> Iterable[str]:
        """Every name that the pattern may match, and others."""


def hash_of(topics: Iterable[GroupTopic]) -> int:
    """A number of 64 bits with a sign that differs where topics do: which they are, their ids, their partitions."""
    text = "".join(f"{topic.name}\0{topic.id}\0{topic.partitions}\0" for topic in sorted(topics))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
