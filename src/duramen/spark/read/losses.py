"""Messages about lost records: which were lost, why, and since when.

Brokers report since when (`client.origin`). Some cannot: Apache Kafka, and a node that has restarted since. Then the
message has the first record of the log, and its time.
"""

from collections.abc import Mapping
from uuid import UUID

from duramen.base.catalogue.queues import KIND, LOG_RETENTION_MS, QUEUES
from duramen.base.errors import DuramenError
from duramen.base.units import moment
from duramen.client import Consumer, StreamAdmin, TopicPartition
from duramen.client.origin import Origin, origin_of, origins_of
from duramen.codec.batch import batches

__all__ = ["begun_behind", "cut_off", "log_start", "made_anew", "moment", "not_there"]


def cut_off(consumer: Consumer, at: TopicPartition, first: int, end: int) -> str:
    """The requested records `[first, end)` are not in the log. Raises errors of the request for its bounds."""
    gone = f"{at}: the records {first} to {end - 1} are gone"
    start, log_end = consumer.bounds([at])[at]
    if first >= start:
        return f"{gone}: its log ends at {log_end} now"
    return f"{gone}{_begins(consumer, at, start)}"


def log_start(consumer: Consumer, at: TopicPartition, start: int) -> str:
    """The reason why the log starts at `start`, if it does."""
    return _begins(consumer, at, start) if consumer.bounds([at])[at][0] == start else ""


def begun_behind(consumer: Consumer, begins: Mapping[TopicPartition, int]) -> list[str]:
    """For reads from these offsets: records before them that retention deleted as soon as they were written."""
    trimmed = [at for at, offset in begins.items() if offset > 0]
    try:
        origins = origins_of(consumer.cluster, trimmed)
    except DuramenError:
        return []  # only a hint: the read itself reports problems of the cluster
    return [
        f"{at}: reading begins at {origin.start_offset}: {_late(origin)}"
        for at, origin in origins.items()
        if origin.late_records and origin.start_offset == begins[at]
    ]


def _begins(consumer: Consumer, at: TopicPartition, start: int) -> str:
    origin = _origin(consumer, at)
    why = _why(consumer, at) if origin is None or not origin.late_records else _late(origin)
    return f": its log begins at {start}{_since(consumer, at, start, origin)} ({why})"


def _why(consumer: Consumer, at: TopicPartition) -> str:
    try:
        kind = StreamAdmin(consumer.cluster).stream_configs(at.topic, [KIND]).get(KIND)
    except DuramenError:
        kind = None
    if kind != QUEUES:
        return "retention, or deleted records"
    return (
        f"the log of a queue space keeps its operations for {LOG_RETENTION_MS}; all entries of its queues are read with"
        " the option queues"
    )


def _late(origin: Origin) -> str:
    return (
        f"retention deleted {origin.late_records} records soon after they were written, because their timestamps, the"
        f" newest {moment(origin.late_newest_ms)}, were older than retention.ms"
    )


def _since(consumer: Consumer, at: TopicPartition, start: int, origin: Origin | None) -> str:
    if origin is not None and origin.start_moved_ms >= 0:
        return f" since {moment(origin.start_moved_ms)}"
    time_ms = _time_at(consumer, at, start)
    return "" if time_ms is None else f", with a record of {moment(time_ms)}"


def _origin(consumer: Consumer, at: TopicPartition) -> Origin | None:
    try:
        return origin_of(consumer.cluster, at)
    except DuramenError:
        return None  # the loss is reported in any case


def _time_at(consumer: Consumer, at: TopicPartition, offset: int) -> int | None:
    """The time of the first batch from `offset` on; None if there is none immediately."""
    try:
        fetched = consumer.fetch({at: offset}, max_wait_ms=0)
    except DuramenError:
        return None
    times = (head.base_timestamp for one in fetched for piece in one.pieces for _, head in batches(piece))
    return next((time_ms for time_ms in times if time_ms >= 0), None)


def not_there(consumer: Consumer, stream: str, expected: UUID | None, error: DuramenError) -> str:
    """The read of the stream with the id `expected` has failed with `error`."""
    try:
        found = consumer.cluster.topics([stream]).get(stream)
    except DuramenError:
        found = None
    return made_anew(consumer, stream) if found is not None and expected not in (None, found.id) else str(error)


def made_anew(consumer: Consumer, stream: str) -> str:
    """The stream was deleted and created again."""
    origin = _origin(consumer, TopicPartition(stream, 0))
    when = f" at {moment(origin.created_ms)}" if origin is not None and origin.created_ms >= 0 else ""
    return f"stream {stream} was deleted and created again{when}"
