"""The stored bytes of topics of the inventory, by namespace, tenant and account, as the shards of queues count them.

Shards that this node leads are read with each query. Those of other nodes are asked about once a second while
quotas of bytes are in use.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from duramen.base.catalogue.inventory import NAMESPACE, TENANT
from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams, Stream
from duramen.coordinators.inventory.shard import queue_spaces
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.coordinators.queue.shard import QueueShard
from duramen.coordinators.runtime.runtime import Runtime
from duramen.inventory.directory import Directory
from duramen.inventory.policies import PolicyScope
from duramen.queues.usage import OwnerTotals, UsagePage

__all__ = ["AskUsage", "InventoryUsage"]

_POLL_MS: Final = 1_000
_POLLED_FOR_MS: Final = 10_000
"""The period after a query during which the usage of shards of other nodes is requested."""

AskUsage = Callable[[Stream, int, UsagePage, Callable[[UsagePage | DuramenError], None]], None]
"""Asks the leader of a shard for the changes since a page of it."""


class InventoryUsage:
    """Stored bytes, by quota entity."""

    def __init__(
        self, streams: BrokerStreams, runtime: Runtime, shards: InventoryShards, now_ms: Callable[[], int]
    ) -> None:
        self._streams = streams
        self._runtime = runtime
        self._shards = shards
        self._now_ms = now_ms
        self._totals = OwnerTotals(self._changed)
        self._scopes: dict[PolicyScope, int] = {}
        self._of: tuple[Directory, int] | None = None
        self._ask: AskUsage | None = None
        self._until_ms = 0
        self._polls = False

    def ask_by(self, ask: AskUsage) -> None:
        """Requests the usage of shards with other leaders."""
        self._ask = ask

    def add(self, namespace: int, more: int) -> None:
        """So many bytes of a namespace are on their way; less than 0: they have come."""
        self._totals.add(namespace, more)

    def bytes(self, scope: PolicyScope) -> int:
        """The bytes of topics of an account, a tenant or a namespace, as far as this node knows."""
        self._look_here()
        if self._ask is not None:
            self._until_ms = self._now_ms() + _POLLED_FOR_MS
            if not self._polls:
                self._poll()
        directory = self._shards.known_directory()
        if directory is None or scope.level == NAMESPACE:
            return self._totals.bytes(scope.id)
        version = directory, directory.version
        if version != self._of:
            self._of = version
            self._scopes.clear()
        found = self._scopes.get(scope)
        if found is None:
            found = self._scopes[scope] = self._sum(directory, scope)
        return found

    def _sum(self, directory: Directory, scope: PolicyScope) -> int:
        tenants = [scope.id] if scope.level == TENANT else [one.id for one in directory.tenants(scope.account)]
        return sum(self._totals.bytes(one.id) for tenant in tenants for one in directory.namespaces(tenant))

    def _changed(self, namespace: int, more: int) -> None:
        """Update the sums."""
        if self._scopes and self._of is not None:
            for scope, _ in self._of[0].policies_of(namespace):
                if scope in self._scopes:
                    self._scopes[scope] += more

    def _look_here(self) -> None:
        for space, partition in self._shards_of_records():
            shard: QueueShard | None = self._runtime.loaded(space.name, partition.index)
            if shard is not None and partition.leads:
                self._take_here(partition, shard, self._runtime.rows(space.name, partition.index))

    def _shards_of_records(self) -> list[tuple[Stream, Partition]]:
        spaces = queue_spaces(self._streams).values()
        return [(space, partition) for space in spaces for partition in space.partitions]

    def _take_here(self, partition: Partition, shard: QueueShard, rows: StateRows) -> None:
        place, more = partition.place, True
        while more:
            known = self._totals.known(place)
            page = shard.usage.since(rows, partition.leader_epoch, known.life, known.version)
            more = page.more
            if page.bytes or page.life != known.life:
                self._totals.take(place, page)

    # -- shards of other nodes ----------------------------------------------------------------------

    def refresh(self, done: Callable[[], None]) -> None:
        """Fetch the usage of shards of other nodes; those that do not respond keep their last one."""
        ask = self._ask
        if ask is None:
            done()
            return
        others = [(space, partition) for space, partition in self._shards_of_records() if not partition.leads]
        parts = Countdown(done, len(others) + 1)

        def answered(space: Stream, partition: Partition, page: UsagePage | DuramenError) -> None:
            if isinstance(page, UsagePage) and not partition.leads:
                self._totals.take(partition.place, page)
                if page.more:
                    ask(space, partition.index, page, partial(answered, space, partition))
                    return
            parts.count_down()

        for space, partition in others:
            known = self._totals.known(partition.place)
            ask(space, partition.index, known, partial(answered, space, partition))
        parts.count_down()

    def _poll(self) -> None:
        self._polls = self._now_ms() < self._until_ms
        if self._polls:
            self.refresh(lambda: self._shards.later(_POLL_MS, self._poll))
