"""Clients that create, change and delete streams, and delete records."""

from functools import partial
from typing import Final

from duramen.base.errors import DuramenError, LogDamaged, NodeStopping, StorageFailed, StreamNotFound
from duramen.broker.partition import Partition
from duramen.metadata.decisions import Definition
from duramen.sim.checkers.checker import StreamModel, facts
from duramen.sim.checkers.compacted import CompactedHistory
from duramen.sim.checkers.history import LogHistory
from duramen.sim.checkers.keyed import KeyedHistory
from duramen.sim.clients.shared import Clients
from duramen.sim.clients.writers import SimulatedProducers

__all__ = ["Owners"]

_STREAMS: Final = ("a", "b", "c", "d")
_SAFE: Final = ("sync", "sync", "sync", "os", "memory")
_DURABILITIES: Final = (_SAFE, _SAFE, _SAFE, ("os", "os", "sync"))  # a run has one of these


class Owners:
    """Those whose streams they are."""

    def __init__(self, clients: Clients, writers: SimulatedProducers) -> None:
        self._clients = clients
        self._writers = writers
        self._durabilities = clients.chance.choice(_DURABILITIES)

    # -- streams ------------------------------------------------------------------------------------

    def create(self) -> None:
        """A stream that is not there."""
        clients, chance = self._clients, self._clients.chance
        free = [name for name in _STREAMS if name not in clients.checker.streams]
        if not free:
            return
        compacted = chance.random() < (0.8 if clients.keyed else 0.4)
        model = StreamModel(
            chance.choice(free), chance.choice((1, 1, 2)), clients.checker.boot,
            compacted=compacted, keyed=compacted and clients.keyed,
        )  # fmt: skip
        clients.checker.streams[model.name] = model
        delete_retention_ms = chance.choice((0, 300, 100_000))
        config = {
            "durability": chance.choice(self._durabilities),
            "segment.bytes": str(chance.choice((600, 3000, 10_000) if clients.small else (10_000, 100_000, 1 << 20))),
            "segment.ms": str(chance.choice((500, 100_000))),
            "retention.records": str(chance.choice((-1, -1, 5, 30))),
            "retention.bytes": str(chance.choice((-1, -1, 5000, 50_000))),
            "retention.ms": str(chance.choice((-1, -1, 400, 5000))),
            "memory.max.bytes": str(64 << 10),
            "flush.messages": str(chance.choice((1, 7, 1000))),
            "flush.ms": str(chance.choice((5, 100_000))),
            "cleanup.policy": chance.choice(("compact", "compact", "compact,delete")) if compacted else "delete",
            "min.cleanable.dirty.ratio": str(chance.choice((0, 0, 0.5))),
            "delete.retention.ms": str(delete_retention_ms),
            "file.delete.delay.ms": str(chance.choice((0, 0, 200, 60_000))),
        }
        for history in model.histories:
            history.lets_go = any(int(config[f"retention.{limit}"]) >= 0 for limit in ("records", "bytes", "ms"))
            if isinstance(history, CompactedHistory):
                history.tombstones_expire(lambda sent_ms: sent_ms + delete_retention_ms <= clients.clock.wall_ms())
            if isinstance(history, KeyedHistory):
                history.keep_tombstones(delete_retention_ms, clients.clock.wall_ms)
                self._key(history, config)
        clients.trace("stream %s is made, %s", model.name, config["durability"])
        clients.broker.create_stream(
            Definition(model.name, model.partitions, config), clients.answer(partial(self._created, model))
        )

    def _key(self, history: KeyedHistory, config: dict[str, str]) -> None:
        """Most of them are keyed from the beginning."""
        chance = self._clients.chance
        if history.partition == 0:
            config["cleanup.policy"] = "compact"
            config["durability"] = chance.choice(("sync", "sync", "os"))
            config["keyed"] = chance.choice(("true", "true", "true", "false"))
            config["snapshot.retention.ms"] = str(chance.choice((0, 300, 2000, 100_000)))
        history.make_keyed(config["keyed"] == "true", int(config["snapshot.retention.ms"]))

    def change_keyed(self) -> None:
        """A compacted stream is made keyed, or is not any more."""
        clients = self._clients
        history, _ = clients.any()
        if not isinstance(history, KeyedHistory) or history.keyed is None:
            return
        histories = [one for one in clients.checker.streams[history.name].histories if isinstance(one, KeyedHistory)]
        if clients.chance.random() < 0.5:
            self._keep_tombstones(histories)
            return
        wanted = not history.keyed
        for one in histories:
            one.changes_keyed()
        clients.trace("stream %s is to be keyed: %s", history.name, wanted)
        config = {"keyed": "true" if wanted else "false"}
        changed = partial(self._changed_keyed, histories, wanted=wanted)
        clients.broker.configure_stream(history.name, config, clients.answer(changed))

    def _keep_tombstones(self, histories: list[KeyedHistory]) -> None:
        """Tombstones are kept for longer, or not so long; those that are there may go after either time."""
        clients, name = self._clients, histories[0].name
        kept_ms = clients.chance.choice((0, 300, 100_000))
        for one in histories:
            one.keep_tombstones(kept_ms, clients.clock.wall_ms)
        clients.trace("stream %s keeps tombstones for %d ms", name, kept_ms)
        config = {"delete.retention.ms": str(kept_ms)}
        clients.broker.configure_stream(name, config, clients.answer(partial(self._configured, histories[0])))

    def _changed_keyed(self, histories: list[KeyedHistory], error: DuramenError | None, *, wanted: bool) -> None:
        if isinstance(error, LogDamaged) and (
            any(one.damaged for one in histories) or self._clients.faults.failed_syncs
        ):
            return  # it is unknown whether the damaged batches have keys
        if error is not None:
            self._configured(histories[0], error)
            return
        for one in histories:
            one.keyed = wanted

    def _created(self, model: StreamModel, error: DuramenError | None) -> None:
        clients = self._clients
        clients.trace("stream %s: %s", model.name, "made" if error is None else type(error).__name__)
        if error is None:
            model.state, model.id = "there", clients.broker.streams.get(model.name).id
            return
        clients.may_fail(f"making the stream {model.name}", error)
        if not isinstance(error, StorageFailed):
            clients.checker.gone(model)

    def delete(self) -> None:
        """A stream, for good."""
        clients = self._clients
        models = [
            model
            for model in clients.checker.streams.values()
            if model.state == "there" and not any(history.cutting for history in model.histories)
            and not any(key.topic == model.name and kept.asked for key, kept in clients.checker.committed.items())
        ]  # fmt: skip
        if models:
            model = clients.chance.choice(models)
            model.state = "deleting"
            clients.trace("stream %s is deleted", model.name)
            partitions = [clients.partition(history) for history in model.histories]
            logs = [partition.log for partition in partitions if partition is not None]
            copied = [log for log in logs if any(segment.copied for segment in log.segments)]
            clients.checker.deleting.update((log.key, log.directory) for log in copied)
            clients.broker.delete_stream(model.name, clients.answer(partial(self._deleted, model)))

    def _deleted(self, model: StreamModel, error: DuramenError | None) -> None:
        clients = self._clients
        clients.trace("stream %s: %s", model.name, "deleted" if error is None else type(error).__name__)
        if error is None:
            clients.checker.gone(model)
            return
        clients.may_fail(f"deleting the stream {model.name}", error)
        if not isinstance(error, StorageFailed):
            model.state = "there"

    def configure(self) -> None:
        """Another durability, or the same."""
        clients = self._clients
        history, _ = clients.any()
        if history is not None:
            if any(one.transactional for one in clients.checker.streams[history.name].histories):
                return  # a loss of power would take parts of transactions
            durability = clients.chance.choice(self._durabilities)
            if isinstance(history, KeyedHistory) and durability == "memory":
                return  # keyed streams are refused it
            clients.trace("stream %s gets the durability %s", history.name, durability)
            clients.broker.configure_stream(
                history.name, {"durability": durability}, clients.answer(partial(self._configured, history))
            )

    def _configured(self, history: LogHistory, error: DuramenError | None) -> None:
        if error is not None and not isinstance(error, StreamNotFound):
            self._clients.may_fail(f"configuring the stream {history.name}", error)

    # -- letting go ---------------------------------------------------------------------------------

    def let_go(self) -> None:
        """The effect of DeleteRecords: everything before an offset is deleted."""
        clients = self._clients
        history, partition = clients.any()
        if history is None or partition is None or history.cutting or isinstance(history, KeyedHistory):
            return
        log, store = partition.log, clients.broker.store
        waiting = (segment.base_offset for segment in log.segments if segment.copied < segment.size)
        bound = min(log.high_watermark, next(waiting, log.high_watermark))
        if bound <= log.start_offset:
            return
        offset = bound if clients.chance.random() < 0.3 else clients.chance.randint(log.start_offset, bound)
        before = store.wal_end
        clients.trace("%s: everything before %d goes", history, offset)
        store.move_start(log, offset)
        if store.wal_end > before:
            store.when_synced(clients.answer(partial(self._let_go_for_good, history, log.start_offset)))

    def _let_go_for_good(self, history: LogHistory, offset: int, error: DuramenError | None) -> None:
        if error is not None:
            self._clients.may_fail("waiting for a sync", error)
        elif not history.in_memory:
            history.start_bound = max(history.start_bound, offset)

    def cut(self) -> None:
        """The end of a log, as a follower does whose leader has another."""
        clients = self._clients
        found = [one for one in clients.histories() if self._may_be_cut(*one)]
        if not found:
            return
        history, partition = clients.chance.choice(found)
        log, store = partition.log, clients.broker.store
        start_offset = log.start_offset
        # Nothing of it is left; if it starts within an unknown batch, its end is unknown then.
        whole = clients.chance.random() < 0.2 and (start_offset == 0 or history.knows(start_offset))
        end_offset = start_offset if whole else history.some_offset(clients.chance, start_offset)
        if end_offset is None:
            return
        self._writers.forget(history)
        history.cut_begins(end_offset)
        clients.trace("%s is cut to %d", history, end_offset)
        store.truncate(log, end_offset, store.node_epoch, clients.answer(partial(self._was_cut, history, partition)))

    def _may_be_cut(self, history: LogHistory, partition: Partition) -> bool:
        log, clients = partition.log, self._clients
        if history.cutting or history.reading or history.damaged:
            return False
        if clients.access.later and history.is_sent_to(clients.checker.boot):
            return False  # an answer from before the cut may come after it
        if isinstance(history, CompactedHistory) or history.transactional:
            return False  # nothing is compacted by records that may still be truncated
        return log.durability == log.config.durability and log.durability != "memory"

    def _was_cut(self, history: LogHistory, partition: Partition, error: DuramenError | None) -> None:
        if error is None:
            self._clients.trace("%s was cut", history)
            history.cut(facts(partition.log))
            return
        self._clients.may_fail(f"cutting {history}", error)
        if isinstance(error, NodeStopping):
            history.not_cut()
        else:
            history.spoiled = True
