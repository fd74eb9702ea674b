"""Producers: plain and idempotent batches, and their retries."""

from functools import partial
from typing import Final

from duramen.base.errors import (
    DuramenError,
    NodeStopping,
    OutOfOrderSequence,
    StorageFailed,
    StorageFull,
    StreamNotFound,
)
from duramen.broker.partition import Partition
from duramen.sim.checkers.batches import REMEMBERED, BatchProducer, new_batch
from duramen.sim.checkers.compacted import CompactedHistory
from duramen.sim.checkers.history import LogHistory, SentRecords
from duramen.sim.clients.shared import Clients
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["SimulatedProducers"]

_MOST: Final = 8


class SimulatedProducers:
    """Producers, over all processes of a run."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._producers: list[BatchProducer] = []

    def begin(self) -> None:
        """A process has started: batches without a response are sent again."""
        lost, self._clients.checker.producers_lost = self._clients.checker.producers_lost, False
        self._producers = [producer for producer in self._producers if not lost and self._goes_on(producer)]
        for producer in list(self._producers):
            for batch in list(producer.unanswered):
                self._send(producer.history, batch, producer)

    def _goes_on(self, producer: BatchProducer) -> bool:
        history = producer.history
        partition = self._clients.partition(history)
        if partition is None or history.in_memory or history.damaged:
            return False
        producer.sure = producer.sure and partition.log.durability == "sync"
        return True

    def produce(self) -> None:
        """A batch without a producer."""
        clients = self._clients
        history, _ = clients.any()
        if history is not None:
            batch = new_batch(clients.chance, clients.number(), clients.clock.wall_ms(), clients.size(),
                              tombstones=isinstance(history, CompactedHistory))  # fmt: skip
            self._send(history, batch, None)

    def produce_idempotent(self) -> None:
        """The next batch of a producer, or a new producer."""
        clients = self._clients
        producers = [producer for producer in self._producers if len(producer.unanswered) < REMEMBERED]
        if not producers or clients.chance.random() < 0.1:
            self._new_producer()
            return
        producer = clients.chance.choice(producers)
        if not clients.is_there(producer.history):
            return  # it would be sent after those that follow it, should the stream stay
        if producer.refused and clients.chance.random() < 0.5:
            self._send_again(producer)
            return
        batch = new_batch(
            clients.chance, clients.number(), clients.clock.wall_ms(), clients.size(),
            (producer.id, 0, producer.next_sequence), tombstones=isinstance(producer.history, CompactedHistory),
        )  # fmt: skip
        producer.sent(batch)
        self._send(producer.history, batch, producer)

    def _send_again(self, producer: BatchProducer) -> None:
        """The refused batches, and those refused because of them, in their order."""
        for batch in [one for one in producer.unanswered if not one.under_way]:
            self._send(producer.history, batch, producer)

    def repeat(self) -> None:
        """A producer's earlier batch, once more."""
        producers = [producer for producer in self._producers if producer.repeatable() and not producer.refused]
        if producers:
            producer = self._clients.chance.choice(producers)
            self._send(producer.history, self._clients.chance.choice(producer.repeatable()), producer)

    def _new_producer(self) -> None:
        history, _ = self._clients.any()
        if history is not None:
            self._clients.access.new_producer_id(self._clients.answer(partial(self._producer_made, history)))

    def _producer_made(self, history: LogHistory, id_: int, error: DuramenError | None) -> None:
        if error is not None:
            self._clients.may_fail("a new producer id", error)
            return
        if id_ in self._clients.checker.producer_ids:
            raise BrokenPromise(f"the producer id {id_} was handed out twice")
        self._clients.checker.producer_ids.add(id_)
        self._producers.append(BatchProducer(id_, history))
        del self._producers[:-_MOST]

    def _send(self, history: LogHistory, batch: SentRecords, producer: BatchProducer | None) -> None:
        clients = self._clients
        partition = clients.partition(history)
        if partition is None or not clients.is_there(history):
            return
        if producer is not None and batch in producer.unanswered and not batch.sendings and clients.refuses():
            clients.trace("%s: batch %d is refused at the door", history, batch.number)
            partition.note_refused(bytearray(batch.data))
            producer.refused = True
            return
        clients.trace("%s: batch %d is sent, %d records", history, batch.number, batch.records)
        if producer is not None and partition.log.config.durability != "sync":
            producer.sure = False
        history.send(batch, clients.checker.boot)
        clients.access.produce(
            partition, batch.data, clients.answer(partial(self._sent, history, batch, producer, partition))
        )

    def _sent(
        self, history: LogHistory, batch: SentRecords, producer: BatchProducer | None, partition: Partition,
        base_offset: int, error: DuramenError | None,
    ) -> None:  # fmt: skip
        batch.under_way -= 1
        if error is None:
            self._clients.trace("%s: batch %d is at %d", history, batch.number, base_offset)
            history.acknowledged(batch, base_offset, partition.log.durability)
            if producer is not None:
                producer.acknowledged(batch)
            return
        self._clients.trace("%s: batch %d: %s", history, batch.number, type(error).__name__)
        if producer is not None and producer.follows_refused(batch):
            return  # it goes again behind that one
        if not isinstance(error, StorageFailed):
            history.refused(batch)
        if isinstance(error, OutOfOrderSequence) and producer is not None and not producer.sure:
            self._give_up(producer)
            return
        half_cut = history.spoiled and isinstance(error, StorageFailed)  # its files may be gone
        if not half_cut and not (isinstance(error, StreamNotFound) and self._clients.partition(history) is None):
            self._clients.may_fail(f"{history}: sending batch {batch.number}", error)
        if producer is not None and isinstance(error, StorageFull) and batch in producer.unanswered:
            producer.refused = True
        elif producer is not None and not isinstance(error, NodeStopping):
            self._give_up(producer)

    def forget(self, history: LogHistory) -> None:
        """No client continues the operations begun in this log: it is truncated."""
        for producer in [producer for producer in self._producers if producer.history is history]:
            self._give_up(producer)

    def _give_up(self, producer: BatchProducer) -> None:
        if producer in self._producers:
            self._producers.remove(producer)
        producer.sure = False
