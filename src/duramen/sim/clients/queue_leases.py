"""Clients that lease entries of light queues, acknowledge them, and give them back."""

from collections.abc import Mapping
from typing import Final

from duramen.base.errors import DuramenError, QueueEntryGone, QueueLeaseExpired
from duramen.base.ids import Position
from duramen.queues.leases import Leased, LeasedEntry
from duramen.service.queue_leases import LeasePoll, LeaseRequest
from duramen.sim.checkers.queues import Fate, ModelEntries, ModelEntry, QueueModel, Seen, Unsure
from duramen.sim.clients.queue_space import SimulatedSpace
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["QueueLeases"]

_LEASES_MS: Final = (200, 2_000, 60_000)
_DELAYS_MS: Final = (0, 500, 60_000)
_ALL: Final = 1_000


class QueueLeases:
    """Workers on the entries of queues."""

    def __init__(self, space: SimulatedSpace) -> None:
        self._space = space

    def lease(self, model: QueueModel) -> None:
        """Lease some entries of a queue, or all that can be."""
        space, clients, chance = self._space, self._space.clients, self._space.chance
        lease_ms, most, began_ms = chance.choice(_LEASES_MS), chance.choice((1, 1, 3, _ALL)), space.now_ms
        model.busy = True
        model.ask_lease(began_ms)

        def answered(answer: list[Leased] | DuramenError) -> None:
            model.busy = False
            if isinstance(answer, DuramenError):
                space.explained("a lease", answer)
                return
            sure = space.undisturbed
            seen = Seen(began_ms, space.now_ms, delayed=False, trimmed=sure)
            for one in answer:
                clients.trace("%s: %s is leased as %s", model, one.entry.position, one.lease)
                entry = ModelEntry(one.entry.position, one.entry.version, one.entry.value or b"")
                model.lease(entry, one.lease, one.deliveries, lease_ms, seen, clients.checker.boot, sure=sure)
            positions = {one.entry.position for one in answer}
            model.leased(positions)
            if space.prompt and len(answer) < most:
                model.check_left(positions, seen, clients.checker.boot)

        request = LeaseRequest([model.name], most, lease_ms)
        LeasePoll(clients.broker, space.queues, space.stream, request, 0, clients.answer(answered)).begin()

    def acknowledge(self, model: QueueModel) -> None:
        """An entry was processed."""
        self._end(model, None)

    def release(self, model: QueueModel) -> None:
        """An entry was not processed."""
        self._end(model, self._space.chance.choice(_DELAYS_MS))

    def _end(self, model: QueueModel, release_ms: int | None) -> None:
        """Acknowledge an entry, or give it back."""
        if not model.held:
            return
        space, clients = self._space, self._space.clients
        at = space.chance.choice(list(model.held))
        held, what, began_ms = model.held[at], "an ack" if release_ms is None else "a nack", space.now_ms
        model.busy = True
        if release_ms is None:

            def without(entries: ModelEntries, _: Position) -> ModelEntries:
                return tuple(one for one in entries if one.at != at)

            model.ask(Unsure(what, without, Fate(), lambda _: None, clients.checker.boot))
            space.said.pop(model.name, None)
        else:
            model.ask_release(at, release_ms, began_ms)
        clients.trace("%s: %s of %s", model, what, at)

        def answered(refused: Mapping[int, DuramenError]) -> None:
            model.busy = False
            clients.trace("%s: %s of %s: %s", model, what, at, refused.get(0))
            error, now_ms = refused.get(0), space.now_ms
            if error is None:
                model.resolved(at, now_ms)
                if release_ms is not None:
                    model.release(at, release_ms, began_ms, held.deliveries)
                return
            current = held.boot == clients.checker.boot
            if isinstance(error, QueueLeaseExpired):
                model.unsure = None
                lasts = current and held.until_ms > now_ms and not clients.faults.failed
                if lasts or (release_ms is None and not current):
                    raise BrokenPromise(f"{model}: {what} is refused with a lease that lasts: {error}")
            elif isinstance(error, QueueEntryGone) and model.explains([at], now_ms):
                model.unsure = None
            else:
                space.explained(what, error)
                if release_ms is not None:
                    model.not_before_ms.pop(at, None)
            model.held.pop(at, None)

        space.led.acknowledge(
            space.stream, [(model.name, LeasedEntry(at, held.lease))], clients.answer(answered), None, release_ms
        )
