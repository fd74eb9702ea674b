"""Bytes stored by namespace, tenant and account beside a count of all rows; and quotas of them."""

import random

import pytest
from tests.coordinators.inventory.node import ACCOUNT, at
from tests.service.inventory import InventoryTopics

from duramen.base.catalogue.inventory import BYTES_QUOTA
from duramen.base.errors import BytesQuotaExceeded
from duramen.coordinators.inventory.shard import INVENTORY_QUEUES
from duramen.inventory.directory import DeleteNamespace, UpdateNamespace
from duramen.queues.owners import owned_queues
from duramen.sim.broker import CallbackResult

NAMESPACES = ("acme/dev", "acme/prod", "bolt/dev", "bolt/prod")


class Checked:
    """Topics that come and go, and in which namespace each is."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.node = InventoryTopics(seed)
        self.topics = [f"{namespace}/{name}" for namespace in NAMESPACES for name in "ab"]
        for path in self.topics:
            self.node.create(path)
        for where in ("", "acme", "bolt", *NAMESPACES):
            self.node.set(where, quota_bytes=1 << 50)

    def step(self) -> None:
        do, path, namespace = self.chance.random(), self.chance.choice(self.topics), self.chance.choice(NAMESPACES)
        if do < 0.6:
            values = [bytes(self.chance.randrange(200)) for _ in range(self.chance.randrange(1, 5))]
            assert self.node.put(path, *values) is None
        elif do < 0.75:
            new = f"{namespace}/{self.chance.randrange(1 << 30)}"
            self.node.move(path, new)
            self.topics[self.topics.index(path)] = new
        elif do < 0.85:
            self.node.delete(path)
            self.topics[self.topics.index(path)] = f"{namespace}/{self.chance.randrange(1 << 30)}"
            self.node.create(next(one for one in self.topics if not self.exists(one)))
        elif do < 0.93:
            self.node.set(path, retention_records=self.chance.choice((None, 0, 2)))
        elif do < 0.97:
            self.node.hand.restart()
        else:
            self.node.hand.crash(self.chance.randrange(1000))
        self.node.hand.settle()

    def exists(self, path: str) -> bool:
        return self.node.topics.find(path.replace("/", ".")) is not None

    def check(self) -> None:
        broker, found = self.node.hand.broker, dict[str, int]()
        for partition in broker.streams.get(INVENTORY_QUEUES).partitions:
            for _, owned in owned_queues(broker.coordinators.rows(INVENTORY_QUEUES, partition.index), b""):
                found[str(owned.owner)] = found.get(str(owned.owner), 0) + owned.bytes
        of = {one: found.get(str(self.node.inventory.namespace(ACCOUNT, *one.split("/")).id), 0) for one in NAMESPACES}
        assert sum(of.values()) == sum(found.values())
        for path in self.topics:
            used = self.node.used(path)
            tenant, namespace, _ = path.split("/", 2)
            assert used[BYTES_QUOTA, "namespace"] == of[f"{tenant}/{namespace}"]
            assert used[BYTES_QUOTA, "tenant"] == sum(size for one, size in of.items() if one.startswith(f"{tenant}/"))
            assert used[BYTES_QUOTA, "account"] == sum(of.values())


@pytest.mark.parametrize("seed", range(2))
def test_usage_is_what_the_rows_have(seed: int) -> None:
    run = Checked(seed)
    for _ in range(8):
        for _ in range(run.chance.randrange(1, 6)):
            run.step()
            run.check()
        run.node.hand.advance(10_000)
        run.check()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_it_is_for_many_seeds(seed: int) -> None:
    test_usage_is_what_the_rows_have(seed)


def test_a_full_namespace_takes_nothing_until_there_is_room() -> None:
    node = InventoryTopics()
    for path in ("acme/dev/a", "acme/prod/b"):
        node.create(path)
    node.set("acme", quota_bytes=5_000)
    node.set("acme/dev", quota_bytes=3_000)
    assert node.put("acme/dev/a", bytes(2_000)) is None
    refused = node.put("acme/dev/a", bytes(2_000))
    assert isinstance(refused, BytesQuotaExceeded)
    assert "acme/dev may store 3,000 bytes in all" in str(refused)
    assert node.put("acme/prod/b", bytes(2_000)) is None
    assert "the tenant acme may" in str(node.put("acme/prod/b", bytes(2_000)))
    assert node.used("acme/dev")[BYTES_QUOTA, "tenant"] > 4_000
    assert node.hand.broker.metrics.counter("duramen_inventory_batches_refused_total", BYTES_QUOTA).value == 2
    node.hand.restart()
    node.hand.settle()
    assert isinstance(node.put("acme/dev/a", bytes(2_000)), BytesQuotaExceeded)
    node.set("acme/dev", retention_records=0)
    node.hand.advance(3_000)
    assert node.used("acme/dev")[BYTES_QUOTA, "namespace"] == 0
    assert node.put("acme/dev/a", bytes(2_000)) is None
    assert node.put("acme/prod/b", bytes(500)) is None


def test_what_is_under_way_counts() -> None:
    node = InventoryTopics()
    node.create("acme/dev/a")
    node.set("acme/dev", quota_bytes=10_000)
    answers = [node.send("acme/dev/a", bytes(1_000)) for _ in range(20)]
    node.hand.settle()
    errors = [answer.calls[0][1] for answer in answers]
    assert errors.count(None) == 9
    assert {type(error) for error in errors if error is not None} == {BytesQuotaExceeded}
    assert 9_000 < node.used("acme/dev")[BYTES_QUOTA, "namespace"] <= 10_000


def test_bytes_go_with_namespaces() -> None:
    node = InventoryTopics()
    for path in ("acme/dev/a", "acme/prod/b"):
        node.create(path)
        assert node.put(path, bytes(1_000)) is None
    for tenant in ("acme", "bolt"):
        node.set(tenant, quota_bytes=1_000_000)
    inventory = node.inventory
    bolt, dev = inventory.tenant(ACCOUNT, "bolt"), inventory.namespace(ACCOUNT, "acme", "dev")
    size = node.used("acme")[BYTES_QUOTA, "tenant"]
    node.do(inventory.change, UpdateNamespace(dev.id, bolt.id, "moved", None))
    assert node.used("acme")[BYTES_QUOTA, "tenant"] == node.used("bolt")[BYTES_QUOTA, "tenant"] == size // 2
    node.do(inventory.change, DeleteNamespace(dev.id))
    assert node.used("bolt")[BYTES_QUOTA, "tenant"] == 0


@pytest.mark.parametrize("steps", range(0, 28, 3))
def test_first_records_of_a_topic_that_moves_count_where_it_moves_to(steps: int) -> None:
    node, chance, moved = InventoryTopics(), random.Random(steps), CallbackResult[object]()
    node.create("acme/dev/a")
    for namespace in ("acme/dev", "acme/prod"):
        node.set(namespace, quota_bytes=1_000_000)
    node.inventory.move_topic(ACCOUNT, at("acme/dev/a"), at("acme/prod/b"), moved, keep_alias=False)
    for _ in range(steps):
        node.hand.worker.run_soon()
        node.hand.worker.step(chance.choice(("sync", "disk", "rows", "rows")))
    here = "acme/dev/a" if node.topics.find("acme.dev.a") is not None else "acme/prod/b"
    stored = node.send(here, bytes(1_000))
    node.hand.settle()
    assert moved.value is None
    assert stored.calls[0][1] is None
    assert node.used("acme/dev")[BYTES_QUOTA, "namespace"] == 0
    assert node.used("acme/prod")[BYTES_QUOTA, "namespace"] > 1_000


def test_topics_without_records_move_without_a_record() -> None:
    node = InventoryTopics()
    for name in "ab":
        node.create(f"acme/dev/{name}")
    assert node.put("acme/dev/a", b"1") is None

    def records() -> int:
        return sum(one.log.end_offset for one in node.hand.broker.streams.get(INVENTORY_QUEUES).partitions)

    assert records() == 1
    node.move("acme/dev/b", "acme/prod/b")
    assert records() == 1
    node.move("acme/dev/a", "acme/prod/a")
    assert records() == 2
