"""A rolling upgrade's last step: nodes hear of the new feature level one after the other, and understand each other."""

from tests.coordinators.transaction.cluster.reading import committed
from tests.coordinators.transaction.cluster.world import World
from tests.coordinators.transaction.cluster.writing import Writer


def write(world: World, writer: Writer, value: bytes) -> None:
    """A transaction over partitions of all leaders."""
    for index in range(3):
        writer.write("a", index, value)
    writer.end(commit=True)
    world.advance(1_000)


def test_transactions_go_on_while_one_node_has_not_heard_of_the_new_level(world: World) -> None:
    writers = [Writer(world, name, 2) for name in ("t", "u", "v")]
    for writer in writers:
        write(world, writer, b"old")
    assert {table for _, table in world.spoken} == {False}
    world.spoken.clear()
    world.deaf.add(3)
    world.raise_level()
    world.settle()
    for writer in writers:
        write(world, writer, b"mixed")
    assert {(1, True), (2, True), (3, False)} >= world.spoken
    assert {table for _, table in world.spoken} == {False, True}
    world.spoken.clear()
    world.deaf.clear()
    world.settle()
    for writer in writers:
        write(world, writer, b"new")
    assert {table for _, table in world.spoken} == {True}
    for index in range(3):
        assert committed(world, "a", index) == [b"old"] * 3 + [b"mixed"] * 3 + [b"new"] * 3
