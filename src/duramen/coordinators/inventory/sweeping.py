"""Deletes the rows of removed namespaces in all shards."""

from collections.abc import Callable

from duramen.base.errors import DuramenError
from duramen.coordinators.inventory.shard import DIRECTORY_SHARD
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.inventory.directory import NamespaceIsSwept
from duramen.inventory.machine import DropNamespace, SweepNamespace

__all__ = ["NamespaceSweeps"]


class NamespaceSweeps:
    """Sweeps one removed namespace at a time; calls `then` after each one."""

    def __init__(self, shards: InventoryShards, then: Callable[[], object]) -> None:
        self._shards = shards
        self._then = then
        self._sweeping = False

    def resume(self) -> None:
        """Sweep a removed namespace if there is one, and no sweep is in progress. Raises CoordinatorLoading …"""
        removed = next(iter(self._shards.directory().removed), None)
        if removed is None or self._sweeping:
            return
        self._sweeping = True
        self._sweep(removed, 0, DropNamespace(removed))

    def _sweep(self, namespace: int, shard: int, command: DropNamespace | SweepNamespace) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, DuramenError):
                self._sweeping = False  # the sweep is resumed later
            elif answer is None or answer is True:
                self._sweep(namespace, shard, SweepNamespace(namespace))
            elif shard + 1 < self._shards.count:
                self._sweep(namespace, shard + 1, DropNamespace(namespace))
            else:
                self._shards.submit(DIRECTORY_SHARD, NamespaceIsSwept(namespace), self._swept)

        self._shards.submit(shard, command, answered)

    def _swept(self, _: object) -> None:
        self._sweeping = False
        self._then()
