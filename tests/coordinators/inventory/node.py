"""A node with an inventory, by hand."""

from collections.abc import Callable
from typing import Any

from duramen.coordinators.inventory.inventory import Inventory
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.coordinators.inventory.shard import inventory_kind
from duramen.inventory.names import TopicPath
from duramen.sim.broker import CallbackResult, ManualBroker

__all__ = ["ACCOUNT", "InventoryNode", "at"]

ACCOUNT = "default"


def at(path: str) -> TopicPath:
    tenant, namespace, topic = path.split("/", 2)
    return TopicPath(tenant, namespace, topic)


class InventoryNode:
    """A node with an inventory of so many shards, in which are the tenants acme and bolt with dev and prod each."""

    def __init__(self, seed: int = 0, shards: int = 3, checkpoint_records: int = 10) -> None:
        self.hand = ManualBroker({"inventory.shards": shards}, seed=seed, kinds=(inventory_kind(checkpoint_records),))
        self.do(self.inventory.create_tenants, ACCOUNT, ["acme", "bolt"], {})
        for tenant in ("acme", "bolt"):
            self.do(self.inventory.create_namespaces, ACCOUNT, tenant, ["dev", "prod"], {})

    @property
    def inventory(self) -> Inventory:
        return self.hand.broker.inventory

    def do(self, ask: Callable[..., object], *what: Any, **more: Any) -> Any:
        answer: CallbackResult[Any] = CallbackResult()
        ask(*what, answer, **more)
        self.hand.settle()
        return answer.value

    def namespace(self, path: str) -> Any:
        return self.inventory.namespace(ACCOUNT, *path.split("/"))

    def create(self, namespace: str, *names: str) -> CreatedNames:
        created: CreatedNames = self.do(self.inventory.create_topics, self.namespace(namespace), names)
        return created

    def move(self, path: str, to: str, *, keep_alias: bool = False) -> None:
        self.do(self.inventory.move_topic, ACCOUNT, at(path), at(to), keep_alias=keep_alias)

    def set(self, path: str, changes: Any) -> Any:
        return self.do(self.inventory.policies.change, ACCOUNT, parts(path), changes)

    def policies(self, path: str) -> Any:
        return self.inventory.policies.find(ACCOUNT, parts(path))

    def crash(self, seed: int) -> None:
        self.hand.crash(seed)
        self.hand.settle()
        self.hand.advance(20_000)


def parts(path: str) -> list[str]:
    return path.split("/", 2) if path else []
