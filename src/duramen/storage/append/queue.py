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
"""Called with (base offset, None) once acknowledged as the log's durability says, or with (-1, error)."""

TogetherDone = Callable[[list[int], DuramenError | None], None]
"""Called with (base offsets, None) once everything of it is durable, or with ([], error) where nothing was taken."""


class TurnAppend(Protocol):
    """A checked batch of a turn of the event loop, which is appended with the others for its log."""

    @property
    def batch(self) -> bytearray:
        """The batch, which is the store's from here on."""

    @property
    def head(self) -> Header:
        """Its header."""

    base_offset: int  # of the batch, once it is written

    def done(self, base_offset: int, error: DuramenError | None) -> None:
        """It is acknowledged or refused, where it is not one of those that are told together."""


class QueuedAppend(msgspec.Struct, frozen=True, eq=False):
    """A batch for a log; `ordered`: the leader of its epoch has given it its offset.

    One that is `patient` is never refused for want of room: it waits for it, and may use what others are refused.
    """

    log: Log
    batch: bytearray | memoryview
    head: Header
    epoch: int
    done: AppendDone | None
    ordered: bool = False
    patient: bool = False


class QueuedGroup(NamedTuple):
    """Batches for several logs that go into the WAL in one step. `done` gets their base offsets, -1 of deleted logs."""

    appends: tuple[QueuedAppend, ...]
    done: TogetherDone


class QueuedAction(NamedTuple):
    """Something else that a log is held for, among the batches that wait for it."""

    log: Log
    begin: Callable[[DuramenError | None], None]


Work = QueuedAppend | QueuedGroup | QueuedAction


class AppendQueue:
    """The queue for room, and one for each log that is held: what is for one log keeps its order through both."""

    def __init__(self) -> None:
        self.queue: deque[Work] = deque()
        self.held: dict[Log, deque[Work]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, and no log is held."""
        return not self.queue and not self.held

    def holds(self, log: Log) -> bool:
        """Whether what is for the log waits until it is released."""
        return log in self.held

    def holds_patient(self, log: Log) -> bool:
        """Whether a patient append waits until the log is released."""
        return any(isinstance(one, QueuedAppend) and one.patient for one in self.held.get(log, ()))

    def held_back(self, work: Work) -> bool:
        """Whether a log has to be released before this can go on; then it waits for that."""
        if not self.held:
            return False
        logs = (one.log for one in work.appends) if isinstance(work, QueuedGroup) else (work.log,)
        held = next((self.held[log] for log in logs if log in self.held), None)
        if held is None:
            return False
        held.append(work)
        return True

    def goes_behind(self, work: Work) -> bool:
        """Whether it may not overtake what waits for room. A turn needs none, and overtakes what is for other logs."""
        if isinstance(work, QueuedAction):
            return any(_is_for(one, work.log) for one in self.queue)
        return bool(self.queue)

    def take_refused(self) -> list[QueuedAppend | QueuedGroup]:
        """What waits behind a patient append and is not patient itself, to be refused."""
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

    def hold(self, log: Log, *first: QueuedAppend | QueuedGroup) -> None:
        """From here on what is for the log waits until it is released; what waits for room goes before what comes."""
        waiting = [one for one in self.queue if _is_for(one, log)]
        self.held[log] = deque([*first, *waiting])
        if waiting:
            self.queue = deque(one for one in self.queue if not _is_for(one, log))

    def release(self, log: Log) -> deque[Work]:
        """The log is held no more; returns what has waited for that."""
        return self.held.pop(log, deque())


def _is_for(work: Work, log: Log) -> bool:
    if isinstance(work, QueuedGroup):
        return any(one.log is log for one in work.appends)
    return work.log is log


def kept(batch: bytearray | memoryview) -> Buffer:
    """A batch as it waits in memory: bytes, which garbage collection does not walk as it does views of requests.

    A large one stays where it is, but where it would keep a request alive that is more than twice its size.
    """
    small = len(batch) <= _KEPT_AS_BYTES
    return bytes(batch) if small or 2 * len(batch) < len(_whole(batch)) else batch


def _whole(batch: bytearray | memoryview) -> Buffer:
    """What a view is a part of."""
    return batch.obj if isinstance(batch, memoryview) and isinstance(batch.obj, bytearray) else batch
