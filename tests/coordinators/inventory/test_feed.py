"""Subscriptions: what is told from any position on leads to what is there, through crashes; and nobody is told more."""

import random
from functools import partial
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
from duramen.inventory.feed import InventoryChange, follow_token
from duramen.inventory.search import PageToken, TopicQuery
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
        inventory.feed.poll(partial(self.scope, inventory), self.position, limit, wait_ms, answer)
        return answer

    def scope(self, inventory: Inventory) -> Any:
        return inventory.scope(ACCOUNT, self._path, self._prefix)

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


class Mirror(Follower):
    """Follows a path under whatever name it has, and keeps tenants, namespaces and topics by their ids."""

    def __init__(self, node: Any, path: str, prefix: str = "", position: str = "") -> None:
        self.tenants: dict[int, str] = {}
        self.namespaces: dict[int, tuple[int, str]] = {}
        self.placed: dict[Any, tuple[int, str]] = {}
        self.links = set[tuple[int, str, Any]]()
        self.follow = ""
        super().__init__(node, path, prefix, position)

    def scope(self, inventory: Inventory) -> Any:
        return inventory.followed(ACCOUNT, self.follow, self._prefix) if self.follow else super().scope(inventory)

    def take(self, page: ChangePage) -> list[InventoryChange]:
        self.follow = follow_token(page.scope)
        return super().take(page)

    def apply(self, change: InventoryChange) -> None:
        if change.tenant_id and change.kind != "tenant-deleted":
            assert change.tenant  # a tenant that is gone has no changes
            self.tenants[change.tenant_id] = change.tenant
        if change.namespace_id and change.kind != "namespace-deleted":
            self.namespaces[change.namespace_id] = change.tenant_id, change.namespace
        if change.kind == "tenant-deleted":
            self.tenants.pop(change.tenant_id, None)
        elif change.kind == "namespace-deleted":
            self.namespaces.pop(change.namespace_id, None)
        for topic in change.topics:
            place = change.namespace_id, topic.name
            if change.kept_alias:
                self.links.add((change.old_namespace_id, change.old.split("/", 2)[2], topic.id))
            if change.kind == "topic-deleted":
                self.placed.pop(topic.id, None)
            elif change.kind in ("topics-created", "topic-moved"):
                self.placed[topic.id] = place
            elif change.kind == "alias-created":
                self.links.add((*place, topic.id))
            elif change.kind == "alias-deleted":
                self.links.discard((*place, topic.id))

    def path(self, namespace: int, name: str) -> str | None:
        tenant, here = self.namespaces.get(namespace, (0, ""))
        return f"{self.tenants[tenant]}/{here}/{name}" if tenant in self.tenants else None

    @property
    def topics(self) -> dict[str, Any]:
        """As `search` shows them: an alias without its topic is not there."""
        found = {self.path(*place): lasting_id for lasting_id, place in self.placed.items()}
        living = {lasting_id for lasting_id, place in self.placed.items() if self.path(*place) is not None}
        found |= {self.path(space, name): lasting_id for space, name, lasting_id in self.links if lasting_id in living}
        return {path: lasting_id for path, lasting_id in found.items() if path is not None}


def change_directory(chance: random.Random, node: InventoryNode) -> None:
    """Rename, move, delete or create a tenant or a namespace."""
    inventory = node.inventory
    tenants = list(inventory.tenants(ACCOUNT, ""))
    tenant, name = chance.choice(tenants), f"t-{chance.randrange(4)}"
    spaces = list(inventory.namespaces(tenant, ""))
    space = chance.choice(spaces) if spaces else None
    try:
        match chance.choice(("new", "rename", "move", "label", "delete", "space", "space")):
            case "new":
                node.do(inventory.create_tenants, ACCOUNT, [name], {})
            case "rename":
                node.do(inventory.change, UpdateTenant(tenant.id, ACCOUNT, name, None))
            case "delete" if len(tenants) > 2 and chance.random() < 0.5:
                node.do(inventory.change, DeleteTenant(tenant.id))
            case "delete" if space is not None:
                node.do(inventory.change, DeleteNamespace(space.id))
            case "label" if space is not None:
                subjects = (f"{space.id}.{chance.randrange(9)}.>",)
                node.do(inventory.change, UpdateNamespace(space.id, tenant.id, None, {"a": name}, subjects))
            case "move" if space is not None:
                to = chance.choice(tenants).id
                node.do(inventory.change, UpdateNamespace(space.id, to, chance.choice((None, "n-0", "n-1")), None))
            case _:
                node.do(inventory.create_namespaces, ACCOUNT, tenant.name, [f"n-{chance.randrange(3)}"], {})
    except DuramenError:
        pass  # the name is taken


def change_topics(chance: random.Random, node: InventoryNode, there: dict[str, Any]) -> None:
    """Create, delete, move or alias topics of namespaces that there are."""
    inventory = node.inventory
    spaces = [
        f"{tenant.name}/{space.name}"
        for tenant in inventory.tenants(ACCOUNT, "")
        for space in inventory.namespaces(tenant, "")
    ]  # fmt: skip
    if not spaces:
        return
    path = f"{chance.choice(spaces)}/{chance.choice('abc')}-{chance.randrange(6)}"
    try:
        match chance.choice(("new", "new", "move", "move", "alias", "delete")):
            case "new":
                node.create(path.rpartition("/")[0], path.rpartition("/")[2])
            case "move" if there:
                node.move(chance.choice(sorted(there)), path, keep_alias=chance.random() < 0.2)
            case "alias" if there:
                node.do(inventory.alias, ACCOUNT, at(path), at(chance.choice(sorted(there))))
            case "delete" if there:
                node.do(inventory.delete_topic, ACCOUNT, at(chance.choice(sorted(there))))
            case _:
                pass
    except DuramenError:
        pass  # taken, busy, an alias: nothing was changed


def present(node: InventoryNode, start: str | None = "") -> dict[str, Any]:
    """What a search shows, page by page."""
    found, token = dict[str, Any](), PageToken()
    while True:
        page = node.inventory.search(ACCOUNT, "", "", TopicQuery(), token, 100)
        found |= {str(one.path): one.id for one in page.topics}
        if page.token is None:
            return {path: lasting_id for path, lasting_id in found.items() if path.startswith(start or "")}
        token = page.token


@pytest.mark.parametrize("seed", range(6))
def test_what_is_told_leads_to_what_is_there_when_tenants_and_namespaces_change(seed: int) -> None:
    chance = random.Random(seed)
    node = InventoryNode(seed, shards=chance.choice((1, 3)), checkpoint_records=1000)
    start = ",".join("0" for _ in node.inventory.position.split(","))
    mirror, waits = Mirror(node, "", position=start), Mirror(node, "", position=start)
    dev = Mirror(node, "acme/dev")
    waiting = waits.begin(60_000)
    for _ in range(70):
        if chance.random() < 0.35:
            change_directory(chance, node)
        else:
            change_topics(chance, node, present(node))
        if chance.random() < 0.05:
            node.crash(seed)
            waiting = waits.begin(60_000)
        if chance.random() < 0.3:
            mirror.poll(chance.choice((1, 3, 100)))
        if waiting.there:  # told at once, as it happens
            waits.take(waiting.value)
            waiting = waits.begin(60_000)
    for one in (mirror, waits, Mirror(node, "", position=start)):
        one.poll()
        assert one.topics == present(node)
        assert set(one.tenants.values()) == {tenant.name for tenant in node.inventory.tenants(ACCOUNT, "")}
    dev.poll()
    number = int(dev.follow.split(".")[1])
    try:
        node.inventory.check_followed(node.inventory.followed(ACCOUNT, dev.follow, ""))
    except (NamespaceNotFound, TenantNotFound):
        return
    told = {lasting_id: name for lasting_id, (namespace, name) in dev.placed.items() if namespace == number}
    shown = present(node, dev.path(number, ""))
    topics = {one.id: one.path.topic for one in (node.inventory.find(ACCOUNT, at(path)) for path in shown)
              if not one.alias}  # fmt: skip
    assert told == topics


def test_live_changes_have_the_names_of_then() -> None:
    node = InventoryNode(checkpoint_records=1000)
    follower, bolt = Follower(node, ""), Follower(node, "bolt")
    acme, dev = node.inventory.tenant(ACCOUNT, "acme"), node.namespace("acme/dev")
    target = node.inventory.tenant(ACCOUNT, "bolt")
    waiting, other = follower.begin(60_000), bolt.begin(60_000)
    node.do(node.inventory.change, UpdateTenant(acme.id, ACCOUNT, "apex", None))
    (renamed,) = follower.take(waiting.value)
    assert (renamed.kind, renamed.tenant, renamed.old, renamed.tenant_id) == ("tenant-renamed", "apex", "acme", acme.id)
    waiting = follower.begin(60_000)
    node.do(node.inventory.change, UpdateNamespace(dev.id, target.id, "test", None, ("a.>",)))
    for told in (follower.take(waiting.value), bolt.take(other.value)):
        (moved,) = told
        assert moved.subjects == ("a.>",)
        assert (moved.kind, moved.tenant, moved.namespace, moved.old) == (
            "namespace-moved", "bolt", "test", "apex/dev",
        )  # fmt: skip
        assert (moved.tenant_id, moved.namespace_id) == (target.id, dev.id)


@pytest.mark.parametrize("live", [True, False])
def test_each_update_is_one_change_with_all_of_it(live: bool) -> None:
    node = InventoryNode(checkpoint_records=1000)
    follower = Follower(node, "")
    acme, dev = node.inventory.tenant(ACCOUNT, "acme"), node.namespace("acme/dev")
    target = node.inventory.tenant(ACCOUNT, "bolt")
    steps: list[tuple[UpdateTenant | UpdateNamespace, list[str]]] = [
        (UpdateTenant(acme.id, ACCOUNT, "apex", None), ["tenant-renamed"]),
        (UpdateTenant(acme.id, ACCOUNT, None, {"a": "1"}), ["tenant-put"]),
        (UpdateTenant(acme.id, ACCOUNT, "acme", {"a": "2"}), ["tenant-renamed"]),
        (UpdateTenant(acme.id, ACCOUNT, "acme", {"a": "2"}), []),
        (UpdateNamespace(dev.id, acme.id, "test", {"b": "1"}, ("a.>",)), ["namespace-moved"]),
        (UpdateNamespace(dev.id, target.id, "test", None), ["namespace-moved"]),
        (UpdateNamespace(dev.id, target.id, None, {"b": "2"}, ()), ["namespace-put"]),
        (UpdateNamespace(dev.id, target.id, "test", None), []),
    ]
    for command, kinds in steps:
        waiting = follower.begin(60_000) if live else None
        node.do(node.inventory.change, command)
        told = follower.take(waiting.value) if waiting is not None and kinds else follower.poll()
        assert [change.kind for change in told] == kinds
        for change in told:
            if change.namespace_id:
                namespace = node.inventory.namespace(ACCOUNT, change.tenant, change.namespace)
                assert (change.labels, change.subjects) == (namespace.labels, namespace.subjects)
            else:
                assert change.labels == node.inventory.tenant(ACCOUNT, change.tenant).labels
    node.crash(1)
    assert node.inventory.tenant(ACCOUNT, "acme").labels == {"a": "2"}
    before = follower.position
    node.do(node.inventory.change, steps[-1][0])
    follower.poll()
    assert follower.position == before  # the same values again write nothing, also after a restart


def test_what_was_deleted_since_has_no_changes_but_its_end() -> None:
    node = InventoryNode(checkpoint_records=1000)
    follower = Follower(node, "")
    dev, bolt = node.namespace("acme/dev"), node.inventory.tenant(ACCOUNT, "bolt")
    node.create("acme/dev", "a", "b")
    node.create("acme/prod", "c")
    node.move("acme/dev/a", "acme/prod/a")
    node.move("acme/prod/c", "acme/dev/c")
    node.set("acme/dev", {"quota.topics": 7})
    node.do(node.inventory.change, UpdateNamespace(dev.id, bolt.id, "test", None))
    node.do(node.inventory.change, DeleteNamespace(dev.id))
    told = follower.poll()
    assert {change.kind for change in told if change.namespace_id == dev.id} == {"namespace-deleted"}
    names = {change.kind: [topic.name for topic in change.topics] for change in told if change.topics}
    assert names == {"topics-created": ["c"], "topic-moved": ["a"], "topic-deleted": ["c"]}


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
    told = [(change.kind, change.old) for change in account.poll()]
    assert told == [("tenant-renamed", "acme"), ("namespace-deleted", "")]
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
            node.hand.broker.coordinators.states.checkpoints.make()
            node.hand.settle()
    assert node.hand.broker.streams.get(INVENTORY_STREAM).partitions[0].log.start_offset > int(first)
    follower.position = first
    with pytest.raises(InventoryPositionLost, match="no longer has records before"):
        follower.poll()
