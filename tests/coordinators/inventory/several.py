"""Three brokers with one inventory, by hand."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.broker.several import Several
from tests.coordinators.inventory.node import ACCOUNT, at

from duramen.coordinators.inventory.inventory import Inventory
from duramen.coordinators.inventory.shard import DIRECTORY_SHARD, INVENTORY_STREAM
from duramen.metadata.events import NodeRegistered
from duramen.service.admission import Service
from duramen.sim.broker import CallbackResult

__all__ = ["SHARDS", "SeveralInventories"]

SHARDS = 3


class SeveralInventories(Several):
    """In the inventory are the tenants acme and bolt with dev and prod each; node N + 1 leads shard N at first."""

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(3, {"inventory.shards": SHARDS, "inventory.queue.shards": 2, **(settings or {})})
        for node in self.hands:
            self.state.apply(NodeRegistered(node, f"directory {node}"))
        self.services = {node: Service(self.broker(node)) for node in self.hands}
        self.do(1, lambda inventory: inventory.create_tenants, ACCOUNT, ["acme", "bolt"], {})
        for tenant in ("acme", "bolt"):
            self.do(1, lambda inventory: inventory.create_namespaces, ACCOUNT, tenant, ["dev", "prod"], {})

    def inventory(self, node: int) -> Inventory:
        return self.broker(node).inventory

    def do(self, node: int, what: Callable[[Inventory], Callable[..., object]], *wish: Any, **more: Any) -> Any:
        """What is answered. Raises the error."""
        answer: CallbackResult[Any] = CallbackResult()
        what(self.inventory(node))(*wish, answer, **more)
        self.wait(answer)
        return answer.value

    def wait(self, answer: CallbackResult[Any]) -> None:
        """Let time go by until there is an answer."""
        self.settle()
        for _ in range(300):
            if answer.there:
                return
            self.advance(100)

    def read(self, node: int, query: Callable[[Inventory], Any]) -> Any:
        """What a query finds. Raises the error."""
        return self.do(node, lambda inventory: inventory.read, lambda: query(self.inventory(node)))

    def create(self, node: int, namespace: str, *names: str) -> None:
        there = self.read(node, lambda inventory: inventory.namespace(ACCOUNT, *namespace.split("/")))
        self.do(node, lambda inventory: inventory.create_topics, there, names)

    def move(self, node: int, path: str, to: str, *, keep_alias: bool = False) -> None:
        self.do(node, lambda inventory: inventory.move_topic, ACCOUNT, at(path), at(to), keep_alias=keep_alias)

    def delete(self, node: int, path: str) -> None:
        self.do(node, lambda inventory: inventory.delete_topic, ACCOUNT, at(path))

    def alias(self, node: int, path: str, target: str) -> None:
        self.do(node, lambda inventory: inventory.alias, ACCOUNT, at(path), at(target))

    def take_over(self, node: int, shard: int = DIRECTORY_SHARD) -> None:
        """Have a node lead a shard."""
        self.elect(self.place(INVENTORY_STREAM, shard), node)
        self.advance(1000)
