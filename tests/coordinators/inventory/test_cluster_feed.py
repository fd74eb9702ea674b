"""Subscriptions on three brokers: any node tells each change once, over leader changes and with a node cut off."""

import random
from typing import Any, cast

import pytest
from tests.coordinators.inventory.node import ACCOUNT, at
from tests.coordinators.inventory.several import SHARDS, SeveralInventories
from tests.coordinators.inventory.test_feed import Follower

from duramen.base.errors import InventoryPositionLost, NotCoordinator, RequestInvalid
from duramen.coordinators.inventory.cluster.feed import ClusterFeed
from duramen.coordinators.inventory.cluster.requests import (
    WATCH_CHANGES,
    ChangesRead,
    ChangesWatched,
    ReadChanges,
    WatchChanges,
)
from duramen.coordinators.inventory.feed import ChangePage
from duramen.coordinators.inventory.inventory import Inventory
from duramen.inventory.directory import UpdateNamespace, UpdateTenant
from duramen.inventory.feed import InventoryChange
from duramen.sim.broker import CallbackResult


class Everywhere(Follower):
    """Asks another node each time, and has written down what it was told."""

    def __init__(
        self, several: SeveralInventories, path: str, prefix: str = "", position: str = "", at: int = 0
    ) -> None:
        self.several = several
        self.chance = random.Random(f"{path}/{prefix}")
        self.at = at
        self.told: list[tuple[str, str, Any]] = []
        super().__init__(several, path, prefix, position)

    @property
    def inventory(self) -> Inventory:
        return self.several.inventory(self.at or self.chance.choice(sorted(set(self.several.hands) - self.several.cut)))

    def wait(self, answer: CallbackResult[ChangePage]) -> None:
        self.several.wait(answer)

    def apply(self, change: InventoryChange) -> None:
        super().apply(change)
        for topic in change.topics:
            self.told.append((change.kind, f"{change.tenant}/{change.namespace}/{topic.name}", topic.id))


@pytest.mark.parametrize("seed", range(3))
def test_what_is_told_leads_to_what_is_there(seed: int) -> None:
    chance, several = random.Random(seed), SeveralInventories()
    paths = ("", "acme", "acme/dev", "bolt/prod")
    followers = {path: Everywhere(several, path) for path in paths} | {"x": Everywhere(several, "acme/dev", "a-")}
    there: dict[str, Any] = {}
    for number in range(30):
        step(chance, several, there, number)
        if chance.random() < 0.15:
            several.take_over(chance.randrange(1, 4), chance.randrange(SHARDS))
        if chance.random() < 0.3:
            followers[chance.choice(sorted(followers))].poll(chance.choice((1, 2, 100)))
    late = Everywhere(several, "", position=",".join("0" for _ in range(SHARDS)))
    for path, follower in [*followers.items(), ("", late)]:
        follower.poll()
        start = "acme/dev/a-" if path == "x" else f"{path}/" if path else ""
        told = {name: id_ for name, id_ in follower.topics.items() if name.startswith(start)}
        assert told == {name: id_ for name, id_ in there.items() if name.startswith(start)}
        assert len(set(follower.told)) == len(follower.told)  # no name is used again: nothing is told twice


def step(chance: random.Random, several: SeveralInventories, there: dict[str, Any], number: int) -> None:
    node, draw = chance.randrange(1, 4), chance.random()
    path = f"{chance.choice(('acme', 'bolt'))}/{chance.choice(('dev', 'prod'))}/{chance.choice('ab')}-{number}"
    if draw < 0.5 or not there:
        several.create(node, path.rpartition("/")[0], path.rpartition("/")[2])
        there[path] = several.read(node, lambda inventory: inventory.find(ACCOUNT, at(path)).id)
    elif draw < 0.8:
        old = chance.choice(sorted(there))
        several.move(node, old, path)
        there[path] = there.pop(old)
    else:
        gone = chance.choice(sorted(there))
        several.delete(node, gone)
        del there[gone]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_it_does_for_many_seeds(seed: int) -> None:
    test_what_is_told_leads_to_what_is_there(seed)


def test_a_request_waits_for_what_concerns_it_alone() -> None:
    several = SeveralInventories()
    several.create(1, "acme/dev", "there")
    dev, tenant = Everywhere(several, "acme/dev", "a", at=1), Everywhere(several, "bolt", at=1)
    topic, account = Everywhere(several, "acme/dev/there", at=2), Everywhere(several, "", at=3)
    followers = {"dev": dev, "tenant": tenant, "topic": topic, "account": account}
    waiting = {name: one.begin(20_000) for name, one in followers.items()}
    several.advance(1000)
    several.create(2, "acme/prod", "a")
    several.settle()
    assert [name for name, answer in waiting.items() if answer.there] == ["account"]
    several.create(3, "acme/dev", "b")  # not its prefix
    several.settle()
    assert not waiting["dev"].there
    several.create(2, "acme/dev", "ab", "b2")
    several.settle()
    assert [name.name for change in dev.take(waiting["dev"].value) for name in change.topics] == ["ab"]
    several.move(1, "acme/dev/there", "acme/prod/moved")
    several.settle()
    (moved,) = topic.take(waiting["topic"].value)
    assert (moved.kind, moved.old, moved.namespace) == ("topic-moved", "acme/dev/there", "prod")
    assert not waiting["tenant"].there
    before = tenant.position
    several.advance(25_000)
    assert list(waiting["tenant"].value.changes) == []
    tenant.take(waiting["tenant"].value)
    assert tenant.position != before  # it need not look at all that again


def test_who_waits_goes_on_under_another_leader_and_at_another_node() -> None:
    several = SeveralInventories()
    follower = Everywhere(several, "acme/dev")
    for number in range(2 * SHARDS):
        node = 1 + number % 3
        follower.at = node
        waiting = follower.begin(30_000)
        several.advance(300)
        shard = number % SHARDS
        several.take_over(1 + (number + 1) % 3, shard)
        several.create(1 + (number + 2) % 3, "acme/dev", f"t{number}")
        several.wait(waiting)
        assert [change.topics[0].name for change in follower.take(waiting.value)] == [f"t{number}"]
    assert not follower.poll()


def test_a_node_that_is_cut_off_tells_nothing_and_loses_nothing() -> None:
    several = SeveralInventories()
    follower = Everywhere(several, "acme/dev", at=1)
    waiting = follower.begin(60_000)
    several.advance(300)
    several.fence(3)
    several.cut.add(3)
    several.advance(1000)
    several.create(2, "acme/dev", "a", "b", "c", "d")
    several.wait(waiting)
    told = follower.take(waiting.value)
    told += follower.poll()
    assert sorted(topic.name for change in told for topic in change.topics) == ["a", "b", "c", "d"]


def test_all_who_wait_at_a_node_are_one_watch_of_each_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    several = SeveralInventories()
    asked: list[int] = []
    caller = several.broker(1).caller
    call = caller.call

    def counted(node: int, method: Any, *rest: Any) -> None:
        if method is WATCH_CHANGES:
            asked.append(node)
        call(node, method, *rest)

    monkeypatch.setattr(caller, "call", counted)
    followers = [Everywhere(several, "acme/dev", at=1) for _ in range(20)]
    waiting = [one.begin(60_000) for one in followers]
    several.advance(4000)
    assert len(asked) <= SHARDS
    several.create(2, "acme/dev", "a")
    several.settle()
    assert [len(one.value.changes) for one in waiting] == [1] * 20


def test_those_who_follow_a_tenant_are_told_of_namespaces_that_move_to_it() -> None:
    several = SeveralInventories()
    follower = Everywhere(several, "bolt", at=3)
    bolt = several.read(1, lambda inventory: inventory.tenant(ACCOUNT, "bolt"))
    dev = several.read(1, lambda inventory: inventory.namespace(ACCOUNT, "acme", "dev"))
    several.do(1, lambda inventory: inventory.change, UpdateNamespace(dev.id, bolt.id, "test", None))
    kinds = [(change.kind, change.namespace) for change in follower.poll()]
    assert kinds == [("namespace-moved", "test")]
    waiting = follower.begin(20_000)
    several.advance(300)
    several.create(2, "bolt/test", *(f"t{number}" for number in range(8)))
    several.wait(waiting)
    told = follower.take(waiting.value) + follower.poll()
    assert sorted(topic.name for change in told for topic in change.topics) == [f"t{number}" for number in range(8)]
    several.do(2, lambda inventory: inventory.change, UpdateTenant(bolt.id, ACCOUNT, "nut", None))
    follower = Everywhere(several, "nut", position=follower.position)
    assert [change.kind for change in follower.poll()] in ([], ["tenant-renamed"])


def test_topics_in_a_namespace_that_moved_during_a_watch_are_found_by_its_new_tenant() -> None:
    several = SeveralInventories()
    bolt = several.read(1, lambda inventory: inventory.tenant(ACCOUNT, "bolt"))
    dev = several.read(1, lambda inventory: inventory.namespace(ACCOUNT, "acme", "dev"))
    watches = [watch(several, shard, bolt.id) for shard in range(SHARDS)]
    several.advance(300)
    # Node 1 leads the directory: the leaders of the other shards do not learn of the move by these requests.
    several.do(1, lambda inventory: inventory.change, UpdateNamespace(dev.id, bolt.id, "test", None))
    several.create(1, "bolt/test", *(f"t{number}" for number in range(8)))
    several.advance(6000)
    assert [answer.value.keys for answer in watches] == [[("tenant", bolt.id)]] * SHARDS


def test_a_watch_is_not_notified_before_its_leader_has_a_directory_as_new_as_the_event() -> None:
    several = SeveralInventories()
    bolt = several.read(1, lambda inventory: inventory.tenant(ACCOUNT, "bolt"))
    answer = watch(several, 2, bolt.id)
    several.advance(300)
    several.slow.add((3, 1))  # node 3 leads shard 2, node 1 the directory
    several.create(2, "bolt/dev", *(f"t{number}" for number in range(8)))
    several.advance(3_000)
    assert not answer.there
    several.slow.clear()
    several.arrive()
    several.settle()
    assert answer.value.keys == [("tenant", bolt.id)]


def watch(several: SeveralInventories, shard: int, tenant: int) -> CallbackResult[ChangesWatched]:
    answer: CallbackResult[ChangesWatched] = CallbackResult()
    request = WatchChanges(2, shard, -1, -1, [("tenant", tenant)], 5000)
    cast("ClusterFeed", several.inventory(2).feed).ask_to_watch(request, answer)
    return answer


def test_topics_in_a_namespace_that_is_created_while_a_shard_is_read_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several = SeveralInventories()
    several.create(3, "acme/dev", *(f"before-{number}" for number in range(9)))
    scope = several.read(3, lambda inventory: inventory.scope(ACCOUNT, [], ""))
    feed = cast("ClusterFeed", several.inventory(3).feed)
    started: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(feed.reader, "read", lambda *arguments: started.append(arguments))
        answer: CallbackResult[ChangesRead] = CallbackResult()
        feed.ask(ReadChanges(2, 1, 0, scope, 100), answer)
        several.settle()
    several.do(1, lambda inventory: inventory.create_namespaces, ACCOUNT, "acme", ["new"], {})
    several.create(1, "acme/new", *(f"after-{number}" for number in range(9)))
    feed.reader.read(*started[0])
    several.wait(answer)
    later: CallbackResult[ChangesRead] = CallbackResult()
    feed.ask(ReadChanges(2, answer.value.epoch, answer.value.next, scope, 100), later)
    several.wait(later)
    told = [change for page in (answer.value, later.value) for _, change in page.changes]
    assert {change.namespace for change in told} == {"dev", "new"}


def test_a_search_and_a_subscription_from_its_position_leave_out_nothing() -> None:
    several = SeveralInventories()
    several.create(1, "acme/dev", "a")
    for node in several.hands:
        position = several.read(node, _searched)
        several.create(1 + node % 3, "acme/dev", f"after-{node}")
        follower = Everywhere(several, "acme/dev", position=position)
        names = {topic[1].rpartition("/")[2] for topic in follower.told}
        assert f"after-{node}" in names


def _searched(inventory: Inventory) -> str:
    inventory.lookup(ACCOUNT, "acme", "dev", ["a"])
    return inventory.position


def test_a_position_that_is_none_is_named() -> None:
    several = SeveralInventories()
    follower = Everywhere(several, "acme/dev")
    good = follower.position
    for wrong, error in (("x", RequestInvalid), ("1,2", RequestInvalid), ("9.1,9.2,9.-7", RequestInvalid)):
        follower.position = wrong
        with pytest.raises(error):
            follower.poll()
    beyond = [part.split(".") for part in good.split(",")]
    follower.position = ",".join(f"{int(epoch) - 1}.{int(offset) + 1}" for epoch, offset in beyond)
    with pytest.raises(InventoryPositionLost, match="ends at"):
        follower.poll()
    follower.position = ",".join(f"{int(epoch) + 1}.{offset}" for epoch, offset in beyond)
    with pytest.raises(NotCoordinator):  # nobody leads in that epoch
        follower.poll()
