"""What a log knows of idempotent producers: for each id its epoch and its last five batches (KIP-98). Pure."""

from collections.abc import Iterable

from duramen.base.errors import OutOfOrderSequence, ProducerFenced
from duramen.codec.batch import Header

__all__ = ["ProducerRow", "ProducerTable"]

_REMEMBERED = 5
_SEQUENCE_MASK = 0x7FFFFFFF

ProducerRow = tuple[int, int, int, list[tuple[int, int, int]]]
"""(producer id, epoch, timestamp of its last append in ms, [(first sequence, last sequence, base offset)])"""


class _Producer:
    __slots__ = ("batches", "epoch", "last_ms")

    def __init__(self, epoch: int, last_ms: int, batches: list[tuple[int, int, int]]) -> None:
        self.epoch = epoch
        self.last_ms = last_ms
        self.batches = batches


class ProducerTable:
    """Producers by id. `check` before an append, `add` with it."""

    __slots__ = ("_producers",)

    def __init__(self, rows: Iterable[ProducerRow] = ()) -> None:
        self._producers = {
            row[0]: _Producer(row[1], row[2], [(first, last, base) for first, last, base in row[3]]) for row in rows
        }

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, batch: Header) -> int | None:
        """None where the batch is the producer's next; the original base offset where it is a repetition.

        Raises ProducerFenced for an older epoch, OutOfOrderSequence for a sequence that does not follow.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None
        first = batch.base_sequence
        if first < 0:
            return None  # a marker: whoever writes it has looked at the producer
        if batch.producer_epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {batch.producer_id} writes with epoch {batch.producer_epoch}; {producer.epoch} has written"
            )
        if batch.producer_epoch > producer.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {batch.producer_id} begins epoch {batch.producer_epoch} with sequence {first}, not 0"
                )
            return None
        last = first + batch.records - 1 & _SEQUENCE_MASK
        for known_first, known_last, base_offset in producer.batches:
            if known_first == first and known_last == last:
                return base_offset
        expected = producer.batches[-1][1] + 1 & _SEQUENCE_MASK if producer.batches else 0
        if first != expected:
            raise OutOfOrderSequence(f"producer {batch.producer_id} writes sequence {first}, not {expected}")
        return None

    def add(self, batch: Header, base_offset: int, now_ms: int) -> None:
        """Enter a batch that was appended at `base_offset`."""
        first = batch.base_sequence
        producer = self._producers.get(batch.producer_id)
        if first < 0:
            # A marker has no sequence, but may begin an epoch: what an older one still sends is refused from here on.
            if producer is None or producer.epoch != batch.producer_epoch:
                self._producers[batch.producer_id] = _Producer(batch.producer_epoch, now_ms, [])
            return
        entry = (first, first + batch.records - 1 & _SEQUENCE_MASK, base_offset)
        if producer is None or producer.epoch != batch.producer_epoch:
            self._producers[batch.producer_id] = _Producer(batch.producer_epoch, now_ms, [entry])
            return
        producer.last_ms = now_ms
        producer.batches.append(entry)
        if len(producer.batches) > _REMEMBERED:
            del producer.batches[0]

    def row(self, producer_id: int) -> ProducerRow | None:
        """What is known of a producer, as it is now."""
        producer = self._producers.get(producer_id)
        return None if producer is None else (producer_id, producer.epoch, producer.last_ms, list(producer.batches))

    def put_back(self, producer_id: int, row: ProducerRow | None) -> None:
        """What is known of a producer is this again."""
        if row is None:
            self._producers.pop(producer_id, None)
        else:
            self._producers[producer_id] = _Producer(row[1], row[2], list(row[3]))

    def has_written(self, producer_id: int) -> bool:
        """Whether batches of the producer are known; markers are none."""
        producer = self._producers.get(producer_id)
        return producer is not None and bool(producer.batches)

    def epoch(self, producer_id: int) -> int:
        """The newest epoch that the producer has written in; 0 where it is not known."""
        producer = self._producers.get(producer_id)
        return 0 if producer is None else producer.epoch

    def clear(self) -> None:
        """Nothing is known of any that wrote before."""
        self._producers.clear()

    def expire(self, before_ms: int) -> bool:
        """Forget producers whose last append was before `before_ms`; says whether there were any."""
        expired = [id_ for id_, producer in self._producers.items() if producer.last_ms < before_ms]
        for id_ in expired:
            del self._producers[id_]
        return bool(expired)

    def rows(self) -> list[ProducerRow]:
        """The table as plain values."""
        return [(id_, p.epoch, p.last_ms, list(p.batches)) for id_, p in self._producers.items()]
