"""Clients that read light queues: whole ones, from a position on, all of a space, counts, and dead letters."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from duramen.base.errors import CoordinatorLoading, DuramenError, QueueEntryGone, QueueHistoryRewritten
from duramen.base.ids import Position
from duramen.broker.streams import Stream
from duramen.codec.exports import RunsPage
from duramen.codec.queue_entries import entry_fields
from duramen.queues.exporting import runs_page
from duramen.queues.machine import Edit
from duramen.queues.positions import parse_position
from duramen.queues.reading import Counted, Retrieved, RetrievedBatches, Where
from duramen.queues.runs import Run, entry_of
from duramen.service.broker import Broker
from duramen.service.exports import open_export, read_export
from duramen.service.led_queues import FoundNames
from duramen.service.queues import Read, ReadLimits, queue_of
from duramen.sim.checkers.queues import ModelEntry, QueueModel, Seen, identity
from duramen.sim.clients.queue_space import DEAD_LETTERS, SHARDS, Answer, SimulatedSpace
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["QueueReads"]

_MOST: Final = 1 << 20
_PATIENCE: Final = 20
"""So many reads may find their shards loading, each for some seconds, where nothing fails."""


class QueueReads:
    """The readers of queues. `begin` for each process."""

    def __init__(self, space: SimulatedSpace) -> None:
        self._space = space

    def begin(self, *, everything: bool) -> None:
        """A process has started; `everything` is read at once."""
        self._everything, self._again = everything, 0
        if everything:
            for model in self._space.models:
                self.read(model)
            self.read_dead()

    def read(self, model: QueueModel) -> None:
        """All that is in a queue."""
        if model.busy:
            return
        space = self._space

        def found(entries: Sequence[ModelEntry] | DuramenError, seen: Seen) -> None:
            if not isinstance(entries, DuramenError):
                model.check(entries, seen, space.clients.checker.boot)
            elif self._may_ask_again(entries, str(model)):
                self.read(model)

        self._retrieve(model, "start", found)

    def _may_ask_again(self, error: DuramenError, what: str) -> bool:
        """Whether a shard that is loading is asked again. Raises BrokenPromise where it was asked too often."""
        if not (isinstance(error, CoordinatorLoading) and self._everything and not self._space.clients.faults.failed):
            return False
        self._again += 1
        if self._again > _PATIENCE:
            raise BrokenPromise(f"{what} cannot be read: {error}")
        return True

    def read_on(self, model: QueueModel) -> None:
        """The entries after an entry that existed once."""
        if not model.ever or model.taken is None:
            return
        at = self._space.chance.choice(list(model.ever))

        def found(entries: Sequence[ModelEntry] | DuramenError, seen: Seen) -> None:
            rewritten = isinstance(entries, QueueHistoryRewritten)
            if rewritten != model.is_rewritten(at.offset) and not (isinstance(entries, DuramenError) and not rewritten):
                raise BrokenPromise(f"{model}: from {at} on is {entries}, and {model.taken} was taken back")
            if not isinstance(entries, DuramenError):
                model.check_part(entries, at.offset, seen)

        self._retrieve(model, at, found)

    def _retrieve(
        self, model: QueueModel, where: Where, done: Callable[[Sequence[ModelEntry] | DuramenError, Seen], None]
    ) -> None:
        """Read a queue; with its hidden entries if the outcome of the last operation is unknown."""
        space, batches = self._space, self._space.chance.random() < 0.5
        delayed, began_ms = model.unsure is not None or space.chance.random() < 0.5, space.now_ms
        model.busy = True

        def answered(answer: Mapping[bytes, Any]) -> None:
            model.busy = False
            found = answer[model.name]
            seen = Seen(began_ms, space.now_ms, delayed, trimmed=space.undisturbed)
            if isinstance(found, DuramenError):
                if not isinstance(found, QueueHistoryRewritten):
                    space.explained("a read", found)
                done(found, seen)
            else:
                done(_entries(found), seen)

        limits = ReadLimits(_MOST, _MOST, 0, delayed)
        space.queues.retrieve(
            space.stream, [Read(model.name, where)], limits, space.clients.answer(answered), batches=batches
        )  # fmt: skip

    def use_deleted_entry(self, model: QueueModel) -> None:
        """An edit of an entry that was deleted, acknowledged, taken back or that went by itself changes nothing."""
        there = {one.at for one in model.entries}
        gone = [at for at in model.ever if at not in there]
        if not gone or model.taken is None:
            return
        space, at = self._space, self._space.chance.choice(gone)
        model.busy = True

        def answered(answer: Answer) -> None:
            model.busy = False
            right = QueueHistoryRewritten if model.is_taken_back(at.offset) else QueueEntryGone
            if not isinstance(answer, DuramenError):
                raise BrokenPromise(f"{model}: the entry at {at} is gone, and was edited at {answer}")
            if not isinstance(answer, right):
                space.explained("an edit of what is gone", answer)

        queue = queue_of(space.stream, model.name)
        space.queues.submit(space.stream, queue, Edit(queue, [(at, None, b"gone:")]), space.clients.answer(answered))

    # -- all of a space -------------------------------------------------------------------------------

    def export(self, _: QueueModel) -> None:
        """The whole space at once."""
        space, some = self._space, [one for one in self._space.models if not one.busy and one.unsure is None]
        began_ms = space.now_ms
        for one in some:
            one.busy = True

        def ended(found: Mapping[bytes, Sequence[ModelEntry]] | DuramenError) -> None:
            for one in some:
                one.busy = False
            if isinstance(found, DuramenError):
                space.explained("an export", found)
                return
            seen = Seen(began_ms, space.now_ms, delayed=True, trimmed=False)
            for one in some:
                one.check(found.get(one.name, ()), seen, space.clients.checker.boot)

        _export_of(space.clients.broker, space.stream, began_ms, space.clients.answer(ended))

    def count(self, model: QueueModel) -> None:
        """How many entries are in a queue."""
        space, began_ms = self._space, self._space.now_ms
        model.busy = True

        def answered(answer: tuple[Counted, int] | DuramenError) -> None:
            model.busy = False
            if isinstance(answer, DuramenError):
                space.explained("a count", answer)
            else:
                model.check_count(answer[0].entries, Seen(began_ms, space.now_ms, delayed=True, trimmed=False))

        space.led.count(space.stream, model.name, space.clients.answer(answered))

    def names(self, _: QueueModel) -> None:
        """Which queues there are."""
        space, some = self._space, [one for one in self._space.models if not one.busy and one.unsure is None]
        for one in some:
            one.busy = True

        def answered(answer: FoundNames | DuramenError) -> None:
            for one in some:
                one.busy = False
            if isinstance(answer, DuramenError):
                space.explained("the names of queues", answer)
                return
            for error in answer.lost.values():
                space.explained("the names of queues", error)
                return
            for one in some:
                listed = one.name in answer.names
                if one.listed is not None and one.listed != listed:
                    raise BrokenPromise(f"{one} is {'' if listed else 'not '}among the names of the space")

        space.led.names(space.stream, b"queue-", (0, b""), _MOST, space.clients.answer(answered))

    def read_dead(self) -> None:
        """All that is in the dead-letter queue."""
        space, owed = self._space, self._space.dead.owed
        if not space.dead.deliveries:
            return

        def answered(answer: Mapping[bytes, Any]) -> None:
            found = answer[DEAD_LETTERS]
            if not isinstance(found, DuramenError):
                space.dead.check([identity(one.value) for one in _entries(found)], owed, space.now_ms)
                return
            space.explained("a read of dead letters", found)
            if self._may_ask_again(found, "the dead-letter queue"):
                self.read_dead()

        limits = ReadLimits(_MOST, _MOST, 0)
        space.queues.retrieve(space.stream, [Read(DEAD_LETTERS, "start")], limits, space.clients.answer(answered))


def _entries(found: Retrieved | RetrievedBatches) -> list[ModelEntry]:
    if isinstance(found, Retrieved):
        return [ModelEntry(one.position, one.version, one.value or b"") for one in found.entries]
    fields = entry_fields(b"".join(found.batches))
    rows = zip(fields.positions, fields.versions, fields.values, strict=True)
    return [ModelEntry(parse_position(position), version, value or b"") for position, version, value in rows]


def _export_of(
    broker: Broker, space: Stream, now_ms: int,
    done: Callable[[Mapping[bytes, Sequence[ModelEntry]] | DuramenError], None],
) -> None:  # fmt: skip
    """The entries of all queues as of one moment; readers omit expired ones."""
    pages = list[RunsPage | DuramenError]()

    def read(page: RunsPage | DuramenError) -> None:
        pages.append(page)
        if len(pages) == SHARDS:
            error = next((one for one in pages if isinstance(one, DuramenError)), None)
            done(error or dict(_exported([one for one in pages if isinstance(one, RunsPage)], now_ms)))

    def opened(export: str | DuramenError) -> None:
        if isinstance(export, DuramenError):
            done(export)
            return
        for shard in range(SHARDS):
            page = partial(runs_page, first=b"", end=b"", after=b"", max_bytes=_MOST)
            read_export(broker, space, shard, export, page, read)

    open_export(broker, space, opened)


def _exported(pages: Sequence[RunsPage], now_ms: int) -> Iterator[tuple[bytes, list[ModelEntry]]]:
    for page in pages:
        runs = iter(page.runs)
        for name, count in zip(page.names, page.counts, strict=True):
            entries = list[ModelEntry]()
            for run in map(Run, islice(runs, count)):
                for offset, body in run.bodies():
                    one = entry_of(Position(run.leader_epoch, offset), body) if body else None
                    if one is not None and not one.expired(now_ms):
                        entries.append(ModelEntry(one.position, one.version, one.value or b""))
            yield name, entries
