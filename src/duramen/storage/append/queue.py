"""The queue of appends that wait for room or for a held log, in the order in which they continue. Pure."""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from duramen.base.errors import DuramenError
from duramen.base.ports import Buffer
from duramen.codec.batch import Header
from duramen.storage.log.log import Log

__all__ = [
    "AppendDone",
    "AppendQueue",
    "QueuedAction",
    "QueuedAppend",
    "QueuedGroup",
    "TogetherDone",
    "TurnAppend",
    "Work",
    "kept",
]

_KEPT_AS_BYTES: Final = 16 * 1024

AppendDone = Callable[[int, DuramenError | None], None]
"""Called with (base offset, None) once acknowledged according to the log's durability, or with (-1, error)."""

TogetherDone = Callable[[list[int], DuramenError | None], None]
"""Called with (base offsets, None) once all batches are durable, or with ([], error) if none was accepted."""


class TurnAppend(Protocol):
    """A checked batch of one turn of the event loop, appended together with the others for its log."""

    @property
    def batch(self) -> bytearray:
        """The batch, which the store owns from here on."""

    @property
    def head(self) -> Header:
        """Its header."""

    base_offset: int  # of the batch, once written

    def done(self, base_offset: int, error: DuramenError | None) -> None:
        """The batch is acknowledged or refused, unless the callback of the whole turn covers it."""


class QueuedAppend(msgspec.Struct, frozen=True, eq=False):
    """A batch for a log; `ordered`: the leader of its epoch has assigned its offset.

    A `patient` batch is never refused for lack of room: it waits, and may use the reserve.
    """

    log: Log
    batch: bytearray | memoryview
    head: Header
    epoch: int
    done: AppendDone | None
    ordered: bool = False
    patient: bool = False


class QueuedGroup(NamedTuple):
    """Batches for several logs that go into the WAL in one step.

    `done` gets their base offsets, -1 for deleted logs.
    """

    appends: tuple[QueuedAppend, ...]
    done: TogetherDone


class QueuedAction(NamedTuple):
    """Another operation that holds a log, queued among its batches."""

    log: Log
    begin: Callable[[DuramenError | None], None]


Work = QueuedAppend | QueuedGroup | QueuedAction


class AppendQueue:
    """The queue for room, and one for each held log: the work for one log keeps its order through both."""

    def __init__(self) -> None:
        self.queue: deque[Work] = deque()
        self.held: dict[Log, deque[Work]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, and no log is held."""
        return not self.queue and not self.held

    def holds(self, log: Log) -> bool:
        """Whether work for the log waits until it is released."""
        return log in self.held

    def holds_patient(self, log: Log) -> bool:
        """Whether a patient append waits until the log is released."""
        return any(isinstance(one, QueuedAppend) and one.patient for one in self.held.get(log, ()))

    def held_back(self, work: Work) -> bool:
        """Whether the work has to wait for the release of a log; if so, it is queued there."""
        if not self.held:
            return False
        logs = (one.log for one in work.appends) if isinstance(work, QueuedGroup) else (work.log,)
        held = next((self.held[log] for log in logs if log in self.held), None)
        if held is None:
            return False
        held.append(work)
        return True

    def goes_behind(self, work: Work) -> bool:
        """Whether the work must queue behind appends that wait for room.

        An action needs no room, and passes other logs' work.
        """
        if isinstance(work, QueuedAction):
            return any(_is_for(one, work.log) for one in self.queue)
        return bool(self.queue)

    def take_refused(self) -> list[QueuedAppend | QueuedGroup]:
        """Remove the work behind a patient append that is not patient itself, to be refused."""
        refused = [
            one
            for one in self.queue
            if isinstance(one, QueuedGroup) or (isinstance(one, QueuedAppend) and not one.patient)
        ]
        if refused:
            self.queue = deque(
                one
                for one in self.queue
                if isinstance(one, QueuedAction) or (isinstance(one, QueuedAppend) and one.patient)
            )
        return refused

    def take_ordered(self, log: Log) -> list[QueuedAppend]:
        """Remove the ordered batches for the log, to be refused like the one before them."""
        held = self.held.get(log, deque[Work]())
        refused = [one for one in (*self.queue, *held) if _is_ordered(one, log)]
        if refused:
            self.queue = deque(one for one in self.queue if not _is_ordered(one, log))
        if refused and held:
            self.held[log] = deque(one for one in held if not _is_ordered(one, log))
        return [one for one in refused if isinstance(one, QueuedAppend)]

    def hold(self, log: Log, *first: QueuedAppend | QueuedGroup) -> None:
        """From now on work for the log waits until its release; appends that wait for room come first."""
        waiting = [one for one in self.queue if _is_for(one, log)]
        self.held[log] = deque([*first, *waiting])
        if waiting:
            self.queue = deque(one for one in self.queue if not _is_for(one, log))

    def release(self, log: Log) -> deque[Work]:
        """End the hold of the log; returns the work that waited for it."""
        return self.held.pop(log, deque())


def _is_for(work: Work, log: Log) -> bool:
    if isinstance(work, QueuedGroup):
        return any(one.log is log for one in work.appends)
    return work.log is log


def _is_ordered(work: Work, log: Log) -> bool:
    return isinstance(work, QueuedAppend) and work.ordered and work.log is log


def kept(batch: bytearray | memoryview) -> Buffer:
    """A batch for waiting in memory: as bytes, which garbage collection does not walk as it walks views of requests.

    A large batch stays a view, unless it would keep a request of more than twice its size alive.
    """
    small = len(batch) <= _KEPT_AS_BYTES
    return bytes(batch) if small or 2 * len(batch) < len(_whole(batch)) else batch


def _whole(batch: bytearray | memoryview) -> Buffer:
    """The buffer of a view."""
    return batch.obj if isinstance(batch, memoryview) and isinstance(batch.obj, bytearray) else batch
