"""What clients do to a node in a simulated run, drawn from the seed, with every answer shown to the checker."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from duramen.base.errors import (
    DuramenError,
    LogDamaged,
    NodeStopping,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageFailed,
    StorageFull,
    StreamNotFound,
)
from duramen.broker.broker import Broker
from duramen.broker.coordinator import CommitMember
from duramen.broker.fetching import Fetched, Wanted
from duramen.broker.partition import Partition
from duramen.controller.decisions import Definition
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.sim.checker import Checker, CommittedModel, StreamModel, facts
from duramen.sim.compacted import CompactedHistory
from duramen.sim.faults import FaultPlan
from duramen.sim.history import History, Sent
from duramen.sim.producing import REMEMBERED, Producer, new_batch
from duramen.sim.scheduler import SeededWorker, VirtualClock
from duramen.sim.trace import BrokenPromise, Trace
from duramen.storage.damage import Damage
from duramen.storage.log import Log
from duramen.storage.scanning import read_slice

__all__ = ["Workload"]

_STREAMS: Final = ("a", "b", "c", "d")
_GROUPS: Final = ("g", "h")
_DURABILITIES: Final = ("sync", "sync", "sync", "os", "memory")
_PATIENCE_US: Final = 900_000_000


class Workload:
    """Clients. `begin` for each process; `over` once they are done with it."""

    def __init__(
        self, chance: random.Random, checker: Checker, faults: FaultPlan, clock: VirtualClock, trace: Trace
    ) -> None:
        self._chance = chance
        self._checker = checker
        self._faults = faults
        self._clock = clock
        self._trace = trace
        self._numbers = 0
        self._producers: list[Producer] = []
        self._small = chance.random() < 0.8
        self._quarantined: dict[History, list[Damage]] | None = None  # once the scrubber has seen everything
        self._ops: tuple[tuple[Callable[[], None], int], ...] = (
            (self._produce, 30), (self._produce_idempotent, 25), (self._repeat, 10), (self._read, 15),
            (self._commit, 8), (self._look_at_commits, 4), (self._create, 6), (self._let_go, 3), (self._cut, 2),
            (self._delete, 2), (self._configure, 2),
        )  # fmt: skip
        self._actions = [op for op, _ in self._ops]
        self._weights = [weight for _, weight in self._ops]

    # -- a process ----------------------------------------------------------------------------------

    def begin(
        self, broker: Broker, worker: SeededWorker, *, quiet: bool = False, scrubbed: bool = False
    ) -> None:  # fmt: skip
        """A node has started; `quiet` where it is only looked at, `scrubbed` where the scrubber has done so before."""
        self._broker = broker
        self._worker = worker
        self._in_flight = 0
        self._tried: set[tuple[History, int, int]] = set()  # reads that were told of damage behind their offset
        self._quarantined = self._in_quarantine() if scrubbed else None
        self._left = 0 if quiet else self._chance.choice((3, 10, 30, 60))
        self._drains = quiet or self._chance.random() < 0.4
        self._patience_us = 0
        self._look_at_all()
        self._producers = [producer for producer in self._producers if self._goes_on(producer)]
        for producer in list(self._producers):
            for batch in list(producer.unanswered):
                self._send(producer.history, batch, producer)
        self._worker.after(1, self._act)

    @property
    def over(self) -> bool:
        """Whether clients are done with this process."""
        if self._left:
            return False
        if self._drains and self._in_flight:
            if not self._patience_us:
                self._faults.calm()
                self._patience_us = self._clock.now_us + _PATIENCE_US
            if self._clock.now_us > self._patience_us:
                raise BrokenPromise(f"{self._in_flight} requests are not answered")
            return False
        return True

    def _act(self) -> None:
        for _ in range(self._chance.choice((1, 1, 1, 3))):
            if self._left:
                self._left -= 1
                self._chance.choices(self._actions, self._weights)[0]()
        if self._left:
            idle = self._chance.random() < 0.04
            self._worker.after(self._chance.randint(100_000, 3_000_000) if idle else self._chance.randint(50, 3000),
                               self._act)  # fmt: skip

    def _goes_on(self, producer: Producer) -> bool:
        history = producer.history
        partition = self._partition(history)
        if partition is None or history.in_memory or history.damaged:
            return False
        producer.sure = producer.sure and partition.log.durability == "sync"
        return True

    # -- what there is ------------------------------------------------------------------------------

    def _partition(self, history: History) -> Partition | None:
        model = self._checker.streams.get(history.name)
        stream = self._broker.streams.find(history.name)
        if model is None or stream is None or history not in model.histories or stream.id != model.id:
            return None
        return stream.partitions[history.partition]

    def _histories(self) -> list[tuple[History, Partition]]:
        found = []
        for model in self._checker.streams.values():
            if model.state == "there":
                for history in model.histories:
                    partition = self._partition(history)
                    if partition is not None:
                        found.append((history, partition))
        return found

    def _any(self) -> tuple[History, Partition] | tuple[None, None]:
        found = self._histories()
        return self._chance.choice(found) if found else (None, None)

    def _answer(self, done: Callable[..., None]) -> Callable[..., None]:
        """One thing more to wait for; `done` once it is there."""
        self._in_flight += 1
        answered = False

        def once(*values: Any) -> None:
            nonlocal answered
            if answered:
                raise BrokenPromise(f"a request was answered twice, now with {values}")
            answered = True
            self._in_flight -= 1
            done(*values)

        return once

    def _may_fail(self, what: str, error: BaseException) -> None:
        """Raise unless a fault of the disk, or the node's end, explains the error."""
        if isinstance(error, NodeStopping):
            return
        if isinstance(error, StorageFailed | StorageFull) and self._faults.failed:
            return
        raise BrokenPromise(f"{what} failed, and nothing explains it: {type(error).__name__}: {error}")

    # -- producing ----------------------------------------------------------------------------------

    def _size(self) -> int:
        if self._small or self._chance.random() < 0.7:
            return self._chance.choice((4, 40, 300, 900))
        return self._chance.randint(2000, 12_000)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _produce(self) -> None:
        history, _ = self._any()
        if history is not None:
            batch = new_batch(self._chance, self._number(), self._clock.wall_ms(), self._size(),
                              tombstones=isinstance(history, CompactedHistory))  # fmt: skip
            self._send(history, batch, None)

    def _produce_idempotent(self) -> None:
        producers = [producer for producer in self._producers if len(producer.unanswered) < REMEMBERED]
        if not producers or self._chance.random() < 0.1:
            self._new_producer()
            return
        producer = self._chance.choice(producers)
        batch = new_batch(self._chance, self._number(), self._clock.wall_ms(), self._size(), producer,
                          tombstones=isinstance(producer.history, CompactedHistory))  # fmt: skip
        producer.sent(batch)
        self._send(producer.history, batch, producer)

    def _new_producer(self) -> None:
        history, _ = self._any()
        if history is not None:
            self._broker.new_producer_id(self._answer(partial(self._producer_made, history)))

    def _producer_made(self, history: History, id_: int, error: DuramenError | None) -> None:
        if error is not None:
            self._may_fail("a new producer id", error)
            return
        if id_ in self._checker.producer_ids:
            raise BrokenPromise(f"the producer id {id_} was handed out twice")
        self._checker.producer_ids.add(id_)
        self._producers.append(Producer(id_, history))
        del self._producers[:-8]

    def _repeat(self) -> None:
        producers = [producer for producer in self._producers if producer.repeatable()]
        if producers:
            producer = self._chance.choice(producers)
            self._send(producer.history, self._chance.choice(producer.repeatable()), producer)

    def _send(self, history: History, batch: Sent, producer: Producer | None) -> None:
        partition = self._partition(history)
        if partition is None or self._checker.streams[history.name].state != "there":
            return
        self._trace("%s: batch %d is sent, %d records", history, batch.number, batch.records)
        if producer is not None and partition.log.config.durability != "sync":
            producer.sure = False
        history.send(batch, self._checker.boot)
        partition.append(bytearray(batch.data), self._answer(partial(self._sent, history, batch, producer, partition)))

    def _sent(
        self, history: History, batch: Sent, producer: Producer | None, partition: Partition, base_offset: int,
        error: DuramenError | None,
    ) -> None:  # fmt: skip
        batch.under_way -= 1
        if error is None:
            self._trace("%s: batch %d is at %d", history, batch.number, base_offset)
            history.acknowledged(batch, base_offset, partition.log.durability)
            if producer is not None:
                producer.acknowledged(batch)
            return
        self._trace("%s: batch %d: %s", history, batch.number, type(error).__name__)
        if not isinstance(error, StorageFailed):
            history.refused(batch)
        if isinstance(error, OutOfOrderSequence) and producer is not None and not producer.sure:
            self._give_up(producer)
            return
        if not (isinstance(error, StreamNotFound) and self._partition(history) is None):
            self._may_fail(f"{history}: sending batch {batch.number}", error)
        if producer is not None and not isinstance(error, NodeStopping):
            self._give_up(producer)

    def _give_up(self, producer: Producer) -> None:
        if producer in self._producers:
            self._producers.remove(producer)
        producer.sure = False

    # -- reading ------------------------------------------------------------------------------------

    def _look_at_all(self) -> None:
        for history, partition in self._histories():
            self._fetch(history, partition, partition.log.start_offset, partition.log.high_watermark)

    def _read(self) -> None:
        history, partition = self._any()
        if history is not None and partition is not None:
            log = partition.log
            offset = self._chance.randint(max(0, log.start_offset - 2), log.end_offset + 1)
            until = log.high_watermark if self._chance.random() < 0.2 else 0
            self._fetch(history, partition, offset, until)

    def _fetch(self, history: History, partition: Partition, offset: int, until: int) -> None:
        """Read from `offset`, and on to `until`."""
        if history.cutting or (until and offset >= until):
            return
        history.reading += 1
        max_bytes = self._chance.choice((1, 1000, 10_000, 1 << 20))
        self._broker.fetches.fetch(
            [Wanted(partition, offset, max_bytes)], min_bytes=1, max_bytes=max_bytes, max_wait_ms=0,
            done=self._answer(partial(self._fetched, history, partition, offset, until, self._faults.failed_reads)),
        )  # fmt: skip

    def _fetched(
        self, history: History, partition: Partition, offset: int, until: int, failed_reads: int, found: list[Fetched]
    ) -> None:
        history.reading -= 1
        slice_, error, high_watermark, start_offset = found[0][:4]
        log = partition.log
        if error is not None:
            outside = not log.start_offset <= offset <= log.end_offset
            if isinstance(error, OffsetOutOfRange) and outside:
                return
            if isinstance(error, StreamNotFound) and self._partition(history) is None:
                return
            if self._goes_on_behind(history, partition, offset, until, error):
                return
            if not self._explained(error, failed_reads):
                raise BrokenPromise(f"{history}: reading {offset} failed: {type(error).__name__}: {error}")
            return
        history.visible(high_watermark, log.durability)
        if slice_ is None:
            if start_offset <= offset < high_watermark:
                raise BrokenPromise(f"{history}: {offset} is below {high_watermark}, and nothing is read")
            return
        history.reading += 1
        reach = slice_.next_offset if slice_.next_offset >= 0 else high_watermark
        read_slice(
            self._broker.store, slice_,
            self._answer(
                partial(self._bytes_read, history, partition, offset, until, self._faults.failed_reads, reach)
            ),
        )  # fmt: skip

    def _goes_on_behind(
        self, history: History, partition: Partition, offset: int, until: int, error: BaseException
    ) -> bool:  # fmt: skip
        """Whether the records at `offset` may be damaged; those behind them are read next."""
        behind = history.behind_damage(offset, partition.log.end_offset)
        if not isinstance(error, LogDamaged) or behind <= offset:
            return False
        self._trace("%s: %d to %d are lost to damage", history, offset, behind - 1)
        self._check_quarantined(history, partition.log, offset, error)
        if self._partition(history) is partition:
            self._fetch(history, partition, max(behind, partition.log.start_offset), until)
        return True

    def _tries_again(
        self, history: History, partition: Partition, offset: int, until: int, reach: int, error: BaseException
    ) -> bool:  # fmt: skip
        """Whether damage behind `offset` was found only when its bytes were sent: the next read ends before it."""
        tried = history, offset, len(history.damaged)
        behind = any(offset < first < reach for first, _ in history.damaged)
        if not isinstance(error, LogDamaged) or not behind or tried in self._tried:
            return False
        self._tried.add(tried)
        if self._partition(history) is partition:
            self._fetch(history, partition, max(offset, partition.log.start_offset), until)
        return True

    def _in_quarantine(self) -> dict[History, list[Damage]]:
        return {
            history: [damage for segment in partition.log.segments for damage in segment.damage]
            for history, partition in self._histories()
        }

    def _check_quarantined(self, history: History, log: Log, offset: int, error: BaseException) -> None:
        if self._quarantined is None or offset >= log.active.base_offset:
            return
        known = any(first <= offset <= last for first, last in log.damage)  # named at the start
        if not known and not any(one.holds(offset) for one in self._quarantined[history]):
            raise BrokenPromise(f"{history}: {offset} is damaged, and the scrubber has not found it: {error}")

    def _explained(self, error: BaseException, failed_reads: int) -> bool:
        """Whether a fault of the disk explains why a read failed."""
        if isinstance(error, LogDamaged):
            return self._faults.failed_syncs > 0  # what the system dropped then is written again, but not at once
        return isinstance(error, StorageFailed | OSError) and self._faults.failed_reads > failed_reads

    def _bytes_read(
        self, history: History, partition: Partition, offset: int, until: int, failed_reads: int, reach: int,
        data: bytes | DuramenError | OSError,
    ) -> None:  # fmt: skip
        history.reading -= 1
        if not isinstance(data, bytes):
            if self._goes_on_behind(history, partition, offset, until, data):
                return
            if self._tries_again(history, partition, offset, until, reach, data):
                return
            if not self._explained(data, failed_reads):
                raise BrokenPromise(f"{history}: reading {offset} failed: {type(data).__name__}: {data}")
            return
        following = history.read(offset, data)
        self._trace("%s: read %d to %d", history, offset, following - 1)
        if following < until and self._partition(history) is partition:
            self._fetch(history, partition, max(following, partition.log.start_offset), until)

    # -- groups -------------------------------------------------------------------------------------

    def _commit(self) -> None:
        history, partition = self._any()
        if history is not None and partition is not None:
            key = OffsetKey(self._chance.choice(_GROUPS), history.name, history.partition)
            offset = self._number()
            self._broker.ensure_offsets_stream(self._answer(partial(self._commit_now, history, key, offset)))

    def _commit_now(self, history: History, key: OffsetKey, offset: int, error: DuramenError | None) -> None:
        if error is not None:
            self._may_fail("making the stream of offsets", error)
            return
        if self._partition(history) is None or self._checker.streams[history.name].state != "there":
            return
        model = self._checker.committed.setdefault(key, CommittedModel())
        model.ask(offset)
        self._trace("group %s commits %d of %s", key.group, offset, history)
        committed = CommittedOffset(offset, -1, "", self._clock.wall_ms())
        self._broker.groups.commit(
            key.group, CommitMember("", None, -1), [(key, committed)],
            self._answer(partial(self._committed, model, offset)),
        )  # fmt: skip

    def _committed(
        self, model: CommittedModel, offset: int, result: list[DuramenError | None] | DuramenError
    ) -> None:  # fmt: skip
        error = result[0] if isinstance(result, list) else result
        if error is None:
            self._trace("commit of %d is stored", offset)
            model.acknowledged(offset)
        else:
            model.failed(offset)
            self._may_fail("a commit", error)

    def _look_at_commits(self) -> None:
        for key in list(self._checker.committed):
            self._checker.check_committed(self._broker, key)

    # -- streams ------------------------------------------------------------------------------------

    def _create(self) -> None:
        free = [name for name in _STREAMS if name not in self._checker.streams]
        if not free:
            return
        compacted = self._chance.random() < 0.4
        model = StreamModel(
            self._chance.choice(free), self._chance.choice((1, 1, 2)), self._checker.boot, compacted=compacted
        )
        self._checker.streams[model.name] = model
        chance = self._chance
        delete_retention_ms = chance.choice((0, 300, 100_000))
        config = {
            "durability": chance.choice(_DURABILITIES),
            "segment.bytes": str(chance.choice((600, 3000, 10_000) if self._small else (10_000, 100_000, 1 << 20))),
            "segment.ms": str(chance.choice((500, 100_000))),
            "retention.records": str(chance.choice((-1, -1, 5, 30))),
            "retention.bytes": str(chance.choice((-1, -1, 5000, 50_000))),
            "retention.ms": str(chance.choice((-1, -1, 400, 5000))),
            "memory.max.bytes": str(64 << 10),
            "flush.messages": str(chance.choice((1, 7, 1000))),
            "flush.ms": str(chance.choice((5, 100_000))),
            "cleanup.policy": self._chance.choice(("compact", "compact", "compact,delete")) if compacted else "delete",
            "min.cleanable.dirty.ratio": str(chance.choice((0, 0, 0.5))),
            "delete.retention.ms": str(delete_retention_ms),
        }
        for history in model.histories:
            if isinstance(history, CompactedHistory):
                history.tombstones_expire(lambda sent_ms: sent_ms + delete_retention_ms <= self._clock.wall_ms())
        self._trace("stream %s is made, %s", model.name, config["durability"])
        self._broker.create_stream(
            Definition(model.name, model.partitions, config), self._answer(partial(self._created, model))
        )

    def _created(self, model: StreamModel, error: DuramenError | None) -> None:
        self._trace("stream %s: %s", model.name, "made" if error is None else type(error).__name__)
        if error is None:
            model.state, model.id = "there", self._broker.streams.get(model.name).id
            return
        self._may_fail(f"making the stream {model.name}", error)
        if not isinstance(error, StorageFailed):
            self._checker.gone(model)

    def _delete(self) -> None:
        models = [
            model
            for model in self._checker.streams.values()
            if model.state == "there" and not any(history.cutting for history in model.histories)
            and not any(key.topic == model.name and kept.asked for key, kept in self._checker.committed.items())
        ]  # fmt: skip
        if models:
            model = self._chance.choice(models)
            model.state = "deleting"
            self._trace("stream %s is deleted", model.name)
            self._broker.delete_stream(model.name, self._answer(partial(self._deleted, model)))

    def _deleted(self, model: StreamModel, error: DuramenError | None) -> None:
        self._trace("stream %s: %s", model.name, "deleted" if error is None else type(error).__name__)
        if error is None:
            self._checker.gone(model)
            return
        self._may_fail(f"deleting the stream {model.name}", error)
        if not isinstance(error, StorageFailed):
            model.state = "there"

    def _configure(self) -> None:
        history, _ = self._any()
        if history is not None:
            durability = self._chance.choice(_DURABILITIES)
            self._trace("stream %s gets the durability %s", history.name, durability)
            self._broker.configure_stream(
                history.name, {"durability": durability}, self._answer(partial(self._configured, history))
            )

    def _configured(self, history: History, error: DuramenError | None) -> None:
        if error is not None and not isinstance(error, StreamNotFound):
            self._may_fail(f"configuring the stream {history.name}", error)

    # -- letting go ---------------------------------------------------------------------------------

    def _let_go(self) -> None:
        """What DeleteRecords does: everything before an offset goes."""
        history, partition = self._any()
        if history is None or partition is None or history.cutting:
            return
        log, store = partition.log, self._broker.store
        waiting = (segment.base_offset for segment in log.segments if segment.copied < segment.size)
        bound = min(log.high_watermark, next(waiting, log.high_watermark))
        if bound <= log.start_offset:
            return
        offset = self._chance.randint(log.start_offset, bound)
        before = store.wal_end
        self._trace("%s: everything before %d goes", history, offset)
        store.move_start(log, offset)
        if store.wal_end > before:
            store.when_synced(self._answer(partial(self._let_go_for_good, history, log.start_offset)))

    def _let_go_for_good(self, history: History, offset: int, error: DuramenError | None) -> None:
        if error is not None:
            self._may_fail("waiting for a sync", error)
        elif not history.in_memory:
            history.start_bound = max(history.start_bound, offset)

    def _cut(self) -> None:
        history, partition = self._any()
        if history is None or partition is None or history.cutting or history.reading or history.damaged:
            return
        if isinstance(history, CompactedHistory):
            return  # nothing is compacted because of what may be cut off still
        log = partition.log
        end_offset = history.some_offset(self._chance, log.start_offset)
        if log.durability != "sync" or log.config.durability != "sync" or end_offset is None:
            return
        for producer in [producer for producer in self._producers if producer.history is history]:
            self._give_up(producer)
        history.cut_begins(end_offset)
        self._trace("%s is cut to %d", history, end_offset)
        self._broker.store.truncate(
            log, end_offset, self._broker.store.node_epoch, self._answer(partial(self._was_cut, history, partition))
        )

    def _was_cut(self, history: History, partition: Partition, error: DuramenError | None) -> None:
        if error is None:
            self._trace("%s was cut", history)
            history.cut(facts(partition.log))
            return
        self._may_fail(f"cutting {history}", error)
        history.spoiled = True
