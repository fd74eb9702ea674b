"""A keyed stream as a list, and what its snapshots show by definition; beside it the log, and a view of it."""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from duramen.base.native import is_installed
from duramen.base.ports import Buffer
from duramen.codec.batch import CONTROL, TRANSACTIONAL, BatchInput, encode, header, records, stamp
from duramen.codec.batch_filter import RecordSpan, body, rebuild, spans
from duramen.codec.markers import encode_marker
from duramen.keyed.compaction import next_s0, tombstone_bound
from duramen.keyed.hashing import SIPHASH, HashKey, siphash
from duramen.keyed.kernel import AppliedBatches, Kernel
from duramen.keyed.latest_files import MemoryParts
from duramen.keyed.leases import Leases, SnapshotLease
from duramen.keyed.native import native_kernel
from duramen.keyed.plain import PLAIN, apply_hashed
from duramen.keyed.prev import MemoryPages, PageStore
from duramen.keyed.rows import gather_hashed
from duramen.keyed.vectors import VECTORS
from duramen.keyed.view import KeyedView, VisibleRecords
from duramen.storage.planning.compaction import BySupersession

SECRET = b"0123456789abcdef"
BASE = (1 << 23) - 40
"""Where logs begin: a little before the end of a piece of `live`."""


def hashed_by(name: str, hash_id: int, make: Callable[[bytes], HashKey]) -> Kernel:
    """Plain Python with another hash."""

    def apply(
        data: Buffer,
        position: int,
        first: int,
        end: int,
        partitions: Sequence[memoryview],
        counts: memoryview,
        base: int,
        secret: bytes,
        distances: memoryview,
    ) -> AppliedBatches:
        return apply_hashed(data, position, first, end, partitions, counts, base, make(secret), distances)

    def gather(
        data: Buffer, position: int, first: int, end: int, base: int, secret: bytes, rows: memoryview
    ) -> AppliedBatches:
        return gather_hashed(data, position, first, end, base, make(secret), rows)

    return PLAIN._replace(name=name, hash_id=hash_id, apply=apply, gather=gather)


def weak(_: bytes) -> HashKey:
    """All keys are looked for first in one of two slots of one of two partitions."""

    def hashed(key: bytes) -> tuple[int, int]:
        number = int.from_bytes(key[:2], "big")
        return (number & 1) << 63 | number, (number & 2) << 22 | number

    return hashed


SIPHASHED = hashed_by("siphash", SIPHASH, siphash)
WEAK = hashed_by("weak", 77, weak)
KERNELS = [PLAIN, VECTORS, SIPHASHED, WEAK, *([native_kernel()] if is_installed() else [])]


class NotReadYetError(Exception):
    """It is asked for again."""


class Entry(NamedTuple):
    """A record; `counts` is where it does, None where it does not, or not yet."""

    offset: int
    key: bytes
    tombstone: bool
    producer: int
    counts: int | None


class World:
    """A log that grows, is compacted and whose view comes and goes."""

    def __init__(self, chance: Random, kernel: Kernel, *, keys: int, page_records: int) -> None:
        self.chance = chance
        self.kernel = kernel
        self.keys = keys
        self.page_records = page_records
        self.entries: list[Entry] = []
        self.segments: list[list[bytes]] = [[]]
        self.cleaned_as_of = [0]
        self.dropped: set[int] = set()
        self.end = BASE
        self.now_ms = 0
        self.open: set[int] = set()
        self.has_live_topic = False
        self.held: int | None = None
        self.leases = Leases()
        self.store: PageStore = MemoryPages()
        self.parts = MemoryParts()
        self.view = self.new_view()

    def new_view(self) -> KeyedView:
        self.store, self.parts = MemoryPages(), MemoryParts()
        return KeyedView(self.kernel, BASE, SECRET, self.store, page_records=self.page_records, parts=self.parts)

    # -- the log ------------------------------------------------------------------------------------

    def _append(self, batch: bytearray) -> None:
        if self.segments[-1] and self.chance.random() < 0.3:
            self.segments.append([])
            self.cleaned_as_of.append(0)
        stamp(batch, self.end, 0)
        self.end = header(batch).next_offset
        self.segments[-1].append(bytes(batch))

    def produce(self, producer: int = -1) -> None:
        """A batch, of an open transaction where a producer is named."""
        new = []
        for at in range(self.chance.choice((1, 1, 2, 5, 12))):
            key = self.chance.randrange(self.keys).to_bytes(2, "big")
            tombstone = self.chance.random() < 0.35
            own = None if producer >= 0 else self.end + at
            self.entries.append(Entry(self.end + at, key, tombstone, producer, own))
            new.append(BatchInput(1, key, None if tombstone else b"v"))
        if producer >= 0:
            self.open.add(producer)
        attributes = TRANSACTIONAL if producer >= 0 else 0
        codec = self.chance.choice((0, 0, 3, 4))
        self._append(encode(new, producer_id=producer, producer_epoch=0, attributes=attributes, codec=codec))

    def finish(self, producer: int, *, commit: bool) -> None:
        """A marker."""
        for at, entry in enumerate(self.entries):
            if entry.producer == producer and entry.counts is None:
                self.entries[at] = entry._replace(counts=self.end) if commit else entry._replace(producer=-2)
        self.open.discard(producer)
        self._append(encode_marker(producer, 0, commit=commit, coordinator_epoch=0, now_ms=1))

    def read(self, first: int, end: int) -> bytes:
        """The batches that hold these offsets."""
        found = [batch for segment in self.segments for batch in segment]
        heads = [(header(batch), batch) for batch in found]
        return b"".join(batch for head, batch in heads if head.base_offset < end and head.next_offset > first)

    def there(self) -> dict[int, Entry]:
        """The records that are in the log."""
        known = {entry.offset: entry for entry in self.entries}
        batches = [batch for segment in self.segments for batch in segment]
        kept = [batch for batch in batches if not header(batch).attributes & CONTROL]
        return {record.offset: known[record.offset] for batch in kept for record in records(batch)}

    # -- what is right ------------------------------------------------------------------------------

    def visible(self, at: int) -> dict[bytes, Entry]:
        """By key, of all that was ever written."""
        found: dict[bytes, Entry] = {}
        for entry in self.entries:
            if entry.counts is not None and entry.counts < at:
                found[entry.key] = entry
        return found

    def state(self, at: int) -> dict[bytes, int]:
        """The offset of each key that there is."""
        return {key: entry.offset for key, entry in self.visible(at).items() if not entry.tombstone}

    def committed(self, end: int) -> dict[bytes, int]:
        """The newest committed record of each key below `end`, where no transaction is open below it, by offset."""
        found = {entry.key: entry for entry in self.entries if entry.offset < end and entry.counts is not None}
        return {key: entry.offset for key, entry in found.items() if not entry.tombstone}

    def applied(self, state: dict[bytes, int], shown: Iterable[int]) -> dict[bytes, int]:
        """What a reader has made of a state, of the records that it was shown and that are there."""
        state, there = dict(state), self.there()
        keys: set[bytes] = set()
        for offset in shown:
            entry = there.get(offset)
            if entry is None:
                assert offset in self.dropped
                continue
            assert entry.key not in keys, "a key comes twice"
            keys.add(entry.key)
            if entry.tombstone:
                state.pop(entry.key, None)
            else:
                state[entry.key] = offset
        return state

    # -- the view -----------------------------------------------------------------------------------

    def apply(self, upto: int | None = None) -> None:
        """The view goes on, at times with batches that it has already."""
        self.now_ms += 10
        if self.view.filed is not None and self.view.filed.in_round:
            return
        first = self.view.reached - self.chance.choice((0, 0, 5))
        data = self.read(max(first, BASE), self.end if upto is None else upto)
        while True:
            try:
                self.view.apply(data, self._read_later)
            except NotReadYetError:
                continue
            break
        self.view.sample(self.now_ms)

    def _read_later(self, first: int, end: int) -> bytes:
        """What a transaction wrote, which has to be waited for at times."""
        if self.chance.random() < 0.4:
            raise NotReadYetError
        return self.read(first, end)

    def step(self) -> None:
        """A round of a table in files begins, goes on, or ends; or the table goes into files, or back."""
        view = self.view
        if view.filed is None:
            view.file_table()
        elif view.reached == view.position and not view.filed.in_round and self.chance.random() < 0.3:
            view.unfile_table()
        for _ in range(self.chance.choice((1, 20, 100, 100))):
            if not view.step():
                if view.filed is not None:
                    view.end_round()
                    view.sample(self.now_ms)
                break

    def move_s0(self, age_ms: int) -> None:
        """S0 rises as far as age and leases allow."""
        wanted = self.view.samples.as_of(self.now_ms - age_ms).position
        if self.has_live_topic:
            wanted = min(wanted, self.view.live_end)
        self.view.raise_s0(next_s0(self.view.s0, wanted, self.leases.oldest(0), self.view.position))

    def lease(self, name: str) -> None:
        at = self.chance.randint(self.view.s0, self.view.position)
        self.leases.put(SnapshotLease(name, {0: at}, 1 << 60))

    def compact(self, *, tombstones_ms: int, forget: bool = True) -> None:
        """From the oldest segment up; some are passed over, and the round may end before the last."""
        for number in range(len(self.segments) - 1):
            if self.chance.random() < 0.2:
                continue
            if self.chance.random() < 0.05:
                return
            self._clean(number, tombstones_ms, forget=forget)

    def _clean(self, number: int, tombstones_ms: int, *, forget: bool) -> None:
        segment = self.segments[number]
        first = header(segment[0]).base_offset
        bound = tombstone_bound(
            self.view.samples, self.now_ms, tombstones_ms, self.view.s0, self.cleaned_as_of[:number], self.held
        )
        end = header(self.segments[number + 1][0]).base_offset
        dropping = self.view.dropping(first, bound, end)
        keeps_tombstones = self.chance.random() < 0.1
        rule = BySupersession(dropping, keep_tombstones=keeps_tombstones)
        for at, batch in enumerate(segment):
            head = header(batch)
            if head.attributes & CONTROL:
                continue
            data = body(batch, head)
            every = list(spans(data, head.records))
            kept = [one for one in every if self._stays(rule, head.base_offset + one.offset_delta, one)]
            segment[at] = rebuild(head, data, kept)
            self.dropped |= {head.base_offset + one.offset_delta for one in every if one not in kept}
        if not keeps_tombstones:
            self.cleaned_as_of[number] = self.view.s0
        gone = dropping.gone(rule.kept)
        if forget and any(gone):
            self.view.forget(gone, dropping.base)

    @staticmethod
    def _stays(rule: BySupersession, offset: int, span: RecordSpan) -> bool:
        return offset > rule.latest or rule.stays(offset, span.key, tombstone=span.tombstone, expired=False)

    def goes_on_with(self, view: KeyedView) -> None:
        """Another view takes over; S0 and the horizon are known from elsewhere."""
        view.apply(self.read(view.position, self.end), self.read)
        if view.filed is not None:
            while view.step():
                pass
            view.end_round()
        view.raise_s0(self.view.s0)
        view.horizon = self.view.horizon
        self.view = view


def whole(view: KeyedView, at: int) -> VisibleRecords:
    """A whole snapshot."""
    return view.snapshot(at, BASE, at)


def check(world: World) -> None:
    """Everything that is promised of the view, at places that chance takes."""
    view, chance = world.view, world.chance
    held = [lease.positions[0] for lease in world.leases.all()]
    assert min(held, default=view.s0) >= view.s0
    at = chance.choice((*held, chance.randint(view.s0, view.position)))
    shown = whole(view, at).offsets()
    right = {entry.offset for entry in world.visible(at).values()}
    assert set(shown) - world.dropped == right - world.dropped
    assert world.applied({}, shown) == world.state(at)
    since = chance.randint(min(view.horizon, at), at)
    if since < view.horizon:
        return
    changes = view.changes(since, at).offsets()
    assert world.applied(world.state(since), changes) == world.state(at)
    if since >= view.s0:
        new = {
            entry.offset for entry in world.visible(at).values() if entry.counts is not None and entry.counts >= since
        }
        assert set(changes) == new
        # Of a snapshot only a part was read; another one is gone on with.
        upto = chance.randint(BASE, since)
        part = [offset for offset in whole(view, since).offsets() if offset < upto]
        rest = {offset for offset in shown if offset >= upto} | set(changes)
        assert world.applied(world.applied({}, part), sorted(rest)) == world.state(at)
