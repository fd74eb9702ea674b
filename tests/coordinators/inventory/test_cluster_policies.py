"""Policies on three brokers: what is told to be effective counts on every node at once, for topics in use."""

import random
from functools import partial
from operator import methodcaller

import pytest
from tests.coordinators.inventory.node import ACCOUNT, at
from tests.coordinators.inventory.several import SHARDS, SeveralInventories

from duramen.base.catalogue.inventory import PRODUCER_RATE
from duramen.base.errors import PolicyNotEffective, TopicQuotaExceeded
from duramen.coordinators.inventory.inventory import Inventory
from duramen.coordinators.inventory.quotas import CreatedNames
from duramen.coordinators.inventory.topics import FoundTopic
from duramen.sim.broker import CallbackResult

PATHS = ("acme/dev/a", "acme/dev/b", "bolt/prod/c")


def limits(several: SeveralInventories, node: int, topic: FoundTopic) -> list[int]:
    """The limits that a node applies to producers of a topic before it has asked others for them again."""
    several.slow = {(node, other) for other in several.hands if other != node}
    found = [one.value for one in several.inventory(node).quotas.limits_of(PRODUCER_RATE, ACCOUNT, topic)]
    several.slow.clear()
    several.arrive()
    several.settle()
    return found


def effective(several: SeveralInventories, node: int, path: str, value: int) -> CallbackResult[list[int]]:
    """Set a rate, and wait for all nodes."""
    policies = several.inventory(node).policies
    shard, place = several.do(node, lambda _: policies.change, ACCOUNT, path.split("/"), {PRODUCER_RATE: value})
    answer: CallbackResult[list[int]] = CallbackResult()
    policies.when_effective(shard, place, 3000, answer)
    several.wait(answer)
    return answer


def test_every_node_applies_what_is_told_to_be_effective() -> None:
    several, topics = SeveralInventories(), dict[str, FoundTopic]()
    for path in PATHS:
        several.create(1, path.rpartition("/")[0], path.rpartition("/")[2])
        topics[path] = several.read(1, partial(Inventory.find, account=ACCOUNT, path=at(path)))
        for node in several.hands:
            limits(several, node, topics[path])  # it is in use there
    for value, (node, tenant) in enumerate(((1, "acme"), (2, "acme"), (3, "bolt"), (1, "acme/dev")), 1):
        assert effective(several, node, tenant, value).error is None
        for path, topic in topics.items():
            if path.startswith(tenant):
                assert [value in limits(several, other, topic) for other in several.hands] == [True] * 3


def test_a_node_that_is_cut_off_is_named() -> None:
    several = SeveralInventories()
    several.create(1, "acme/dev", "a")
    several.fence(3)
    several.cut.add(3)
    several.advance(1000)
    answer = effective(several, 1, "acme", 7)
    assert isinstance(answer.error, PolicyNotEffective)
    assert "node 3" in str(answer.error)


@pytest.mark.parametrize("seed", range(2))
def test_a_quota_of_topics_counts_what_other_nodes_create(seed: int) -> None:
    chance, several, there = random.Random(seed), SeveralInventories(), set[str]()
    several.do(1, lambda inventory: inventory.policies.change, ACCOUNT, ["acme"], {"quota.topics": 10})
    several.do(2, lambda inventory: inventory.policies.change, ACCOUNT, ["acme", "dev"], {"quota.topics": 6})
    for made in range(30):
        node, draw, namespace = chance.randrange(1, 4), chance.random(), chance.choice(("dev", "prod"))
        in_dev = sum(path.startswith("acme/dev") for path in there)
        room = 10 - len(there) if namespace == "prod" else min(10 - len(there), 6 - in_dev)
        if draw < 0.6 or not there:
            names = [f"t{made:03}-{number}" for number in range(chance.choice((1, 1, 3)))]
            where = several.read(node, methodcaller("namespace", ACCOUNT, "acme", namespace))
            answer: CreatedNames = several.do(node, lambda inventory: inventory.create_topics, where, names)
            assert answer.created == min(len(names), room)
            there |= {f"acme/{namespace}/{name}" for name in names[:room]}
        elif draw < 0.8:
            path = chance.choice(sorted(there))
            several.delete(node, path)
            there.remove(path)
        else:
            path, to = chance.choice(sorted(there)), f"acme/dev/m{made}"
            if path.startswith("acme/prod") and in_dev == 6:
                with pytest.raises(TopicQuotaExceeded):
                    several.move(node, path, to)
            else:
                several.move(node, path, to)
                there = (there - {path}) | {to}
        if chance.random() < 0.1:
            several.take_over(chance.randrange(1, 4), chance.randrange(SHARDS))
