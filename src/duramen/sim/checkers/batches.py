"""Producers of a simulated run: plain and idempotent batches, and their retries as a client makes them."""

import random
from typing import Final

from duramen.codec.batch import BatchInput, encode
from duramen.sim.checkers.history import LogHistory, SentRecords

__all__ = ["NAME", "REMEMBERED", "BatchProducer", "new_batch"]

NAME: Final = b"n"  # the header by which a record is known: no two have the same value of it
REMEMBERED: Final = 5  # batches that may be under way, and that a repetition finds (KIP-98)


def new_batch(
    chance: random.Random, number: int, now_ms: int, size: int, producer: tuple[int, int, int] | None = None, *,
    tombstones: bool = False, attributes: int = 0,
) -> SentRecords:  # fmt: skip
    """A batch of one to four records, `size` bytes or so in all, that no other batch is like.

    `producer` is its id, epoch and next sequence. With `tombstones` some records have no value: each is known by its
    header.
    """
    count = chance.choice((1, 1, 2, 4))
    records = [
        BatchInput(
            now_ms, b"%d" % chance.randrange(8),
            None if tombstones and chance.random() < 0.2 else chance.randbytes(size // count),
            ((NAME, b"%d/%d" % (number, index)),),
        )
        for index in range(count)
    ]  # fmt: skip
    if producer is None:
        return SentRecords(number, bytes(encode(records)), count)
    id_, epoch, sequence = producer
    data = encode(records, attributes=attributes, producer_id=id_, producer_epoch=epoch, base_sequence=sequence)
    return SentRecords(number, bytes(data), count, sequence)


class BatchProducer:
    """An idempotent producer of one partition."""

    def __init__(self, id_: int, history: LogHistory) -> None:
        self.id = id_
        self.history = history
        self.next_sequence = 0
        self.unanswered: list[SentRecords] = []  # in the order of their sequences
        self.answered: list[SentRecords] = []  # the last of them
        self.sure = True  # whether a sequence out of order would be the broker's mistake
        self.refused = False  # whether batches without a response include a refused one, which is to be sent again

    def sent(self, batch: SentRecords) -> None:
        """The next batch is sent."""
        self.next_sequence += batch.records
        self.unanswered.append(batch)

    def acknowledged(self, batch: SentRecords) -> None:
        """A batch, or a repetition of one, was acknowledged."""
        if batch in self.unanswered:
            self.unanswered.remove(batch)
            self.answered = [*self.answered, batch][-REMEMBERED:]
            self.refused = self.refused and bool(self.unanswered)

    def follows_refused(self, batch: SentRecords) -> bool:
        """Whether a batch may be out of order: one before it was refused and is not acknowledged yet."""
        return self.refused and batch in self.unanswered[1:]

    def repeatable(self) -> list[SentRecords]:
        """The state that the broker needs to recognise a repetition."""
        return sorted(self.answered + self.unanswered, key=lambda batch: batch.sequence)[-REMEMBERED:]
