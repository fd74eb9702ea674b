"""Topics of the inventory on a node by hand: written to, changed, and looked at without being read."""

from collections.abc import Callable
from typing import Any

from duramen.base.catalogue.inventory import POLICIES
from duramen.base.errors import DuramenError
from duramen.codec.batch import BatchInput, encode
from duramen.coordinators.inventory.inventory import Inventory
from duramen.coordinators.queue.shard import hash_of
from duramen.inventory.names import TopicPath
from duramen.queues.reading import entries_from
from duramen.queues.rows import state_of
from duramen.service.queue_topics import QueueTopic, QueueTopics
from duramen.sim.broker import CallbackResult, ManualBroker

__all__ = ["ACCOUNT", "InventoryTopics"]

ACCOUNT = "default"


def at(path: str) -> TopicPath:
    return TopicPath(*path.split("/", 2))


class InventoryTopics:
    """A node with the tenants acme and bolt with dev and prod each."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.hand = ManualBroker({"inventory.shards": 2, "inventory.queue.shards": 2, **settings}, seed=seed)
        self._topics: tuple[Any, QueueTopics] | None = None
        self.do(self.inventory.create_tenants, ACCOUNT, ["acme", "bolt"], {})
        for tenant in ("acme", "bolt"):
            self.do(self.inventory.create_namespaces, ACCOUNT, tenant, ["dev", "prod"], {})

    @property
    def inventory(self) -> Inventory:
        return self.hand.broker.inventory

    @property
    def topics(self) -> QueueTopics:
        if self._topics is None or self._topics[0] is not self.hand.broker:
            self._topics = self.hand.broker, QueueTopics(self.hand.broker)
        return self._topics[1]

    def do(self, ask: Callable[..., object], *what: Any, **more: Any) -> Any:
        answer: CallbackResult[Any] = CallbackResult()
        ask(*what, answer, **more)
        self.hand.settle()
        return answer.value

    def create(self, path: str) -> None:
        tenant, namespace, name = path.split("/", 2)
        made = self.do(self.inventory.create_topics, self.inventory.namespace(ACCOUNT, tenant, namespace), [name])
        assert made.created == 1

    def move(self, path: str, to: str, *, keep_alias: bool = False) -> None:
        self.do(self.inventory.move_topic, ACCOUNT, at(path), at(to), keep_alias=keep_alias)

    def delete(self, path: str) -> None:
        self.do(self.inventory.delete_topic, ACCOUNT, at(path))

    def set(self, path: str, **changes: Any) -> None:
        named = {name if name in POLICIES else name.replace("_", "."): value for name, value in changes.items()}
        self.do(self.inventory.policies.change, ACCOUNT, path.split("/", 2) if path else [], named)

    def used(self, path: str) -> dict[tuple[str, str], int]:
        """What of quotas is used, by policy and level."""
        found = self.inventory.policies.find(ACCOUNT, path.split("/", 2) if path else [])
        return {(one.policy, one.level): one.used for one in found.quotas}

    def topic(self, path: str) -> QueueTopic:
        found = self.topics.find(path.replace("/", "."))
        assert isinstance(found, QueueTopic)
        return found

    def send(self, path: str, *values: bytes) -> CallbackResult[Any]:
        """Records of now, of which nothing is done yet."""
        now_ms = self.hand.clock.wall_ms()
        answer: CallbackResult[Any] = CallbackResult()
        batch = encode([BatchInput(now_ms, None, value) for value in values])
        self.topic(path).append(memoryview(batch), answer, all_replicas=True)
        return answer

    def put(self, path: str, *values: bytes) -> DuramenError | None:
        """Records of now; why they are not taken."""
        answer = self.send(path, *values)
        self.hand.settle()
        (_, error) = answer.calls[0]
        return error  # type: ignore[no-any-return]

    def values(self, path: str) -> list[bytes | None]:
        """What the rows have of a topic, without a read, which would trim it."""
        topic = self.topic(path)
        _, rows = topic.view()
        space, name = topic.place
        hashed = hash_of(space)(name)
        return [one.value for one in entries_from(rows, hashed, state_of(rows, hashed), 0)]
