"""Clients that commit offsets of a group on their own, and read the stored offsets of all groups."""

from typing import Any

from duramen.base.errors import ConcurrentTransactions, DuramenError
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.cluster.clients.coordinators import CoordinatedClient
from duramen.sim.cluster.clients.transactors import NOBODY, READ_TOPIC
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["Committer"]


class Committer(CoordinatedClient):
    """A group with this client as its only committer."""

    def __init__(self, calls: ClientCalls, seed: str, think_us: int, group_id: str) -> None:
        super().__init__(calls, seed, think_us)
        self._key = OffsetKey(group_id, READ_TOPIC, 0)

    def step(self) -> None:
        if self.chance.random() < 0.5:
            self.of_group(self._key.group, self._commit)
        else:
            key = self.chance.choice(self.calls.bookmarks.keys() or [self._key])
            self.of_group(key.group, lambda place, node_id: self._look(place, node_id, key))

    def _commit(self, place: PartitionId, node_id: int) -> None:
        bookmark = self.calls.bookmarks.of(self._key)
        offset = bookmark.sent()
        committed = [(self._key, CommittedOffset(offset, -1, "", self.calls.true.wall_ms()))]

        def ask(broker: Broker, reply: Reply) -> None:
            def done(results: list[DuramenError | None] | DuramenError) -> None:
                reply(results if isinstance(results, DuramenError) else results[0])

            broker.groups.commit(self._key.group, NOBODY, committed, done)

        def answered(value: Any) -> None:
            if self._went_well(place, f"a commit of {offset}", value):
                self.calls.trace("%s commits %d", self._key.group, offset)
                bookmark.acknowledged(offset)
            self.next()

        self.calls.ask(node_id, ask, answered)

    def _went_well(self, place: PartitionId, what: str, value: Any) -> bool:
        if isinstance(value, DuramenError):
            self.calls.trace("%s of %s: %s: %s", what, self._key.group, type(value).__name__, value)
            if not self.refused(place, value):
                raise BrokenPromise(f"{what} of {self._key.group} is refused with {type(value).__name__}: {value}")
            return False
        return True

    def _look(self, place: PartitionId, node_id: int, key: OffsetKey) -> None:
        def ask(broker: Broker, reply: Reply) -> None:
            broker.groups.check_fetch(key.group, None, -1)
            if broker.groups.unstable(key):
                raise ConcurrentTransactions("a transaction has an offset there (KIP-447)")
            stored = broker.groups.committed(key)
            offset = -1 if stored is None else stored.offset
            self.calls.bookmarks.of(key).read(offset, newest=self.leads(node_id, place, partition_at(broker, place)))
            reply(offset)

        def answered(value: Any) -> None:
            self._went_well(place, f"a look at {key.group}", value)
            self.next()

        self.calls.ask(node_id, ask, answered)
