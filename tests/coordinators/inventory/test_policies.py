"""Policies beside a model, dicts by path: inherited, through crashes, restarts and moves; and quotas of topics."""

import random
from typing import Any

import pytest
from tests.coordinators.inventory.node import ACCOUNT, InventoryNode, at

from duramen.base.catalogue.inventory import DURABILITY, POLICIES, TOPIC
from duramen.base.errors import (
    DuramenError,
    NamespaceNotFound,
    PolicyInvalid,
    PolicyNotEffective,
    TenantNotFound,
    TopicNotFound,
    TopicQuotaExceeded,
)
from duramen.inventory.directory import DeleteNamespace, DeleteTenant, UpdateNamespace, UpdateTenant
from duramen.inventory.policies import DEFAULT, Effective
from duramen.sim.broker import CallbackResult

LEVELS = ("account", "tenant", "namespace", "topic")
TOPICS = [f"{tenant}/{namespace}/topic-{number}" for tenant in ("acme", "bolt") for namespace in ("dev", "prod")
          for number in range(3)]  # fmt: skip


def chain_of(path: str) -> list[str]:
    """What a path is in, itself first."""
    parts = path.split("/", 2) if path else []
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


def level_of(path: str) -> str:
    return LEVELS[len(chain_of(path)) - 1]


class Checked:
    """Random policies, and what a dict says of them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.node = InventoryNode(seed, shards=self.chance.choice((1, 3)))
        for path in TOPICS:
            self.node.create(path.rpartition("/")[0], path.rpartition("/")[2])
        self.own: dict[str, dict[str, Any]] = {}
        self.topics = list(TOPICS)
        self.durability = dict.fromkeys(TOPICS, "sync")

    def paths(self) -> list[str]:
        return ["", "acme", "bolt", "acme/dev", "acme/prod", "bolt/dev", "bolt/prod", *self.topics]

    def change(self, path: str) -> dict[str, Any]:
        names = [name for name, policy in POLICIES.items() if level_of(path) in policy.levels]
        some = self.chance.sample(names, self.chance.randrange(1, len(names) + 1))
        flag = [name for name in some if POLICIES[name].setting.kind == "flag"]
        values: dict[str, Any] = {}
        for name in some:
            valid = POLICIES[name].setting.choices or (self.chance.randrange(1000, 1_000_000),)
            values[name] = self.chance.choice((None, *valid))
        return values | {name: self.chance.choice((None, True, False)) for name in flag}

    def put(self, path: str, change: dict[str, Any]) -> None:
        values = self.own.get(path, {}) | change
        self.own[path] = {name: value for name, value in values.items() if value is not None}

    def step(self) -> None:
        do, path = self.chance.random(), self.chance.choice(self.paths())
        if do < 0.7:
            change = self.change(path)
            self.node.set(path, change)
            self.put(path, change)
        elif do < 0.8:
            namespace = self.chance.choice(("acme/dev", "acme/prod", "bolt/dev"))
            new = f"{namespace}/new-{self.chance.randrange(1 << 30)}"
            self.node.create(namespace, new.rpartition("/")[2])
            self.topics.append(new)
            there = (self.own[one][DURABILITY] for one in chain_of(namespace) if DURABILITY in self.own.get(one, {}))
            self.durability[new] = next(there, "sync")
        elif do < 0.9:
            old = self.chance.choice(self.topics)
            new = f"{self.chance.choice(('acme/dev', 'bolt/prod'))}/moved-{self.chance.randrange(1 << 30)}"
            self.node.move(old, new)
            self.topics[self.topics.index(old)] = new
            self.own[new] = self.own.pop(old, {})
            self.durability[new] = self.durability.pop(old)
        else:
            wrong = {name: 7 for name in POLICIES if level_of(path) not in POLICIES[name].levels} or {"what": 1}
            with pytest.raises(PolicyInvalid, match=next(iter(wrong))):
                self.node.set(path, self.change(path) | wrong)

    def interrupt(self) -> None:
        """A crash in the middle of a change: all of it counts then, or nothing."""
        path = self.chance.choice(self.paths())
        change, answer = self.change(path), CallbackResult[Any]()
        self.node.inventory.policies.change(ACCOUNT, path.split("/", 2) if path else [], change, answer)
        for _ in range(self.chance.randrange(12)):
            self.node.hand.worker.run_soon()
            self.node.hand.worker.step(self.chance.choice(("sync", "disk", "rows")))
        acknowledged = answer.there and answer.error is None
        self.node.crash(self.chance.randrange(1000))
        before = self.own.get(path, {})
        self.put(path, change)
        if not acknowledged and self.node.policies(path).own == before:
            self.own[path] = before

    def check(self) -> None:
        for path in self.paths():
            found, chain = self.node.policies(path), chain_of(path)
            assert found.own == self.own.get(path, {})
            for name, policy in POLICIES.items():
                default = Effective(None if policy.quota else policy.setting.default, DEFAULT)
                there = (
                    Effective(self.own[one][name], level_of(one)) for one in chain if name in self.own.get(one, {})
                )
                if name == DURABILITY and level_of(path) == TOPIC:
                    assert found.effective[name] == Effective(self.durability[path], TOPIC)
                else:
                    assert found.effective[name] == next(there, default)
            quotas = [
                (name, level_of(one), self.own[one][name])
                for name, policy in POLICIES.items() if policy.quota
                for one in chain if name in self.own.get(one, {})
            ]  # fmt: skip
            assert [(one.policy, one.level, one.limit) for one in found.quotas] == quotas
            for one in found.quotas:
                if one.policy == "quota.topics":
                    (within,) = [path for path in chain if level_of(path) == one.level]
                    assert one.used == sum(within in chain_of(topic) for topic in self.topics)


@pytest.mark.parametrize("seed", range(3))
def test_policies_are_what_dicts_say_through_crashes(seed: int) -> None:
    run = Checked(seed)
    for _ in range(5):
        for _ in range(run.chance.randrange(1, 10)):
            run.step()
        trouble = run.chance.random()
        if trouble < 0.6:
            run.interrupt()
        elif trouble < 0.8:
            run.node.hand.restart()
            run.node.hand.advance(20_000)
        else:
            run.node.hand.rows.damage(checkpoints=0)
            run.node.crash(seed)
        run.check()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_they_are_for_many_seeds(seed: int) -> None:
    test_policies_are_what_dicts_say_through_crashes(seed)


def test_policies_follow_names_and_go_with_what_they_are_set_on() -> None:
    node = InventoryNode()
    node.create("acme/dev", "a")
    for path, value in (("acme", 10), ("acme/dev", 20)):
        node.set(path, {"quota.topics": value})
    node.set("acme/dev/a", {"producer_byte_rate": 5})
    first, second = (node.inventory.tenant(ACCOUNT, name) for name in ("acme", "bolt"))
    dev = node.namespace("acme/dev")
    node.do(node.inventory.change, UpdateTenant(first.id, ACCOUNT, "apex", None))
    assert node.policies("apex/dev").effective["quota.topics"] == Effective(20, "namespace")
    node.do(node.inventory.change, UpdateNamespace(dev.id, second.id, "test", None))
    assert node.policies("bolt/test").own == {"quota.topics": 20}
    assert [one.level for one in node.policies("bolt/test").quotas] == ["namespace"]
    assert node.policies("bolt/test/a").own == {"producer_byte_rate": 5}
    node.do(node.inventory.alias, ACCOUNT, at("apex/prod/alias"), at("bolt/test/a"))
    assert node.policies("apex/prod/alias").own == {"producer_byte_rate": 5}
    assert node.policies("apex/prod/alias").effective["quota.topics"].level == "namespace"
    node.do(node.inventory.change, DeleteNamespace(dev.id))
    node.do(node.inventory.change, DeleteTenant(first.id))
    for path, error in (("bolt/test", NamespaceNotFound), ("apex", TenantNotFound), ("bolt/dev/a", TopicNotFound)):
        with pytest.raises(error):
            node.set(path, {"consumer_byte_rate": 1})
    node.do(node.inventory.create_namespaces, ACCOUNT, "bolt", ["test"], {})
    assert node.policies("bolt/test").own == {}


def test_a_change_is_effective_once_the_node_has_it() -> None:
    node = InventoryNode()
    shard, place = node.set("acme", {"quota.topics": 10})
    assert node.do(node.inventory.policies.when_effective, shard, place, 1000) == [1]
    answer: CallbackResult[Any] = CallbackResult()
    node.inventory.policies.when_effective(shard, (place[0], place[1] + 1), 1000, answer)
    node.hand.advance(2000)
    assert isinstance(answer.error, PolicyNotEffective)
    assert "node 1" in str(answer.error)


def test_a_quota_of_topics_is_never_exceeded_and_leaves_no_room_unused() -> None:
    node = InventoryNode()
    node.create("acme/dev", "a", "b")
    node.set("acme", {"quota.topics": 10})
    node.set("acme/prod", {"quota.topics": 5})
    made = node.create("acme/prod", *(f"topic-{number}" for number in range(7)))
    assert (made.created, [problem.name for problem in made.problems]) == (5, ["topic-5", "topic-6"])
    assert {type(problem.error) for problem in made.problems} == {TopicQuotaExceeded}
    assert node.hand.broker.metrics.counter("duramen_inventory_topics_refused_total").value == 2
    assert "acme/prod may have 5 topics in all" in str(made.problems[0].error)
    again = node.create("acme/prod", *(f"topic-{number}" for number in range(6)))
    assert (again.created, again.existing, len(again.problems)) == (0, 5, 1)  # those that are there do not count
    # All at the same time: some come to less than they were given room for.
    answers = [CallbackResult[Any]() for _ in range(6)]
    for number, answer in enumerate(answers):
        names = ["a", f"new-{number}"]
        node.inventory.create_topics(node.namespace("acme/dev"), names, answer)
    node.hand.advance(1000)
    assert sum(answer.value.created for answer in answers) == 3
    for number in range(3):
        node.move(f"acme/dev/new-{number}", f"bolt/dev/{number}")
    node.create("bolt/dev", *(f"more-{number}" for number in range(4)))
    for number in range(3):
        node.move(f"bolt/dev/more-{number}", f"acme/dev/more-{number}")
    with pytest.raises(TopicQuotaExceeded, match="the tenant acme"):
        node.move("bolt/dev/more-3", "acme/dev/more-3")
    assert node.policies("acme").quotas[0][2:] == (10, 10)
    with pytest.raises(TopicQuotaExceeded, match="acme/prod"):
        node.move("acme/dev/a", "acme/prod/a")
    tenant, prod = node.inventory.tenant(ACCOUNT, "bolt"), node.namespace("acme/prod")
    node.set("bolt", {"quota.topics": 7})
    with pytest.raises(TopicQuotaExceeded, match="the tenant bolt"):
        node.do(node.inventory.change, UpdateNamespace(prod.id, tenant.id, "from-acme", None))
    node.set("bolt", {"quota.topics": 100})
    node.do(node.inventory.change, UpdateNamespace(prod.id, tenant.id, "from-acme", None))
    assert node.policies("acme").quotas[0].used == 5
    node.do(node.inventory.delete_topic, ACCOUNT, at("acme/dev/a"))
    assert node.create("acme/dev", *(f"last-{number}" for number in range(9))).created == 6


@pytest.mark.parametrize("seed", range(4))
def test_quotas_count_right_through_crashes(seed: int) -> None:
    chance, node = random.Random(seed), InventoryNode(seed)
    node.set("acme", {"quota.topics": 12})
    there: set[str] = set()
    for _ in range(30):
        name = f"{chance.choice(('acme/dev', 'acme/prod'))}/topic-{chance.randrange(20)}"
        try:
            if chance.random() < 0.3 and there:
                name = chance.choice(sorted(there))
                node.do(node.inventory.delete_topic, ACCOUNT, at(name))
                there.discard(name)
            elif node.create(name.rpartition("/")[0], name.rpartition("/")[2]).problems:
                assert len(there) == 12
                assert name not in there
            else:
                there.add(name)
        except DuramenError as error:
            raise AssertionError(name) from error
        assert len(there) <= 12
        if chance.random() < 0.1:
            node.crash(seed)
        assert node.policies("acme").quotas[0].used == len(there)
