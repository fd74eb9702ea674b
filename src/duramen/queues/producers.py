"""Idempotent producers of queues' topics: repeated batches are not stored again. Pure.

The newest pairs of producer and topic are kept in memory; an unknown pair may start with any sequence.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from duramen.base.errors import (
    DuramenError,
    NotEnoughReplicasAfterAppend,
    OutOfOrderSequence,
    ProducerFenced,
)
from duramen.codec.batch import Header
from duramen.codec.sequences import SEQUENCES, is_before

__all__ = ["MOST_PRODUCERS", "TopicProducers"]

MOST_PRODUCERS: Final = 20_000
"""The number of known pairs of producer and topic."""

_KEPT_BATCHES: Final = 5  # as many as a producer may have in progress

Done = Callable[[int, DuramenError | None], None]


class _Sent:
    """An accepted batch; `offset` is -1 while it is being stored.

    An `unconfirmed` one is in the log, but was not replicated in time.
    """

    __slots__ = ("count", "first", "offset", "unconfirmed", "waiting")

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.count = count
        self.offset = -1
        self.unconfirmed = False
        self.waiting: list[Done] = []


class _Producer:
    __slots__ = ("epoch", "next", "refused", "sent")

    def __init__(self, epoch: int, following: int) -> None:
        self.epoch = epoch
        self.next = following
        self.refused: DuramenError | None = None  # why the batch that is `next` was not stored
        self.sent: deque[_Sent] = deque(maxlen=_KEPT_BATCHES)


class TopicProducers:
    """The batches that producer ids have written to topics."""

    def __init__(self, most: int = MOST_PRODUCERS) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, _Producer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def take(
        self, topic: Hashable, head: Header, store: Callable[[Done], None], done: Done,
        confirm: Callable[[int, Done], None],
    ) -> None:  # fmt: skip
        """Store a batch unless it is a duplicate; `done` gets its first offset, or the error.

        `confirm` waits until a stored batch is replicated.
        """
        if head.producer_id < 0:
            store(done)
            return
        key = (head.producer_id, topic)
        producer = self._known.get(key)
        if producer is None or head.producer_epoch > producer.epoch:
            producer = self._known[key] = _Producer(head.producer_epoch, head.base_sequence)
        self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        if head.producer_epoch < producer.epoch:
            done(-1, ProducerFenced(f"the producer's epoch is {producer.epoch}, not {head.producer_epoch}"))
            return
        for sent in producer.sent:
            if (sent.first, sent.count) == (head.base_sequence, head.records):
                if sent.offset < 0:
                    sent.waiting.append(done)
                elif sent.unconfirmed:
                    confirm(sent.offset, done)
                else:
                    done(sent.offset, None)
                return
        if head.base_sequence != producer.next:
            if producer.refused is not None and is_before(producer.next, head.base_sequence):
                done(-1, producer.refused)  # the producer resends both, in order
                return
            done(-1, OutOfOrderSequence(f"the sequence {head.base_sequence} came where {producer.next} was to follow"))
            return
        producer.refused = None
        taken = _Sent(head.base_sequence, head.records)
        producer.sent.append(taken)
        ends = {sent.first: (sent.first + sent.count) % SEQUENCES for sent in producer.sent}
        while producer.next in ends:
            producer.next = ends.pop(producer.next)
        store(partial(self._stored, key, producer, taken, done))

    def _stored(
        self, key: Hashable, producer: _Producer, sent: _Sent, done: Done, offset: int, error: DuramenError | None
    ) -> None:
        sent.offset, sent.unconfirmed = offset, error is not None
        if isinstance(error, NotEnoughReplicasAfterAppend) and offset >= 0:
            pass  # a repetition of the batch is not stored again
        elif error is not None and not error.outcome_known:
            if self._known.get(key) is producer:
                del self._known[key]  # it may be stored: any sequence may follow
        elif error is not None:
            if sent in producer.sent:
                producer.sent.remove(sent)
            if not is_before(producer.next, sent.first):
                producer.next, producer.refused = sent.first, error
        for one in (done, *sent.waiting):
            one(offset, error)
