"""The scan of names for a page of topics."""

from typing import Final
from uuid import UUID

from duramen.coordinators.inventory.topics import FoundTopic
from duramen.inventory.ids import topic_id
from duramen.inventory.names import TopicPath
from duramen.inventory.reading import InventoryRows
from duramen.inventory.search import DANGLING, TopicQuery, after

__all__ = ["PageScan"]

_SCANNED: Final = 2_000
_NAMESPACE_COST: Final = 20  # the start of a namespace costs as much as this many names
_POLICY_COST: Final = 3  # so do a topic's own policies


class PageScan:
    """The scan of names for one page."""

    def __init__(self, rows: InventoryRows, inventory_id: UUID | None, query: TopicQuery, limit: int) -> None:
        self._rows = rows
        self._topic = rows.dangling if query.kind == DANGLING else rows.counted
        self._inventory_id = inventory_id
        self._first, self._end = query.bounds()
        self._matches = query.matcher()
        self._query = query
        self._cost = 1 + _POLICY_COST * bool(query.policy)
        self._limit = limit
        self._left = _SCANNED
        self.found = list[FoundTopic]()

    def take(self, tenant: str, namespace: str, number: int, behind: str) -> str | None:
        """Scan a namespace after a name; returns the last scanned name if the page ends in this namespace."""
        first = max(self._first, after(behind.encode()) if behind else b"")
        if self.is_over(_NAMESPACE_COST):
            return behind
        if self._end is not None and first >= self._end:
            return None
        for name, value, shard in self._rows.names(number, first, self._end):
            text = name.decode()
            matches = self._matches is None or self._matches(text)
            if matches:
                topic = self._topic(number, name, value, shard)
                if topic is not None and self._query.takes(topic.key, self._rows.policies, alias=topic.alias):
                    lasting_id = topic_id(self._inventory_id, topic.key)  # type: ignore[arg-type]
                    own = self._rows.namespace_of(topic.key) if topic.alias else number
                    self.found.append(FoundTopic(TopicPath(tenant, namespace, text), lasting_id, topic.alias, own))
            if self.is_over(self._cost if matches else 1) or len(self.found) == self._limit:
                return text
        return None

    def is_over(self, cost: int) -> bool:
        """Spend a part of what a page may cost; whether that was the rest."""
        self._left -= cost
        return self._left <= 0
