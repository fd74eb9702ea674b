"""Invariants of one log under all faults: a model that gets every request, response and read.

Offsets below `must_outlive` survive an end of the process of that kind. A batch that was acknowledged or read keeps its
offset for good; one that a crash removed, that was refused or truncated never appears (again).
"""

import random
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from duramen.codec.batch import CONTROL, Header, batches, records
from duramen.sim.checkers.transaction import SimulatedTransaction, decided
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["End", "HistoryFacts", "LogHistory", "SentRecords"]

End = Literal["power loss", "kill", "stop"]

_OUTLIVES: Final[dict[str, tuple[End, ...]]] = {
    "sync": ("power loss", "kill", "stop"), "os": ("kill", "stop"), "memory": (),
}  # fmt: skip

IDENTITY_START: Final = 16  # of a batch: offset, length and epoch before it are the broker's


class SentRecords:
    """A batch that was sent, once or several times."""

    __slots__ = (
        "base_offset",
        "body",
        "boots",
        "data",
        "epoch",
        "fate",
        "number",
        "records",
        "sendings",
        "sequence",
        "transaction",
        "under_way",
    )

    def __init__(self, number: int, data: bytes, records: int, sequence: int = -1) -> None:
        """`sequence` is its first, where a producer is idempotent."""
        self.number = number
        self.data = data
        self.body = data[IDENTITY_START:]
        self.records = records
        self.sequence = sequence
        self.sendings = 0
        self.under_way = 0  # sendings that the process it was last sent to has not answered
        self.boots: set[int] = set()  # the processes it was sent to
        self.base_offset: int | None = None  # once it was acknowledged or seen
        self.epoch = -1
        self.transaction: SimulatedTransaction | None = None
        self.fate: Literal["open", "acknowledged", "refused", "gone"] = "open"

    @property
    def next_offset(self) -> int:
        """The offset after its last."""
        return (self.base_offset or 0) + self.records


class HistoryFacts(NamedTuple):
    """The state of a log by its own report."""

    start_offset: int
    high_watermark: int
    durability: str


class LogHistory:
    """One log, from its stream's creation to its deletion."""

    def __init__(self, name: str, partition: int, boot: int) -> None:
        """`boot` is the number of the process that made it."""
        self.name = name
        self.partition = partition
        self.must_outlive: dict[End, int] = {"power loss": 0, "kill": 0, "stop": 0}
        self.start_bound = 0  # a start at least here is durable
        self.start_asked = 0  # no retention has gone beyond
        self.in_memory = False  # whether records that only memory has were in it since the process began
        self.lets_go = False  # whether retention does, whenever it is looked at
        self.cut_to: int | None = None  # a cut that was asked for and not answered
        self._cut_asked = 0  # where it was to end, which may lie within a batch
        self.cutting = False
        self.was_cut = False  # since the process began
        self.ever_cut = False
        self.deleting = False
        self.reading = 0  # reads under way
        self.transactional = False  # whether transactions were ever written to it
        self.decided_offset = 0  # everything before it was decided, for good
        self._stable_offset = 0  # the last stable offset that this process has shown
        self._markers: dict[int, tuple[int, bytes | None]] = {}
        self.spoiled = False  # a cut failed half way: nothing is known any more
        self.damaged: list[tuple[int, int]] = []  # ranges of offsets that the disk has damaged, and may be lost
        self._by_body: dict[bytes, SentRecords] = {}
        self._at: dict[int, SentRecords] = {}
        self._ends: list[tuple[int, int]] = [(boot, 0)]  # where the log ended when each process began

    def __str__(self) -> str:
        return f"{self.name}-{self.partition}"

    def _broken(self, words: str) -> BrokenPromise:
        return BrokenPromise(f"{self}: {words}")

    # -- appends ------------------------------------------------------------------------------------

    def send(self, sent: SentRecords, boot: int) -> None:
        """The batch is handed to the process `boot`."""
        self._by_body[sent.body] = sent
        if boot not in sent.boots:
            sent.under_way = 0
        sent.boots.add(boot)
        sent.sendings += 1
        sent.under_way += 1
        if sent.fate in ("gone", "refused"):
            sent.fate = "open"

    def is_sent_to(self, boot: int) -> bool:
        """Whether any batch is under way to the process `boot`."""
        return any(sent.under_way and boot in sent.boots for sent in self._by_body.values())

    def acknowledged(self, sent: SentRecords, base_offset: int, durability: str) -> None:
        """It was acknowledged, while the log had this durability."""
        if self.spoiled:
            return
        if sent.base_offset is not None and sent.base_offset != base_offset:
            raise self._broken(
                f"batch {sent.number} is at offset {sent.base_offset} and was acknowledged at {base_offset}"
            )
        self._place(sent, base_offset)
        sent.fate = "acknowledged"
        self.visible(sent.next_offset, durability)

    def refused(self, sent: SentRecords) -> None:
        """It was refused for good: where it was sent but once, it is nowhere."""
        if sent.fate == "open" and sent.sendings == 1 and sent.base_offset is None:
            sent.fate = "refused"

    def visible(self, offset: int, durability: str) -> None:
        """Everything below `offset` was acknowledged or seen."""
        outlives = _OUTLIVES[durability]
        self.in_memory = self.in_memory or not outlives
        for end in outlives:
            self.must_outlive[end] = max(self.must_outlive[end], offset)

    def _place(self, sent: SentRecords, base_offset: int) -> None:
        if base_offset in self._markers:
            raise self._broken(f"a marker was at offset {base_offset}, and batch {sent.number} is there now")
        there = self._at.get(base_offset)
        if there is not None and there is not sent:
            raise self._broken(f"offset {base_offset} had batch {there.number} and has batch {sent.number} now")
        if sent.base_offset not in (None, base_offset):
            raise self._broken(f"batch {sent.number} is stored twice, at {sent.base_offset} and {base_offset}")
        if sent.fate in ("refused", "gone"):
            raise self._broken(f"batch {sent.number} was {sent.fate} and is at offset {base_offset} now")
        self._at[base_offset] = sent
        sent.base_offset = base_offset

    # -- reads --------------------------------------------------------------------------------------

    def read(self, offset: int, data: bytes) -> int:
        """A reader at `offset` got these bytes; returns the offset after them."""
        expected, epoch = -1, -1
        end = 0
        if self.spoiled:
            return offset
        for position, found in batches(data):
            end = position + found.size
            begins = expected < 0
            if found.next_offset <= offset or (not begins and found.base_offset < expected):
                raise self._broken(f"a read of {offset} got offsets {found.base_offset} to {found.next_offset - 1}")
            if found.base_offset > (offset if begins else expected):
                self._check_gap(offset if begins else expected, found.base_offset, begins=begins)
            if found.leader_epoch < epoch:
                raise self._broken(f"epoch {found.leader_epoch} at offset {found.base_offset} follows {epoch}")
            expected, epoch = found.next_offset, found.leader_epoch
            if found.attributes & CONTROL:
                self._see_marker(found, data[position:end])
            else:
                self._see_batch(data[position:end], found.base_offset, found.next_offset, found.leader_epoch)
        if end != len(data) or expected < 0:
            raise self._broken(f"a read of {offset} got {len(data)} bytes, {end} of them whole batches")
        return expected

    def read_committed(self, data: bytes, aborted: Sequence[tuple[int, int]]) -> None:
        """A read_committed reader got these bytes, which `read` has seen, with these aborted transactions."""
        for batch, committed in decided(data, aborted):
            sent = self._by_body.get(batch[IDENTITY_START:])
            if sent is not None and sent.transaction is not None and not (self.damaged or self.spoiled):
                sent.transaction.seen(str(self), committed=committed)

    def stable(self, offset: int, start_offset: int) -> None:
        """Everything before `offset` was decided or let go, says the log. Raises BrokenPromise where that was of more.

        At the log's start it says nothing of transactions, and goes back with a start that was not durable.
        """
        if not self.transactional or self.damaged or self.spoiled or self.in_memory:
            return
        known = max(self._stable_offset, start_offset)
        if offset < known:
            raise self._broken(f"its last stable offset was {known}, and is {offset}")
        self._stable_offset = offset
        if offset > start_offset:
            self.decided_offset = offset

    def damage(self, base_offset: int, next_offset: int) -> None:
        """The disk has damaged the only copy that is sure to be there of these records."""
        self.damaged = sorted([*self.damaged, (base_offset, next_offset)])

    def behind_damage(self, offset: int, until: int) -> int:
        """Where records have to be there again from `offset` on, which lies in damage or not; at most `until`."""
        for first, end in self.damaged:
            if first <= offset < end and offset < until:
                offset = end
        return min(offset, until)

    def _check_gap(self, first: int, end: int, *, begins: bool) -> None:
        """A reader got nothing from `first` up to `end`; `begins` where he had asked for `first`."""
        if begins or self.behind_damage(first, end) != end:
            raise self._broken(f"offset {end} follows {first - 1}")

    def _see_marker(self, head: Header, batch: bytes) -> None:
        # In a recreated stream it may end a transaction of the one before it: partitions are known by their names.
        marker = head.producer_id, next(records(batch)).key
        if self._markers.setdefault(head.base_offset, marker) != marker or head.base_offset in self._at:
            raise self._broken(f"something else was at offset {head.base_offset}, where a marker is now")

    def _see_batch(self, batch: bytes, base_offset: int, next_offset: int, epoch: int) -> None:
        sent = self._by_body.get(batch[IDENTITY_START:])
        if sent is None or next_offset - base_offset != sent.records:
            raise self._broken(f"the bytes at offset {base_offset} were never sent to it")
        self._see(sent, base_offset, epoch)

    def _see(self, sent: SentRecords, base_offset: int, epoch: int) -> None:
        self._place(sent, base_offset)
        if sent.epoch not in (-1, epoch):
            raise self._broken(f"batch {sent.number} had the epoch {sent.epoch} and has {epoch} now")
        sent.epoch = epoch
        boot = next(boot for boot, end in reversed(self._ends) if end <= base_offset)
        if boot not in sent.boots:
            raise self._broken(
                f"batch {sent.number} at offset {base_offset} was sent to processes {sorted(sent.boots)};"
                f" the one that wrote there was {boot}"
            )

    # -- the end of a process -----------------------------------------------------------------------

    def stopped(self, facts: HistoryFacts) -> None:
        """The process stopped in good order, and left the log like this."""
        if facts.durability != "memory" and not self.in_memory:
            self.must_outlive = dict.fromkeys(self.must_outlive, facts.high_watermark)
            self.start_bound = facts.start_offset

    def started(self, boot: int, end: End, facts: HistoryFacts) -> None:
        """A process began after that end of the one before."""
        if self.spoiled:
            return
        bound, high_watermark = self.must_outlive[end], facts.high_watermark
        if self.cut_to is not None and high_watermark >= self.cut_to:
            perhaps = self._perhaps_cut(self.cut_to, bound, high_watermark)
            if perhaps is None:
                self.spoiled = True
                return
            bound = perhaps
        if high_watermark < bound:
            raise self._broken(f"everything below {bound} was promised; after a {end} it ends at {high_watermark}")
        if facts.start_offset < self.start_bound:
            raise self._broken(f"its start was {self.start_bound}; after a {end} it is {facts.start_offset}")
        in_memory = self.in_memory or facts.durability == "memory"
        if facts.start_offset > self.start_asked and not in_memory:
            raise self._broken(f"it starts at {facts.start_offset}; nothing was let go from {self.start_asked} on")
        self._forget_from(high_watermark)
        if end == "power loss":
            self._forget_let_go(bound, facts)
        self.must_outlive = dict.fromkeys(self.must_outlive, high_watermark)
        self._ends = [(number, min(at, high_watermark)) for number, at in self._ends] + [(boot, high_watermark)]
        self.start_bound = self.start_asked = facts.start_offset
        self._stable_offset = self.decided_offset
        self.in_memory = facts.durability == "memory"
        self.cut_to, self.cutting, self.reading, self.was_cut = None, False, 0, False

    def _perhaps_cut(self, cut_to: int, bound: int, high_watermark: int) -> int | None:
        """A truncation without a response: it happened or not, and the appends that waited for it followed it or not.

        Returns the records that survived in any case; None if that is unknown.
        """
        if high_watermark >= bound and high_watermark != cut_to:
            return None
        self._forget_from(cut_to, self._ends[-1][0])
        self._ends = [(number, min(at, cut_to)) for number, at in self._ends]
        self.start_bound = min(self.start_bound, cut_to)
        return min(bound, cut_to)

    def _forget_from(self, offset: int, boot: int = -1) -> None:
        """Records at or after `offset` are gone; only appends under way to the process `boot` may still arrive."""
        self._markers = {at: body for at, body in self._markers.items() if at < offset}
        for base_offset in [at for at in self._at if at >= offset]:
            sent = self._at.pop(base_offset)
            comes = sent.under_way and boot in sent.boots
            sent.fate, sent.base_offset, sent.epoch = "open" if comes else "gone", None, -1

    def _forget_let_go(self, durable: int, facts: HistoryFacts) -> None:
        """Deleted batches that were perhaps only in the system's memory: a repetition may find them, or be stored.

        A batch around the log's start is still there.
        """
        for base_offset in [at for at in self._at if durable <= at < facts.start_offset]:
            if facts.start_offset < self._at[base_offset].next_offset <= facts.high_watermark:
                continue
            sent = self._at.pop(base_offset)
            sent.fate, sent.base_offset, sent.epoch = "open", None, -1

    def some_offset(self, chance: random.Random, start_offset: int) -> int | None:
        """An offset at or after `start_offset` of a batch that is known."""
        known = [at for at in self._at if at >= start_offset]
        if not known:
            return None
        base_offset = chance.choice(sorted(known))
        return chance.randrange(base_offset, self._at[base_offset].next_offset)

    def knows(self, offset: int) -> bool:
        """Whether a batch is known that has this offset."""
        return any(at <= offset < sent.next_offset for at, sent in self._at.items())

    def unchecked(self) -> None:
        """No checkpoint says any more where it starts, nor how far the offsets are that memory alone had."""
        self.start_bound = 0
        if self.in_memory:
            self.must_outlive = dict.fromkeys(self.must_outlive, 0)

    # -- letting go ---------------------------------------------------------------------------------

    def cut_begins(self, end_offset: int) -> None:
        """A cut to `end_offset` is asked for; a batch that reaches beyond goes whole."""
        straddling = (at for at, sent in self._at.items() if at < end_offset < sent.next_offset)
        self.cut_to, self.cutting, self.ever_cut = next(straddling, end_offset), True, True
        self._cut_asked = end_offset

    def cut(self, facts: HistoryFacts) -> None:
        """It was truncated; if everything up to its end had been deleted before, no batch is known there."""
        bare = facts.start_offset == facts.high_watermark == self._cut_asked
        if facts.high_watermark != self.cut_to and not (bare and self.lets_go):
            raise self._broken(f"it was cut to {self.cut_to} and ends at {facts.high_watermark}")
        self._forget_from(facts.high_watermark if self.cut_to is None else self.cut_to, self._ends[-1][0])
        self._forget_let_go(0, facts)  # producers are known from the batches that are left
        for end, bound in self.must_outlive.items():
            self.must_outlive[end] = min(bound, facts.high_watermark)
        self._ends = [(number, min(at, facts.high_watermark)) for number, at in self._ends]
        self.start_bound = min(self.start_bound, facts.start_offset)
        self.cut_to, self.cutting, self.was_cut = None, False, True

    def not_cut(self) -> None:
        """It was not cut, and will not be."""
        self.cut_to, self.cutting = None, False
