"""A position in a log, resolved to an offset in each of its partitions."""

from collections.abc import Mapping
from typing import Final

from duramen.base.errors import OffsetOutOfRange, StreamNotFound
from duramen.base.positions import At, Last, Position, Since
from duramen.client.cluster import TopicLeaders, TopicPartition
from duramen.client.consumer import Consumer

__all__ = ["FOREVER", "Bounds", "check_places", "partitions_of", "places"]

FOREVER: Final = 1 << 62
"""The end of what is followed."""

Bounds = Mapping[TopicPartition, tuple[int, int]]
"""The first offset of each partition and the one after its last."""


def partitions_of(topic: TopicLeaders, partition: int | None) -> list[TopicPartition]:
    """The given partition, or all. Raises StreamNotFound."""
    if partition is not None and partition not in topic.leaders:
        raise StreamNotFound(f"stream {topic.name} has no partition {partition}; it has {len(topic.leaders)}")
    return [TopicPartition(topic.name, index) for index in (topic.leaders if partition is None else [partition])]


def check_places(firsts: Mapping[TopicPartition, int], bounds: Bounds) -> None:
    """Raise OffsetOutOfRange unless reading may begin at each of these offsets."""
    for at, (start, end) in bounds.items():
        if not start <= firsts[at] <= end:
            raise OffsetOutOfRange(f"{at} has the offsets {start} to {end - 1}, not {firsts[at]}")


def places(consumer: Consumer, position: Position, bounds: Bounds) -> dict[TopicPartition, int]:
    """The offset that `position` means in each partition; an offset is not checked. Raises what asking raises."""
    match position:
        case At(offset):
            return dict.fromkeys(bounds, offset)
        case Last(count):
            # Records that came after the bounds were asked for do not count.
            found = consumer.last(list(bounds), count)
            return {at: max(start, min(found[at], end - count)) for at, (start, end) in bounds.items()}
        case Since(timestamp_ms):
            found = consumer.offsets(dict.fromkeys(bounds, timestamp_ms))
            return {at: found[at] if found[at] >= 0 else end for at, (_, end) in bounds.items()}
        case "end":
            return {at: end for at, (_, end) in bounds.items()}
        case "start":
            return {at: start for at, (start, _) in bounds.items()}
