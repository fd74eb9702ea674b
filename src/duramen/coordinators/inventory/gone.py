"""Finds topics that can never exist again, so that their records may be deleted.

A deleted topic never returns. A topic of a dropped namespace is gone once its shard has dropped the namespace, because
from then on the topic cannot move to another one. So the shard's decision counts, not the namespace that is stored with
the records: after a move the records get the new namespace later.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import TypeAlias
from uuid import UUID

from duramen.base.errors import DuramenError, TopicNotFound
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.inventory.ids import TopicKey, topic_key

__all__ = ["GoneTopics"]

_Done: TypeAlias = Callable[[Collection[UUID] | DuramenError], None]
_Namespaces: TypeAlias = dict[UUID, int]
"""Namespaces of topics, 0: deleted, by their lasting ids."""


class GoneTopics:
    """Looks up topics by their lasting ids."""

    def __init__(self, shards: InventoryShards) -> None:
        self._shards = shards

    def find(self, ids: Collection[UUID], done: _Done) -> None:
        """`done` gets those of these topics that are gone. An id that is unknown here is not: it may be new."""

        def found(dropped: _Namespaces | DuramenError) -> None:
            if isinstance(dropped, DuramenError):
                done(dropped)
            elif dropped:
                self._shards.read(partial(self._namespaces, dropped), partial(looked_again, dropped))
            else:
                done(())

        def looked_again(dropped: _Namespaces, now: _Namespaces | DuramenError) -> None:
            if isinstance(now, DuramenError):
                done(now)
            else:
                done({id_ for id_, namespace in now.items() if namespace == dropped[id_]})

        self._shards.read(partial(self._dropped, ids), found)

    def _dropped(self, ids: Collection[UUID]) -> _Namespaces:
        """A query: topics that are deleted, or in a namespace that their shard has dropped.

        A topic may have left the namespace before that, after its own row was read: only a second look tells.
        """
        rows = self._shards.rows()
        return {
            id_: namespace for id_, namespace in self._namespaces(ids).items()
            if not namespace or rows.is_dropped(self._key(id_).shard, namespace)
        }  # fmt: skip

    def _namespaces(self, ids: Collection[UUID]) -> _Namespaces:
        rows, found = self._shards.rows(), _Namespaces()
        for id_ in ids:
            try:
                found[id_] = rows.place(self._key(id_)).namespace
            except TopicNotFound:
                continue
        return found

    def _key(self, id_: UUID) -> TopicKey:
        return topic_key(self._shards.inventory_id, id_, self._shards.count)
