"""Clients that commit offsets of groups, and read committed offsets."""

from functools import partial
from typing import Final

from duramen.base.errors import DuramenError
from duramen.coordinators.group.coordinator import CommitMember
from duramen.groups.records import OffsetKey
from duramen.sim.checkers.checker import CommittedModel
from duramen.sim.clients.members import MEMBERS_GROUP
from duramen.sim.clients.shared import Clients

__all__ = ["Committers"]

_GROUPS: Final = ("g", "h")
_LOOKED_AT: Final = (*_GROUPS, MEMBERS_GROUP)
_NOBODY: Final = CommitMember("", None, -1)


class Committers:
    """Consumers that manage their partitions themselves."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def commit(self) -> None:
        """An offset that no other commit has."""
        clients = self._clients
        history, _ = clients.any()
        if history is None:
            return
        key = OffsetKey(clients.chance.choice(_GROUPS), history.name, history.partition)
        offset = clients.number()
        model = clients.checker.commits(key)
        model.ask(offset)
        clients.trace("group %s commits %d of %s", key.group, offset, history)
        clients.access.commit(key, offset, _NOBODY, clients.answer(partial(self._committed, model, offset)))

    def _committed(self, model: CommittedModel, offset: int, error: DuramenError | None) -> None:
        if error is None:
            self._clients.trace("commit of %d is stored", offset)
            model.acknowledged(offset)
        else:
            model.failed(offset)
            self._clients.may_fail("a commit", error)

    def look(self) -> None:
        """At every offset that was committed, and of which no commit is under way."""
        for key, model in list(self._clients.checker.committed.items()):
            if not model.asked and key.group in _LOOKED_AT:
                looked = partial(self._looked, key, model, model.asks)
                self._clients.access.committed(key, self._clients.answer(looked))

    def _looked(self, key: OffsetKey, model: CommittedModel, asks: int, offset: int | None) -> None:
        if model.asks == asks and self._clients.checker.committed.get(key) is model:
            self._clients.checker.check_committed(key, offset)
