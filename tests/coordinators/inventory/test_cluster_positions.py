"""Positions that clients say: a node adopts those that leaders confirm, and no wrong one affects another request."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.several import Several
from tests.coordinators.inventory.node import ACCOUNT, at
from tests.coordinators.inventory.several import SHARDS, SeveralInventories

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator, RequestInvalid
from duramen.coordinators.inventory.inventory import Inventory
from duramen.coordinators.inventory.topics import FoundTopic
from duramen.inventory.names import TopicPath
from duramen.inventory.positions import split_position
from duramen.inventory.search import PageToken
from duramen.sim.broker import CallbackResult

Places = list[tuple[int, int]]

WRONG: dict[str, tuple[Callable[[tuple[int, int]], tuple[int, int]], type[DuramenError]]] = {
    "a later epoch": (lambda place: (place[0] + 1, place[1]), NotCoordinator),
    "the last epoch": (lambda _: ((1 << 31) - 1, 0), NotCoordinator),
    "beyond the log": (lambda place: (place[0], place[1] + 1_000), RequestInvalid),
    "the last offset": (lambda place: (place[0], (1 << 63) - 1), RequestInvalid),
}


@pytest.fixture(scope="module")
def several() -> SeveralInventories:
    result = SeveralInventories()
    result.create(1, "acme/dev", "a", "b", "c", "d", "e", "f")
    return result


def position(several: SeveralInventories, node: int) -> str:
    find(several, node, "acme/dev/a")
    return several.inventory(node).position


def find(several: SeveralInventories, node: int, path: str) -> TopicPath:
    there: FoundTopic = several.read(node, lambda inventory: inventory.find(ACCOUNT, at(path)))
    return there.path


def see(several: SeveralInventories, node: int, wanted: str | PageToken) -> Any:
    def what(inventory: Inventory) -> Callable[..., object]:
        return inventory.see_page if isinstance(wanted, PageToken) else inventory.see

    return several.do(node, what, wanted)


def text(places: Places) -> str:
    return ",".join(f"{epoch}.{offset}" for epoch, offset in places)


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_position_is_refused_and_no_other_request_is(
    several: SeveralInventories, wrong: str, shard: int
) -> None:
    change, error = WRONG[wrong]
    places = split_position(position(several, 1))
    places[shard] = change(places[shard])
    for node in several.hands:
        for wanted in (text(places), PageToken(positions=places)):
            with pytest.raises(error):
                see(several, node, wanted)
    for node in several.hands:
        assert find(several, node, "acme/dev/f") == at("acme/dev/f")
        assert split_position(position(several, node))[shard] < places[shard]


def test_a_position_of_another_node_is_confirmed_and_later_reads_are_no_older(several: SeveralInventories) -> None:
    for writer in several.hands:
        path = f"acme/dev/seen-{writer}"
        several.create(writer, "acme/dev", path.rpartition("/")[2])
        claimed = position(several, writer)
        for reader in several.hands:
            assert see(several, reader, claimed) is None
            known = split_position(several.inventory(reader).position)
            assert all(mine >= its for mine, its in zip(known, split_position(claimed), strict=True))
            assert find(several, reader, path) == at(path)


def test_a_node_that_does_not_know_the_inventory_yet_reads_nothing_older() -> None:
    answer: CallbackResult[Any] = CallbackResult()
    several = Several(3)
    several.broker(2).inventory.see("0.1,0.0", answer)
    assert isinstance(answer.error, CoordinatorLoading)
    several.broker(2).inventory.see("", unasked := CallbackResult[Any]())
    assert unasked.value is None


def test_a_position_of_fewer_or_more_shards_says_less_or_more(several: SeveralInventories) -> None:
    for wanted in ("", "0.0", "-1.0,0.0", text([(0, 0)] * SHARDS + [(9, 9)])):
        assert see(several, 2, wanted) is None
