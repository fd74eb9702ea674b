"""What is said of records that are gone: which they are, why, and since when.

Since when is the brokers' to say (`client.origin`). Those that cannot (Apache Kafka; a node that has started again
since) still have the record that a log begins with now, and its time.
"""

from datetime import UTC, datetime
from uuid import UUID

from duramen.base.errors import DuramenError
from duramen.client import Consumer, TopicPartition
from duramen.client.origin import Origin, origin_of
from duramen.codec.batch import batches

__all__ = ["cut_off", "log_start", "made_anew", "moment", "not_there"]


def moment(time_ms: int) -> str:
    """A time for people: 2026-11-22T14:03:11Z."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):
        return f"{time_ms} ms"


def cut_off(consumer: Consumer, at: TopicPartition, first: int, end: int) -> str:
    """The records `[first, end)` were asked for, and the log has others. Raises what asking for its bounds raises."""
    gone = f"{at}: the records {first} to {end - 1} are gone"
    start, log_end = consumer.bounds([at])[at]
    if first >= start:
        return f"{gone}: its log ends at {log_end} now"
    return f"{gone}{_begins(consumer, at, start)}"


def log_start(consumer: Consumer, at: TopicPartition, start: int) -> str:
    """Why there is nothing before `start`, if it is the log that begins there."""
    return _begins(consumer, at, start) if consumer.bounds([at])[at][0] == start else ""


def _begins(consumer: Consumer, at: TopicPartition, start: int) -> str:
    return f": its log begins at {start}{_since(consumer, at, start)} (retention, or deleted records)"


def _since(consumer: Consumer, at: TopicPartition, start: int) -> str:
    origin = _origin(consumer, at)
    if origin is not None and origin.start_moved_ms >= 0:
        return f" since {moment(origin.start_moved_ms)}"
    time_ms = _time_at(consumer, at, start)
    return "" if time_ms is None else f", with a record of {moment(time_ms)}"


def _origin(consumer: Consumer, at: TopicPartition) -> Origin | None:
    try:
        return origin_of(consumer.cluster, at)
    except DuramenError:
        return None  # what is gone is said in any case


def _time_at(consumer: Consumer, at: TopicPartition, offset: int) -> int | None:
    """The time of the first batch from `offset` on; None where there is none at once."""
    try:
        fetched = consumer.fetch({at: offset}, max_wait_ms=0)
    except DuramenError:
        return None
    times = (head.base_timestamp for one in fetched for piece in one.pieces for _, head in batches(piece))
    return next((time_ms for time_ms in times if time_ms >= 0), None)


def not_there(consumer: Consumer, stream: str, expected: UUID | None, error: DuramenError) -> str:
    """Reading the stream with the id `expected` has ended with `error`."""
    try:
        found = consumer.cluster.topics([stream]).get(stream)
    except DuramenError:
        found = None
    return made_anew(consumer, stream) if found is not None and expected not in (None, found.id) else str(error)


def made_anew(consumer: Consumer, stream: str) -> str:
    """Another stream has that name now."""
    origin = _origin(consumer, TopicPartition(stream, 0))
    when = f" at {moment(origin.created_ms)}" if origin is not None and origin.created_ms >= 0 else ""
    return f"stream {stream} was deleted and created again{when}"
