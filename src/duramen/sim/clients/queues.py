"""Clients of light queues: they add, edit, delete, replace, lease, acknowledge, repeat requests, and read."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NodeStopping,
    NotCoordinator,
    OutcomeUnknown,
    QueueEntryGone,
    QueueHistoryRewritten,
    QueueLeaseExpired,
)
from duramen.base.ids import Position
from duramen.broker.streams import Stream
from duramen.codec.exports import RunsPage
from duramen.codec.partitioner import partition_of
from duramen.codec.queue_entries import entry_fields
from duramen.metadata.decisions import Definition
from duramen.queues.exporting import runs_page
from duramen.queues.leases import Leased, LeasedEntry
from duramen.queues.machine import Delete, Edit, QueueCommand, Replace
from duramen.queues.operations import NewEntry
from duramen.queues.positions import parse_position
from duramen.queues.reading import Retrieved, RetrievedBatches, Where
from duramen.queues.runs import Run, entry_of
from duramen.service.broker import Broker
from duramen.service.exports import open_export, read_export
from duramen.service.led_queues import LedQueues
from duramen.service.queue_leases import LeasePoll, LeaseRequest
from duramen.service.queues import Enqueued, LocalShards, QueueRequests, Read, ReadLimits, queue_of, request_of
from duramen.sim.checkers.queues import Fate, ModelEntries, ModelEntry, QueueModel, Unsure, identity
from duramen.sim.clients.shared import Clients
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["SimulatedQueues"]

_SPACE: Final = "__queues"
_SHARDS: Final = 2
_CONFIG: Final = {"kind": "queues", "durability": "sync", "segment.bytes": "4096", "queue.log.retention.ms": "0"}
_QUEUES: Final = 6
_MOST: Final = 1 << 20
_KNOWN_MS: Final = 5 * 60_000
"""For so long a request is said again."""
_PATIENCE: Final = 20
"""So many reads may find their shards loading, each for some seconds, where nothing fails."""
_LEASES_MS: Final = (200, 2_000, 60_000)
_DELAYS_MS: Final = (0, 500, 60_000)

_Answer = Position | DuramenError


class _Said(NamedTuple):
    """A request with an id: how it is said, whether it was done, what it was answered with, and when it came first."""

    say: Callable[[Callable[[_Answer], None]], None]
    fate: Fate
    answer: Position | None
    at_ms: int


class SimulatedQueues:
    """All clients of the queues of a space. `begin` for each process."""

    def __init__(self, clients: Clients, chance: random.Random) -> None:
        self._clients = clients
        self._chance = chance
        self._models = [QueueModel(b"queue-%d" % number) for number in range(_QUEUES)]
        self._said: dict[bytes, _Said] = {}  # the newest request with an id, by queue
        self._values = 0
        self._requests = 0
        self._made = False

    def begin(self, *, everything: bool) -> None:
        """A process has started: whoever waited for an answer gets none. `everything` is read at once."""
        self._ready, self._everything, self._again = False, everything, 0
        for model in self._models:
            model.busy = False
        if everything and self._made:
            for model in self._models:
                self._read(model)

    def act(self) -> None:
        """The next step of one of them."""
        clients, chance = self._clients, self._chance
        if not self._ready:
            self._create()
            return
        idle = [model for model in self._models if not model.busy]
        if not idle:
            return
        model = chance.choice(idle)
        said = self._said.get(model.name)
        again = said is not None and said.fate.done is not False and clients.clock.wall_ms() - said.at_ms < _KNOWN_MS
        if said is not None and again and chance.random() < (0.6 if model.unsure else 0.1):
            self._say_again(model, said)
        elif model.unsure is not None:
            self._read(model)
        else:
            steps: Sequence[tuple[Callable[[QueueModel], None], int]] = (
                (self._enqueue, 30), (self._enqueue_several, 8), (self._edit, 20), (self._delete, 12),
                (self._replace, 6), (self._lease, 14), (self._ack, 14), (self._nack, 6), (self._read, 14),
                (self._read_on, 8), (self._touch_what_is_gone, 4), (self._export, 4),
            )  # fmt: skip
            chance.choices([step for step, _ in steps], [weight for _, weight in steps])[0](model)

    # -- the space ------------------------------------------------------------------------------------

    def _create(self) -> None:
        clients = self._clients

        def created(error: DuramenError | None) -> None:
            if error is None:
                self._ready = self._made = True
            else:
                clients.may_fail("making the queue space", error)

        definition = Definition(_SPACE, _SHARDS, _CONFIG, internal=True)
        clients.broker.create_stream(definition, clients.answer(created), idempotent=True)

    @property
    def _space(self) -> Stream:
        return self._clients.broker.streams.get(_SPACE)

    @property
    def _queues(self) -> QueueRequests:
        return QueueRequests(LocalShards(self._clients.broker))

    # -- operations -----------------------------------------------------------------------------------

    def _value(self) -> bytes:
        self._values += 1
        return b"%d:" % self._values + b"x" * self._chance.choice((0, 5, 300))

    def _edited(self, entry: ModelEntry) -> bytes:
        self._values += 1
        return identity(entry.value) + b":%d" % self._values

    def _request_id(self) -> str:
        if self._chance.random() < 0.5:
            return ""
        self._requests += 1
        return f"request {self._requests}"

    def _do(
        self, models: Sequence[QueueModel], what: str, say: Callable[[Callable[[_Answer], None]], None],
        afters: Sequence[Callable[[ModelEntries, Position], ModelEntries]], *, known: bool,
        done: Callable[[ModelEntries], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Say a request about queues; it has an id where it is `known` again."""
        clients, fate = self._clients, Fate()
        clients.trace("%s: %s", " ".join(map(str, models)), what)
        for model, after in zip(models, afters, strict=True):
            model.busy = True
            model.unsure = Unsure(what, after, fate, done, clients.checker.boot)
            self._said.pop(model.name, None)
            if known and len(models) == 1:
                self._said[model.name] = _Said(say, fate, None, clients.clock.wall_ms())

        def answered(answer: _Answer) -> None:
            clients.trace("%s: %s: %s", " ".join(map(str, models)), what, answer)
            for model in models:
                model.busy = False
            if isinstance(answer, DuramenError):
                self._explained(what, answer)
                return
            for model in models:
                model.resolved(answer)
            if known and len(models) == 1:
                self._said[models[0].name] = self._said[models[0].name]._replace(answer=answer)
            if self._chance.random() < 0.3:
                self._read(models[0])

        say(clients.answer(answered))

    def _enqueue(self, model: QueueModel) -> None:
        self._put([model], [[self._value() for _ in range(self._chance.choice((1, 1, 2, 5)))]])

    def _enqueue_several(self, model: QueueModel) -> None:
        """Entries for queues of one shard: all of them, or none."""
        shard = partition_of(model.name, _SHARDS)
        free = [one for one in self._models if not one.busy and one.unsure is None]
        some = [one for one in free if partition_of(one.name, _SHARDS) == shard][:3]
        self._put(some, [[self._value() for _ in range(2)] for _ in some])

    def _put(self, models: Sequence[QueueModel], values: Sequence[Sequence[bytes]]) -> None:
        entries = [(model.name, NewEntry(value)) for model, some in zip(models, values, strict=True) for value in some]
        request = self._request_id()
        firsts = [sum(map(len, values[:place])) for place in range(len(values))]

        def say(done: Callable[[_Answer], None]) -> None:
            def stored(found: Enqueued) -> None:
                (answer,) = found.answers.values()
                done(answer)

            self._queues.enqueue(self._space, entries, stored, request_of(self._space, request))

        afters = [partial(_enqueued, some, first) for some, first in zip(values, firsts, strict=True)]
        self._do(models, f"enqueue {len(entries)}", say, afters, known=bool(request))

    def _submit(self, command: QueueCommand, queue: bytes, done: Callable[[_Answer], None]) -> None:
        self._queues.submit(self._space, queue_of(self._space, queue), command, done)

    def _on(self, model: QueueModel, make: Callable[..., QueueCommand], *more: Any) -> Callable[..., None]:
        request = request_of(self._space, self._request_id())
        self._identified = request is not None
        command = make(queue_of(self._space, model.name), *more, request=request)
        return partial(self._submit, command, model.name)

    def _edit(self, model: QueueModel) -> None:
        if model.entries:
            chosen = self._chance.sample(model.entries, min(len(model.entries), self._chance.choice((1, 1, 3))))
            edits = {one.at: self._edited(one) for one in chosen}
            wish = [(one.at, self._chance.choice((None, one.version)), edits[one.at]) for one in chosen]
            say = self._on(model, Edit, wish)
            self._do([model], f"edit {len(wish)}", say, [partial(_edited, edits)], known=self._identified)

    def _delete(self, model: QueueModel) -> None:
        if model.entries:
            chosen = self._chance.sample(model.entries, min(len(model.entries), self._chance.choice((1, 1, 3))))
            say = self._on(model, Delete, [(one.at, None) for one in chosen])
            after = partial(_without, {one.at for one in chosen})
            self._do([model], f"delete {len(chosen)}", say, [after], known=self._identified)

    def _replace(self, model: QueueModel) -> None:
        if not model.entries:
            return
        start = self._chance.choice(model.entries).at
        values = [self._value() for _ in range(self._chance.choice((1, 3)))]
        say = self._on(model, Replace, start, [NewEntry(value) for value in values], "a client", "because")

        def done(entries: ModelEntries) -> None:
            model.take_back(start, entries[-len(values)].at.offset - 1)

        after = partial(_replaced, start, values)
        self._do([model], f"replace from {start}", say, [after], known=self._identified, done=done)

    def _say_again(self, model: QueueModel, said: _Said) -> None:
        """A request that has an id, once more: it is answered as the first time, and does nothing where it was done."""
        clients = self._clients
        model.busy = True
        model.asked_again(clients.checker.boot)
        clients.trace("%s: a request again", model)

        def answered(answer: _Answer) -> None:
            model.busy = False
            clients.trace("%s: a request again: %s", model, answer)
            if isinstance(answer, DuramenError):
                self._explained("a request that is said again", answer)
            elif said.answer is not None and answer != said.answer:
                raise BrokenPromise(f"{model}: a request was answered {said.answer}, and {answer} when it came again")
            elif model.unsure is not None:
                model.resolved(answer)
                self._said[model.name] = said._replace(answer=answer)
            self._read(model)

        said.say(clients.answer(answered))

    # -- leases ---------------------------------------------------------------------------------------

    def _lease(self, model: QueueModel) -> None:
        clients, lease_ms = self._clients, self._chance.choice(_LEASES_MS)
        asked_ms = clients.clock.wall_ms()
        model.busy = True

        def answered(answer: list[Leased] | DuramenError) -> None:
            model.busy = False
            if isinstance(answer, DuramenError):
                self._explained("a lease", answer)
                return
            for one in answer:
                clients.trace("%s: %s is leased as %s", model, one.entry.position, one.lease)
                entry = ModelEntry(one.entry.position, one.entry.version, one.entry.value or b"")
                now_ms, sure = clients.clock.wall_ms(), not clients.faults.failed
                model.lease(entry, one.lease, asked_ms + lease_ms, now_ms, clients.checker.boot, sure=sure)

        request = LeaseRequest([model.name], self._chance.choice((1, 1, 3)), lease_ms)
        LeasePoll(clients.broker, self._queues, self._space, request, 0, clients.answer(answered)).begin()

    def _ack(self, model: QueueModel) -> None:
        self._end_lease(model, None)

    def _nack(self, model: QueueModel) -> None:
        self._end_lease(model, self._chance.choice(_DELAYS_MS))

    def _end_lease(self, model: QueueModel, release_ms: int | None) -> None:
        """Acknowledge an entry, or give it back."""
        if not model.held:
            return
        clients, at = self._clients, self._chance.choice(list(model.held))
        held, what = model.held[at], "an ack" if release_ms is None else "a nack"
        model.busy = True
        if release_ms is None:
            after = partial(_without, {at})
            model.unsure = Unsure(what, after, Fate(), lambda _: None, clients.checker.boot)
            self._said.pop(model.name, None)
        clients.trace("%s: %s of %s", model, what, at)

        def answered(refused: Mapping[int, DuramenError]) -> None:
            model.busy = False
            clients.trace("%s: %s of %s: %s", model, what, at, refused.get(0))
            error = refused.get(0)
            if error is None:
                model.resolved(at)
                if release_ms is not None:
                    model.release(at, clients.clock.wall_ms() + release_ms if release_ms else 0)
                return
            now_ms, current = clients.clock.wall_ms(), held.boot == clients.checker.boot
            if isinstance(error, QueueLeaseExpired):
                model.unsure = None
                lasts = current and held.until_ms > now_ms and not clients.faults.failed
                if lasts or (release_ms is None and not current):
                    raise BrokenPromise(f"{model}: {what} is refused with a lease that lasts: {error}")
                model.held.pop(at, None)
            else:
                self._explained(what, error)
                model.held.pop(at, None)
                if release_ms is not None:
                    model.not_before_ms.pop(at, None)

        LedQueues(clients.broker, LocalShards(clients.broker)).acknowledge(
            self._space, [(model.name, LeasedEntry(at, held.lease))], clients.answer(answered), None, release_ms
        )

    # -- reading --------------------------------------------------------------------------------------

    def _read(self, model: QueueModel) -> None:
        """All that is in a queue."""
        if model.busy:
            return

        def found(entries: Sequence[ModelEntry] | DuramenError) -> None:
            if not isinstance(entries, DuramenError):
                model.check(entries, self._clients.checker.boot)
            elif isinstance(entries, CoordinatorLoading) and self._everything and not self._clients.faults.failed:
                self._again += 1
                if self._again > _PATIENCE:
                    raise BrokenPromise(f"{model} cannot be read: {entries}")
                self._read(model)

        self._retrieve(model, "start", found)

    def _read_on(self, model: QueueModel) -> None:
        """What is behind an entry that was there once."""
        if not model.ever:
            return
        at = self._chance.choice(list(model.ever))

        def found(entries: Sequence[ModelEntry] | DuramenError) -> None:
            rewritten = isinstance(entries, QueueHistoryRewritten)
            if rewritten != model.is_rewritten(at.offset) and not (isinstance(entries, DuramenError) and not rewritten):
                raise BrokenPromise(f"{model}: from {at} on is {entries}, and {model.taken} was taken back")
            expected = [one for one in model.entries if one.at.offset >= at.offset]
            if not isinstance(entries, DuramenError) and list(entries) != expected:
                raise BrokenPromise(f"{model}: from {at} on is {entries}, and {expected} is there")

        self._retrieve(model, at, found)

    def _retrieve(
        self, model: QueueModel, where: Where, done: Callable[[Sequence[ModelEntry] | DuramenError], None]
    ) -> None:
        clients, batches = self._clients, self._chance.random() < 0.5
        model.busy = True

        def answered(answer: Mapping[bytes, Any]) -> None:
            model.busy = False
            found = answer[model.name]
            if isinstance(found, DuramenError):
                if not isinstance(found, QueueHistoryRewritten):
                    self._explained("a read", found)
                done(found)
            else:
                done(_entries(found))

        limits = ReadLimits(_MOST, _MOST, 0)
        self._queues.retrieve(
            self._space, [Read(model.name, where)], limits, clients.answer(answered), batches=batches
        )  # fmt: skip

    def _touch_what_is_gone(self, model: QueueModel) -> None:
        """An edit of an entry that was deleted, acknowledged or taken back changes nothing."""
        there = {one.at for one in model.entries}
        gone = [at for at in model.ever if at not in there]
        if not gone:
            return
        clients, at = self._clients, self._chance.choice(gone)
        model.busy = True

        def answered(answer: _Answer) -> None:
            model.busy = False
            right = QueueHistoryRewritten if model.is_taken_back(at.offset) else QueueEntryGone
            if not isinstance(answer, DuramenError):
                raise BrokenPromise(f"{model}: the entry at {at} is gone, and was edited at {answer}")
            if not isinstance(answer, right):
                self._explained("an edit of what is gone", answer)

        command = Edit(queue_of(self._space, model.name), [(at, None, b"gone:")])
        self._submit(command, model.name, clients.answer(answered))

    def _export(self, _: QueueModel) -> None:
        """The whole space at once."""
        clients, some = self._clients, [one for one in self._models if not one.busy and one.unsure is None]
        for one in some:
            one.busy = True

        def ended(found: Mapping[bytes, Sequence[ModelEntry]] | DuramenError) -> None:
            for one in some:
                one.busy = False
            if isinstance(found, DuramenError):
                self._explained("an export", found)
                return
            for one in some:
                one.check(found.get(one.name, ()), clients.checker.boot)

        _export_of(clients.broker, self._space, clients.answer(ended))

    # -- errors ---------------------------------------------------------------------------------------

    def _explained(self, what: str, error: DuramenError) -> None:
        """Raise BrokenPromise unless a fault, or the node's start or end, explains an error."""
        self._clients.trace("%s: %s: %s", what, type(error).__name__, error)
        if isinstance(error, CoordinatorLoading | NodeStopping | OutcomeUnknown):
            return
        if isinstance(error, NotCoordinator) and self._clients.faults.failed:
            return
        self._clients.may_fail(what, error)


def _entries(found: Retrieved | RetrievedBatches) -> list[ModelEntry]:
    if isinstance(found, Retrieved):
        return [ModelEntry(one.position, one.version, one.value or b"") for one in found.entries]
    fields = entry_fields(b"".join(found.batches))
    rows = zip(fields.positions, fields.versions, fields.values, strict=True)
    return [ModelEntry(parse_position(position), version, value or b"") for position, version, value in rows]


def _export_of(
    broker: Broker, space: Stream, done: Callable[[Mapping[bytes, Sequence[ModelEntry]] | DuramenError], None]
) -> None:
    """The entries of all queues as of one moment."""
    pages = list[RunsPage | DuramenError]()

    def read(page: RunsPage | DuramenError) -> None:
        pages.append(page)
        if len(pages) == _SHARDS:
            error = next((one for one in pages if isinstance(one, DuramenError)), None)
            done(error or dict(_exported([one for one in pages if isinstance(one, RunsPage)])))

    def opened(export: str | DuramenError) -> None:
        if isinstance(export, DuramenError):
            done(export)
            return
        for shard in range(_SHARDS):
            page = partial(runs_page, first=b"", end=b"", after=b"", max_bytes=_MOST)
            read_export(broker, space, shard, export, page, read)

    open_export(broker, space, opened)


def _exported(pages: Sequence[RunsPage]) -> Iterator[tuple[bytes, list[ModelEntry]]]:
    for page in pages:
        runs = iter(page.runs)
        for name, count in zip(page.names, page.counts, strict=True):
            entries = list[ModelEntry]()
            for run in map(Run, islice(runs, count)):
                for offset, body in run.bodies():
                    if body:
                        one = entry_of(Position(run.leader_epoch, offset), body)
                        entries.append(ModelEntry(one.position, one.version, one.value or b""))
            yield name, entries


def _enqueued(values: Sequence[bytes], first: int, entries: ModelEntries, at: Position) -> ModelEntries:
    new = [Position(at.leader_epoch, at.offset + first + number) for number in range(len(values))]
    return (*entries, *(ModelEntry(one, one.offset, value) for one, value in zip(new, values, strict=True)))


def _edited(edits: Mapping[Position, bytes], entries: ModelEntries, at: Position) -> ModelEntries:
    numbers = {one: at.offset + number for number, one in enumerate(edits)}
    return tuple(
        one._replace(version=numbers[one.at], value=edits[one.at]) if one.at in edits else one for one in entries
    )


def _without(gone: set[Position], entries: ModelEntries, _: Position) -> ModelEntries:
    return tuple(one for one in entries if one.at not in gone)


def _replaced(start: Position, values: Sequence[bytes], entries: ModelEntries, at: Position) -> ModelEntries:
    kept = tuple(one for one in entries if one.at.offset < start.offset)
    return _enqueued(values, 1, kept, at)
