"""Readers: from any position to the end, around damage; every byte is checked against the history of its log."""

from functools import partial

from duramen.base.errors import LogDamaged, OffsetOutOfRange, StorageFailed, StreamNotFound
from duramen.broker.partition import Partition
from duramen.sim.checkers.history import LogHistory
from duramen.sim.clients.access import FetchedData
from duramen.sim.clients.shared import Clients
from duramen.sim.machine.trace import BrokenPromise
from duramen.storage.log.log import Log
from duramen.storage.segment.damage import Damage

__all__ = ["Readers"]


class _Read:
    """A reader on its way from `offset` to `until`."""

    def __init__(self, history: LogHistory, partition: Partition, offset: int, until: int) -> None:
        self.history = history
        self.partition = partition
        self.offset = offset
        self.until = until
        self.failed_reads = 0  # of the disk, when it was sent
        self.was_outside = False  # of the log, when it was sent
        self.committed = False  # whether undecided records are left out
        self.broken_off: tuple[int, ...] | None = None  # the damage at its interruption
        self.told: tuple[int, int] | None = None  # its offset and the damage when it got an error about damage after it

    @property
    def log(self) -> Log:
        """The bytes that are read."""
        return self.partition.log

    @property
    def outside(self) -> bool:
        """Whether the log has nothing at `offset`, not even its end."""
        return not self.log.start_offset <= self.offset <= self.log.end_offset


class Readers:
    """Consumers without a group."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._quarantined: dict[LogHistory, tuple[list[Damage], int]] | None = None

    def begin(self, *, scrubbed: bool) -> None:
        """A process has started: everything is read. `scrubbed` where the scrubber has seen all of it before."""
        self._quarantined = self._in_quarantine() if scrubbed else None
        for history, partition in self._clients.histories():
            self._go(_Read(history, partition, partition.log.start_offset, partition.log.high_watermark))
            if history.transactional:
                read = _Read(history, partition, partition.log.start_offset, partition.log.last_stable_offset)
                read.committed = True
                self._go(read)

    def read(self) -> None:
        """From any offset, and perhaps on to the end."""
        history, partition = self._clients.any()
        if history is not None and partition is not None:
            log, chance = partition.log, self._clients.chance
            offset = chance.randint(max(0, log.start_offset - 2), log.end_offset + 1)
            committed = history.transactional and chance.random() < 0.5
            end = log.last_stable_offset if committed else log.high_watermark
            read = _Read(history, partition, offset, end if chance.random() < 0.2 else 0)
            read.committed = committed
            self._go(read)

    def _go(self, read: _Read) -> None:
        """Read from `offset`, and on to `until`."""
        history, clients = read.history, self._clients
        if history.cutting or history.spoiled or (read.until and read.offset >= read.until):
            return
        history.reading += 1
        read.was_outside = read.outside
        read.failed_reads = clients.faults.failed_reads
        max_bytes = clients.chance.choice((1, 1000, 10_000, 1 << 20))
        found = clients.answer(partial(self._found, read))
        clients.access.fetch(read.partition, read.offset, max_bytes, found, committed=read.committed)

    def _go_on(self, read: _Read, offset: int) -> None:
        """The next read of the same reader."""
        if self._clients.partition(read.history) is read.partition:
            read.offset = max(offset, read.log.start_offset)
            self._clients.worker.soon(self._clients.answer(partial(self._go, read)))

    def _found(self, read: _Read, found: FetchedData) -> None:
        history, log = read.history, read.log
        history.reading -= 1
        if found.error is not None:
            self._failed(read, found.error, found.reach)
            return
        history.visible(found.high_watermark, log.durability)
        if log.durability == "sync":
            history.stable(log.last_stable_offset, log.start_offset)
        if not found.data:
            if read.committed:
                if read.offset < read.until:
                    raise BrokenPromise(f"{history}: {read.offset} is decided, and nothing is read")
                return
            if found.start_offset <= read.offset < found.high_watermark:
                raise BrokenPromise(f"{history}: {read.offset} is below {found.high_watermark}, and nothing is read")
            return
        following = history.read(read.offset, found.data)
        if read.committed:
            history.read_committed(found.data, found.aborted)
        self._clients.trace("%s: read %d to %d", history, read.offset, following - 1)
        if read.offset < following < read.until:
            self._go_on(read, following)

    # -- failures -----------------------------------------------------------------------------------

    def _failed(self, read: _Read, error: BaseException, reach: int) -> None:
        history = read.history
        if isinstance(error, OffsetOutOfRange) and (read.was_outside or read.outside):
            return
        if isinstance(error, StreamNotFound) and self._clients.partition(history) is None:
            return
        if isinstance(error, ConnectionAbortedError):
            self._broken_off(read)
            return
        if self._goes_on_behind(read, error) or self._tries_again(read, reach, error):
            return
        if not self._explained(error, read.failed_reads):
            raise BrokenPromise(f"{history}: reading {read.offset} failed: {type(error).__name__}: {error}")

    def _goes_on_behind(self, read: _Read, error: BaseException) -> bool:
        """Whether the records at its offset may be damaged; those behind them are read next."""
        history, offset = read.history, read.offset
        behind = history.behind_damage(offset, read.log.end_offset)
        if not isinstance(error, LogDamaged) or behind <= offset:
            return False
        self._clients.trace("%s: %d to %d are lost to damage", history, offset, behind - 1)
        self._check_quarantined(history, read.log, offset, error)
        self._go_on(read, behind)
        return True

    def _tries_again(self, read: _Read, reach: int, error: BaseException) -> bool:
        """Whether damage behind its offset was found only when its bytes were sent: the next read ends before it."""
        history, offset = read.history, read.offset
        now = offset, len(history.damaged)
        behind = any(offset < first < reach for first, _ in history.damaged)
        if not isinstance(error, LogDamaged) or not behind or read.told == now:
            return False
        read.told = now
        self._go_on(read, offset)
        return True

    def _broken_off(self, read: _Read) -> None:
        """The door can only interrupt a response whose size it has sent; the next one has the error."""
        history, faults = read.history, self._clients.faults
        now = len(history.damaged), faults.failed_reads, faults.failed_syncs
        explained = faults.failed_syncs or faults.failed_reads > read.failed_reads
        if read.broken_off == now or not (explained or any(end > read.offset for _, end in history.damaged)):
            raise BrokenPromise(f"{history}: a read of {read.offset} was broken off, and nothing explains it")
        read.broken_off = now
        self._go_on(read, read.offset)

    def _explained(self, error: BaseException, failed_reads: int) -> bool:
        """Whether a fault of the disk explains why a read failed."""
        if isinstance(error, LogDamaged):
            return self._clients.faults.failed_syncs > 0  # pages that the system dropped are rewritten, not at once
        return isinstance(error, StorageFailed | OSError) and self._clients.faults.failed_reads > failed_reads

    # -- findings of the scrubber -------------------------------------------------------------------

    def _in_quarantine(self) -> dict[LogHistory, tuple[list[Damage], int]]:
        """The unserved part of each log, and the start of the segment that the scrubber has not finished."""
        return {
            history: (
                [damage for segment in partition.log.segments for damage in segment.damage],
                partition.log.active.base_offset,
            )
            for history, partition in self._clients.histories()
        }

    def _check_quarantined(self, history: LogHistory, log: Log, offset: int, error: BaseException) -> None:
        if self._quarantined is None:
            return
        found, unseen_from = self._quarantined[history]
        if offset >= unseen_from:
            return  # it was appended to still, if it is closed now or not
        known = any(first <= offset <= last for first, last in log.damage)  # named at the start
        if not known and not any(one.holds(offset) for one in found):
            raise BrokenPromise(f"{history}: {offset} is damaged, and the scrubber has not found it: {error}")
