"""Clients of light queues: they add, edit, delete, replace, purge and drop, repeat requests, lease and read."""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from duramen.base.errors import DuramenError, QueueEntryGone
from duramen.base.ids import Position
from duramen.codec.partitioner import partition_of
from duramen.queues.machine import Delete, Edit, Empty, QueueCommand, Replace
from duramen.queues.operations import NewEntry
from duramen.service.queues import Enqueued, queue_of, request_of
from duramen.sim.checkers.queues import Fate, ModelEntries, ModelEntry, ModelTimes, QueueModel, Unsure, identity
from duramen.sim.clients.queue_leases import QueueLeases
from duramen.sim.clients.queue_producers import QueueProducers
from duramen.sim.clients.queue_reads import QueueReads
from duramen.sim.clients.queue_space import SHARDS, Answer, Said, SimulatedSpace
from duramen.sim.clients.shared import Clients
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["SimulatedQueues"]

_KNOWN_MS: Final = 5 * 60_000
"""The time for which a request is repeated."""
_DELAYS_MS: Final = (0, 0, 0, 0, 300, 5_000, 600_000)
_TTLS_MS: Final = (0, 0, 0, 0, 300, 5_000, 600_000)
_READS_DEAD: Final = 0.1


class SimulatedQueues:
    """All clients of the queues of a space. `begin` for each process."""

    def __init__(self, clients: Clients, chance: random.Random, producing: random.Random) -> None:
        """Producers of the queues' topics draw from `producing`."""
        self._clients = clients
        self._chance = chance
        self._space = SimulatedSpace(clients, chance)
        self._producers = QueueProducers(self._space, producing)
        self._reads = reads = QueueReads(self._space)
        leases = QueueLeases(self._space)
        self._values = 0
        self._requests = 0
        self._made = False
        steps: tuple[tuple[Callable[[QueueModel], None], int], ...] = (
            (self._enqueue, 30), (self._enqueue_several, 8), (self._edit, 20), (self._delete, 12), (self._replace, 6),
            (self._purge, 2), (self._drop, 2), (leases.lease, 16), (leases.acknowledge, 14), (leases.release, 8),
            (reads.read, 14), (reads.read_on, 8), (reads.use_deleted_entry, 4), (reads.export, 4), (reads.count, 3),
            (reads.names, 2),
        )  # fmt: skip
        self._steps, self._weights = [step for step, _ in steps], [weight for _, weight in steps]

    def begin(self, *, everything: bool) -> None:
        """A process has started: pending requests get no response. `everything` is read at once."""
        self._ready = False
        self._space.begin()
        self._producers.begin()
        self._reads.begin(everything=everything and self._made)

    def act(self) -> None:
        """The next step of one of them."""
        clients, chance, space = self._clients, self._chance, self._space
        if not self._ready:
            space.create(self._created)
            return
        if space.dead.deliveries and chance.random() < _READS_DEAD:
            self._reads.read_dead()
        idle = [model for model in space.models if not model.busy]
        if not idle:
            return
        model = chance.choice(idle)
        said = space.said.get(model.name)
        again = said is not None and said.fate.done is not False and said.fate.is_open
        again = again and said is not None and clients.clock.wall_ms() - said.at_ms < _KNOWN_MS
        if said is not None and again and chance.random() < (0.6 if model.unsure else 0.1):
            self._say_again(model, said)
        elif model.unsure is not None:
            self._reads.read(model)
        elif self._producers.is_next:
            self._produce(model)
        else:
            chance.choices(self._steps, self._weights)[0](model)

    def _created(self) -> None:
        self._ready = self._made = True

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
        self, models: Sequence[QueueModel], what: str, say: Callable[[Callable[[Answer], None]], None],
        afters: Sequence[Callable[[ModelEntries, Position], ModelEntries]], *, known: bool,
        done: Callable[[ModelEntries | None], None] = lambda _: None, touches: Sequence[Position] = (),
    ) -> None:  # fmt: skip
        """Say a request about queues; it has an id where it is `known` again. Entries that it `touches` may be gone."""
        clients, space, fate = self._clients, self._space, Fate()
        clients.trace("%s: %s", " ".join(map(str, models)), what)
        for model, after in zip(models, afters, strict=True):
            model.busy = True
            model.ask(Unsure(what, after, fate, done, clients.checker.boot))
            space.said.pop(model.name, None)
            if known and len(models) == 1:
                space.said[model.name] = Said(say, fate, None, space.now_ms, tuple(touches))

        def answered(answer: Answer) -> None:
            clients.trace("%s: %s: %s", " ".join(map(str, models)), what, answer)
            for model in models:
                model.busy = False
            if isinstance(answer, DuramenError):
                self._refused(models[0], what, answer, touches)
                return
            for model in models:
                model.resolved(answer, space.now_ms)
            if known and len(models) == 1:
                space.said[models[0].name] = space.said[models[0].name]._replace(answer=answer)
            if self._chance.random() < 0.3:
                self._reads.read(models[0])

        say(clients.answer(answered))

    def _refused(self, model: QueueModel, what: str, error: DuramenError, touches: Sequence[Position]) -> None:
        """A request was not done where an entry that it touches may be gone by itself."""
        if isinstance(error, QueueEntryGone) and model.explains(touches, self._space.now_ms):
            model.unsure = None
            self._space.said.pop(model.name, None)
        else:
            self._space.explained(what, error)

    def _enqueue(self, model: QueueModel) -> None:
        self._put([model], [[self._value() for _ in range(self._chance.choice((1, 1, 2, 5)))]])

    def _enqueue_several(self, model: QueueModel) -> None:
        """Entries for queues of one shard: all of them, or none."""
        shard = partition_of(model.name, SHARDS)
        free = [one for one in self._space.models if not one.busy and one.unsure is None]
        some = [one for one in free if partition_of(one.name, SHARDS) == shard][:3]
        self._put(some, [[self._value() for _ in range(2)] for _ in some])

    def _put(self, models: Sequence[QueueModel], values: Sequence[Sequence[bytes]]) -> None:
        entries, space = list[tuple[bytes, NewEntry]](), self._space
        for model, some in zip(models, values, strict=True):
            for value in some:
                delay_ms, ttl_ms = self._chance.choice(_DELAYS_MS), self._chance.choice(_TTLS_MS)
                model.put([value], ModelTimes(space.now_ms, 0, delay_ms, ttl_ms))
                entries.append((model.name, NewEntry(value, delay_ms=delay_ms, ttl_ms=ttl_ms)))
        request = self._request_id()
        firsts = [sum(map(len, values[:place])) for place in range(len(values))]

        def say(done: Callable[[Answer], None]) -> None:
            def stored(found: Enqueued) -> None:
                (answer,) = found.answers.values()
                done(answer)

            space.queues.enqueue(space.stream, entries, stored, request_of(space.stream, request))

        afters = [partial(_enqueued, some, first) for some, first in zip(values, firsts, strict=True)]
        self._do(models, f"enqueue {len(entries)}", say, afters, known=bool(request))

    def _produce(self, model: QueueModel) -> None:
        """A batch of an idempotent producer: as a request with an id, it is repeated without an effect."""
        values = [self._value() for _ in range(self._producers.count)]
        model.put(values, ModelTimes(self._space.now_ms))
        say = self._producers.batch_of(model.name, values)
        self._do([model], f"produce {len(values)}", say, [partial(_enqueued, values, 0)], known=True)

    def _submit(self, command: QueueCommand, queue: bytes, done: Callable[[Answer], None]) -> None:
        space = self._space.stream
        self._space.queues.submit(space, queue_of(space, queue), command, done)

    def _on(self, model: QueueModel, make: Callable[..., QueueCommand], *more: Any) -> Callable[..., None]:
        space = self._space.stream
        request = request_of(space, self._request_id())
        self._identified = request is not None
        command = make(queue_of(space, model.name), *more, request=request)
        return partial(self._submit, command, model.name)

    def _some(self, model: QueueModel) -> Sequence[ModelEntry]:
        return self._chance.sample(model.entries, min(len(model.entries), self._chance.choice((1, 1, 3))))

    def _edit(self, model: QueueModel) -> None:
        if model.entries:
            chosen = self._some(model)
            edits = {one.at: self._edited(one) for one in chosen}
            changes = [(one.at, self._chance.choice((None, one.version)), edits[one.at]) for one in chosen]
            say = self._on(model, Edit, changes)
            after = partial(_edited, edits)
            self._do([model], f"edit {len(changes)}", say, [after], known=self._identified, touches=[*edits])

    def _delete(self, model: QueueModel) -> None:
        if model.entries:
            chosen = [one.at for one in self._some(model)]
            say = self._on(model, Delete, [(at, None) for at in chosen])
            after = partial(_without, set(chosen))
            self._do([model], f"delete {len(chosen)}", say, [after], known=self._identified, touches=chosen)

    def _replace(self, model: QueueModel) -> None:
        lasting = model.lasting(self._space.now_ms)
        if not lasting:
            return
        start = self._chance.choice(lasting).at
        values = [self._value() for _ in range(self._chance.choice((1, 3)))]
        model.put(values, ModelTimes(self._space.now_ms))
        say = self._on(model, Replace, start, [NewEntry(value) for value in values], "a client", "because")

        def done(entries: ModelEntries | None) -> None:
            if entries is None:
                model.taken = None
            else:
                model.take_back(start, entries[-len(values)].at.offset - 1)

        after = partial(_replaced, start, values)
        self._do([model], f"replace from {start}", say, [after], known=self._identified, done=done)

    def _purge(self, model: QueueModel) -> None:
        self._empty(model, "purge")

    def _drop(self, model: QueueModel) -> None:
        self._empty(model, "drop")

    def _empty(self, model: QueueModel, kind: Literal["purge", "drop"]) -> None:
        def done(entries: ModelEntries | None) -> None:
            if kind == "drop":
                model.drop(known=entries is not None)

        self._do([model], kind, self._on(model, Empty, kind), [_nothing], known=self._identified, done=done)

    def _say_again(self, model: QueueModel, said: Said) -> None:
        """A request that has an id, once more: it is answered as the first time, and does nothing where it was done."""
        clients, space = self._clients, self._space
        model.busy = True
        model.asked_again(clients.checker.boot)
        clients.trace("%s: a request again", model)

        def answered(answer: Answer) -> None:
            model.busy = False
            clients.trace("%s: a request again: %s", model, answer)
            if isinstance(answer, DuramenError):
                self._refused(model, "a request that is said again", answer, said.touches)
            elif said.answer is not None and answer != said.answer:
                raise BrokenPromise(f"{model}: a request was answered {said.answer}, and {answer} when it came again")
            elif model.unsure is not None:
                model.resolved(answer, space.now_ms)
                space.said[model.name] = said._replace(answer=answer)
            self._reads.read(model)

        said.say(clients.answer(answered))


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


def _nothing(_entries: ModelEntries, _at: Position) -> ModelEntries:
    return ()


def _replaced(start: Position, values: Sequence[bytes], entries: ModelEntries, at: Position) -> ModelEntries:
    kept = tuple(one for one in entries if one.at.offset < start.offset)
    return _enqueued(values, 1, kept, at)
