"""Records of topics with either durability: as a model has it, dicts of lists, through moves, policies and crashes."""

import random
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.service.inventory import ACCOUNT, InventoryTopics
from tests.sim.planted import Bug, Place, planted

from duramen.base.catalogue.inventory import BYTES_QUOTA
from duramen.base.errors import PolicyInvalid
from duramen.coordinators.inventory.policies import InventoryPolicies
from duramen.coordinators.inventory.shard import QUEUE_SPACES
from duramen.inventory.directory import DeleteNamespace
from duramen.queues.owners import owned_queues
from duramen.service.leftover_records import LeftoverRecords

NAMESPACES: Final = ("acme/dev", "acme/prod", "bolt/dev", "bolt/prod")
SCOPES: Final = ("", "acme", "bolt", *NAMESPACES)
ROUND_MS: Final = 12_000


class Checked:
    """Topics with their durability and their records, and the policies that choose it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.node = InventoryTopics(seed)
        self.policies: dict[str, str | None] = {}
        self.durability: dict[str, str] = {}
        self.records: dict[str, list[bytes]] = {}
        self.values = self.lost = 0

    def name(self) -> str:
        self.values += 1
        return f"{self.chance.choice(NAMESPACES)}/{self.values}"

    def chosen(self, namespace: str) -> str:
        scopes = (namespace, namespace.split("/", maxsplit=1)[0], "")
        return next((found for one in scopes if (found := self.policies.get(one)) is not None), "sync")

    def step(self) -> None:
        do, path = self.chance.random(), self.chance.choice([*self.records, ""])
        if do < 0.2:
            scope, value = self.chance.choice(SCOPES), self.chance.choice((None, "sync", "os"))
            self.node.set(scope, durability=value)
            self.policies[scope] = value
        elif do < 0.35 or not path:
            new = self.name()
            self.node.create(new)
            self.durability[new], self.records[new] = self.chosen(new.rpartition("/")[0]), []
        elif do < 0.75:
            values = [b"%d" % self.chance.randrange(1 << 30) for _ in range(self.chance.randrange(1, 4))]
            assert self.node.put(path, *values) is None
            self.records[path] += values
        elif do < 0.9:
            new = self.name()
            self.node.move(path, new)
            self.durability[new], self.records[new] = self.durability.pop(path), self.records.pop(path)
        elif do < 0.95:
            self.node.delete(path)
            del self.durability[path], self.records[path]
        else:
            self.delete_namespace(path.rpartition("/")[0])

    def delete_namespace(self, namespace: str) -> None:
        tenant, name = namespace.split("/")
        self.node.do(
            self.node.inventory.change, DeleteNamespace(self.node.inventory.namespace(ACCOUNT, tenant, name).id)
        )
        self.node.do(self.node.inventory.create_namespaces, ACCOUNT, tenant, [name], {})
        self.policies.pop(namespace, None)
        for path in [path for path in self.records if path.startswith(f"{namespace}/")]:
            del self.durability[path], self.records[path]

    def trouble(self) -> None:
        hand, do = self.node.hand, self.chance.random()
        if do < 0.3:
            hand.restart()
        elif do < 0.8:
            hand.crash(self.chance.randrange(1000))
            hand.advance(ROUND_MS)
            for path in [path for path, durability in self.durability.items() if durability == "os"]:
                left = self.node.values(path)
                assert self.records[path][: len(left)] == left
                self.lost += len(self.records[path]) - len(left)
                self.records[path] = [value for value in left if value is not None]
        hand.advance(ROUND_MS)
        hand.advance(ROUND_MS)

    def check(self) -> None:
        self.check_owners()
        for path, values in self.records.items():
            topic, durability = self.node.topic(path), self.durability[path]
            assert self.node.values(path) == values
            assert topic.place[0].name == QUEUE_SPACES[durability]
            assert topic.entry is not None
            assert topic.entry.durability == durability
            assert self.node.inventory.by_id(topic.entry.id).durability == durability
            effective = self.node.inventory.policies.find(ACCOUNT, path.split("/")).effective["durability"]
            assert (effective.value, effective.level) == (durability, "topic")
        for namespace in NAMESPACES:
            found = self.node.inventory.policies.find(ACCOUNT, namespace.split("/")).effective["durability"]
            assert found.value == self.chosen(namespace)

    def check_owners(self) -> None:
        """Each queue in the rows belongs to a topic, and to its namespace."""
        broker, found = self.node.hand.broker, dict[bytes, int]()
        for space in filter(None, map(broker.streams.find, QUEUE_SPACES.values())):
            for partition in space.partitions:
                found |= {
                    queue: owned.owner
                    for queue, owned in owned_queues(broker.coordinators.rows(space.name, partition.index), b"")
                }
        owners = list[int]()
        for path, values in self.records.items():
            if values:
                owners.append(self.node.inventory.namespace(ACCOUNT, *path.split("/")[:2]).id)
        assert sorted(found.values()) == sorted(owners)


def run(seed: int) -> Checked:
    found = Checked(seed)
    for _ in range(8):
        for _ in range(found.chance.randrange(2, 14)):
            found.step()
        found.trouble()
        found.check()
    return found


@pytest.mark.parametrize("seed", [0, 1, 109])
def test_topics_keep_the_durability_of_their_creation(seed: int) -> None:
    run(seed)


def test_a_power_failure_takes_records_of_topics_with_durability_os_alone() -> None:
    node = InventoryTopics()
    node.set("acme/dev", durability="os")
    for path in ("acme/dev/a", "acme/prod/b"):
        node.create(path)
        assert node.put(path, b"value") is None
    node.hand.crash()
    node.hand.settle()
    assert node.values("acme/dev/a") == []
    assert node.values("acme/prod/b") == [b"value"]


def test_quotas_and_retention_apply_to_both() -> None:
    node = InventoryTopics()
    node.create("acme/dev/a")
    node.set("acme/dev", durability="os", quota_bytes=1_000_000, retention_records=2)
    node.create("acme/dev/b")
    for path in ("acme/dev/a", "acme/dev/b"):
        assert node.put(path, b"1", b"2", b"3") is None
    used = node.used("acme/dev")[BYTES_QUOTA, "namespace"]
    node.hand.advance(3_000)
    assert node.values("acme/dev/a") == node.values("acme/dev/b") == [b"2", b"3"]
    assert 0 < node.used("acme/dev")[BYTES_QUOTA, "namespace"] < used
    node.delete("acme/dev/a")
    left = node.used("acme/dev")[BYTES_QUOTA, "namespace"]
    assert left > 0
    node.delete("acme/dev/b")
    assert node.used("acme/dev")[BYTES_QUOTA, "namespace"] == 0


@pytest.mark.parametrize(("path", "value"), [("acme", "memory"), ("acme/dev", 7), ("", True), ("acme/dev/a", "os")])
def test_what_cannot_be_is_refused(path: str, value: Any) -> None:
    node = InventoryTopics()
    node.create("acme/dev/a")
    with pytest.raises(PolicyInvalid, match="durability") as refused:
        node.set(path, durability=value)
    assert "sync" in str(refused.value) or "is not set on a topic" in str(refused.value)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_they_do_for_many_seeds(seed: int) -> None:
    run(seed)


Original = Callable[..., Any]


def _leave_owners(_: Original) -> Original:
    def _own(self: Any, space: Any, shard: int, topics: Any, namespaces: Any, done: Callable[[bool], None]) -> None:
        del self, space, shard, topics, namespaces
        done(True)

    return _own


def _believe_the_tenant(_: Original) -> Original:
    def durability_of_new(self: InventoryPolicies, namespace: int) -> str:
        del self, namespace
        return "sync"

    return durability_of_new


BUGS: Final = (
    Bug(
        "owners-left", "", (Place(LeftoverRecords, "_own", _leave_owners),), "a power failure undoes a move's last step"
    ),
    Bug("policy-unread", "", (Place(InventoryPolicies, "durability_of_new", _believe_the_tenant),), "no policy counts"),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    with planted(bug):
        for seed in (100, 130):
            try:
                run(seed)
            except AssertionError:
                return
        pytest.fail("nobody sees it")
