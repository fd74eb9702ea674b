"""Batches of records, whole and damaged, and the request that produces one."""

import struct
from typing import Any, Final, NamedTuple

from tests.differential.drawing import Drawing, Step
from tests.differential.peer import Peer, Symbol

from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode
from duramen.codec.crc import crc32c
from duramen.codec.kafka.versions import ApiKey

__all__ = ["STEP_MS", "Stamped", "batch", "damaged", "produce_step"]

STEP_MS: Final = 100
"""Between the timestamps of two records."""


class Stamped(NamedTuple):
    """A batch into which each broker's own producer id belongs, and its epoch where none is given."""

    batch: bytearray
    producer: str
    epoch: int | None
    sequence: int

    def bytes_for(self, peer: Peer) -> bytes:
        """The batch as this broker's producer sends it."""
        epoch = self.epoch
        if epoch is None:
            known = peer.known(Symbol("epoch", self.producer))
            epoch = known if isinstance(known, int) else 0
        batch = bytearray(self.batch)
        ident = peer.known(Symbol("producer_id", self.producer))
        struct.pack_into(">qhi", batch, 43, ident, epoch, self.sequence)
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        return bytes(batch)


def batch(draw: Drawing, count: int, *, transactional: bool = False) -> bytearray:
    """A batch of new records."""
    records = []
    for _ in range(count):
        draw.numbers += 1
        key = draw.one(None, b"", b"key-%d" % (draw.numbers % 5))
        value = draw.one(None, b"", b"value %d" % draw.numbers)
        records.append(BatchInput(draw.began_ms + STEP_MS * draw.numbers, key, value, ((b"h", b"1"),)))
    made = bytearray(encode(records, codec=draw.one(0, 0, 1, 2, 3, 4)))
    if transactional:
        made[22] |= TRANSACTIONAL
    made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    return made


def damaged(draw: Drawing, batch: bytearray) -> bytes:
    """A batch that something has happened to."""
    unseen = False
    match draw.number(5):
        case 0:
            batch[60] ^= 1  # the count
        case 1:
            return bytes(batch[:-1])
        case 2:
            return bytes(batch + batch)
        case 3:
            batch[16] = draw.one(0, 1, 3)
        case _:
            batch[-1] ^= 0xFF
            unseen = bool(batch[22] & 7)  # Apache Kafka looks inside of what is compressed, Duramen does not
    if draw.sometimes(0.5) and not unseen:
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def produce_step(
    draw: Drawing, name: str, partition: int, records: Any, acks: int = -1, transaction: str | None = None
) -> Step:
    """Produce one batch, or what is to be taken for one, to a partition."""
    topic = {"name": name, "partitions": [{"index": partition, "records": records}]}
    wish = {"transactional_id": transaction, "acks": acks, "timeout_ms": 30_000, "topics": [topic]}
    return Step(ApiKey.PRODUCE, draw.version(ApiKey.PRODUCE, 3), wish)
