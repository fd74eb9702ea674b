"""Replicas are told of their partitions: some in each turn, new leaders first, and each as it is by then."""

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.ids import StreamId
from duramen.controller.membership import publisher as telling
from duramen.controller.membership.publisher import MetadataPublisher
from duramen.metadata.partitions import PartitionId

STREAM = StreamId(int=9)


class World:
    """What was told in each turn."""

    def __init__(self) -> None:
        self.turns: list[list[int]] = [[]]
        self._soon: deque[Callable[[], None]] = deque()
        self.telling = MetadataPublisher(self._soon.append, lambda place: self.turns[-1].append(place.partition))

    def begin(self, *partitions: int, led: bool = False) -> None:
        for partition in partitions:
            self.telling.begin(PartitionId(STREAM, partition), led=led)

    def turn(self) -> bool:
        """Another turn; whether there was anything to do in it."""
        self.turns.append([])
        waiting, self._soon = list(self._soon), self._soon
        self._soon.clear()
        for action in waiting:
            action()
        return bool(waiting)


@pytest.fixture(autouse=True)
def three_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "_AT_ONCE", 3)


def test_a_few_are_told_at_once() -> None:
    world = World()
    world.begin(1, 2)
    assert world.turns == [[1, 2]]
    world.turn()
    world.begin(1)
    assert world.turns[-1] == [1]


def test_of_many_some_are_told_in_each_turn_and_new_leaders_first() -> None:
    world = World()
    world.begin(1, 2, 3, 4, 5, 6)
    world.begin(7, 5, led=True)
    while world.turn():
        pass
    assert world.turns[:3] == [[1, 2, 3], [7, 5, 4], [6]]


def test_what_changes_while_it_waits_is_told_once() -> None:
    world = World()
    world.begin(1, 2, 3, 4, 5, 4, 4, 5)
    while world.turn():
        pass
    assert world.turns[:2] == [[1, 2, 3], [4, 5]]


def test_what_is_held_back_is_told_after_the_release_and_as_it_is_by_then() -> None:
    world = World()
    world.telling.hold()
    world.begin(1, 2, 3, 4, 5)
    while world.turn():
        pass
    world.begin(6, 4, led=True)
    while world.turn():
        pass
    assert [turn for turn in world.turns if turn] == [[1, 2, 3]]
    world.telling.release()
    while world.turn():
        pass
    assert [turn for turn in world.turns if turn] == [[1, 2, 3], [6, 4, 5]]


def test_a_few_are_told_at_once_though_the_rest_would_be_held_back() -> None:
    world = World()
    world.telling.hold()
    world.begin(1, 2)
    world.turn()
    world.begin(3)
    assert world.turns == [[1, 2], [3]]
    world.telling.release()
    world.turn()
    assert not world.turn()


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans())))
def test_whatever_changes_is_told_afterwards(changes: list[tuple[int, bool, bool]]) -> None:
    world = World()
    at: dict[int, int] = {}
    for partition, led, turn in changes:
        at[partition] = sum(map(len, world.turns))
        world.begin(partition, led=led)
        if turn:
            world.turn()
    while world.turn():
        assert len(world.turns[-1]) <= 3
    told = [partition for turn in world.turns for partition in turn]
    assert all(partition in told[begun:] for partition, begun in at.items())
