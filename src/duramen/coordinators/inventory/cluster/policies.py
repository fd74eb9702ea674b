"""Policies on a cluster: a change is effective once every node has confirmed that it applied the change."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from duramen.base.errors import DuramenError
from duramen.base.ports import Clock
from duramen.coordinators.inventory.cluster.requests import FOLLOW_INVENTORY, Followed, FollowInventory
from duramen.coordinators.inventory.cluster.shards import RoutedShards
from duramen.coordinators.inventory.policies import InventoryPolicies, not_effective
from duramen.coordinators.inventory.quotas import InventoryQuotas
from duramen.coordinators.inventory.shards import Done
from duramen.inventory.directory import Directory

__all__ = ["ClusterPolicies"]

_AGAIN_MS = 200


class ClusterPolicies(InventoryPolicies):
    """`nodes` are all registered nodes: a node that is cut off may still serve clients."""

    def __init__(
        self, shards: RoutedShards, clock: Clock, quotas: InventoryQuotas,
        ensure: Callable[[str, Done], None],
        node_id: int, nodes: Callable[[], Iterable[int]], bind: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        """`bind` calls its argument once this node follows the present subject bindings."""
        super().__init__(shards, clock, quotas, ensure, node_id)
        self._routed = shards
        self._nodes = nodes
        self._bind = bind

    def follow(self, request: FollowInventory, done: Done) -> None:
        """Apply the inventory up to the requested offset on this node; `done` gets None, or an error."""
        self._routed.saw(request.shard, request.epoch, request.offset)

        def found(directory: Directory | DuramenError) -> None:
            if isinstance(directory, DuramenError):
                done(directory)
            else:
                self._quotas.refresh(refreshed)

        def refreshed(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._bind(lambda: done(None))

        self._shards.read(self._shards.directory, found)

    def when_effective(self, shard: int, place: tuple[int, int], wait_ms: int, done: Done) -> None:
        """See `InventoryPolicies`."""
        _Confirmations(self, self._routed, self._clock, FollowInventory(shard, *place), wait_ms, done).ask(
            sorted({self._node_id, *self._nodes()})
        )


class _Confirmations:
    """The confirmations of nodes; nodes that do not respond are asked again until the deadline."""

    def __init__(
        self, policies: ClusterPolicies, shards: RoutedShards, clock: Clock, request: FollowInventory, wait_ms: int,
        done: Done,
    ) -> None:  # fmt: skip
        self._policies = policies
        self._shards = shards
        self._clock = clock
        self._request = request
        self._until_ms = clock.monotonic_ms() + wait_ms
        self._left = set[int]()
        self._nodes = list[int]()
        self._done: Done | None = done

    def ask(self, nodes: list[int]) -> None:
        """Ask these nodes."""
        self._nodes, self._left = nodes, set(nodes)
        self._shards.later(max(0, self._until_ms - self._clock.monotonic_ms()), self._late)
        for node in nodes:
            self._ask(node)

    def _ask(self, node: int) -> None:
        if self._done is None:
            return
        answered = partial(self._answered, node)
        if node == self._shards.caller.node_id:
            self._policies.follow(self._request, answered)
        else:
            left_ms = max(1, self._until_ms - self._clock.monotonic_ms())
            self._shards.caller.call(node, FOLLOW_INVENTORY, self._request, answered, left_ms)

    def _answered(self, node: int, answer: Any) -> None:
        if self._done is None:
            return
        if answer is None or isinstance(answer, Followed):
            self._left.discard(node)
            if not self._left:
                self._end(self._nodes)
        else:
            self._shards.later(_AGAIN_MS, partial(self._ask, node))

    def _late(self) -> None:
        if self._left:
            self._end(not_effective(sorted(self._left)))

    def _end(self, outcome: object) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)
