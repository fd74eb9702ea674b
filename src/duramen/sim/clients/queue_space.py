"""The state that clients of light queues share: the space with its retention limits, the models, and chance."""

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from duramen.base.catalogue.queues import DEAD_LETTER_QUEUE, DELIVERY_COUNT_LIMIT, KIND, LOG_RETENTION_MS, QUEUES
from duramen.base.errors import CoordinatorLoading, DuramenError, NodeStopping, NotCoordinator, OutcomeUnknown
from duramen.base.ids import Position
from duramen.broker.streams import Stream
from duramen.metadata.decisions import Definition
from duramen.queues.retention import Retention
from duramen.service.led_queues import LedQueues
from duramen.service.queues import LocalShards, QueueRequests
from duramen.sim.checkers.dead_letters import DeadLetters
from duramen.sim.checkers.queues import Fate, QueueModel
from duramen.sim.clients.shared import Clients

__all__ = ["DEAD_LETTERS", "SHARDS", "Answer", "Said", "SimulatedSpace"]

Answer = Position | DuramenError
"""Where the first record of a request is, or why it was refused."""

SHARDS: Final = 2
DEAD_LETTERS: Final = b"dead-letters"

_NAME: Final = "queues"
_CONFIG: Final = {KIND: QUEUES, "durability": "sync", "segment.bytes": "4096", LOG_RETENTION_MS: "0"}
_QUEUES: Final = 6
_BOUNDED: Final = (
    Retention(entries=6), Retention(bytes=1_500), Retention(ms=3_000), Retention(ms=60_000, entries=10),
)  # fmt: skip


class Said(NamedTuple):
    """A request with an id: its form, whether it took effect, its response, and the time of its first arrival."""

    say: Callable[[Callable[[Answer], None]], None]
    fate: Fate
    answer: Position | None
    at_ms: int
    touches: tuple[Position, ...]


class SimulatedSpace:
    """A queue space, and the expected content of its queues. In some runs queues are bounded, in others entries die."""

    def __init__(self, clients: Clients, chance: random.Random) -> None:
        self.clients = clients
        self.chance = chance
        kept, deliveries = Retention(), 0
        if chance.random() < 0.4:
            kept = chance.choice(_BOUNDED)
        elif chance.random() < 0.6:
            deliveries = chance.choice((1, 2, 3))
        self.config = {
            **_CONFIG, "retention.ms": str(kept.ms), "retention.bytes": str(kept.bytes),
            "retention.records": str(kept.entries),
        }  # fmt: skip
        if deliveries:
            self.config |= {DEAD_LETTER_QUEUE: DEAD_LETTERS.decode(), DELIVERY_COUNT_LIMIT: str(deliveries)}
        self.dead = DeadLetters(deliveries)
        self.said: dict[bytes, Said] = {}  # the newest request with an id, by queue
        clients.checker.others.add(_NAME)
        self.models = [QueueModel(b"queue-%d" % number, kept, self.dead) for number in range(_QUEUES)]

    def begin(self) -> None:
        """A process has started."""
        self._slowed = self._slow_jobs
        for model in self.models:
            model.busy = False

    @property
    def _slow_jobs(self) -> int:
        return sum(count for (fault, _), count in self.clients.faults.counts.items() if fault == "slow")

    @property
    def prompt(self) -> bool:
        """Whether nothing has happened for which this process may be late."""
        return self.undisturbed and self._slowed == self._slow_jobs

    def create(self, done: Callable[[], None]) -> None:
        """Make it, where it is not there yet."""
        clients = self.clients

        def created(error: DuramenError | None) -> None:
            if error is None:
                done()
            else:
                clients.may_fail("making the queue space", error)

        definition = Definition(_NAME, SHARDS, self.config)
        clients.broker.create_stream(definition, clients.answer(created), idempotent=True)

    @property
    def stream(self) -> Stream:
        """The stream that it is."""
        return self.clients.broker.streams.get(_NAME)

    @property
    def queues(self) -> QueueRequests:
        """Its queues, as doors ask for them."""
        return QueueRequests(LocalShards(self.clients.broker))

    @property
    def led(self) -> LedQueues:
        """The state of the leaders of its shards."""
        return LedQueues(self.clients.broker, LocalShards(self.clients.broker))

    @property
    def now_ms(self) -> int:
        """The time by all clocks."""
        return self.clients.clock.wall_ms()

    @property
    def undisturbed(self) -> bool:
        """Whether nothing has happened for which this process may store nothing."""
        return not (self.clients.faults.failed or self.clients.stopping)

    def explained(self, what: str, error: DuramenError) -> None:
        """Raise BrokenPromise unless a fault, or the node's start or end, explains an error."""
        self.clients.trace("%s: %s: %s", what, type(error).__name__, error)
        if isinstance(error, CoordinatorLoading | NodeStopping | OutcomeUnknown):
            return
        if isinstance(error, NotCoordinator) and self.clients.faults.failed:
            return
        self.clients.may_fail(what, error)
