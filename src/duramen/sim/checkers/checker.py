"""Invariants of a node: its streams with the history of each log, and the stored offsets of groups."""

from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from duramen.broker.streams import Stream
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.groups.records import OffsetKey
from duramen.service.broker import Broker
from duramen.sim.checkers.compacted import CompactedHistory
from duramen.sim.checkers.history import End, HistoryFacts, LogHistory
from duramen.sim.checkers.keyed import KeyedHistory
from duramen.sim.machine.trace import BrokenPromise
from duramen.storage.log.log import Log, LogKey

__all__ = ["Checker", "CommittedModel", "StreamModel", "facts"]


def facts(log: Log) -> HistoryFacts:
    """The present state of a log."""
    return HistoryFacts(log.start_offset, log.high_watermark, log.durability)


class StreamModel:
    """A stream that was asked for. `state` says how far its creation or deletion has come."""

    def __init__(self, name: str, partitions: int, boot: int, *, compacted: bool = False, keyed: bool = False) -> None:
        self.name = name
        self.partitions = partitions
        self.state = "creating"  # creating, there, deleting, deleted
        self.id: UUID | None = None
        kind = KeyedHistory if keyed else CompactedHistory if compacted else LogHistory
        self.histories: list[LogHistory] = [kind(name, at, boot) for at in range(partitions)]


class CommittedModel:
    """The offset of one group, partition and stream: the last acknowledged one, and the later requests."""

    def __init__(self, ever: set[int], *, unsure: bool) -> None:
        """`ever` are offsets that were committed there in any life; the owner of the set keeps them."""
        self.ever = ever
        self.unsure = unsure  # whether the last stored offset may be lost to damage, and an older one is there
        self.known: set[int | None] = {None}  # any of these may be stored
        self.asked: list[int] = []  # commits that were not answered, in their order
        self.asks = 0  # how many there were
        self._committed = -1  # the highest that a transaction has stored

    def ask(self, offset: int) -> None:
        """A commit is sent."""
        self.asks += 1
        self.ever.add(offset)
        self.asked.append(offset)

    def acknowledged(self, offset: int) -> None:
        """The oldest commit under way was stored; those before it are no matter any more."""
        self.known = {offset}
        self.unsure = False
        self.asked.remove(offset)

    def committed(self, offset: int) -> None:
        """The transaction that holds the commit is committed; of two, the one asked for later counts, in any order.

        Its record is further on in the log, and its offset is higher: transactions use each number once.
        """
        newest = max(self._committed, offset)
        self.known = {newest, *(one for one in self.known if one is not None and one > newest)}
        self._committed = newest
        self.unsure = False
        self.asked.remove(offset)

    def refused(self, offset: int) -> None:
        """It was taken back: it is not stored."""
        self.asked.remove(offset)

    def failed(self, offset: int) -> None:
        """It was answered with an error: it may be stored, or not."""
        self.asked.remove(offset)
        self.known.add(offset)

    def restarted(self) -> None:
        """The pending requests get no response."""
        self.known.update(self.asked)
        self.asked.clear()


class Checker:
    """Everything that was promised so far."""

    def __init__(self) -> None:
        self.streams: dict[str, StreamModel] = {}
        self.committed: dict[OffsetKey, CommittedModel] = {}
        self._ever: dict[OffsetKey, set[int]] = {}
        self._offsets_damaged = False
        self.deleted: set[UUID] = set()
        self.deleting: dict[LogKey, str] = {}  # logs of streams that are to be deleted, and their directories
        self._buried: set[LogKey] = set()  # those of which the directory is gone: their deletion was durable before
        self.producers_lost = False  # until the response
        self.producer_ids: set[int] = set()
        self.epoch = -1
        self.boot = 0
        self.others = set[str]()
        """Streams that other checkers know."""

    def started(self, broker: Broker, end: End, found: Mapping[LogKey, HistoryFacts]) -> None:
        """A node has started after such an end; `found` are its logs. Raises BrokenPromise."""
        epoch = broker.store.node_epoch
        if epoch <= self.epoch:
            raise BrokenPromise(f"the node's epoch was {self.epoch}; it is {epoch} after a restart")
        self.epoch = epoch
        self.boot += 1
        for model in list(self.streams.values()):
            self._stream_started(broker, model, end, found)
        for name in broker.streams.by_name:
            if name not in self.streams and name not in self.others and not name.startswith("__"):
                raise BrokenPromise(f"the stream {name} is there, and nobody has made it or it was deleted")
        self._logs_of_deleted(broker)
        for log_key in found:
            if log_key in self._buried:
                raise BrokenPromise(f"a log of the stream {log_key.stream_id} is there again, and was deleted for good")
        for key, committed in self.committed.items():
            committed.restarted()
            stored = broker.groups.committed(key)
            found_offset = None if stored is None else stored.offset
            self._check_known(key, committed, found_offset)
            committed.known = {found_offset}

    def _stream_started(
        self, broker: Broker, model: StreamModel, end: End, found: Mapping[LogKey, HistoryFacts]
    ) -> None:  # fmt: skip
        stream = broker.streams.find(model.name)
        if stream is None or (model.id is not None and stream.id != model.id):
            if model.state not in ("creating", "deleting"):
                raise BrokenPromise(f"the stream {model.name} is gone after a {end}")
            self.gone(model)
            return
        if model.state == "deleting":
            for history in model.histories:
                history.deleting = False
        model.state, model.id = "there", stream.id
        for key in [key for key in self.deleting if key.stream_id == stream.id]:
            del self.deleting[key]  # it was not deleted, and a loss of power may take a directory too
            self._buried.discard(key)
        for history in model.histories:
            log = stream.partitions[history.partition].log
            history.started(self.boot, end, found.get(log.key, facts(log)))
            if log.durability == "sync":
                history.stable(log.last_stable_offset, log.start_offset)

    def gone(self, model: StreamModel) -> None:
        """The stream is not there any more, or never was."""
        self.streams.pop(model.name, None)
        if model.id is not None:
            self.deleted.add(model.id)
        for key in [key for key in self.committed if key.topic == model.name]:
            del self.committed[key]

    def _logs_of_deleted(self, broker: Broker) -> None:
        for log in broker.store.each_log():
            if log.key.stream_id in self.deleted:
                raise BrokenPromise(f"{log.directory} of a deleted stream is there again")

    def _check_known(self, key: OffsetKey, model: CommittedModel, found: int | None) -> None:
        older = model.unsure and (found is None or found in model.ever)
        if found not in model.known and not older:
            raise BrokenPromise(f"group {key.group} has the offset {found} of {key.topic}; it was one of {model.known}")

    def commits(self, key: OffsetKey) -> CommittedModel:
        """The known offset of a group."""
        if key not in self.committed:
            ever = self._ever.setdefault(key, set())
            self.committed[key] = CommittedModel(ever, unsure=self._offsets_damaged)
        return self.committed[key]

    def of_offsets(self, broker: Broker) -> list[Log]:
        """The logs of groups' offsets."""
        stream = broker.streams.find(OFFSETS_STREAM)
        return [partition.log for partition in stream.partitions] if stream is not None else []

    @property
    def offsets_lost(self) -> bool:
        """Whether damage has taken records of groups."""
        return self._offsets_damaged

    def offsets_damaged(self) -> None:
        """Records of groups' offsets are lost: where one was the last, an older one is there, or none."""
        self._offsets_damaged = True
        for model in self.committed.values():
            model.unsure = True

    def check_committed(self, key: OffsetKey, offset: int | None) -> None:
        """A group reads its own offset. Raises BrokenPromise."""
        model = self.committed.get(key)
        if model is not None and not model.asked:
            self._check_known(key, model, offset)

    def history(self, stream: Stream, partition: int) -> LogHistory:
        """The known state of a partition of an existing stream."""
        return self.streams[stream.name].histories[partition]

    def _logs(self, broker: Broker) -> Iterator[tuple[LogHistory, Log]]:
        for model in self.streams.values():
            stream = broker.streams.find(model.name)
            if stream is not None and stream.id == model.id:
                for history in model.histories:
                    yield history, stream.partitions[history.partition].log

    def exposed(self, broker: Broker) -> dict[int, LogHistory]:
        """The logs, by their ids, for which the effect of damage to the write-ahead log is known."""
        return {
            log.id: history
            for history, log in self._logs(broker)
            if log.durability == log.config.durability == "sync"
            and not isinstance(history, CompactedHistory)
            and not (history.in_memory or history.spoiled or history.cutting or history.cut_to is not None)
        }

    def at_rest(self, broker: Broker) -> dict[Log, LogHistory]:
        """The logs for which damage in segments is known by its batches: their synced records stay in place.

        Not those that were truncated since the start: a power loss repeats the truncation, and damage up to its end
        cannot be distinguished from leftovers of the first one.
        """
        return {
            log: history
            for history, log in self._logs(broker)
            if log.durability == log.config.durability == "sync"
            and not (history.in_memory or history.spoiled or history.cutting or history.cut_to is not None)
            and not history.was_cut
        }

    def believing(self) -> None:
        """The next start trusts directories: also a deleted one that a power loss has restored.

        The broker deletes it again.
        """
        self._buried.clear()

    def unchecked(self) -> None:
        """No checkpoint is left: the starts of logs, and epochs without a batch, are unknown from here on.

        So are the records of producers that were deleted since.
        """
        self.epoch = -1
        self.producers_lost = True
        self.believing()
        for model in self.streams.values():
            for history in model.histories:
                history.unchecked()

    @property
    def checkable(self) -> bool:
        """Whether the segments alone determine every log: none was ever truncated."""
        return not any(history.ever_cut for model in self.streams.values() for history in model.histories)

    def stopped(self, broker: Broker) -> None:
        """A node has stopped in good order."""
        for history, log in self._logs(broker):
            history.stopped(facts(log))

    def ended(self, broker: Broker, exists: Callable[[str], bool]) -> None:
        """A process has ended in any way: a restart lets nothing more go than was let go before it.

        `exists` says of a directory whether it is there.
        """
        self._buried.update(key for key, directory in self.deleting.items() if not exists(directory))
        for history, log in self._logs(broker):
            history.start_asked = max(history.start_asked, log.start_offset)
            history.in_memory = history.in_memory or log.durability == "memory"
