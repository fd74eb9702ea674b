"""Leases on entries of a shard's queues, in memory during its leader's term. Pure.

The leased entries of a queue are numbers in a `delivery.Window`, in the order in which they were first leased: a window
has no gaps then, whatever offsets lie between the entries. A command decides the outcome of an entry, which is settled
once the rows have it; a later command on the queue reverts outcomes that were not stored.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from duramen.base.errors import (
    DuramenError,
    QueueEntryGone,
    QueueLeaseExpired,
    RecordStateInvalid,
    RequestInvalid,
)
from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.codec.batch import BatchInput
from duramen.delivery.spans import DeliveryPhase
from duramen.delivery.window import AcknowledgeType, State, Window
from duramen.queues.answers import entry_json_size, entry_size, too_large
from duramen.queues.names import Queue
from duramen.queues.operations import ack_record, nack_record
from duramen.queues.positions import parse_numbers, position_text
from duramen.queues.reading import EntryFinder, entries_from
from duramen.queues.rows import Delivered, delivered_of, delivery_key, due_key, state_key, state_of
from duramen.queues.runs import QueueEntry

__all__ = [
    "Decided",
    "Lease",
    "LeaseLimits",
    "Leased",
    "LeasedEntry",
    "ShardLeases",
    "answered_size",
    "lease_text",
    "older_lease_counts",
    "parse_lease",
]

_NO_LIMIT: Final = 1 << 31
_MOST_IN_FLIGHT: Final = 10_000
_MOST_LOOKED_AT: Final = 10_000
_MOST_IDLE: Final = 10_000
_AGAIN_MS: Final = 1_000
_STALE: Final = 100


class Lease(NamedTuple):
    """The identity of a lease: its leader epoch, and its number in it."""

    leader_epoch: int
    number: int


class LeasedEntry(NamedTuple):
    """An entry, and the lease of its delivery."""

    position: Position
    lease: Lease


class LeaseLimits(NamedTuple):
    """A lease request: the largest number of entries and bytes, and the end of the lease.

    With `fifo` a queue has one lease at a time. An entry that was delivered `deliveries` times is dead; 0: never.
    The first entry may be larger than `max_bytes`, except `as_json`, where it is the size of a JSON response.
    """

    most: int
    max_bytes: int
    until_ms: int
    fifo: bool = False
    deliveries: int = 0
    as_json: bool = False


class Leased(NamedTuple):
    """A leased entry, and its number of deliveries; a dead one is to be moved away."""

    queue: bytes
    entry: QueueEntry
    lease: Lease
    deliveries: int
    dead: bool


def answered_size(one: Leased, *, as_json: bool) -> int:
    """The size of a leased entry in a response; a dead one is in none, but takes memory."""
    return entry_json_size(one.queue, one.entry) if as_json else entry_size(one.entry)


class Decided(NamedTuple):
    """The outcome of a command on leases: records, and the refused entries by their numbers."""

    records: list[BatchInput]
    refused: Mapping[int, DuramenError]


def lease_text(lease: Lease) -> str:
    """The text of a lease."""
    return f"{lease.leader_epoch}.{lease.number}"


def parse_lease(text: str) -> Lease:
    """The lease of a text. Raises RequestInvalid."""
    found = parse_numbers(text)
    if found is None:
        raise RequestInvalid(
            f"{text[:40]!r} is not a lease: send the `lease` of the entry as the lease request returned it, such as"
            " 3.17"
        )
    return Lease(*found)


class _Book:
    """The entries of one queue in delivery. Entries before `cursor` were looked at."""

    def __init__(self, name: bytes, cursor: int) -> None:
        self.name = name
        self.window = Window(0, most_deliveries=_NO_LIMIT, most_in_flight=_NO_LIMIT)
        self.positions: dict[int, Position] = {}  # by number
        self.numbers: dict[int, int] = {}  # by offset
        self.cursor = cursor
        self.returned: list[int] = []  # offsets before the cursor that may be leased again
        self.passed = False  # whether an entry before the cursor is neither leased nor gone
        self.marks: list[State] = []  # outcomes of entries, until the row is written
        self.delayed: list[int] = []  # of these, numbers that may be leased only later
        self.mark_key = b""

    def put(self, position: Position, deliveries: int) -> int:
        number = self.window.add(deliveries)
        self.positions[number] = position
        self.numbers[position.offset] = number
        return number

    def forget(self, number: int) -> None:
        position = self.positions.pop(number, None)
        if position is not None:
            del self.numbers[position.offset]

    def archive(self, number: int) -> None:
        """A free number has no entry to lease any more."""
        self.window.skip(number, number)
        self.forget(number)

    def revert(self) -> None:
        """The last decision was not stored."""
        marks, self.marks, self.delayed = self.marks, [], []
        self.window.revert(marks)

    def settle(self) -> None:
        """The last decision was stored."""
        marks, self.marks = self.marks, []
        delayed, self.delayed = self.delayed, []
        self.window.settle(marks)
        for first, last, phase, _ in marks:
            if phase in (DeliveryPhase.ACKNOWLEDGED, DeliveryPhase.ARCHIVED):
                for number in range(first, last + 1):
                    self.forget(number)
        for number in delayed:
            self.passed = True
            self.archive(number)

    @property
    def idle(self) -> bool:
        """Whether no entry is in delivery."""
        return not self.positions


class ShardLeases:
    """The leases of a shard in one leadership: those of earlier ones have ended."""

    def __init__(self) -> None:
        self._books: dict[bytes, _Book] = {}
        self._marked: dict[bytes, _Book] = {}  # by the queue
        self._deadlines: list[tuple[int, bytes]] = []
        self._numbers = 0
        self._epoch = -1

    def loaded(self) -> None:
        """The rows have all acknowledged changes: leases stay, even after a reload.

        Changes that were in progress may be stored or not: the rows show it.
        """
        for queue in list(self._marked):
            self.turn(queue)

    @property
    def next_ms(self) -> int | None:
        """The earliest end of a lease."""
        return self._deadlines[0][0] if self._deadlines else None

    def overdue(self, now_ms: int) -> list[Queue]:
        """The queues that may have expired leases, each once."""
        found = dict[bytes, Queue]()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            hashed = heappop(self._deadlines)[1]
            book = self._books.get(hashed)
            if book is not None:
                found[hashed] = Queue(book.name, hashed)
        return list(found.values())

    def count(self, queue: bytes) -> int:
        """The number of leased entries of a queue."""
        book = self._books.get(queue)
        return 0 if book is None else len(book.positions) - sum(1 for _ in book.window.free())

    # -- leasing ------------------------------------------------------------------------------------

    def lease(self, rows: StateRows, queue: Queue, limits: LeaseLimits, now_ms: int, leader_epoch: int) -> list[Leased]:
        """Lease entries of a queue in order, released ones first.

        Raises QueueEntryTooLarge if nothing is leased because the first entry is too large.
        """
        self._epoch = leader_epoch
        state = state_of(rows, queue.hash)
        book = self._books.get(queue.hash)
        if limits.fifo and book is not None:
            if book.window.busy:
                return []
            book = None  # released entries come in their order again
        if book is None:
            self._make_room()
            book = self._books[queue.hash] = _Book(queue.name, state.head)
        self._numbers += 1
        lease = Lease(leader_epoch, self._numbers)
        found, count, size = list[Leased](), 0, 0
        for number, entry in _candidates(rows, queue.hash, book, limits, now_ms):
            count += 1
            size += entry_json_size(queue.name, entry) if limits.as_json else entry_size(entry)
            if size > limits.max_bytes and (found or limits.as_json):
                if not found:
                    raise too_large(entry, size, limits.max_bytes)
                break
            [(_, _, deliveries)] = book.window.acquire(number, number, str(lease.number), limits.until_ms)
            dead = 0 < limits.deliveries < deliveries
            count -= dead
            found.append(Leased(queue.name, entry, lease, deliveries, dead))
            if count >= limits.most:
                break
        if found:
            self._expect(limits.until_ms, queue.hash, now_ms)
        self._close_idle(queue.hash, book)
        return found

    def has(self, rows: StateRows, queue: Queue, now_ms: int, *, fifo: bool) -> bool:
        """Whether an entry of a queue may be leased now."""
        book = self._books.get(queue.hash)
        if fifo and book is not None and book.window.busy:
            return False
        if fifo or book is None:
            book = _Book(queue.name, state_of(rows, queue.hash).head)
        limits = LeaseLimits(1, 1, 0, fifo)
        return next(_candidates(rows, queue.hash, book, limits, now_ms), None) is not None

    def _expect(self, deadline_ms: int, queue: bytes, now_ms: int) -> None:
        """Note the end of a lease. Deadlines of ended leases are dropped once they are the majority."""
        if len(self._deadlines) > _STALE * (len(self._books) + _STALE):
            known = [(book.window.next_deadline_ms(), hashed) for hashed, book in self._books.items()]
            known += [(now_ms + _AGAIN_MS, hashed) for hashed in self._marked]
            self._deadlines = sorted((at_ms, hashed) for at_ms, hashed in known if at_ms is not None)
        heappush(self._deadlines, (deadline_ms, queue))

    def _make_room(self) -> None:
        if len(self._books) >= _MOST_IDLE:
            for queue in [queue for queue, book in self._books.items() if book.idle]:
                del self._books[queue]

    def _close_idle(self, queue: bytes, book: _Book) -> None:
        if book.idle and not book.passed and self._books.get(queue) is book:
            del self._books[queue]

    def extend(self, rows: StateRows, queue: Queue, one: LeasedEntry, until_ms: int, now_ms: int) -> None:
        """Change the end of an entry's lease. Raises QueueLeaseExpired, and like `EntryFinder.find`."""
        EntryFinder(rows, queue.hash, now_ms).find(one.position)
        book, number = self._holding(queue, one)
        if book is None or number is None:
            raise _expired(one)
        try:
            book.window.renew(str(one.lease.number), number, number, until_ms)
        except RecordStateInvalid:
            raise _expired(one) from None
        self._expect(until_ms, queue.hash, now_ms)

    def _holding(self, queue: Queue, one: LeasedEntry) -> tuple[_Book | None, int | None]:
        """The book and number of an entry in delivery.

        Raises QueueLeaseExpired for a lease of an earlier leadership.
        """
        book = self._books.get(queue.hash)
        return book, None if book is None or not self._is_current(one.lease) else book.numbers.get(one.position.offset)

    def _is_current(self, lease: Lease) -> bool:
        return lease.leader_epoch == self._epoch

    # -- deciding -----------------------------------------------------------------------------------

    def turn(self, queue: bytes) -> None:
        """The next command on a queue: the decision of the one before was stored by now, or never will be."""
        book = self._marked.pop(queue, None)
        if book is not None:
            book.revert()

    def ack(
        self, rows: StateRows, entries: Sequence[tuple[Queue, LeasedEntry]], now_ms: int, *, again: bool
    ) -> Decided:
        """Acknowledge entries, independently; `again`: missing ones were acknowledged by this request.

        A lease of an earlier leadership is valid while the entry exists.
        """
        finders, records, refused = _Finders(rows, now_ms), list[BatchInput](), dict[int, DuramenError]()
        for number, (queue, one) in enumerate(entries):
            try:
                finders.of(queue).find(one.position)
                self._mark(queue, one, AcknowledgeType.ACCEPT)
            except DuramenError as error:
                if not (again and isinstance(error, QueueEntryGone)):
                    refused[number] = error
            else:
                records.append(ack_record(queue.name, one.position, now_ms))
        return Decided(records, refused)

    def nack(
        self, rows: StateRows, entries: Sequence[tuple[Queue, LeasedEntry]], delay_ms: int, now_ms: int,
        *, again: bool,
    ) -> Decided:  # fmt: skip
        """Release leased entries, independently; `again`: ended leases were released by this request."""
        visible_ms = now_ms + delay_ms if delay_ms else 0
        finders, records, refused = _Finders(rows, now_ms), list[BatchInput](), dict[int, DuramenError]()
        for number, (queue, one) in enumerate(entries):
            try:
                finders.of(queue).find(one.position)
                [state] = self._mark(queue, one, AcknowledgeType.RELEASE)
            except DuramenError as error:
                if not (again and isinstance(error, QueueLeaseExpired)):
                    refused[number] = error
            else:
                if delay_ms:
                    self._books[queue.hash].delayed.append(state.first)
                records.append(nack_record(queue.name, one.position, state.deliveries, visible_ms, now_ms))
        return Decided(records, refused)

    def _mark(self, queue: Queue, one: LeasedEntry, outcome: AcknowledgeType) -> list[State]:
        """Mark the outcome of an entry, effective once the row is written. Raises QueueLeaseExpired."""
        book, number = self._holding(queue, one)
        if book is not None and number is not None:
            try:
                marks = list(book.window.decide(str(one.lease.number), [(number, number, outcome)]))
            except RecordStateInvalid:
                raise _expired(one) from None
        elif self._is_current(one.lease) or not older_lease_counts(outcome):
            raise _expired(one)
        else:
            held = None if book is None else book.numbers.get(one.position.offset)
            marks = [] if held is None else [State(held, held, DeliveryPhase.ACKNOWLEDGED, 0)]
        if book is not None and marks:
            book.marks += marks
            accepts = outcome is AcknowledgeType.ACCEPT
            book.mark_key = state_key(queue.hash) if accepts else delivery_key(queue.hash, one.position.offset)
            self._marked[queue.hash] = book
        return marks

    def expire(self, rows: StateRows, queue: Queue, now_ms: int) -> list[BatchInput]:
        """Release expired leases of a queue; the records have the numbers of deliveries."""
        book = self._books.get(queue.hash)
        if book is None:
            return []
        marks, finder, records = book.window.expire(now_ms), EntryFinder(rows, queue.hash, now_ms), list[BatchInput]()
        for first, last, _, deliveries in marks:
            for number in range(first, last + 1):
                position = book.positions[number]
                if finder.there(position) is not None:
                    records.append(nack_record(queue.name, position, deliveries, 0, now_ms))
                    book.mark_key = delivery_key(queue.hash, position.offset)
        book.marks += marks
        if not records:
            book.settle()
            self._close_idle(queue.hash, book)
            return []
        self._marked[queue.hash] = book
        heappush(self._deadlines, (now_ms + _AGAIN_MS, queue.hash))  # for a failed write
        return records

    # -- after writes -------------------------------------------------------------------------------

    def written(self, keys: Collection[bytes]) -> list[bytes]:
        """Rows of these keys were written: the decisions about them are stored. Returns the queues concerned."""
        settled = [queue for queue, book in self._marked.items() if book.mark_key in keys]
        for queue in settled:
            book = self._marked.pop(queue)
            book.settle()
            self._close_idle(queue, book)
        return settled

    def due(self, queue: bytes, offset: int) -> None:
        """The delay of an entry may be over."""
        book = self._books.get(queue)
        if book is not None and offset < book.cursor and offset not in book.numbers:
            heappush(book.returned, offset)


class _Finders:
    """Finders of entries, one for each queue."""

    def __init__(self, rows: StateRows, now_ms: int) -> None:
        self._rows = rows
        self._now_ms = now_ms
        self._found: dict[bytes, EntryFinder] = {}

    def of(self, queue: Queue) -> EntryFinder:
        found = self._found.get(queue.hash)
        if found is None:
            found = self._found[queue.hash] = EntryFinder(self._rows, queue.hash, self._now_ms)
        return found


def older_lease_counts(outcome: AcknowledgeType) -> bool:
    """Whether an outcome with a lease of an earlier leadership counts: the work on an existing entry is done."""
    return outcome is AcknowledgeType.ACCEPT


def _expired(one: LeasedEntry) -> QueueLeaseExpired:
    at = position_text(one.position)
    return QueueLeaseExpired(f"the lease {lease_text(one.lease)} of the entry at {at} has expired or was given back")


def _candidates(
    rows: StateRows, queue: bytes, book: _Book, limits: LeaseLimits, now_ms: int
) -> Iterator[tuple[int, QueueEntry]]:
    """Entries that may be leased, with their numbers: released ones, those whose delay is over, and new ones."""
    state = state_of(rows, queue)
    for number in list(book.window.free()):
        offset = book.positions[number].offset
        entry = next(entries_from(rows, queue, state, offset), None)
        if entry is None or entry.position.offset != offset or entry.expired(now_ms):
            book.archive(number)
        else:
            yield number, entry
    while book.returned and len(book.positions) < _MOST_IN_FLIGHT:
        offset = book.returned[0]
        entry = next(entries_from(rows, queue, state, offset), None)
        delivered = delivered_of(rows, queue, offset)
        if not (
            entry is None
            or entry.position.offset != offset
            or offset in book.numbers
            or entry.expired(now_ms)
            or _is_delayed(rows, queue, entry, delivered, now_ms)
        ):
            yield book.put(entry.position, delivered.deliveries), entry
        heappop(book.returned)
    for looked_at, entry in enumerate(entries_from(rows, queue, state, book.cursor)):
        if looked_at >= _MOST_LOOKED_AT or len(book.positions) >= _MOST_IN_FLIGHT:
            return
        offset, delivered = entry.position.offset, delivered_of(rows, queue, entry.position.offset)
        if entry.expired(now_ms):
            book.cursor = offset + 1
        elif _is_delayed(rows, queue, entry, delivered, now_ms):
            if limits.fifo and delivered.visible_ms > now_ms:
                return
            book.passed, book.cursor = True, offset + 1
        else:
            book.cursor = offset + 1
            yield book.put(entry.position, delivered.deliveries), entry


def _is_delayed(rows: StateRows, queue: bytes, entry: QueueEntry, delivered: Delivered, now_ms: int) -> bool:
    """Whether a delay of an entry has not ended. If a record has ended it, it does not begin again by another clock."""
    offset = entry.position.offset
    return any(
        until_ms > now_ms and rows.get(due_key(until_ms, queue, offset)) is not None
        for until_ms in (entry.visible_ms, delivered.visible_ms)
    )
