"""Checks a producer's batch for a shard of a queue space: each record is an entry of the queue that its key names."""

from typing import Final

from duramen.base.errors import BatchInvalid
from duramen.codec.batch import DecodedRecord, records
from duramen.codec.partitioner import partition_of
from duramen.codec.queue_entries import KEY_HEADER, OWNER_HEADER, reserved_header
from duramen.queues.names import name_problem
from duramen.queues.splitting import newest_entry

__all__ = ["check_entries"]

_NO_TIMESTAMP: Final = -1
_SHOWN_RECORDS: Final = 1000


def check_entries(
    batch: bytearray | memoryview, space: str, shard: int, shards: int, decoded_limit_bytes: int, *, owned: bool = False
) -> int:
    """The largest timestamp of a batch whose records are all entries of queues of the shard. Raises BatchInvalid.

    If the space is `owned`, an entry may name the owner of its queue.
    """
    plain = newest_entry(batch, shard, shards, decoded_limit_bytes)
    if plain is not None:
        return plain
    newest, wrong, known = _NO_TIMESTAMP, list[tuple[int, str]](), dict[bytes | None, str]()
    for place, record in enumerate(records(batch, verify=False, limit_bytes=decoded_limit_bytes)):
        newest = max(newest, record.timestamp)
        problem = known.get(record.key)
        if problem is None:
            problem = known[record.key] = _problem(record.key, shard, shards)
        problem = problem or (_reserved(record, owned=owned) if record.headers else "")
        if problem:
            wrong.append((place, problem))
    if wrong:
        more = f" ({len(wrong)} records)" if len(wrong) > 1 else ""
        error = BatchInvalid(f"{space} is a queue space, and a record's key the name of its queue: {wrong[0][1]}{more}")
        error.records = wrong[:_SHOWN_RECORDS]
        raise error
    return newest


def _problem(key: bytes | None, shard: int, shards: int) -> str:
    problem = name_problem(key)
    if problem or key is None:
        return problem
    right = partition_of(key, shards)
    if right == shard:
        return ""
    queue = key[:40].decode(errors="replace")
    return (
        f"the queue {queue} is in partition {right}, not {shard}: let the producer choose the partition as Java's does;"
        " librdkafka needs partitioner=murmur2_random"
    )


def _reserved(record: DecodedRecord, *, owned: bool) -> str:
    return reserved_header(record.headers, (KEY_HEADER, OWNER_HEADER) if owned else (KEY_HEADER,))
