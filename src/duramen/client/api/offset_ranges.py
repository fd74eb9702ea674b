"""Start and end positions of a read, resolved to offsets of each partition."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, SupportsIndex, TypeAlias

from duramen.base.errors import RequestInvalid, StreamNotFound
from duramen.base.positions import At, Last, Position, Since, parse_position
from duramen.client.api.arguments import INT64_MAX, refused, whole
from duramen.client.cluster import BrokerCluster, TopicLeaders, TopicPartition
from duramen.client.consumer import Consumer
from duramen.client.places import FOREVER, check_places, places

__all__ = ["OffsetRange", "Where", "find_stream", "parse_where", "spans", "text_of"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Where: TypeAlias = str | int | datetime
"""start, end, an offset, -N for the last N of each partition, @TIME as the command line has it, or a datetime."""


class OffsetRange(NamedTuple):
    """The first offset of a read in a partition, and the offset before which it ends."""

    first: int
    end: int


def parse_where(where: Where, name: str) -> Position:
    """The position in the argument `name`. Raises RequestInvalid."""
    if isinstance(where, datetime):
        aware = where if where.tzinfo is not None else where.replace(tzinfo=UTC)
        return Since(max(0, round((aware - _EPOCH) / timedelta(milliseconds=1))))
    if isinstance(where, bool) or not isinstance(where, SupportsIndex | str):
        raise refused(name, where, "str, int or datetime")
    said = where if isinstance(where, str) else str(whole(name, where, -INT64_MAX, INT64_MAX))
    try:
        return parse_position(said, int(time.time() * 1000))
    except ValueError as error:
        raise RequestInvalid(f"{name}: {error}") from None


def text_of(where: Where, name: str) -> str:
    """The argument `name` in the notation of the command line and HTTP. Raises RequestInvalid."""
    match parse_where(where, name):
        case At(offset):
            return str(offset)
        case Last(count):
            return f"-{count}"
        case Since(timestamp_ms):
            return f"@{timestamp_ms}"
        case named:
            return named


def find_stream(cluster: BrokerCluster, name: str) -> TopicLeaders:
    """A stream by its name. Raises StreamNotFound with a hint how to create it."""
    try:
        return cluster.topic(name)
    except StreamNotFound as error:
        tenant, namespace, topic = [*name.split(".", 2), "", ""][:3]
        makes = f"client.streams.create({name!r}) makes one"
        if topic:
            path = f"{tenant}/{namespace}"
            makes = f"client.inventory.create_topics({path!r}, [{topic!r}]) makes a topic, streams.create a stream"
        raise StreamNotFound(f"{error}; {makes}") from None


def spans(
    consumer: Consumer, wanted: list[TopicPartition], first: Position, end: Position | None
) -> dict[TopicPartition, OffsetRange]:
    """The range of each partition; without an `end` it is endless. Raises OffsetOutOfRange or RequestInvalid."""
    if len(wanted) > 1 and isinstance(first, At):
        raise RequestInvalid(f"stream {wanted[0].topic} has {len(wanted)} partitions: offset={first.offset} needs a "
                             "partition=")  # fmt: skip
    bounds = consumer.bounds(wanted)
    firsts = places(consumer, first, bounds)
    ends = dict.fromkeys(wanted, FOREVER) if end is None else places(consumer, end, bounds)
    check_places(firsts, bounds)
    return {at: OffsetRange(firsts[at], ends[at]) for at in wanted}
