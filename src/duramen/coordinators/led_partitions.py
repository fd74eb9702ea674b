"""Which partitions of one of the broker's own streams this node coordinates, and how far each is taken in.

Who leads a partition coordinates what is stored in it: from when all that its log held at the beginning of the epoch is
committed, and is in the view. What the view has of a partition is always the beginning of what is committed of its log,
so that nothing in it is ever cut; a node that comes to lead again goes on from there.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator, StorageFailed
from duramen.broker.partition import Partition
from duramen.coordinators.catchup import CatchingUp
from duramen.storage.log.log import Log
from duramen.storage.store import Store
from duramen.storage.view.view import View

__all__ = ["Coordinated", "CoordinatorKeeper"]

Done = Callable[[DuramenError | None], None]

_COMPLETE: Final = -1


class CoordinatorKeeper(Protocol):
    """Whose stream it is: it knows what the records of a partition make of the view and of what is in memory."""

    def forget(self, partition: Partition) -> None:
        """Take back all that the view has of a partition."""

    def open(self, partition: Partition) -> None:
        """Records of a partition are about to be taken in."""

    def close(self, partition: Partition) -> None:
        """None are any more: keep nothing of it in memory."""

    def restore(self, partition: Partition) -> Iterator[None]:
        """A partition is taken in: go on, step by step, with what is in it."""

    def let_go(self, partition: Partition, error: DuramenError) -> None:
        """What is in a partition is coordinated elsewhere, or has to be taken in again: who waits is told `error`."""


class _Part:
    """A partition, and what is known of it here."""

    __slots__ = (
        "error", "leads", "partition", "ready", "restoring", "scanning", "target_offset", "told", "waiting", "wake",
    )  # fmt: skip

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leads = False
        self.ready = False  # whether it is coordinated here
        self.error: DuramenError | None = None  # why it could not be taken in
        self.target_offset = 0  # what is below has to be committed and taken in first
        self.scanning = False
        self.restoring: Iterator[None] | None = None
        self.told = False  # whether it will be looked at soon
        self.waiting: list[tuple[int, Done]] = []  # whose records end there, told once the view has them
        self.wake: Callable[[Partition], None] = lambda _: None

    @property
    def taken_in(self) -> bool:
        """Whether all that was there when this node began to lead is in the view."""
        return self.ready or self.restoring is not None


class Coordinated:
    """The partitions of a stream of which `keeper` keeps the view. A node that is alone coordinates all of them."""

    def __init__(
        self,
        store: Store,
        view: View,
        catching_up: CatchingUp,
        keeper: CoordinatorKeeper,
        report: Callable[[str], None],
    ) -> None:
        self._store = store
        self._view = view
        self._catching_up = catching_up
        self._keeper = keeper
        self._report = report
        self._parts: dict[int, _Part] = {}

    # -- asking -------------------------------------------------------------------------------------

    def coordinates(self, partition: Partition) -> bool:
        """Whether what is in a partition is coordinated here."""
        part = self._parts.get(partition.index)
        return partition.role is None or (part is not None and part.ready)

    def check(self, partition: Partition, what: str) -> None:
        """Raise NotCoordinator, CoordinatorLoading or StorageFailed unless `what` is coordinated here.

        NotCoordinator also where this node is cut off, so that another may coordinate it by now.
        """
        if self.coordinates(partition):
            if partition.deposed:
                raise _elsewhere(partition, what)
            return
        part = self._parts.get(partition.index)
        if part is None or not part.leads:
            raise _elsewhere(partition, what)
        if part.error is not None:
            raise part.error
        raise CoordinatorLoading(f"what is stored of {what} is still being taken in")

    # -- leading ------------------------------------------------------------------------------------

    def begin(self, partition: Partition) -> None:
        """From here on this node leads a partition."""
        part = self._part(partition)
        part.leads = True
        self._take_in(part)

    def end(self, partition: Partition) -> None:
        """It leads the partition no more."""
        part = self._part(partition)
        if part.leads:
            part.leads = False
            self._stop(part, _elsewhere(partition, "the group"))
            partition.waiting.pop(part.wake, None)
            self._settle(part, None)
            if not part.scanning:
                self._keeper.close(partition)

    def again(self, partition: Partition) -> None:
        """A record is in the log of which nobody knows yet whether it counts: until then nothing is coordinated."""
        part = self._part(partition)
        if part.leads:
            self._stop(part, CoordinatorLoading("what could not be stored has to be looked at first"))
            self._take_in(part)

    def _part(self, partition: Partition) -> _Part:
        part = self._parts.get(partition.index)
        if part is None or part.partition is not partition:
            part = self._parts[partition.index] = _Part(partition)
            part.wake = partial(self._advanced, part)
        return part

    def _take_in(self, part: _Part) -> None:
        part.ready, part.error = False, None
        # Whatever earlier leaders have acknowledged lies below.
        part.target_offset = part.partition.log.end_offset
        part.partition.waiting[part.wake] = None
        self._look_soon(part)

    def _stop(self, part: _Part, error: DuramenError) -> None:
        part.ready, part.restoring = False, None
        self._keeper.let_go(part.partition, error)

    def _settle(self, part: _Part, error: DuramenError | None, next_offset: int | None = None) -> None:
        """Answer those whose records end at `next_offset` or before, None: all."""
        waiting, part.waiting = part.waiting, []
        for end_offset, done in waiting:
            if next_offset is None or end_offset <= next_offset:
                done(error)
            else:
                part.waiting.append((end_offset, done))

    # -- taking in ----------------------------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        """Take in what is committed of a partition that others lead: then there is less to do when this node does."""
        part = self._part(partition)
        if not part.leads and not part.scanning and partition.holds and self._lacks(partition.log):
            self._scan(part)

    def applied(self, partition: Partition, first_offset: int, next_offset: int, apply: Callable[[], None]) -> None:
        """As `settle`, with nobody who waits."""
        self.settle(partition, first_offset, next_offset, apply, lambda _: None)

    def settle(
        self, partition: Partition, first_offset: int, next_offset: int, apply: Callable[[], None], done: Done
    ) -> None:
        """Records of this node's own are committed: `apply` takes them in, then `done`.

        Where the view lacks what comes before them, all of it is read from the log first, these included.
        """
        if partition.role is None:
            apply()
            done(None)
            return
        part = self._part(partition)
        position = self._view.position(partition.log)
        if not part.leads or position >= next_offset:
            done(None)
        elif position == first_offset and part.taken_in and not part.scanning:
            apply()
            done(None)
        elif part.error is not None:
            done(part.error)
        else:
            part.waiting.append((next_offset, done))
            self._look_soon(part)

    def _advanced(self, part: _Part, _: Partition) -> None:
        """More may be committed."""
        self._look_soon(part)

    def _look_soon(self, part: _Part) -> None:
        if not part.told:
            # Later: what this node has written itself is in the view by then.
            part.told = True
            self._store.soon(partial(self._look, part))

    def _lacks(self, log: Log) -> bool:
        return self._view.position(log) < log.high_watermark

    def _look(self, part: _Part) -> None:
        """Go on with a partition that this node leads, as far as it goes now."""
        part.told = False
        log = part.partition.log
        if not part.leads or part.scanning or part.error is not None or log.high_watermark < part.target_offset:
            return
        if not part.taken_in:
            self._fit(part.partition)
        if self._lacks(log):
            self._scan(part)
            return
        self._settle(part, None, self._view.position(log))
        if not part.taken_in:
            self._keeper.open(part.partition)
            part.restoring = restoring = self._keeper.restore(part.partition)
            self._view.when_written(partial(self._restore, part, restoring))

    def _fit(self, partition: Partition) -> None:
        """What the view has fits the log that there is, or is forgotten.

        Of what it lacks compaction may have dropped tombstones already: then it is derived anew as well.
        """
        log, view = partition.log, self._view
        known = view.knows(log) and view.fits(log)
        if not known or view.position(log) < max(log.start_offset, log.cleaned_offset):
            self._keeper.forget(partition)

    def _scan(self, part: _Part) -> None:
        partition = part.partition
        part.scanning = True
        if not part.leads:
            self._fit(partition)
        self._keeper.open(partition)
        scanned = partial(self._scanned, part, partition.log, partition.log.high_watermark)
        self._catching_up.go_on([partition], self._report, scanned)

    def _scanned(self, part: _Part, log: Log, end_offset: int, error: DuramenError | OSError | None) -> None:
        part.scanning = False
        partition = part.partition
        if error is None and partition.log is log and self._view.position(log) < end_offset:
            self._view.apply(log, end_offset, ())  # there is nothing more in it that can be read
        if not part.leads:
            self._keeper.close(partition)
        elif error is not None:
            part.error = error if isinstance(error, DuramenError) else StorageFailed(f"reading failed: {error}")
            self._report(f"partition {partition.index} of {partition.stream.name} cannot be taken in: {part.error}")
            self._settle(part, part.error)
        else:
            self._look_soon(part)

    def _restore(self, part: _Part, restoring: Iterator[None]) -> None:
        if part.restoring is not restoring:
            return
        if next(restoring, _COMPLETE) is None:
            self._store.soon(partial(self._restore, part, restoring))
        else:
            part.restoring = None
            part.ready = True


def _elsewhere(partition: Partition, what: str) -> NotCoordinator:
    """The error for who asks this node, which does not lead the partition that keeps `what`."""
    try:
        partition.check_leads()
    except DuramenError as error:
        return NotCoordinator(f"this node does not coordinate {what}: {error}")
    return NotCoordinator(f"this node does not coordinate {what} any more")
