"""Idempotent producers of a log: the epoch and the last five batches of each producer id (KIP-98). Pure.

A log also keeps its *forgotten id*, the highest producer id that it has forgotten. An unknown producer above it has
written nothing yet, so its first batch must have sequence 0. For an unknown producer up to it any sequence is accepted,
because the log cannot tell.

*Derived ids* (see `codec.sequences`) have no order. An unknown one may start with any sequence. There are as many as
pairs of a producer and a topic, so only the newest of them are kept.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Protocol

from duramen.base.errors import OutOfOrderSequence, ProducerFenced
from duramen.codec.batch import Header
from duramen.codec.sequences import FIRST_DERIVED_ID, producer_text

__all__ = ["ANY_ID", "MOST_DERIVED", "NO_ID", "Appended", "ProducerRow", "ProducerTable"]

NO_ID: Final = -1
"""The forgotten id of a log that has forgotten no producer."""
ANY_ID: Final = (1 << 63) - 1
"""The forgotten id of a log whose forgotten producers are unknown, until it is bounded."""

MOST_DERIVED: Final = 10_000
"""The number of derived ids that a log knows: at most 11 MB."""

_REMEMBERED = 5
_SEQUENCE_MASK = 0x7FFFFFFF
_MOST_SEQUENCES: Final = 1 << 24  # of a batch that `follow` accepts: with so few, a duplicate never has the next one

_Batches = tuple[tuple[int, int, int], ...]  # not a list: of tables with many ids, checkpoints would copy as many

ProducerRow = tuple[int, int, int, _Batches]
"""(producer id, epoch, timestamp of its last append in ms, ((first sequence, last sequence, base offset), …))"""


class Appended(Protocol):
    """A batch to be appended."""

    @property
    def head(self) -> Header:
        """Its header."""

    @property
    def base_offset(self) -> int:
        """Its first offset, once it is assigned."""


class _Producer:
    __slots__ = ("batches", "epoch", "last_ms")

    def __init__(self, epoch: int, last_ms: int, batches: _Batches) -> None:
        self.epoch = epoch
        self.last_ms = last_ms
        self.batches = batches


class ProducerTable:
    """Producers by id. Call `check` before an append, `add` with it. `forgotten_id` is the highest forgotten id."""

    __slots__ = ("_derived", "_producers", "forgotten_id")

    def __init__(self, rows: Iterable[ProducerRow] = (), forgotten_id: int = NO_ID) -> None:
        self.forgotten_id = forgotten_id
        self._producers = {row[0]: _Producer(row[1], row[2], row[3]) for row in rows}
        self._derived: OrderedDict[int, None] | None = None  # derived ids in the order of their last batches
        derived = [id_ for id_ in self._producers if id_ >= FIRST_DERIVED_ID]
        if derived:
            self._derived = OrderedDict.fromkeys(sorted(derived, key=self._last_offset))

    def _last_offset(self, id_: int) -> int:
        batches = self._producers[id_].batches
        return batches[-1][2] if batches else -1

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, batch: Header) -> int | None:
        """None if the batch is the producer's next; the original base offset if it is a duplicate.

        Raises ProducerFenced for an older epoch, OutOfOrderSequence for a sequence that does not follow.
        """
        producer = self._producers.get(batch.producer_id)
        first = batch.base_sequence
        if first < 0:
            return None  # a transaction marker: its writer has checked the producer
        if producer is None:
            self._check_unknown(batch)
            return None
        if batch.producer_epoch < producer.epoch:
            raise ProducerFenced(
                f"{producer_text(batch.producer_id)} writes with epoch {batch.producer_epoch}; {producer.epoch} has"
                " written"
            )
        if batch.producer_epoch > producer.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"{producer_text(batch.producer_id)} begins epoch {batch.producer_epoch} with sequence {first},"
                    " not 0"
                )
            return None
        last = first + batch.records - 1 & _SEQUENCE_MASK
        for known_first, known_last, base_offset in producer.batches:
            if known_first == first and known_last == last:
                return base_offset
        expected = producer.batches[-1][1] + 1 & _SEQUENCE_MASK if producer.batches else 0
        if first != expected:
            raise OutOfOrderSequence(f"{producer_text(batch.producer_id)} writes sequence {first}, not {expected}")
        return None

    def follow(self, batches: Iterable[Appended]) -> bool:
        """Whether `check` is None for each batch, appended in this order, and its producer has written in its epoch.

        Batches without a producer do not count.
        """
        expected: dict[int, tuple[int, int]] = {}
        for one in batches:
            head = one.head
            id_ = head.producer_id
            if id_ < 0:
                continue
            found = expected.get(id_)
            if found is None:
                producer = self._producers.get(id_)
                if producer is None or not producer.batches:
                    return False
                _, last, _ = producer.batches[-1]
                if last - producer.batches[0][0] & _SEQUENCE_MASK > _REMEMBERED * _MOST_SEQUENCES:
                    return False
                found = producer.epoch, last + 1 & _SEQUENCE_MASK
            epoch, first = found
            if head.base_sequence != first or head.producer_epoch != epoch or head.records > _MOST_SEQUENCES:
                return False
            expected[id_] = epoch, first + head.records & _SEQUENCE_MASK
        return True

    def _check_unknown(self, batch: Header) -> None:
        if batch.base_sequence and self.forgotten_id < batch.producer_id < FIRST_DERIVED_ID:
            raise OutOfOrderSequence(
                f"producer {batch.producer_id} has written nothing here and begins with sequence"
                f" {batch.base_sequence}, not 0"
            )

    def add(self, batch: Header, base_offset: int, now_ms: int) -> None:
        """Add a batch that was appended at `base_offset`."""
        first = batch.base_sequence
        producer = self._producers.get(batch.producer_id)
        if batch.producer_id >= FIRST_DERIVED_ID:
            self._keep_derived(batch.producer_id)
        if first < 0:
            # A marker has no sequence, but may start an epoch: late batches of an older one are refused from now on.
            if producer is None or producer.epoch != batch.producer_epoch:
                self._producers[batch.producer_id] = _Producer(batch.producer_epoch, now_ms, ())
            return
        entry = (first, first + batch.records - 1 & _SEQUENCE_MASK, base_offset)
        if producer is None or producer.epoch != batch.producer_epoch:
            self._producers[batch.producer_id] = _Producer(batch.producer_epoch, now_ms, (entry,))
            return
        producer.last_ms = now_ms
        producer.batches = (*producer.batches[1 - _REMEMBERED :], entry)

    def _keep_derived(self, id_: int) -> None:
        """A derived id is the newest one: forget the oldest."""
        derived = self._derived
        if derived is None:
            derived = self._derived = OrderedDict()
        derived[id_] = None
        derived.move_to_end(id_)
        while len(derived) > MOST_DERIVED:
            oldest, _ = derived.popitem(last=False)
            self._producers.pop(oldest, None)

    def add_all(self, batches: Iterable[Appended], now_ms: int) -> None:
        """Add batches that `follow` has accepted, at their offsets."""
        for one in batches:
            head = one.head
            if head.producer_id >= 0:
                first = head.base_sequence
                producer = self._producers[head.producer_id]
                producer.last_ms = now_ms
                entry = (first, first + head.records - 1 & _SEQUENCE_MASK, one.base_offset)
                producer.batches = (*producer.batches[1 - _REMEMBERED :], entry)

    def row(self, producer_id: int) -> ProducerRow | None:
        """The present entry of a producer."""
        producer = self._producers.get(producer_id)
        return None if producer is None else (producer_id, producer.epoch, producer.last_ms, producer.batches)

    def put_back(self, producer_id: int, row: ProducerRow | None) -> None:
        """Restore the entry of a producer."""
        if row is None:
            self._remove(producer_id)
        else:
            if producer_id >= FIRST_DERIVED_ID:
                self._keep_derived(producer_id)
            self._producers[producer_id] = _Producer(row[1], row[2], row[3])

    def _remove(self, id_: int) -> None:
        self._producers.pop(id_, None)
        if self._derived is not None:
            self._derived.pop(id_, None)

    def has_written(self, producer_id: int) -> bool:
        """Whether batches of the producer are known; markers do not count."""
        producer = self._producers.get(producer_id)
        return producer is not None and bool(producer.batches)

    def epoch(self, producer_id: int) -> int:
        """The newest epoch in which the producer has written; 0 if unknown."""
        producer = self._producers.get(producer_id)
        return 0 if producer is None else producer.epoch

    def clear(self) -> None:
        """Remove all producers."""
        self._producers.clear()
        self._derived = None

    def expire(self, before_ms: int) -> bool:
        """Forget producers whose last append was before `before_ms`; returns whether there were any."""
        expired = [id_ for id_, producer in self._producers.items() if producer.last_ms < before_ms]
        for id_ in expired:
            self._remove(id_)
            self._forget(id_)
        return bool(expired)

    def _forget(self, id_: int) -> None:
        if id_ < FIRST_DERIVED_ID:
            self.forget_up_to(id_)

    def forget_up_to(self, forgotten_id: int) -> bool:
        """Note that producers up to that id may be forgotten; returns whether that is new."""
        known, self.forgotten_id = self.forgotten_id, max(self.forgotten_id, forgotten_id)
        return self.forgotten_id != known

    def bound_forgotten(self, highest_id: int) -> bool:
        """Note that no higher producer id was ever allocated; returns whether that is new.

        An older node that does not know derived ids notes them as forgotten ones too.
        """
        if self.forgotten_id < FIRST_DERIVED_ID:
            return False
        self.forgotten_id = highest_id
        return True

    def start_at(self, start_offset: int) -> None:
        """The log starts there now: mark producers that wrote only before it as forgotten.

        A replica that starts with the remaining records does not know them.
        """
        for id_, producer in self._producers.items():
            if producer.batches and producer.batches[-1][2] < start_offset:
                self._forget(id_)

    def replace(self, found: "ProducerTable", end_offset: int) -> None:
        """The log ends at `end_offset`, and `found` is built from its remaining batches.

        A producer that wrote before the end and is not in `found` is forgotten: its batches are damaged or deleted. A
        producer that wrote only after the end is unknown, and starts with sequence 0.
        """
        for id_, producer in self._producers.items():
            if id_ not in found._producers and producer.batches and producer.batches[0][2] < end_offset:
                self._forget(id_)
        self._producers, self._derived = found._producers, found._derived

    def rows(self) -> list[ProducerRow]:
        """The entries as plain values."""
        return [(id_, p.epoch, p.last_ms, p.batches) for id_, p in self._producers.items()]
