"""The known transactions of the partitions being read: fetched once and cached while valid."""

import logging
from collections.abc import Collection, Mapping
from typing import Final

from duramen.base.errors import StreamNotFound, UnsupportedFeature
from duramen.client import BrokerCluster, TopicPartition
from duramen.client.transaction_states import MarkedUpTo, find_marked

__all__ = ["Marks"]

_log: Final = logging.getLogger("duramen.spark")

_NOTHING: Final = MarkedUpTo(0, [], [])
_BEHIND_ALL: Final = 1 << 62

Places = Mapping[TopicPartition, int]


class Marks:
    """The markers from the start of each partition's read. Lives on the driver as long as a query."""

    def __init__(self, *, wanted: bool, alone: bool = False) -> None:
        """`wanted`: only committed records are read; `alone`: each partition by itself."""
        self._wanted = wanted
        self._foreign: bool | None = True if alone else None
        self._known: dict[tuple[TopicPartition, str], tuple[int, MarkedUpTo]] = {}  # from an offset on

    def __reduce__(self) -> tuple[object, ...]:
        # Executors get the relevant markers with their tasks.
        return _empty, (self._wanted,)

    def left_to_brokers(self, cluster: BrokerCluster, ats: Collection[TopicPartition]) -> bool:
        """Whether brokers must filter committed records: brokers that do not report the ends of transactions."""
        if self._wanted and self._foreign is None and ats:
            self._find(cluster, {min(ats): _BEHIND_ALL})
        return self._wanted and bool(self._foreign)

    def look(
        self, cluster: BrokerCluster, begin: Places, ids: Mapping[str, str], end: Places | None = None
    ) -> dict[TopicPartition, MarkedUpTo] | None:
        """The transactions from `begin` on, and forget those before; None if they are not used.

        With `end`, in their state at the first request up to `end`, else in the present one. `ids` are those of the
        streams. Raises connection errors.
        """
        if not self._wanted or self._foreign:
            return None
        keys = {at: (at, ids.get(at.topic, "")) for at in begin}
        known = {}
        for at, key in keys.items():
            first, found = self._known.get(key, (_BEHIND_ALL, _NOTHING))
            if first <= begin[at] <= max(first, found.high_watermark):
                known[key] = first, found
        wanted = {
            at: known[key][1].high_watermark if key in known else begin[at]
            for at, key in keys.items()
            if key not in known or end is None or end[at] > known[key][1].high_watermark
        }
        fresh = self._find(cluster, wanted)
        if fresh is None:
            return None
        for at, found in fresh.items():
            first, before = known.get(keys[at], (begin[at], _NOTHING))
            known[keys[at]] = first, found._replace(ended=before.ended + found.ended)
        self._known = {keys[at]: (begin[at], _from(begin[at], known[keys[at]][1])) for at in begin}
        return {at: self._known[key][1] for at, key in keys.items()}

    def _find(self, cluster: BrokerCluster, wanted: Places) -> dict[TopicPartition, MarkedUpTo] | None:
        try:
            try:
                found = find_marked(cluster, wanted)
            except StreamNotFound:
                # The reader reports lost records.
                topics = cluster.topics({at.topic for at in wanted})
                there = {TopicPartition(name, index) for name, topic in topics.items() for index in topic.leaders}
                found = find_marked(cluster, {at: offset for at, offset in wanted.items() if at in there})
                found = dict.fromkeys(wanted, _NOTHING) | found
        except UnsupportedFeature as error:
            self._foreign = True
            _log.warning("%s: committed records are read up to the first open transaction, as with Kafka", error)
            return None
        self._foreign = False if wanted else self._foreign
        return found


def _empty(wanted: bool) -> Marks:
    return Marks(wanted=wanted)


def _from(offset: int, marked: MarkedUpTo) -> MarkedUpTo:
    """Without the markers before an offset that the query has passed."""
    if not marked.ended or marked.ended[0].offset >= offset:
        return marked
    return marked._replace(ended=[one for one in marked.ended if one.offset >= offset])
