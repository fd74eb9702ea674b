"""Which topics are gone for ever, though rows change between two looks at them."""

from collections.abc import Callable, Collection
from typing import Any, cast
from uuid import UUID

import pytest
from tests.coordinators.inventory.test_cluster_reads import Rows
from tests.sim.planted import Bug, Place, planted

from duramen.coordinators.inventory.gone import GONE, GoneTopics
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.inventory.ids import TopicKey, topic_id
from duramen.inventory.packing import pack_names
from duramen.inventory.reading import InventoryRows
from duramen.inventory.rows import body_key, body_value, dropped_key, place_key, place_value

INVENTORY = UUID(int=7)
HERE, THERE = 1, 2
KEPT, DELETED, UNKNOWN = (topic_id(INVENTORY, TopicKey(0, sequence)) for sequence in range(3))


class Shards:
    """One shard with topics in the namespace HERE; `during` is called before the row of a namespace is read."""

    inventory_id, count = INVENTORY, 1

    def __init__(self, during: Callable[[Rows], object] = lambda _: None) -> None:
        shards = self

        class Watched(Rows):
            def get(self, key: bytes) -> bytes | None:
                if key[:1] == dropped_key(HERE)[:1]:
                    during(shards.stored)
                return super().get(key)

        self.stored = Watched()
        self.stored.put({body_key(1): body_value(HERE, 2, pack_names([b"a", b"b"])), place_key(1): place_value(0, b"")})

    def rows(self) -> InventoryRows:
        return InventoryRows([self.stored], lambda _: True)

    def read(self, query: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(query())

    def find(self, *ids: UUID) -> dict[UUID, int]:
        answers = list[Any]()
        GoneTopics(cast("InventoryShards", self)).find(ids, answers.append)
        return dict(answers[0])


def drop(rows: Rows) -> None:
    rows.put({dropped_key(HERE): b""})


def move_and_drop(rows: Rows) -> None:
    rows.put({place_key(0): place_value(THERE, b"a"), dropped_key(HERE): b""})


def test_a_topic_is_gone_once_its_shard_has_dropped_its_namespace() -> None:
    ids = KEPT, DELETED, UNKNOWN, UUID(int=5)
    assert Shards().find(*ids) == {KEPT: HERE, DELETED: GONE}
    assert Shards(drop).find(*ids) == {KEPT: GONE, DELETED: GONE}


def test_a_topic_that_moves_between_two_looks_is_not_gone() -> None:
    assert Shards(move_and_drop).find(KEPT) == {KEPT: THERE}


def _look_once(right: Callable[..., Any]) -> Callable[..., Any]:
    def _look(self: GoneTopics, ids: Collection[UUID]) -> Any:
        found, dropped = right(self, ids)
        return {id_: GONE if id_ in dropped else namespace for id_, namespace in found.items()}, []

    return _look


def test_a_planted_bug_is_found() -> None:
    with planted(Bug("one-look", "", (Place(GoneTopics, "_look", _look_once),))), pytest.raises(AssertionError):
        test_a_topic_that_moves_between_two_looks_is_not_gone()
