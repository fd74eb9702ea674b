"""Subscriptions: what is told from any position on leads to what is there, through crashes; and nobody is told more."""

import random
from typing import Any

import pytest
from tests.coordinators.inventory.node import ACCOUNT, InventoryNode, at

from duramen.base.errors import (
    DuramenError,
    InventoryPositionLost,
    NamespaceNotFound,
    RequestInvalid,
    TenantNotFound,
    TopicNotFound,
)
from duramen.coordinators.inventory.feed import ChangePage
from duramen.coordinators.inventory.inventory import Inventory
from duramen.coordinators.inventory.shard import INVENTORY_STREAM
from duramen.inventory.directory import DeleteNamespace, DeleteTenant, UpdateNamespace, UpdateTenant
from duramen.inventory.feed import InventoryChange
from duramen.sim.broker import CallbackResult


class Follower:
    """Follows a path, and has what it was told of, by ids: the events of an id come in their order, others need not."""

    def __init__(self, node: Any, path: str, prefix: str = "", position: str = "") -> None:
        self._node = node
        self._path = path.split("/", 2) if path else []
        self._prefix = prefix
        self.position = position
        self.names: dict[Any, str] = {}
        self.aliases: set[tuple[str, Any]] = set()
        self.poll()

    def begin(self, wait_ms: int = 0, limit: int = 100) -> CallbackResult[ChangePage]:
        answer: CallbackResult[ChangePage] = CallbackResult()
        inventory = self.inventory

        def scope() -> Any:
            return inventory.scope(ACCOUNT, self._path, self._prefix)

        inventory.feed.poll(scope, self.position, limit, wait_ms, answer)
        return answer

    @property
    def inventory(self) -> Inventory:
        found: Inventory = self._node.inventory
        return found

    def wait(self, answer: CallbackResult[ChangePage]) -> None:
        """Until there is an answer."""
        del answer
        self._node.hand.settle()

    def poll(self, limit: int = 100) -> list[InventoryChange]:
        """All there is, page by page."""
        told = list[InventoryChange]()
        while True:
            answer = self.begin(limit=limit)
            self.wait(answer)
            page = answer.value
            told += self.take(page)
            if not page.changes:
                return told

    def take(self, page: ChangePage) -> list[InventoryChange]:
        self.position = page.position
        told = [change for change, _ in page.changes]
        for change in told:
            self.apply(change)
        return told

    def apply(self, change: InventoryChange) -> None:
        paths = {(f"{change.tenant}/{change.namespace}/{topic.name}", topic.id) for topic in change.topics}
        match change.kind:
            case "alias-created":
                self.aliases |= paths
            case "alias-deleted":
                self.aliases -= paths
            case "topic-deleted":
                for _, lasting_id in paths:
                    self.names.pop(lasting_id, None)
            case "topics-created" | "topic-moved":
                self.names |= {lasting_id: path for path, lasting_id in paths}
            case _:
                pass

    @property
    def topics(self) -> dict[str, Any]:
        return {path: lasting_id for lasting_id, path in self.names.items()} | dict(self.aliases)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_told_leads_to_what_is_there(seed: int) -> None:
    chance = random.Random(seed)
    node = InventoryNode(seed, shards=chance.choice((1, 3)), checkpoint_records=1000)
    paths = ("", "acme", "acme/dev", "bolt/prod")
    followers = {path: Follower(node, path) for path in paths} | {"x": Follower(node, "acme/dev", "a-")}
    there: dict[str, Any] = {}
    for _ in range(60):
        step(chance, node, there)
        if chance.random() < 0.1:
            node.crash(seed)
        if chance.random() < 0.3:
            followers[chance.choice(sorted(followers))].poll(chance.choice((1, 2, 100)))
    late = Follower(node, "", position=",".join("0" for _ in followers[""].position.split(",")))
    for path, follower in [*followers.items(), ("", late)]:
        follower.poll()
        start = "acme/dev/a-" if path == "x" else f"{path}/" if path else ""
        told = {name: id_ for name, id_ in follower.topics.items() if name.startswith(start)}
        assert told == {name: id_ for name, id_ in there.items() if name.startswith(start)}
        assert follower.position == node.inventory.position


def step(chance: random.Random, node: InventoryNode, there: dict[str, Any]) -> None:
    namespace = f"{chance.choice(('acme', 'bolt'))}/{chance.choice(('dev', 'prod'))}"
    path = f"{namespace}/{chance.choice('abc')}-{chance.randrange(9)}"
    try:
        if chance.random() < 0.5:
            node.create(path.rpartition("/")[0], path.rpartition("/")[2], "a-with-it")
            for name in (path, f"{path.rpartition('/')[0]}/a-with-it"):
                there[name] = node.inventory.find(ACCOUNT, at(name)).id
        elif chance.random() < 0.3 and there:
            gone = chance.choice(sorted(there))
            node.do(node.inventory.delete_topic, ACCOUNT, at(gone))
            del there[gone]
        elif chance.random() < 0.5 and there:
            topic = chance.choice(sorted(there))
            node.do(node.inventory.alias, ACCOUNT, at(path), at(topic))
            there[path] = there[topic]
        elif there:
            old = chance.choice(sorted(there))
            node.move(old, path)
            there[path] = there.pop(old)
    except DuramenError:
        pass  # taken, busy, an alias: nothing was changed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_it_does_for_many_seeds(seed: int) -> None:
    test_what_is_told_leads_to_what_is_there(seed)


def test_a_request_waits_for_what_concerns_it_alone() -> None:
    node = InventoryNode(checkpoint_records=1000)
    node.create("acme/dev", "there")
    dev, tenant = Follower(node, "acme/dev", "a"), Follower(node, "bolt")
    topic, account = Follower(node, "acme/dev/there"), Follower(node, "")
    waiting = {name: one.begin(60_000) for name, one in
               (("dev", dev), ("tenant", tenant), ("topic", topic), ("account", account))}  # fmt: skip
    node.hand.settle()
    node.create("acme/prod", "a")
    assert [name for name, answer in waiting.items() if answer.there] == ["account"]
    node.create("acme/dev", "b")  # not its prefix
    assert not waiting["dev"].there
    node.create("acme/dev", "ab", "ac", "b2")
    assert [name.name for change in dev.take(waiting["dev"].value) for name in change.topics] in (
        ["ab"], ["ac"], ["ab", "ac"], ["ac", "ab"],
    )  # fmt: skip
    node.move("acme/dev/there", "acme/prod/moved")
    (moved,) = topic.take(waiting["topic"].value)
    assert (moved.kind, moved.old, moved.namespace) == ("topic-moved", "acme/dev/there", "prod")
    assert not waiting["tenant"].there
    before = tenant.position
    node.hand.advance(60_000)
    assert list(waiting["tenant"].value.changes) == []
    tenant.take(waiting["tenant"].value)
    assert tenant.position != before  # it need not look at all that again
    node.set("bolt/dev", {"quota.topics": 7})
    (policies,) = tenant.poll()
    assert (policies.kind, policies.namespace, policies.policies) == ("policies", "dev", {"quota.topics": 7})


def test_those_who_follow_a_namespace_are_told_of_its_names_and_its_end() -> None:
    node = InventoryNode(checkpoint_records=1000)
    follower, account = Follower(node, "acme/dev"), Follower(node, "")
    dev, acme, bolt = node.namespace("acme/dev"), *(node.inventory.tenant(ACCOUNT, name) for name in ("acme", "bolt"))
    node.do(node.inventory.change, UpdateTenant(acme.id, ACCOUNT, "apex", None))
    node.do(node.inventory.change, UpdateNamespace(dev.id, bolt.id, "test", {"a": "b"}))
    node.do(node.inventory.change, DeleteNamespace(dev.id))
    kinds = ["tenant-renamed", "tenant-put", "namespace-moved", "namespace-put", "namespace-deleted"]
    assert [(change.kind, change.old) for change in account.poll()] == [
        *zip(kinds, ["acme", "", "apex/dev", "", ""], strict=True)
    ]
    node.do(node.inventory.change, DeleteTenant(acme.id))
    assert [(change.kind, change.tenant) for change in account.poll()] == [("tenant-deleted", "apex")]
    with pytest.raises(TenantNotFound):
        follower.poll()
    with pytest.raises(NamespaceNotFound):
        Follower(node, "bolt/test")
    with pytest.raises(TopicNotFound):
        Follower(node, "bolt/dev/none")


def test_a_position_that_is_none_or_not_there_any_more_is_named() -> None:
    node = InventoryNode(shards=1, checkpoint_records=10)
    follower = Follower(node, "acme/dev")
    first = follower.position
    for wrong in ("x", "1,2", "-1", "1" * 5000):
        follower.position = wrong
        with pytest.raises((RequestInvalid, InventoryPositionLost)):
            follower.poll()
    follower.position = str(int(first) + 1)
    with pytest.raises(InventoryPositionLost, match="ends at"):
        follower.poll()
    for number in range(60):
        node.create("acme/dev", f"topic-{number}")
        if number % 15 == 14:
            node.hand.broker.coordinators.states.make_checkpoint()
            node.hand.settle()
    assert node.hand.broker.streams.get(INVENTORY_STREAM).partitions[0].log.start_offset > int(first)
    follower.position = first
    with pytest.raises(InventoryPositionLost, match="no longer has records before"):
        follower.poll()
