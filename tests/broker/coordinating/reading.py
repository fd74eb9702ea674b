"""What a consumer of committed records sees at the leader of a partition of the scripted nodes."""

from tests.broker.coordinating.world import World
from tests.broker.transacting import committed_values

__all__ = ["committed", "undecided"]


def committed(world: World, stream: str, index: int) -> list[bytes | None]:
    """What is read at the leader."""
    node, _ = world.led(stream, index)
    return committed_values(node, stream, index)


def undecided(world: World, stream: str, index: int) -> bool:
    """Whether readers wait for the end of a transaction."""
    _, partition = world.led(stream, index)
    return partition.last_stable_offset != partition.log.end_offset
