"""Records of topics that are gone leave the rows, and no others do: as a model has it, through crashes and races."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import UUID

import pytest
from tests.service.inventory import ACCOUNT, InventoryTopics, at
from tests.sim.planted import Bug, Place, planted

from duramen.base.catalogue.inventory import BYTES_QUOTA
from duramen.base.errors import DuramenError
from duramen.coordinators.inventory.changing import Change
from duramen.coordinators.inventory.gone import GONE, GoneTopics
from duramen.coordinators.inventory.shard import INVENTORY_QUEUES
from duramen.inventory.directory import DeleteNamespace, DeleteTenant
from duramen.inventory.machine import PlaceTopic, TopicShardState
from duramen.queues.machine import Enqueue
from duramen.queues.operations import NewEntry
from duramen.queues.owners import owners
from duramen.service.leftover_records import LeftoverRecords
from duramen.sim.broker import CallbackResult

NAMESPACES: Final = ("acme/dev", "acme/prod", "bolt/dev", "bolt/prod")
ROUND_MS: Final = 12_000
"""Changes are resumed after 5 s, and leftovers are looked for each second."""


def stored(node: InventoryTopics) -> dict[UUID, int]:
    """The rows of queues, by the ids of their topics."""
    broker, found = node.hand.broker, dict[UUID, int]()
    for partition in broker.streams.get(INVENTORY_QUEUES).partitions:
        rows = broker.coordinators.rows(INVENTORY_QUEUES, partition.index)
        for key, name in list(rows.scan(b"n", b"o")):
            kinds = (b"n", b"r", b"s", b"o", b"w", b"d")
            count = sum(1 for kind in kinds for _ in rows.scan(kind + key[1:], kind + key[1:] + b"\xff" * 9))
            found[UUID(name.decode())] = count
    return found


def stored_bytes(node: InventoryTopics) -> int:
    broker = node.hand.broker
    return sum(
        size
        for partition in broker.streams.get(INVENTORY_QUEUES).partitions
        for _, size in owners(broker.coordinators.rows(INVENTORY_QUEUES, partition.index), 0)
    )


class Checked:
    """Topics with their records by id: what is gone is not in it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.node = InventoryTopics(seed)
        self.records: dict[UUID, list[bytes]] = {}

    def paths(self) -> dict[str, UUID]:
        inventory, found = self.node.inventory, dict[str, UUID]()
        for tenant in inventory.tenants(ACCOUNT, ""):
            for namespace in inventory.namespaces(tenant, ""):
                names = [f"{number}" for number in range(6)]
                for one in inventory.lookup(ACCOUNT, tenant.name, namespace.name, names):
                    if one is not None:
                        found[str(one.path)] = one.id
        return found

    def ask(self, what: Callable[..., object], *wish: Any, **more: Any) -> None:
        with suppress(DuramenError):
            what(*wish, CallbackResult[Any](), **more)

    def path(self) -> str:
        return f"{self.chance.choice(NAMESPACES)}/{self.chance.randrange(6)}"

    def change(self) -> None:
        do, path, inventory = self.chance.random(), self.path(), self.node.inventory
        if do < 0.5:
            self.ask(inventory.move_topic, ACCOUNT, at(path), at(self.path()), keep_alias=False)
        elif do < 0.6:
            self.ask(inventory.delete_topic, ACCOUNT, at(path))
        else:
            tenant, namespace, _ = path.split("/")
            with suppress(DuramenError):
                gone = inventory.namespace(ACCOUNT, tenant, namespace)
                command = DeleteTenant(gone.tenant) if do > 0.95 else DeleteNamespace(gone.id)
                self.ask(inventory.change, command)

    def fill(self) -> None:
        """Make everything that is missing, and put a record into some topics."""
        node = self.node
        node.do(node.inventory.create_tenants, ACCOUNT, ["acme", "bolt"], {})
        for namespace in NAMESPACES:
            tenant, name = namespace.split("/")
            node.do(node.inventory.create_namespaces, ACCOUNT, tenant, [name], {})
        for path in [self.path() for _ in range(6)]:
            tenant, name, topic = path.split("/")
            node.do(node.inventory.create_topics, node.inventory.namespace(ACCOUNT, tenant, name), [topic])
        for path, id_ in self.paths().items():
            if self.chance.random() < 0.7:
                value = b"%d" % self.chance.randrange(1 << 30)
                assert node.put(path, value) is None
                self.records.setdefault(id_, []).append(value)

    def delay(self) -> None:
        """Topics move seconds after their moves began, when names and records may be gone."""
        hand, shards = self.node.hand, self.node.inventory.shards
        submit, held = shards.submit_steps, list[Callable[[], None]]()

        def submit_steps(shard: int, steps: Sequence[Any], done: Any) -> None:
            if any(isinstance(step, PlaceTopic) for step in steps):
                held.append(partial(submit, shard, steps, done))
            else:
                submit(shard, steps, done)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shards, "submit_steps", submit_steps)
            for _ in range(self.chance.randrange(1, 8)):
                self.change()
            hand.settle()
            hand.advance(3_000)
        for step in held:
            step()
        hand.settle()

    def trouble(self) -> None:
        """Changes at once, stopped anywhere."""
        hand = self.node.hand
        for _ in range(self.chance.randrange(1, 6)):
            self.change()
            for _ in range(self.chance.randrange(6)):
                hand.worker.run_soon()
                hand.worker.step(self.chance.choice(("sync", "disk", "rows")))
        if self.chance.random() < 0.4:
            hand.crash(self.chance.randrange(1000))
        hand.settle()

    def check(self) -> None:
        there = self.paths()
        self.records = {id_: found for id_, found in self.records.items() if id_ in there.values()}
        for path, id_ in there.items():
            assert self.node.values(path) == self.records.get(id_, []), path
        assert stored(self.node).keys() == self.records.keys()


@pytest.mark.parametrize("seed", range(4))
def test_records_of_what_is_gone_leave_the_rows_and_no_others(seed: int) -> None:
    run = Checked(seed)
    for _ in range(6):
        run.fill()
        run.chance.choice((run.trouble, run.delay))()
        run.node.hand.advance(ROUND_MS)
        run.node.hand.advance(ROUND_MS)
        run.check()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_they_do_for_many_seeds(seed: int) -> None:
    test_records_of_what_is_gone_leave_the_rows_and_no_others(seed)


def test_many_topics_go_some_at_a_time_and_make_room() -> None:
    node, names = InventoryTopics(), [f"{number}" for number in range(150)]
    for namespace in ("dev", "prod"):
        node.do(node.inventory.create_topics, node.inventory.namespace(ACCOUNT, "acme", namespace), names)
        for name in names:
            assert node.put(f"acme/{namespace}/{name}", b"value") is None
    node.set("acme", quota_bytes=1_000_000)
    for number in range(10):
        node.set(f"acme/dev/{number}", retention_ms=3_600_000)  # the time index has it under no owner
    size, kept = stored_bytes(node), node.inventory.find(ACCOUNT, at("acme/prod/1")).id
    assert node.used("acme")[BYTES_QUOTA, "tenant"] == size
    node.do(node.inventory.change, DeleteNamespace(node.inventory.namespace(ACCOUNT, "acme", "dev").id))
    assert node.used("acme")[BYTES_QUOTA, "tenant"] == size // 2
    left = list[int]()
    while not left or left[-1] > 150:
        assert len(left) < 5
        node.hand.advance(1_000)
        left.append(len(stored(node)))
    assert kept in stored(node)
    assert stored_bytes(node) == node.used("acme")[BYTES_QUOTA, "tenant"] == size // 2
    node.do(node.inventory.create_namespaces, ACCOUNT, "acme", ["dev"], {})
    node.create("acme/dev/1")
    assert node.values("acme/dev/1") == []


@pytest.mark.parametrize("deleted", ["topic", "namespace"])
def test_what_an_older_version_left_goes_after_a_start(deleted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = InventoryTopics()
    for path in ("acme/dev/a", "acme/prod/b"):
        node.create(path)
        assert node.put(path, b"value") is None
    kept = node.inventory.find(ACCOUNT, at("acme/prod/b")).id
    with monkeypatch.context() as old:
        old.setattr(LeftoverRecords, "sweep", lambda *_: None)
        old.setattr(Change, "_drop", lambda self: self._end(None))
        if deleted == "topic":
            node.delete("acme/dev/a")
        else:
            node.do(node.inventory.change, DeleteNamespace(node.inventory.namespace(ACCOUNT, "acme", "dev").id))
        node.hand.advance(ROUND_MS)
        assert len(stored(node)) == 2
    node.hand.crash(7)
    node.hand.advance(ROUND_MS)
    assert stored(node).keys() == {kept}
    assert node.values("acme/prod/b") == [b"value"]


def test_queues_of_others_stay() -> None:
    node, space = InventoryTopics(), INVENTORY_QUEUES
    node.create("acme/dev/a")
    assert node.put("acme/dev/a", b"value") is None
    for name in (b"mine", b"f" * 32, b"0" * 31 + b"x", node.inventory.id.hex.encode()):
        node.do(node.hand.broker.coordinators.submit, space, 0, Enqueue([(name, NewEntry(b"value"))]))
    node.hand.restart()
    node.hand.advance(ROUND_MS)
    rows = node.hand.broker.coordinators.rows(space, 0)
    assert {b"mine", b"f" * 32, node.inventory.id.hex.encode()} <= {name for _, name in rows.scan(b"n", b"o")}


Original = Callable[..., Any]


def _believe_owners(_: Original) -> Original:
    def find(self: GoneTopics, ids: Any, done: Callable[[Any], None]) -> None:
        del self
        done(dict.fromkeys(ids, GONE))

    return find


def _let_topics_leave(original: Original) -> Original:
    def _place(self: Any, command: Any, rows: Any, row: Any = None) -> Any:
        checked = self._check_namespace
        self._check_namespace = lambda *_: None
        try:
            return original(self, command, rows, row)
        finally:
            self._check_namespace = checked

    return _place


def _keep_records(_: Original) -> Original:
    def _drop(self: Any) -> None:
        self._end(None)

    return _drop


def _find_nothing(_: Original) -> Original:
    def sweep(self: LeftoverRecords, space: Any) -> None:
        del self, space

    return sweep


BUGS: Final = (
    Bug("owners-believed", "", (Place(GoneTopics, "find", _believe_owners),), "records of a moved topic are deleted"),
    Bug("late-moves", "", (Place(TopicShardState, "_place", _let_topics_leave),), "a topic leaves a dropped namespace"),
    Bug("records-kept", "", (Place(Change, "_drop", _keep_records),), "records of a deleted topic stay"),
    Bug("no-sweep", "", (Place(LeftoverRecords, "sweep", _find_nothing),), "records of a deleted namespace stay"),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    with planted(bug):
        for seed in (100, 103, 111):
            try:
                test_records_of_what_is_gone_leave_the_rows_and_no_others(seed)
            except AssertionError:
                return
        pytest.fail("nobody sees it")
