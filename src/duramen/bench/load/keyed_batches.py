"""Records with keys in encoded batches: made and sent so fast that the system which gets them is what is measured."""

import random
import time
from collections.abc import Iterator
from typing import Final

from duramen.client import BrokerCluster
from duramen.client.cluster import TopicPartition
from duramen.client.producer import Producer
from duramen.codec.batch import CRC_START, HEADER_BYTES, BatchInput, encode, stamp
from duramen.codec.crc import crc32c

__all__ = ["KEY_BYTES", "first_state", "keyed_batches", "produce_keys"]

KEY_BYTES: Final = 16
_MARK: Final = b"\xf0key"
_STRIDE: Final = 2_147_483_647
"""A prime: its multiples come to every key."""
_BATCH: Final = 1_000
"""Kafka's answers end with a part of a batch: with larger ones much would be sent twice."""
_TIMEOUT_S: Final = 120.0


def keyed_batches(
    first: int, end: int, keys: int, *, records: int, value_bytes: int = 0, drawn: bool = False
) -> Iterator[bytearray]:
    """Batches of the offsets `[first, end)` of which only the keys differ, as they would lie in a log.

    Each of the keys comes once in as many offsets, far from those beside it; where they are `drawn`, any of them comes.
    Each batch has so many `records`, the last one too.
    """
    now_ms, chance = int(1000 * time.time()), random.Random(first)
    batch = encode([BatchInput(now_ms, _MARK + bytes(KEY_BYTES - len(_MARK)), bytes(value_bytes))] * records)
    places, at = list[int](), HEADER_BYTES
    for _ in range(records):
        at = batch.index(_MARK, at)
        places.append(at)
        at += KEY_BYTES
    every = range(keys)
    for offset in range(first, end, records):
        numbers = range(offset, offset + records)
        chosen = chance.choices(every, k=records) if drawn else [number * _STRIDE % keys for number in numbers]
        for key, at in zip(chosen, places, strict=True):
            batch[at : at + KEY_BYTES] = b"%016d" % key
        stamp(batch, offset, 0)
        batch[17:21] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
        yield batch[:]


def first_state(keys: int) -> dict[bytes, int]:
    """Of each key the offset of its record, after the first so many offsets where keys are not drawn."""
    return {b"%016d" % (number * _STRIDE % keys): number for number in range(keys)}


def produce_keys(
    address: str, topic: str, first: int, end: int, keys: int, value_bytes: int, until_s: float, *, drawn: bool
) -> int:
    """Write such records to partition 0, whose offsets they are, or those until a time; returns the log's end then.

    The time is that of `time.time`. Raises RequestTimedOut, ServerUnreachable …
    """
    at, reached = TopicPartition(topic, 0), first
    with BrokerCluster(address, timeout_s=_TIMEOUT_S) as cluster, Producer(cluster) as producer:
        size = min(_BATCH, end - first)
        for batch in keyed_batches(first, end, keys, records=size, value_bytes=value_bytes, drawn=drawn):
            stamp(batch, 0, -1)
            producer.put(at, batch, size)
            reached += size
            if time.time() > until_s:
                break
    return reached
