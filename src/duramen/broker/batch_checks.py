"""Checks batches of producers by the rules of their stream: sizes, keys, timestamps. Pure."""

from collections.abc import Sequence
from typing import Final, Protocol

from duramen.base.errors import BatchInvalid, BatchTooLarge, TimestampInvalid
from duramen.base.metrics import Counter, Histogram
from duramen.base.ports import Clock
from duramen.broker.queue_entries import check_entries
from duramen.broker.recompression import Recompressing
from duramen.codec.batch import CODEC_MASK, Header, check, first_timestamp, records, set_max_timestamp
from duramen.codec.plain import newest_keyed
from duramen.storage.log.log import NEVER

__all__ = ["StreamRules", "check_batch", "too_large"]

_NO_TIMESTAMP: Final = -1
_SHOWN_RECORDS: Final = 1000  # of the records that are wrong in a batch, so many are named


class StreamRules(Protocol):
    """The stream's values that a partition needs: effective configs, and counters."""

    name: str
    deleted: bool
    append_time: bool
    compacted: bool
    keyed: bool
    shards: int  # of a queue space; 0: it is none
    shard_limits: tuple[int, int]  # of a queue space: the most entries and bytes of a shard; -1: any number
    hash_key: bytes  # of a queue space: the key of the hash of its queues' names
    owned: bool  # whether queues have owners
    log_retention_ms: int  # of a queue space
    kept: str  # why records are not deleted by request; empty where they are
    takes_as_is: bool  # counts of batches, by their headers
    max_message_bytes: int
    decoded_limit_bytes: int
    recompressing: Recompressing | None  # None where batches are kept as they come
    timestamp_before_ms: int
    timestamp_after_ms: int
    records_in: Counter
    bytes_in: Counter
    records_out: Counter
    bytes_out: Counter
    batch_records: Histogram
    batch_bytes: Histogram


def check_batch(batch: bytearray | memoryview, stream: StreamRules, index: int, clock: Clock) -> Header:
    """The header of a batch that partition `index` of the stream may append. Raises the errors of `Partition.append`.

    If its records are examined, or it has only one, the header's largest timestamp is then that of the records.
    """
    head = check(batch)
    if len(batch) > stream.max_message_bytes:
        raise too_large(batch, stream)
    newest = head.max_timestamp
    if stream.shards:
        newest = check_entries(
            batch, stream.name, index, stream.shards, stream.decoded_limit_bytes, owned=stream.owned
        )  # fmt: skip
    elif stream.compacted:
        newest = _check_keys(batch, stream)
    elif head.records == 1 and not head.attributes & CODEC_MASK:
        newest = first_timestamp(batch, head)
    if not stream.append_time:
        now_ms = clock.wall_ms()
        late = newest - now_ms > stream.timestamp_after_ms
        # The header does not have the oldest timestamp: it is read from the records if needed.
        if late or stream.timestamp_before_ms < NEVER:
            newest = _check_timestamps(batch, stream, now_ms)
        newest = max(newest, _NO_TIMESTAMP)
        if newest != head.max_timestamp:
            head = set_max_timestamp(batch, newest)
    return head


def _check_keys(batch: bytearray | memoryview, stream: StreamRules) -> int:
    """The largest timestamp of a batch whose records all have a key. Raises BatchInvalid."""
    found = newest_keyed(batch, stream.decoded_limit_bytes)
    if found is not None:
        return max(found, _NO_TIMESTAMP)
    newest, wrong = _NO_TIMESTAMP, []
    for place, record in enumerate(records(batch, verify=False, limit_bytes=stream.decoded_limit_bytes)):
        newest = max(newest, record.timestamp)
        if record.key is None:
            wrong.append((place, "a record without a key"))
    if wrong:
        error = BatchInvalid(f"stream {stream.name} is compacted: every record needs a key{_count(wrong)}")
        error.records = wrong[:_SHOWN_RECORDS]
        raise error
    return newest


def _check_timestamps(batch: bytearray | memoryview, stream: StreamRules, now_ms: int) -> int:
    """The largest timestamp of a batch whose records are not too far from now. Raises TimestampInvalid."""
    first, last = now_ms - stream.timestamp_before_ms, now_ms + stream.timestamp_after_ms
    newest, wrong = _NO_TIMESTAMP, []
    for place, record in enumerate(records(batch, verify=False, limit_bytes=stream.decoded_limit_bytes)):
        timestamp = record.timestamp
        newest = max(newest, timestamp)
        if timestamp != _NO_TIMESTAMP and not first <= timestamp <= last:
            wrong.append((place, f"{_apart(timestamp - now_ms)} the broker's clock"))
    if wrong:
        error = TimestampInvalid(f"a timestamp is {wrong[0][1]}{_count(wrong)}")
        error.records = wrong[:_SHOWN_RECORDS]
        raise error
    return newest


def too_large(batch: bytearray | memoryview, stream: StreamRules) -> BatchTooLarge:
    """The error for a batch above `max.message.bytes`."""
    return BatchTooLarge(
        f"a batch has {len(batch)} bytes; max.message.bytes of {stream.name} is {stream.max_message_bytes}"
    )


def _apart(ahead_ms: int) -> str:
    return f"{abs(ahead_ms)} ms {'after' if ahead_ms > 0 else 'before'}"


def _count(wrong: Sequence[tuple[int, str]]) -> str:
    return f" ({len(wrong)} record{'s' if len(wrong) > 1 else ''})"
