"""Finds the namespaces of topics by their ids, and topics that can never exist again: their records may be deleted.

A deleted topic never returns. A topic of a dropped namespace is gone once its shard has dropped the namespace, because
from then on the topic cannot move to another one. So the shard's decision counts, not the namespace that is stored with
the records: after a move the records get the new namespace later.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from duramen.base.errors import DuramenError, TopicNotFound
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.inventory.ids import TopicKey, topic_key

__all__ = ["GONE", "GoneTopics"]

GONE: Final = 0
"""In place of the namespace of a topic."""

_Namespaces: TypeAlias = Mapping[UUID, int]
_Done: TypeAlias = Callable[[_Namespaces | DuramenError], None]


class GoneTopics:
    """Looks up topics by their lasting ids."""

    def __init__(self, shards: InventoryShards) -> None:
        self._shards = shards

    def is_lasting(self, id_: UUID) -> bool:
        """Whether an id is the lasting id of a topic of this inventory, which may be gone."""
        if not self._shards.ready:
            return False
        try:
            self._key(id_)
        except TopicNotFound:
            return False
        return True

    def find_gone(self, ids: Collection[UUID], done: Callable[[frozenset[UUID]], None]) -> None:
        """`done` gets the topics among these that can never exist again; none if that is unknown at present."""

        def found(namespaces: _Namespaces | DuramenError) -> None:
            known = {} if isinstance(namespaces, DuramenError) else namespaces
            done(frozenset(id_ for id_, namespace in known.items() if namespace == GONE))

        self.find(ids, found)

    def find(self, ids: Collection[UUID], done: _Done) -> None:
        """`done` gets the namespaces of topics, or GONE. An unknown id is left out: the topic may be new."""

        def found(answer: tuple[_Namespaces, Collection[UUID]] | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
                return
            known, dropped = answer
            if dropped:
                self._shards.read(partial(self._namespaces, dropped), partial(looked_again, known))
            else:
                done(known)

        def looked_again(known: _Namespaces, now: _Namespaces | DuramenError) -> None:
            if isinstance(now, DuramenError):
                done(now)
            else:
                gone = {id_: GONE if namespace == known[id_] else namespace for id_, namespace in now.items()}
                done({**known, **gone})

        self._shards.read(partial(self._look, ids), found)

    def _look(self, ids: Collection[UUID]) -> tuple[_Namespaces, Collection[UUID]]:
        """A query: the namespaces of topics, and those topics whose shards have dropped their namespaces.

        Such a topic may have left the namespace before that, after its own row was read: only a second look tells.
        """
        rows, found = self._shards.rows(), self._namespaces(ids)
        dropped = [
            id_ for id_, namespace in found.items()
            if namespace and rows.is_dropped(self._key(id_).shard, namespace)
        ]  # fmt: skip
        return found, dropped

    def _namespaces(self, ids: Collection[UUID]) -> _Namespaces:
        rows, found = self._shards.rows(), dict[UUID, int]()
        for id_ in ids:
            try:
                found[id_] = rows.namespace(self._key(id_))
            except TopicNotFound:
                continue
        return found

    def _key(self, id_: UUID) -> TopicKey:
        return topic_key(self._shards.inventory_id, id_, self._shards.count)
