"""Policies on three brokers: what is told to be effective counts on every node at once, for topics in use."""

from functools import partial

from tests.coordinators.inventory.node import ACCOUNT, at
from tests.coordinators.inventory.several import SeveralInventories

from duramen.base.catalogue.inventory import PRODUCER_RATE
from duramen.base.errors import PolicyNotEffective
from duramen.coordinators.inventory.inventory import FoundTopic, Inventory
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
