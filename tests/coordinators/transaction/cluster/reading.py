"""What a consumer of committed records sees at the leader of a partition of the scripted nodes."""

from tests.coordinators.transaction.cluster.world import World
from tests.coordinators.transaction.transacting import committed_values

from duramen.codec.batch import CONTROL, header
from duramen.codec.markers import Marker, decode_marker
from duramen.storage.segment.reader import Slice

__all__ = ["committed", "ends", "markers", "undecided"]


def committed(world: World, stream: str, index: int) -> list[bytes | None]:
    """What is read at the leader."""
    node, _ = world.led(stream, index)
    return committed_values(node, stream, index)


def undecided(world: World, stream: str, index: int) -> bool:
    """Whether readers wait for the end of a transaction."""
    _, partition = world.led(stream, index)
    return partition.last_stable_offset != partition.log.end_offset


def ends(world: World, stream: str, index: int) -> list[Marker]:
    """What the markers at the leader say that ended something, without where that began."""
    return [marker._replace(first_offset=None) for _, marker in markers(world, stream, index)]


def markers(world: World, stream: str, index: int) -> list[tuple[int, Marker]]:
    """The markers at the leader that ended something, by their offsets."""
    _, partition = world.led(stream, index)
    log, found, position = partition.log, [], partition.log.start_offset
    while position < log.high_watermark:
        plan = log.plan_read(position, 1)
        assert isinstance(plan, Slice)
        pieces = plan.piece(1 << 20)
        assert isinstance(pieces, list)
        (piece,) = pieces
        head = header(piece)
        marker = decode_marker(piece) if head.attributes & CONTROL else None
        if marker is not None and marker.first_offset is not None and marker.first_offset >= 0:
            found.append((head.base_offset, marker))
        position = head.next_offset
    return found
