"""Share fetches: acquires records for a consumer, immediately or once records are written or released.

Acquired ranges have to be cut along batches, so records are examined before they are sent: a response has at most
`LARGEST_ANSWER_BYTES` of records, or one batch that is larger. Batches of queues are built for the response.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import DuramenError, OffsetNotAvailable, StorageFailed
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.codec.batch import TRANSACTIONAL, Header
from duramen.coordinators.share.partition import AcquiredRecords, SharePartition
from duramen.coordinators.share.topics import SharedQueue
from duramen.rpc.retry import UNSETTLED
from duramen.storage.log.transactions import AbortedTransaction
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked, Slice
from duramen.storage.store import Store

__all__ = ["LARGEST_ANSWER_BYTES", "ShareFetched", "ShareFetcher", "ShareLimits"]

LARGEST_ANSWER_BYTES: Final = 1 << 20
_LATER: Final = (*UNSETTLED, OffsetNotAvailable)
_LOADING_MS: Final = 1_000  # the longest wait of a response for states on other nodes


class ShareLimits(NamedTuple):
    """The limits of a share fetch; `strict`: never more than `max_records` records (KIP-1206)."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    max_records: int
    batch_size: int
    strict: bool = False


class ShareFetched(NamedTuple):
    """The result of one share partition: records acquired for the consumer, nothing, or an error."""

    taken: AcquiredRecords | None = None
    error: DuramenError | None = None


Answer = Callable[[list[ShareFetched]], None]

_NOTHING: Final = ShareFetched()


class ShareFetcher:
    """A share fetch in progress."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        deadlines: Deadlines,
        wanted: Sequence[SharePartition | DuramenError],
        owner: str,
        limits: ShareLimits,
        committed: bool,
        answer: Answer,
    ) -> None:
        """`wanted` are read in order. `committed`: only records of committed transactions are delivered."""
        self._store = store
        self._clock = clock
        self._deadlines = deadlines
        self._wanted = wanted
        self._owner = owner
        self._limits = limits
        self._max_bytes = min(limits.max_bytes, LARGEST_ANSWER_BYTES)
        self._committed = committed
        self._answer: Answer | None = answer
        self._found = [ShareFetched(error=one) if isinstance(one, DuramenError) else _NOTHING for one in wanted]
        self._plans: list[tuple[int, SharePartition, int, Slice | None]] = []
        self._bytes = 0
        self._leave_queues: dict[int, Callable[[], None]] = {}  # by index: ends the wait for entries of a queue
        self._left = limits.max_records
        self._urgent = any(found.error for found in self._found)
        self._loading: set[int] = set()  # partitions that yield nothing until the next fetch
        self._trimmed: dict[int, bool] = {}  # by index: whether a queue is trimmed to its limits
        self._busy = True
        self._poked = False
        self._registered = False
        self._deadline: Deadline | None = None
        self._patience: Deadline | None = None  # set while share partitions are loading

    def start(self) -> None:
        """Load partitions, look for records, then respond or wait."""
        now_ms = self._clock.monotonic_ms()
        if self._limits.max_wait_ms > 0:
            self._deadline = self._deadlines.at(now_ms + self._limits.max_wait_ms, self._time_is_up)
        else:
            self._urgent = True
        self._loading = {index for index, one in enumerate(self._wanted) if isinstance(one, SharePartition)}
        waiting = {*self._loading, -1}

        def loaded(index: int, error: DuramenError | None) -> None:
            if error is not None and isinstance(error, _LATER):
                over(index)
                return
            self._loading.discard(index)
            if error is not None:
                self._fail(index, error)
            over(index)

        def over(index: int) -> None:
            waiting.discard(index)
            if not waiting and self._patience is not None:
                self._patience.cancel()
                self._patience = None
                self._look()

        def impatient() -> None:
            if waiting:
                waiting.clear()
                over(-1)

        self._patience = self._deadlines.at(now_ms + max(self._limits.max_wait_ms, _LOADING_MS), impatient)
        for index in sorted(self._loading):
            one = self._wanted[index]
            if isinstance(one, SharePartition):
                one.load(partial(loaded, index))
        over(-1)

    def cancel(self) -> None:
        """The client no longer waits: acquire nothing more."""
        self._answer = None
        self._leave()

    def _fail(self, index: int, error: DuramenError) -> None:
        self._found[index] = ShareFetched(error=error)
        self._urgent = True

    def _time_is_up(self) -> None:
        self._urgent = True
        if not self._busy:
            self._look()

    # -- looking for records ------------------------------------------------------------------------

    def _look(self) -> None:
        self._busy = True
        self._bytes = 0
        self._plans = []
        self._plan_from(0)

    def _plan_from(self, begin: int) -> None:
        for index in range(begin, len(self._wanted)):
            one = self._wanted[index]
            if isinstance(one, DuramenError) or self._found[index].error is not None:
                continue
            blocked = self._plan(index, one)
            if blocked is not None:
                self._store.unblock(blocked, partial(self._unblocked, index))
                return
        if self._answer is None:
            return
        if self._plans and (self._urgent or self._bytes >= self._limits.min_bytes):
            self._take(0)
        elif self._urgent:
            self._finish()
        else:
            self._wait()

    def _unblocked(self, index: int, error: BaseException | None) -> None:
        if error is not None:
            self._fail(index, StorageFailed(f"reading failed: {error}"))
        if self._answer is not None:
            self._plan_from(index)

    def _plan(self, index: int, one: SharePartition) -> Blocked | None:
        room = self._max_bytes - self._bytes
        if index in self._loading:
            return None
        if not one.delivers or one.partition.stream.deleted:
            self._fail(index, one.why_gone())
            return None
        offset = one.next_offset()
        if offset is None or (room <= 0 and self._plans):
            return None
        try:
            if one.queue is not None:
                self._plan_queue(index, one, one.queue, offset)
                return None
            plan = one.partition.log.plan_read(offset, max(room, 1), committed=self._committed)
        except DuramenError as error:
            self._fail(index, error)
            return None
        if isinstance(plan, Blocked):
            return plan
        if plan is not None and (len(plan) <= room or not self._plans):
            self._plans.append((index, one, offset, plan))
            self._bytes += len(plan)
        return None

    def _plan_queue(self, index: int, one: SharePartition, queue: SharedQueue, offset: int) -> None:
        """Look for entries, which are read again when they are acquired. Raises NotLeader."""
        if index not in self._trimmed:
            # The trim may take as long as replicas do, so other partitions do not wait for it.
            self._trimmed[index] = queue.is_settled()
            if not self._trimmed[index]:
                queue.settle(partial(self._queue_trimmed, index))
        if not self._trimmed[index]:
            return
        self._leave_queues.pop(index, _nothing)()
        size = one.available_bytes(offset, max(1, self._limits.min_bytes - self._bytes))
        if size:
            self._plans.append((index, one, offset, None))
            self._bytes += size
        else:
            # In the turn of the read, so that no entry comes between.
            self._leave_queues[index] = queue.wait(self._poke)

    def _queue_trimmed(self, index: int) -> None:
        self._trimmed[index] = True
        self._poke()

    # -- acquiring them -----------------------------------------------------------------------------

    def _take(self, at: int) -> None:
        """Read the planned partitions one after the other, and acquire records."""
        while at < len(self._plans) and self._left > 0:
            index, one, offset, slice_ = self._plans[at]
            at += 1
            if slice_ is not None:
                self._read(index, one, offset, slice_, at)
                return
            self._acquire_entries(index, one)
        self._taken()

    def _read(self, index: int, one: SharePartition, offset: int, slice_: Slice, next_plan: int) -> None:
        def read(data: bytes | DuramenError | OSError) -> None:
            if self._answer is None:
                return
            if isinstance(data, bytes):
                self._acquire(index, one, offset, data)
            else:
                self._fail(index, data if isinstance(data, DuramenError) else StorageFailed(f"reading failed: {data}"))
            self._take(next_plan)

        read_slice(self._store, slice_, read)

    def _acquire(self, index: int, one: SharePartition, offset: int, data: bytes) -> None:
        if not one.delivers:
            self._fail(index, one.why_gone())
            return
        log = one.partition.log
        aborted: Sequence[AbortedTransaction] = ()
        if self._committed:
            aborted = log.transactions.aborted_within(offset, log.last_stable_offset)
        try:
            taken = one.acquire(
                offset, data, self._owner, self._left, self._limits.batch_size,
                strict=self._limits.strict, dropped=lambda head: _is_dropped(head, aborted),
            )  # fmt: skip
        except DuramenError as error:
            self._fail(index, error)
            return
        self._keep(index, taken)

    def _acquire_entries(self, index: int, one: SharePartition) -> None:
        if not one.delivers:
            self._fail(index, one.why_gone())
            return
        room = self._max_bytes - sum(len(found.taken.records) for found in self._found if found.taken is not None)
        try:
            if room > 0:
                self._keep(index, one.acquire_entries(self._owner, self._left, room, self._limits.batch_size))
        except DuramenError as error:
            self._fail(index, error)

    def _keep(self, index: int, taken: AcquiredRecords) -> None:
        self._left -= taken.size
        if taken.acquired:
            self._found[index] = ShareFetched(taken)

    def _taken(self) -> None:
        if self._urgent or any(found.taken for found in self._found):
            self._finish()
        else:
            # Other consumers were faster, or no record was for consumers.
            self._store.soon(self._look_again)

    def _look_again(self) -> None:
        self._poked = False
        if self._answer is not None:
            self._look()

    # -- waiting ------------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._busy = False
        if not self._registered:
            self._registered = True
            for one in self._each():
                one.waiting[self._poke] = None
                if one.queue is None:
                    one.partition.waiting[self._poke_partition] = None
        if self._poked:
            self._poked = False
            self._poke()

    def _each(self) -> list[SharePartition]:
        return [one for one in self._wanted if isinstance(one, SharePartition)]

    def _poke_partition(self, _: Partition) -> None:
        self._poke()

    def _poke(self) -> None:
        """There may be records to acquire."""
        if self._poked:
            return
        self._poked = True
        if not self._busy:
            self._busy = True
            # Deferred: one sync raises the high watermarks of many partitions.
            self._store.soon(self._look_again)

    def _leave(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        for leave in self._leave_queues.values():
            leave()
        self._leave_queues.clear()
        if self._registered:
            self._registered = False
            for one in self._each():
                one.waiting.pop(self._poke, None)
                one.partition.waiting.pop(self._poke_partition, None)

    def _finish(self) -> None:
        answer, self._answer = self._answer, None
        self._leave()
        if answer is not None:
            answer(self._found)


def _nothing() -> None:
    """Nothing to cancel."""


def _is_dropped(head: Header, aborted: Sequence[AbortedTransaction]) -> bool:
    return bool(head.attributes & TRANSACTIONAL) and any(
        head.producer_id == one.producer_id and one.first_offset <= head.base_offset <= one.last_offset
        for one in aborted
    )
