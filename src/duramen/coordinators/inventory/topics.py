"""Values that queries of the inventory return: topics, pages of topics, bound namespaces."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from duramen.inventory.ids import durability_of_id
from duramen.inventory.names import TopicPath
from duramen.inventory.search import PageToken

__all__ = ["BoundNamespace", "FoundTopic", "TopicPage"]


class FoundTopic(NamedTuple):
    """A name in use: its path, the topic's lasting id, and whether it is an alias.

    `namespace` is that of the topic, which differs from the alias's own.
    """

    path: TopicPath
    id: UUID
    alias: bool
    namespace: int

    @property
    def durability(self) -> str:
        """The durability of the topic's records, chosen at its creation."""
        return durability_of_id(self.id)


class BoundNamespace(NamedTuple):
    """A namespace that is bound to NATS subjects."""

    tenant: str
    name: str
    subjects: tuple[str, ...]


class TopicPage(NamedTuple):
    """Topics ordered by name, and the token of the next page; None: this is the last page."""

    topics: Sequence[FoundTopic]
    token: PageToken | None
