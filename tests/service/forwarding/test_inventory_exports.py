"""Exports of the inventory of three brokers: through any node, every topic once, as it was when they were opened."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.coordinators.inventory.node import ACCOUNT
from tests.coordinators.inventory.several import SHARDS, SeveralInventories

from duramen.base.errors import DuramenError, ExportExpired, NotLeader
from duramen.base.units import MIB
from duramen.broker.streams import Stream
from duramen.codec.exports import FIRST_SEQUENCES, joined_names, read_topics_page
from duramen.coordinators.inventory.shard import DIRECTORY_SHARD, INVENTORY_STREAM
from duramen.inventory.exporting import DirectoryExport
from duramen.inventory.search import PageToken, TopicQuery
from duramen.service.forwarding.exports import ExportedShard, InventoryRange
from duramen.service.forwarding.forwarding import Forwarding
from duramen.service.forwarding.memory import Room
from duramen.sim.broker import CallbackResult

TENANTS = ("acme", "bolt")


class Exporting(SeveralInventories):
    """Nodes that ask each other for exports."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = {node: Forwarding(self.broker(node), self.placed[node], Room(MIB)) for node in self.hands}
        self.made = 0

    def stream(self, node: int) -> Stream:
        return self.broker(node).streams.get(INVENTORY_STREAM)

    def open(self, node: int) -> Sequence[ExportedShard]:
        answer: CallbackResult[Any] = CallbackResult()
        self.nodes[node].exports.open(self.stream(node), answer, last=[DIRECTORY_SHARD])
        self.wait(answer)
        found: Sequence[ExportedShard] = self._checked(answer)
        return found

    def page(self, node: int, shard: int, export: str, wanted: InventoryRange) -> bytes:
        answer: CallbackResult[Any] = CallbackResult()
        self.nodes[node].exports.read(self.stream(node), shard, export, wanted, answer)
        self.wait(answer)
        page: bytes = self._checked(answer)
        return page

    def _checked(self, answer: CallbackResult[Any]) -> Any:
        if isinstance(answer.value, DuramenError):
            raise answer.value
        return answer.value

    def exported(self, reader: int, shards: Sequence[ExportedShard]) -> list[str]:
        """The paths of all topics in an export that is read through a node."""
        ask, found = partial(self.page, reader), list[str]()
        content = ask(DIRECTORY_SHARD, shards[DIRECTORY_SHARD].export, InventoryRange("directory"))
        directory = msgspec.msgpack.decode(content, type=DirectoryExport)
        tenants = {one.id: one.name for one in directory.tenants}
        namespaces = {one.id: f"{tenants[one.tenant]}/{one.name}" for one in directory.namespaces}
        for shard, one in enumerate(shards):
            ends = msgspec.msgpack.decode(ask(shard, one.export, InventoryRange("sequences")), type=dict[str, int])
            for durability, end in ends.items():
                found += self.paths(partial(ask, shard, one.export), FIRST_SEQUENCES[durability], end, namespaces)
        return sorted(found)

    @staticmethod
    def paths(
        ask: Callable[[InventoryRange], bytes], begin: int, end: int, namespaces: Mapping[int, str]
    ) -> Iterator[str]:
        """The paths of the topics in a range of sequences."""
        first: int | None = begin
        while first is not None:
            page = read_topics_page(ask(InventoryRange("topics", first, end, 100)))
            moved = dict(zip(page.moved, zip(page.moved_namespaces, page.moved_names, strict=True), strict=True))
            for last, namespace, count, body in zip(page.lasts, page.namespaces, page.counts, page.bodies, strict=True):
                names = joined_names(body).split(b"\n")
                for sequence, name in enumerate(names, last - count + 1):
                    place = moved.get(sequence, (namespace, name))
                    if place[0] in namespaces:
                        yield f"{namespaces[place[0]]}/{place[1].decode()}"
            first = None if page.after is None else page.after + 1

    def every(self, node: int) -> list[str]:
        found = list[str]()
        for tenant in TENANTS:
            token: PageToken | None = PageToken()
            while token is not None:
                search = partial(self.search, tenant, token)
                page = self.read(node, search)
                found += [str(one.path) for one in page.topics if not one.alias]
                token = page.token
        return sorted(found)

    @staticmethod
    def search(tenant: str, token: PageToken, inventory: Any) -> Any:
        return inventory.search(ACCOUNT, tenant, "", TopicQuery(), token, 100)

    def alter(self, chance: random.Random) -> None:
        node, draw, there = chance.randrange(1, 4), chance.random(), self.every(1)
        tenant, namespace = chance.choice(TENANTS), chance.choice(("dev", "prod"))
        self.made += 1
        if draw < 0.5 or not there:
            names = [f"t{self.made}-{number}" for number in range(chance.choice((1, 3, 40)))]
            self.create(node, f"{tenant}/{namespace}", *names)
        elif draw < 0.8:
            self.move(node, chance.choice(there), f"{tenant}/{namespace}/m{self.made}")
        elif draw < 0.95:
            self.delete(node, chance.choice(there))
        else:
            self.do(node, lambda inventory: inventory.create_namespaces, ACCOUNT, tenant, ["new"], {})
            self.create(node, f"{tenant}/new", f"n{self.made}")


@pytest.mark.parametrize("seed", range(2))
def test_an_export_has_every_topic_once_through_any_node(seed: int) -> None:
    chance, several = random.Random(seed), Exporting()
    for _ in range(3):
        for _ in range(3):
            several.alter(chance)
        several.take_over(chance.randrange(1, 4), chance.randrange(SHARDS))
        expected = several.every(chance.randrange(1, 4))
        opened = several.open(chance.randrange(1, 4))
        several.alter(chance)  # it changes nothing in the export
        several.take_over(chance.randrange(1, 4), chance.randrange(SHARDS))
        assert several.exported(chance.randrange(1, 4), opened) == expected


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 40))
def test_it_has_for_many_seeds(seed: int) -> None:
    test_an_export_has_every_topic_once_through_any_node(seed)


def test_topics_that_move_to_a_new_namespace_meanwhile_are_exported() -> None:
    several, names = Exporting(), [f"t{number}" for number in range(6)]
    several.create(1, "acme/dev", *names)
    several.slow.add((3, 2))
    answer: CallbackResult[Any] = CallbackResult()
    several.nodes[3].exports.open(several.stream(3), answer, last=[DIRECTORY_SHARD])
    several.settle()
    assert not answer.there
    several.do(1, lambda inventory: inventory.create_namespaces, ACCOUNT, "acme", ["late"], {})
    for name in names:
        several.move(1, f"acme/dev/{name}", f"acme/late/{name}")
    several.slow.clear()
    several.arrive()
    several.wait(answer)
    assert several.exported(1, answer.value) == [f"acme/late/{name}" for name in names]


def test_an_export_says_which_shards_have_no_leader() -> None:
    several = Exporting()
    several.create(1, "acme/dev", "a", "b", "c", "d")
    opened = several.open(1)
    several.elect(several.place(INVENTORY_STREAM, 2), None)
    for node in several.hands:
        with pytest.raises(NotLeader, match="shard 2 of __inventory cannot be exported"):
            several.open(node)
    assert several.exported(2, opened) == [f"acme/dev/{name}" for name in "abcd"]


def test_a_node_refuses_shards_that_its_export_does_not_have() -> None:
    several = Exporting()
    several.create(1, "acme/dev", "a", "b", "c", "d")
    opened = several.open(1)
    for shard, other in (0, 1), (1, 2), (2, 0):
        assert opened[shard].export.partition(".")[0] != opened[other].export.partition(".")[0]
        with pytest.raises(ExportExpired, match=f"does not have shard {shard} of __inventory"):
            several.page(1, shard, opened[other].export, InventoryRange("sequences"))
